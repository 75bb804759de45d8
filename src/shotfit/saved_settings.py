"""The config of a saved classifier: what it must say, and the hashes that vouch for its files."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from shotfit.data.names import check_names
from shotfit.data.template import Words, is_template
from shotfit.errors import DataError, UsageError
from shotfit.system.parsing import parse_json
from shotfit.system.paths import file_inside

FORMAT = 1
CONFIG, WEIGHTS = "shotfit.json", "model.safetensors"
SHOTS = "shots.safetensors"  # what is kept of images
_KINDS: dict[str, Any] = {
    "backbone_fingerprint": str,
    "backbone_folder": str | None,
    "stages": list,
    "experiment": dict,
    "trained_names": list,
    "added_names": list,
    "kept": list,
    "template": str,
    "metrics": dict,
    "files": dict,
    "classes": str | None,
}

# What people are shown of an experiment; the rest is checked where it is used.
_EXPERIMENT: dict[str, Any] = {"backbone": str, "shots": int | None, "seed": int}


def read_settings(folder: Path) -> dict[str, Any]:
    """The config of a saved classifier, after every file has been checked against its hash.

    Raises:
        DataError: naming the file that is missing, altered, or of a format not known here.
    """
    path = folder / CONFIG
    try:
        settings = parse_json(file_inside(folder, CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder} is not a saved classifier: it has no {CONFIG}.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        found = settings.get("format") if isinstance(settings, dict) else None
        raise DataError(f"{path} has format {found!r}; this version reads format {FORMAT}.")
    if settings.get("checksum") != checksum(settings):
        raise DataError(f"{path} has been altered since it was saved.")
    _check_settings(settings, path)
    for name, expected in settings["files"].items():
        try:
            found = sha256(file_inside(folder, name))
        except FileNotFoundError:
            raise DataError(f"{folder / name} is missing.") from None
        if found != expected:
            raise DataError(f"{folder / name} has been altered since it was saved.")
    return settings


def words_of(settings: dict[str, Any]) -> str | Words:
    """The words that classes are embedded by: the template, or several and descriptions.

    Raises:
        UsageError: for words that nobody saved.
    """
    words = settings.get("words")
    return settings["template"] if words is None else Words.from_plain(words)


def is_saved(folder: Path) -> bool:
    """Whether a folder was written as a saved classifier, by what is in it and not by names alone:
    a pretrained model may have both of its files."""
    try:
        settings = parse_json((folder / CONFIG).read_text(encoding="utf-8"))
        ours = isinstance(settings, dict) and settings.get("checksum") == checksum(settings)
        return ours and sha256(folder / WEIGHTS) == settings.get("files", {}).get(WEIGHTS)
    except (OSError, ValueError, AttributeError):
        return False


def _check_settings(settings: dict[str, Any], path: Path) -> None:
    """Refuses a config that nobody saved: its checksum is no secret."""
    for key, kind in _KINDS.items():
        if not isinstance(settings.get(key), kind):
            raise DataError(f"{path} has no {key} that a saved classifier could have.")
    names = [*settings["trained_names"], *settings["added_names"]]
    places = settings["kept"]
    counts = settings.get("added_images", [0] * len(settings["added_names"]))
    if (
        not isinstance(counts, list)
        or len(counts) != len(settings["added_names"])
        or not all(type(n) is int for n in counts)
    ):
        raise DataError(f"{path} does not say how many images its classes were given.")
    if not all(isinstance(name, str) for name in names) or not all(
        type(place) is int and 0 <= place < len(names) for place in places
    ):
        raise DataError(f"{path} has classes that have no names.")
    check_names(names)
    if not is_template(settings["template"]):
        raise DataError(f"{path} has the template {settings['template']!r}, which cannot be used.")
    try:
        words_of(settings)
    except UsageError as error:
        raise DataError(f"{path} has words that cannot be used: {error}") from error
    if set(settings["files"]) not in ({WEIGHTS}, {WEIGHTS, SHOTS}):
        raise DataError(f"{path} lists other files than {WEIGHTS} and {SHOTS}.")
    if not settings["stages"] or not all(
        isinstance(stage, dict)
        and isinstance(stage.get("method"), str)
        and isinstance(stage.get("config"), dict)
        for stage in settings["stages"]
    ):
        raise DataError(f"{path} has stages without a method or its config.")
    experiment = settings["experiment"]
    if not all(
        key in experiment and isinstance(experiment[key], kind) for key, kind in _EXPERIMENT.items()
    ):
        raise DataError(f"{path} does not say what its classifier was fitted to.")
    if not all(_is_number(value) for value in settings["metrics"].values()):
        raise DataError(f"{path} has metrics that are no numbers.")
    _check_assessment(settings.get("assessment"), path)


def _check_assessment(assessment: Any, path: Path) -> None:
    if assessment is None:
        return
    calibration = assessment.get("calibration") if isinstance(assessment, dict) else None
    if not isinstance(calibration, dict) or not all(
        _is_number(calibration.get(key)) for key in ("level", "sharpness")
    ):
        raise DataError(f"{path} has an assessment without its calibration.")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # an integer may be larger than any float


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checksum(settings: dict[str, Any]) -> str:
    rest = {key: value for key, value in settings.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
