"""What `shotfit report` does: gathers what is known of a classifier, and writes the page."""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from shotfit.apps.expectation import expectation_lines, weakest_classes
from shotfit.classifier import FewShotClassifier
from shotfit.config import to_dict
from shotfit.data.dataset import Dataset
from shotfit.data.thumbnails import thumbnail
from shotfit.errors import DataError
from shotfit.evaluation.evaluation import Evaluation
from shotfit.evaluation.reliability import confidences, reliability
from shotfit.measure import Watch
from shotfit.outside_task import drift
from shotfit.records import read_record
from shotfit.report.classifier_page import Mistake, PageFacts, classifier_page
from shotfit.saved_settings import read_settings
from shotfit.saving import EVALUATION
from shotfit.sharing import RECORD, shared_experiment
from shotfit.system.files import write_atomically
from shotfit.system.parsing import parse_json
from shotfit.system.paths import file_inside

MISTAKES = 12
PAIRS = 4
FEW = 5
"""Test images of a class from which on it is compared with the untouched model."""
SAMPLE = 200
"""Images that are answered once more among words, to see how many those take."""


def write_report(
    folder: Path,
    classifier: FewShotClassifier,
    data: Dataset | None,
    out: Path,
    watch: Watch | None = None,
) -> Path:
    """Writes the page of a saved classifier, scored on `data` where there is some, else with what
    was found right after its fit.

    Raises:
        DataError: as `FewShotClassifier.evaluate`; for a record or an evaluation in the folder that
            is none.
    """
    found = None if data is None else classifier.evaluate(data, watch=watch)
    plain = _saved_evaluation(folder) if found is None else found.plain()
    record = _saved_record(folder)
    images = {} if data is None else {e.key: e.image for e in (*data.test, *data.train, *data.val)}
    try:
        page = classifier_page(_facts(folder, classifier, record, plain, found, images))
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        if found is not None or plain is None:
            raise
        raise DataError(f"{folder / EVALUATION} holds no evaluation: {error!r}.") from error
    write_atomically(out, page)
    return out


def _facts(
    folder: Path,
    classifier: FewShotClassifier,
    record: Mapping[str, Any],
    plain: Mapping[str, Any] | None,
    found: Evaluation | None,
    images: Mapping[str, Any],
) -> PageFacts:
    return PageFacts(
        title=f"{folder.resolve().name}: {len(classifier.classes)} classes",
        about=_about(classifier, record),
        stages=_stages(classifier, record),
        evaluation=plain,
        reliability=() if found is None else _bins(found),
        mistakes=() if found is None else _mistakes(found, images),
        expected=() if classifier.expected is None else expectation_lines(classifier.expected),
        outside=_outside(classifier, found, images),
        advice=_advice(classifier, plain),
        environment=_environment(folder, record),
    )


def _saved_evaluation(folder: Path) -> dict[str, Any] | None:
    try:
        return parse_json(file_inside(folder, EVALUATION).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DataError(f"{folder / EVALUATION} holds no evaluation: {error}.") from error


def _saved_record(folder: Path) -> dict[str, Any]:
    """The values of the record that made it; none where nothing is known of that."""
    if not (folder / RECORD).exists():
        return {}
    return to_dict(read_record(file_inside(folder, RECORD)))


def _about(classifier: FewShotClassifier, record: Mapping[str, Any]) -> list[tuple[str, str]]:
    experiment = shared_experiment(classifier.experiment)
    named = [
        str(experiment.data[key])
        for key in ("name", "folder", "path", "file")
        if key in experiment.data
    ]
    data = ", ".join(named) or experiment.source or "images from Python"
    stages = " then ".join(stage.method for stage in experiment.recipe.stages)
    counts = " then ".join(f"{count:,}" for count in record.get("trainable_parameters", ()))
    origins = [kind for _, kind in classifier.known.classes.origins]
    trained = origins.count("trained")
    rule = "levels fitted on the shots" if classifier.rule == "fitted" else "as published"
    cost = record.get("cost", {})
    pairs = [
        ("pretrained model", experiment.backbone),
        ("data", data),
        ("shots of each class", f"{experiment.shots or 'all images'}, seed {experiment.seed}"),
        ("stages", stages),
        ("trained parameters", counts or "none"),
        ("classes", f"{trained} trained on images, {len(origins) - trained} added later"),
        ("scores", rule),
    ]
    if {"seconds", "iterations"} <= cost.keys():
        pairs.append(("fit", f"{cost['seconds']:.0f} s, {cost['iterations']:.0f} updates"))
    return pairs


def _stages(
    classifier: FewShotClassifier, record: Mapping[str, Any]
) -> dict[str, list[tuple[float, float]]]:
    methods = [stage.method for stage in classifier.experiment.recipe.stages]
    found: dict[str, list[tuple[float, float]]] = {}
    for stage, iteration, loss, _ in record.get("curve", ()):
        if not 0 <= stage < len(methods):
            raise DataError(f"The record has a stage {stage} of {len(methods)}, counted from 0.")
        name = f"Stage {int(stage) + 1}: {methods[int(stage)]}"
        found.setdefault(name, []).append((iteration, loss))
    return found


def _bins(found: Evaluation) -> list[tuple[int, float, float]]:
    bins = reliability(*confidences(found.logits, found.labels))
    return [(one.count, one.confidence, one.accuracy) for one in bins]


def _mistakes(found: Evaluation, images: Mapping[str, Any]) -> list[Mistake]:
    """The wrong answers that were given with the highest probabilities."""
    sure, right = confidences(found.logits, found.labels)
    wrong = [place for place in range(len(sure)) if not right[place]]
    order = sorted(wrong, key=lambda place: -sure[place])
    return [
        Mistake(
            picture=thumbnail(images[found.keys[place]]),
            name=found.names[found.labels[place]],
            answer=found.names[found.answers[place]],
            probability=float(sure[place]),
            image=found.keys[place],
        )
        for place in order[:MISTAKES]
    ]


def _outside(
    classifier: FewShotClassifier, found: Evaluation | None, images: Mapping[str, Any]
) -> list[str]:
    sample = [] if found is None else [images[key] for key in found.keys[:SAMPLE]]
    moved = drift(classifier, sample)
    if moved is None:
        return ["The method is bound to the classes it was trained on."]
    lines = [
        f"The embeddings of {moved.words} words that are no classes have a mean cosine of "
        f"{moved.cosine:.2f} with those before training; {moved.most_moved!r} moved most "
        f"({moved.least_cosine:.2f})."
    ]
    if moved.images:
        lines.append(
            f"With all these words among the classes, {moved.taken} of {moved.images} test images "
            "would be answered with one of them."
        )
    return lines


def _advice(classifier: FewShotClassifier, plain: Mapping[str, Any] | None) -> list[str]:
    lines = [] if plain is None else [*_confused(plain), *_worse_than_untrained(plain)]
    expected = classifier.expected
    weak = [] if expected is None else weakest_classes(expected, 3)
    if weak:
        lines.append(
            f"More images help most of {', '.join(repr(one.name) for one in weak)}: shots of these "
            "that were held out were answered wrongly most often."
        )
    if plain is not None and plain["images"] < 100:
        lines.append(f"{plain['images']} test images tell little: see the width of the interval.")
    return lines


def _confused(plain: Mapping[str, Any]) -> list[str]:
    names = [one["name"] for one in plain["classes"]]
    counts = plain["confusion"]
    both = {
        (one, other): counts[one][other] + counts[other][one]
        for one, other in combinations(range(len(names)), 2)
    }
    lines = []
    for (one, other), wrong in sorted(both.items(), key=lambda item: -item[1])[:PAIRS]:
        if wrong < 2:
            break
        total = sum(counts[one]) + sum(counts[other])
        worse = one if counts[one][other] >= counts[other][one] else other
        lines.append(
            f"{names[one]!r} and {names[other]!r} are confused ({wrong} of {total} images): better "
            f"names, or more images of {names[worse]!r}."
        )
    return lines


def _worse_than_untrained(plain: Mapping[str, Any]) -> list[str]:
    worse = [
        one["name"]
        for one in plain["classes"]
        if one["trained"]
        and one["zero_shot"] is not None
        and one["accuracy"] is not None
        and one["accuracy"]["images"] >= FEW
        and one["zero_shot"]["percent"] > one["accuracy"]["interval"][1]
    ]
    if not worse:
        return []
    return [
        f"The untouched model knows {', '.join(map(repr, worse))} better: look whether their "
        "training images show what they should."
    ]


def _environment(folder: Path, record: Mapping[str, Any]) -> list[tuple[str, str]]:
    settings = read_settings(folder)
    pairs = [(key, str(value)) for key, value in record.get("environment", {}).items()]
    pairs += [(name, f"sha256 {digest}") for name, digest in settings["files"].items()]
    pairs += [
        ("pretrained model", f"fingerprint {settings['backbone_fingerprint']}"),
        ("shots", record.get("split_hash", "")),
        ("run", record.get("id", "")),
    ]
    return [(key, value) for key, value in pairs if value]


def default_target(folder: Path) -> Path:
    """Where the page is written unless another place is given."""
    return folder / "report.html"
