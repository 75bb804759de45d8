"""Put the trained towers together as a CLIP folder in transformers' own format.

    python tools/export.py work/settled work/text src/shotfit/assets/iconclip

Step 4 of 4. Averaged vision weights, fitted text tower and logit scale, stored in fp16, with the
preprocessor and the tuning factors that the scale implies.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from checkpoints import part
from iconclip import CONTEXT, DIM, IMAGE_SIZE, MEAN, STD, TEXT_DEPTH, TEXT_WIDTH, VOCAB_SIZE, build
from safetensors.torch import load_file
from towers import TextTower, VisionTower, transformers_weights
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
CROP_SCALE_MIN = 0.5
"""Training crops keep half of an image: 8 % of an icon is a stroke."""
REACH = 100 * math.sqrt(512)
"""How far a step of size 1 in every weight of a classifier moves a logit of ViT-B/16."""


def assemble(run: Path, text: Path) -> Any:
    """The CLIP of both towers."""
    from iconclip import PATCH_SIZE, VISION_DEPTH, VISION_WIDTH

    vision = VisionTower(IMAGE_SIZE, PATCH_SIZE, VISION_WIDTH, VISION_DEPTH, DIM)
    words = TextTower(VOCAB_SIZE, CONTEXT, TEXT_WIDTH, TEXT_DEPTH, DIM)
    image = load_file(run / "image.safetensors")
    vision.load_state_dict(part(image, "average."))
    words.load_state_dict(part(load_file(text / "text.safetensors"), "text."))
    model: Any = build()
    tensors = transformers_weights(vision, words)
    model.load_state_dict(tensors | {"logit_scale": image["scale"].reshape(())}, strict=True)
    return model


def tuning(model: Any) -> dict[str, float]:
    """What ``shotfit.json`` asks for when the model is tuned."""
    reach = model.logit_scale.exp().item() * math.sqrt(DIM)
    return {"crop_scale_min": CROP_SCALE_MIN, "classifier_lr_scale": round(REACH / reach, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path, help="folder of the image step's checkpoint")
    parser.add_argument("text", type=Path, help="folder written by fit_text.py")
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    model = assemble(args.run, args.text)
    model.half().save_pretrained(args.output)
    AutoTokenizer.from_pretrained(args.text / "tokenizer").save_pretrained(args.output)
    for name, content in (
        ("preprocessor_config", PREPROCESSOR),
        ("shotfit", tuning(model.float())),
    ):
        text = json.dumps(content, indent=2) + "\n"
        (args.output / f"{name}.json").write_text(text)
    size = sum(path.stat().st_size for path in args.output.iterdir())
    print(f"{args.output}: {size / 1e6:.2f} MB, {tuning(model)}")


if __name__ == "__main__":
    main()
