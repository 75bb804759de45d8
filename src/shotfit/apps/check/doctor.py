"""What `shotfit check` looks for: everything that would stop a run, and what would surprise.

The data is read as a fit reads it (`locate`, the sources), but for one thing: a fit stops at the
first problem, and this goes on to the last.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shotfit.apps.check.by_model import model_findings
from shotfit.apps.check.classes import class_errors, class_warnings
from shotfit.apps.check.diagnosis import CheckReport, Diagnosis, errors
from shotfit.apps.check.pictures import image_diagnoses, skipped_files
from shotfit.backbone import Backbone
from shotfit.data.addresses import no_image_file
from shotfit.data.checks import missing_files
from shotfit.data.dataset import Dataset, Example
from shotfit.data.inputs import locate
from shotfit.data.sources import survey_dataset
from shotfit.errors import DataError
from shotfit.measure import Watch


@dataclass(frozen=True)
class Wanted:
    """What to look at: so many `shots` of a class, the images themselves (`decode`), and what the
    model `backbone` makes of them; None asks no model."""

    shots: int | None = None
    decode: bool = True
    backbone: str | None = "iconclip"


def check_data(
    data: str, wanted: Wanted, root: str | None = None, watch: Watch | None = None
) -> CheckReport:
    """All that is found in what a user would fit on.

    Raises:
        UsageError, DataError: when the data cannot be found or read at all.
    """
    source, options = locate(data)
    dataset, told = survey_dataset(source, root=root, **options)
    missing = missing_files(dataset)
    found = [
        *errors("reading", told, "problems"),
        *class_errors(dataset, wanted.shots, empty_told=source == "folder"),
        *errors("missing", [no_image_file(path) for path in missing], "files are missing"),
        *class_warnings(dataset),
    ]
    unreadable: set[str] | None = None
    if wanted.decode:
        gone = _keys_of(dataset, frozenset(missing))
        looked, unreadable = image_diagnoses(_without(dataset, gone), watch)
        found += looked
        unreadable |= gone
    if source == "folder":
        found += skipped_files(Path(options["path"]))
    facts: dict[str, Any] = {}
    if wanted.backbone is not None:
        asked, facts = _ask_model(dataset, wanted.backbone, unreadable, watch)
        found += asked
    counts = [0] * len(dataset.classnames)
    for example in dataset.train:
        counts[example.label] += 1
    return CheckReport(
        name=dataset.name,
        classes=tuple(zip(dataset.classnames, counts, strict=True)),
        images={part: len(getattr(dataset, part)) for part in ("train", "val", "test")},
        diagnoses=tuple(sorted(found, key=lambda one: one.level != "error")),
        model=facts,
    )


def _ask_model(
    dataset: Dataset, name: str, unreadable: set[str] | None, watch: Watch | None
) -> tuple[list[Diagnosis], dict[str, Any]]:
    try:
        return model_findings(dataset, Backbone.from_pretrained(name), unreadable, watch)
    except DataError as error:
        return [Diagnosis("model", str(error), "error")], {}


def _keys_of(dataset: Dataset, files: frozenset[Path]) -> set[str]:
    examples = (*dataset.train, *dataset.val, *dataset.test)
    return {one.key for one in examples if isinstance(one.image, Path) and one.image in files}


def _without(dataset: Dataset, keys: set[str]) -> Dataset:
    def left(examples: tuple[Example, ...]) -> tuple[Example, ...]:
        return tuple(one for one in examples if one.key not in keys)

    train, val, test = map(left, (dataset.train, dataset.val, dataset.test))
    return dataclasses.replace(dataset, train=train, val=val, test=test)
