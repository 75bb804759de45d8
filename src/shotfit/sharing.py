"""What others are told of a fit: names in place of the folders of this machine.

A fit is known by what it was given, which may be paths, and those hold names of people and of their
work. A saved folder has a path only where it is read again: that of a pretrained model in its
config, and the options of `fit`, as they were typed, in `config.yaml`. What is uploaded, packed,
exported or shown has none.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import yaml

from shotfit.backbone import EMBEDDED
from shotfit.config import from_dict, parse_yaml
from shotfit.errors import UsageError
from shotfit.experiment import Experiment
from shotfit.records import Record, record_text
from shotfit.system.parsing import parse_json

RECORD, OPTIONS = "record.json", "config.yaml"
"""The record of a saved classifier's run, and the options of `fit`."""
_HEADING = "# The options of this run; places on its machine are given by their last names.\n"


def is_repository(name: str) -> bool:
    """Whether a model's name is the id of a repository on the hub, and not a folder's."""
    return re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) is not None and not Path(name).exists()


def model_name(name: str) -> str:
    """What others are told of a pretrained model: a hub id as it is, of a folder its own name."""
    return name if name in EMBEDDED or is_repository(name) else _last(name)


def shared_experiment(experiment: Experiment, *, keep_model: bool = False) -> Experiment:
    """An experiment with names in place of paths; with `keep_model` the model's stays."""
    values = _shared(dataclasses.asdict(experiment))
    backbone = experiment.backbone if keep_model else values["backbone"]
    return dataclasses.replace(
        experiment, backbone=backbone, data=values["data"], fewshot=values["fewshot"]
    )


def shared_record(record: Record) -> Record:
    """A run's record, likewise; its id stays that of the run."""
    return dataclasses.replace(record, experiment=_shared(record.experiment))


def shared_provenance(
    provenance: Mapping[str, bytes], *, keep_options: bool = False
) -> dict[str, bytes]:
    """The record and the options, likewise, as files; with `keep_options` the latter as they are.
    What cannot be read is left out, since nobody knows what it says."""
    rewritten = {RECORD: _record_file, OPTIONS: _options_file}
    found = {}
    for name, content in provenance.items():
        if name == OPTIONS and keep_options:
            found[name] = content
            continue
        try:
            found[name] = rewritten[name](content)
        except (ValueError, TypeError, AttributeError, UsageError):
            continue
    return found


def _record_file(content: bytes) -> bytes:
    return f"{record_text(shared_record(from_dict(Record, parse_json(content))))}\n".encode()


def _options_file(content: bytes) -> bytes:
    values = parse_yaml(content.decode(), OPTIONS)
    return (_HEADING + yaml.safe_dump(_named(values))).encode()


def _shared(values: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of an experiment."""
    found = _named(values)
    return {**found, "data": _named(found["data"])} if "data" in found else found


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in values.items():
        found[key] = value
        if key == "backbone":
            found[key] = model_name(value)
        elif isinstance(value, str) and key != "template" and _is_place(value):
            found[key] = _last(value)
    return found


def _is_place(text: str) -> bool:
    """Whether a text leads somewhere on one machine: an absolute path, of whatever system, one
    from somebody's home, or one out of where a command was run."""
    path, windows = PurePosixPath(text), PureWindowsPath(text)
    absolute = path.is_absolute() or bool(windows.drive)
    return absolute or text.startswith("~") or ".." in windows.parts


def _last(path: str) -> str:
    """The last part of a path of whatever system."""
    return PureWindowsPath(path).name or path
