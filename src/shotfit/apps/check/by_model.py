"""What a model says about the data: names that it cannot read or tell apart, and images that look
like another class than theirs."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from shotfit.apps.check.classes import listed_names
from shotfit.apps.check.diagnosis import MOST, Diagnosis, ShownImage
from shotfit.backbone import Backbone
from shotfit.backbone.tower import too_long
from shotfit.data.dataset import Dataset, Example, group_by_label
from shotfit.data.prefetch import prepared_batches
from shotfit.evaluation.confusable import alike_bound, confusable, everyday_prompts
from shotfit.evaluation.mislabelled import Suspect, suspects
from shotfit.measure import Watch
from shotfit.methods.base import Method

EMBEDDED = 2_000
"""Training images that are looked at, evenly of all classes: a check is to be quick."""
TOLD = 10
"""Pairs of names that are told, the most alike ones."""


@torch.inference_mode()
def model_findings(
    dataset: Dataset, backbone: Backbone, unreadable: set[str] | None, watch: Watch | None = None
) -> tuple[list[Diagnosis], dict[str, Any]]:
    """What is found, and facts about what was asked of the model. Images are left out for
    `unreadable` None, and those whose keys are in it."""
    method = Method(backbone, template=dataset.template).eval()
    prompts = [method.class_text(name) for name in dataset.classnames]
    found = [*_too_long(dataset, prompts, backbone), *_case(dataset, method)]
    facts: dict[str, Any] = {"name": backbone.name}
    if any(one.level == "error" for one in found):
        return found, facts
    classes = F.normalize(backbone.encode_text(prompts), dim=-1).cpu()
    found += _alike(dataset, classes, method)
    if unreadable is None:
        return found, facts
    examples = _sample([e for e in dataset.train if e.key not in unreadable])
    if not examples:
        return found, facts
    features = _features(examples, method, watch)
    labels = [example.label for example in examples]
    answers = (features @ classes.T).argmax(dim=-1)
    right = int((answers == torch.tensor(labels)).sum())
    facts |= {
        "images": len(examples),
        "of": len(dataset.train),
        "right_by_name_alone": right,
    }
    return [*found, *_suspected(dataset, examples, suspects(features, labels, classes))], facts


def _too_long(dataset: Dataset, prompts: Sequence[str], backbone: Backbone) -> list[Diagnosis]:
    """Prompts that a fit would refuse, by the model's own tokenizer."""
    most = backbone.text.max_length
    lengths = [len(tokens) for tokens in backbone.tokenize(prompts)]
    return [
        Diagnosis(
            "too long",
            too_long(f"The prompt of {name!r}", length, most),
            "error",
        )
        for name, length in zip(dataset.classnames, lengths, strict=True)
        if length > most
    ]


def _case(dataset: Dataset, method: Method) -> list[Diagnosis]:
    """Names that are one text to the model, and capitals where it was taught lower case."""
    found = []
    names, backbone = dataset.classnames, method.backbone
    written = backbone.tokenize([method.class_text(name) for name in names])
    lowered = backbone.tokenize([method.class_text(name.lower()) for name in names])
    texts: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for name, tokens in zip(names, written, strict=True):
        texts[tuple(tokens)].append(name)
    for same in texts.values():
        if len(set(same)) > 1:
            text = f"{backbone.name} reads {' and '.join(map(repr, same))} as the same text"
            found.append(Diagnosis("one prompt", text))
    apart = [name for name, one, two in zip(names, written, lowered, strict=True) if one != two]
    if apart:
        text = (
            f"{backbone.name} reads capital letters as other words than lower case, in which most "
            f"captions are written: {listed_names(apart)}"
        )
        found.append(Diagnosis("capitals", text))
    return found


def _alike(dataset: Dataset, classes: Tensor, method: Method) -> list[Diagnosis]:
    def encode(texts: Sequence[str]) -> Tensor:
        return method.backbone.encode_text(texts).cpu()

    bound = alike_bound(encode, everyday_prompts(method.class_text))
    pairs = confusable(classes, bound)
    if not pairs:
        return []
    names = dataset.classnames
    told = "; ".join(
        f"{names[one]!r} and {names[other]!r} ({cosine:.2f})" for one, other, cosine in pairs[:TOLD]
    )
    several = len(pairs) > 1
    count = f"{len(pairs)} pairs of names are" if several else "1 pair of names is"
    text = (
        f"{count} more alike to {method.backbone.name} than 999 of 1,000 pairs of everyday words "
        f"(cosine above {bound:.2f}), and taken for each other more often: {told}"
        + (" …" if len(pairs) > TOLD else "")
    )
    return [Diagnosis("confusable", text)]


def _sample(examples: Sequence[Example]) -> list[Example]:
    """The first images of every class, as many of each as may be looked at."""
    groups = list(group_by_label(examples).values())
    share = max(2, EMBEDDED // max(1, len(groups)))
    return [example for group in groups for example in group[:share]]


def _features(examples: Sequence[Example], method: Method, watch: Watch | None) -> Tensor:
    device, spec = method.backbone.device, method.backbone.image_spec
    done, features = 0, []
    for batch in prepared_batches(((e.image, None) for e in examples), spec, 64, reduced=True):
        features.append(method.encode_images(batch.pixels.to(device)).float().cpu())
        done += len(batch.pixels)
        if watch is not None:
            watch("images embedded", done, len(examples))
    return torch.cat(features)


def _suspected(
    dataset: Dataset, examples: Sequence[Example], found: Sequence[Suspect]
) -> list[Diagnosis]:
    names = dataset.classnames
    return [
        Diagnosis(
            "mislabelled",
            f"{examples[one.place].key} is labelled {names[examples[one.place].label]!r} and looks "
            f"like {names[one.looks_like]!r} ({one.agreeing} of its {one.neighbours} nearest "
            "images are)",
            groups=(
                (
                    ShownImage.of(
                        dataset, examples[one.place], f"looks like {names[one.looks_like]!r}"
                    ),
                ),
            ),
        )
        for one in found[:MOST]
    ] + (
        [Diagnosis("mislabelled", f"{len(found) - MOST:,} more images look like another class")]
        if len(found) > MOST
        else []
    )
