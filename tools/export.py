"""Put the trained towers together as a CLIP folder in transformers' own format.

    python tools/export.py work/run work/text src/shotfit/assets/iconclip

Step 3 of 3. Averaged vision weights, fitted text tower and logit scale, stored in fp16.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from iconclip import IMAGE_SIZE, MEAN, STD, build
from pretrain import CHECKPOINT, _part
from safetensors.torch import load_file
from transformers import AutoTokenizer

PREPROCESSOR = {
    "image_processor_type": "CLIPImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "size": {"shortest_edge": IMAGE_SIZE},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": list(MEAN),
    "image_std": list(STD),
}


def assemble(run: Path, text: Path) -> tuple[Any, Any]:
    """The CLIP of both towers, and its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(text / "tokenizer")
    model = build(len(tokenizer))
    image, words = load_file(run / CHECKPOINT), load_file(text / "text.safetensors")
    tensors = {}
    for source, prefix, tower, projection in (
        (image, "average.", "vision_model", "visual_projection"),
        (words, "text.", "text_model", "text_projection"),
    ):
        for name, tensor in _part(source, prefix).items():
            part, rest = name.split(".", 1)
            tensors[f"{tower if part == 'tower' else projection}.{rest}"] = tensor
    tensors["logit_scale"] = image["scale"].reshape(())
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    missing = [name for name in missing if "position_ids" not in name]
    unexpected = [name for name in unexpected if "position_ids" not in name]
    if missing or unexpected:
        raise KeyError(f"missing {missing}, unexpected {unexpected}")
    return model, tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of the image step's checkpoint")
    parser.add_argument("text", type=Path, help="folder written by fit_text.py")
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    model, tokenizer = assemble(args.run, args.text)
    model.half().save_pretrained(args.output)
    tokenizer.save_pretrained(args.output)
    text = json.dumps(PREPROCESSOR, indent=2) + "\n"
    (args.output / "preprocessor_config.json").write_text(text)
    size = sum(path.stat().st_size for path in args.output.iterdir())
    print(f"{args.output}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
