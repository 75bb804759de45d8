"""Dataset sources, one file each: the file name is the source's name, `load` reads it."""

import dataclasses
import importlib
import inspect
import pkgutil
from typing import Any

from shotfit.data.dataset import Dataset
from shotfit.data.template import Words
from shotfit.errors import DataError, UsageError, unknown_name

Survey = tuple[Dataset, tuple[str, ...]]
"""A dataset, and what is wrong with it."""


def list_sources() -> list[str]:
    """The names of all dataset sources, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


SURVEYED = ("csv", "folder")
"""Sources that can go on after a problem: their `survey` tells each, and `load` stops at the first.
"""


def survey_dataset(source: str, *, root: str | None = None, **options: Any) -> Survey:
    """The dataset with all the problems that `load_dataset` would stop at, one after the other.

    Raises:
        UsageError: for an unknown source or option.
        DataError: when there is nothing to go on with.
    """
    if source not in SURVEYED:
        return load_dataset(source, root=root, **options), ()
    problems: list[str] = []
    survey = importlib.import_module(f"{__name__}.{source}").survey
    try:
        return survey(problems.append, **options), tuple(problems)
    except DataError as error:
        if not problems:
            raise
        # What a fit would stop at; that nothing was left to go on with follows from it.
        raise DataError(problems[0]) from error


def load_dataset(source: str, *, root: str | None = None, **options: Any) -> Dataset:
    """The dataset that a source reads; `root` is where datasets lie, for sources that need one.

    With the option `reduced=True`, whatever the source, images are learned from at the nearest
    sufficient reduction of their size. It is an option of the data, so that it counts in a run's
    identity where it is used. So are its `words` (`Words.plain`), which take the place of the
    template.

    Raises:
        UsageError: for an unknown source or option.
        DataError: when the data is missing or cannot be used.
    """
    if source not in list_sources():
        raise unknown_name("dataset source", source, list_sources())
    reduced, words = options.pop("reduced", False), options.pop("words", None)
    load = importlib.import_module(f"{__name__}.{source}").load
    known = inspect.signature(load).parameters
    if "root" in known:
        options["root"] = root
    for option in options:
        if option not in known:
            raise unknown_name(f"option of the {source} source", option, known)
    missing = [
        name
        for name, parameter in known.items()
        if parameter.default is inspect.Parameter.empty and options.get(name) is None
    ]
    if missing:
        raise UsageError(f"The {source} source needs {', '.join(missing)}.")
    dataset = load(**options)
    if words is not None:
        dataset = dataclasses.replace(dataset, template=Words.from_plain(words))
    return dataclasses.replace(dataset, reduced=True) if reduced else dataset
