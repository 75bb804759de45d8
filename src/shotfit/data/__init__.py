"""Datasets: sources that read them, shots and tasks, images as tensors."""

import dataclasses
import difflib
import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

from shotfit.data import sources
from shotfit.data.benchmark.facts import benchmarks, find_benchmark
from shotfit.data.dataset import Dataset
from shotfit.errors import DataError, UsageError, unknown_name


def list_sources() -> list[str]:
    """The names of all dataset sources, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(sources.__path__))


def locate(data: str) -> tuple[str, dict[str, Any]]:
    """The source and its options that a user means by one word.

    A folder, a manifest file (.csv, .jsonl), or the name of an embedded task or of a benchmark.

    Raises:
        DataError: when it is none of these.
    """
    path = Path(data).expanduser()
    if path.is_dir():
        return "folder", {"path": str(path)}
    if path.suffix.lower() in (".csv", ".jsonl"):
        return "csv", {"path": str(path)}
    embedded = importlib.import_module(f"{sources.__name__}.demo").list_tasks()
    if data in embedded:
        return "demo", {"name": data}
    try:
        return "coop", {"name": find_benchmark(data).key}
    except UsageError:
        pass
    known = [*embedded, *benchmarks()]
    near = difflib.get_close_matches(data, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise DataError(
        f"{data!r} is no folder, no manifest (.csv, .jsonl), no embedded task and no benchmark."
        f"{hint} Known: {', '.join(known)}."
    )


def load_dataset(source: str, *, root: str | None = None, **options: Any) -> Dataset:
    """The dataset that a source reads; `root` is where datasets lie, for sources that need one.

    With the option `draft=True`, whatever the source, large JPEGs are decoded at a fraction of
    their size. It is an option of the data, so that it counts in a run's identity where it is used.

    Raises:
        UsageError: for an unknown source or option.
        DataError: when the data is missing or cannot be used.
    """
    if source not in list_sources():
        raise unknown_name("dataset source", source, list_sources())
    draft = options.pop("draft", False)
    load = importlib.import_module(f"{sources.__name__}.{source}").load
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
    return dataclasses.replace(dataset, draft=True) if draft else dataset
