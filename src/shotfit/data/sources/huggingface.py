"""Hugging Face `datasets`: a hub id, a parquet file, or a local folder.

A folder holds parquet files named by split (`train-*.parquet`), or one folder of images per class
(imagefolder), as the `datasets` library finds it. Needs the extra `shotfit[datasets]`.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shotfit.data.dataset import Dataset, Example
from shotfit.data.template import TEMPLATE
from shotfit.errors import DataError, UsageError, unknown_name


def load(
    name_or_path: Path | str,
    *,
    config: str | None = None,
    image_column: str | None = None,
    label_column: str | None = None,
    train: str = "train",
    val: str | None = None,
    test: str | None = None,
    classnames: Sequence[str] | None = None,
    template: str = TEMPLATE,
    revision: str | None = None,
    cache_dir: Path | str | None = None,
) -> Dataset:
    """A dataset of the hub, or of local parquet or image files.

    `name_or_path` is an existing file or folder, otherwise a hub id, with its `config` and
    `revision`. Shots are drawn from the split `train`; `val` is by default the split `validation`
    or `val`, and `test` the split `test`, where there is one. The image column is by default the
    only one of type Image, the label column the only ClassLabel, or else label, labels or class;
    `classnames` gives the names by label where the file has none.

    Underscores in class names become spaces, as everywhere. Images stay encoded: a local image is
    a path, one inside a parquet file is held in memory as the bytes of its file, so a large hub
    dataset needs as much memory as its splits. `cache_dir` is where `datasets` keeps its copies.

    Raises:
        UsageError: when `datasets` is not installed, or a split or column is not there.
        DataError: when the data cannot be read, or has images without a label.
    """
    splits = _load_splits(_import_datasets(), str(name_or_path), config, revision, cache_dir)
    return from_splits(
        splits,
        name=Path(name_or_path).stem if Path(name_or_path).exists() else str(name_or_path),
        image_column=image_column,
        label_column=label_column,
        parts=(train, val, test),
        classnames=classnames,
        template=template,
    )


def from_splits(
    splits: dict[str, Any],
    *,
    name: str,
    image_column: str | None = None,
    label_column: str | None = None,
    parts: tuple[str, str | None, str | None] = ("train", None, None),
    classnames: Sequence[str] | None = None,
    template: str = TEMPLATE,
) -> Dataset:
    """A dataset of loaded splits by name; `parts` are those for training, validation and test.

    Raises:
        UsageError, DataError: as `load`.
    """
    library = _import_datasets()
    train, val, test = parts
    chosen = _choose_splits(splits, train, val, test)
    tables = {part: splits[split] for part, split in chosen.items()}
    image_column = image_column or _find_image_column(library, tables["train"])
    label_column = label_column or _find_label_column(library, tables["train"])
    _check_columns(tables, chosen, image_column, label_column)
    names, to_label = _labels(library, tables, label_column, classnames)
    examples = {
        part: _examples(library, table, chosen[part], image_column, label_column, to_label)
        for part, table in tables.items()
    }
    return Dataset(
        name=name,
        classnames=tuple(name.replace("_", " ") for name in names),
        train=examples["train"],
        val=examples.get("val", ()),
        test=examples.get("test", ()),
        template=template,
    )


def images_in(table: Any, column: str | None = None) -> Iterator[Path | bytes]:
    """The images of a split, undecoded, in order.

    Raises:
        UsageError: when it is unclear which column they are in.
        DataError: for a row without one.
    """
    library = _import_datasets()
    column = column or _find_image_column(library, table)
    if column not in table.features:
        raise unknown_name("image column", column, table.features)
    table = table.select_columns([column]).cast_column(column, library.Image(decode=False))
    for row, values in enumerate(table):
        image = values[column]
        if not image or not (image["bytes"] or image["path"]):
            raise DataError(f"Row {row} has no image.")
        yield image["bytes"] or Path(image["path"])


def _import_datasets() -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise UsageError(
            "Hugging Face datasets need the extra: pip install 'shotfit[datasets]'."
        ) from error


def _load_splits(
    library: Any,
    name: str,
    config: str | None,
    revision: str | None,
    cache_dir: Path | str | None,
) -> dict[str, Any]:
    path = Path(name).expanduser()
    options: dict[str, Any] = {"cache_dir": str(cache_dir) if cache_dir else None}
    try:
        if path.is_file():
            if path.suffix != ".parquet":
                raise DataError(f"{path} is no parquet file, the only file type read here.")
            return dict(library.load_dataset("parquet", data_files=str(path), **options))
        if path.is_dir():
            return dict(library.load_dataset(str(path), config, **options))
        if path.is_absolute() or name.startswith("."):
            raise DataError(f"There is no file or folder {path}.")
        return dict(library.load_dataset(name, config, revision=revision, **options))
    except (OSError, ValueError, library.exceptions.DatasetsError) as error:
        if isinstance(error, DataError):
            raise
        where = path if path.exists() else f"{name!r} of the hub (no file or folder has that name)"
        raise DataError(f"The dataset {where} cannot be loaded: {error}") from error


def _choose_splits(
    splits: dict[str, Any], train: str, val: str | None, test: str | None
) -> dict[str, str]:
    """The names of the splits used as train, val and test, of those that exist."""
    for asked in (train, val, test):
        if asked is not None and asked not in splits:
            raise unknown_name("split", asked, splits)
    if val is None:
        val = next((name for name in ("validation", "val") if name in splits), None)
    if test is None and "test" in splits:
        test = "test"
    chosen = {"train": train, "val": val, "test": test}
    return {part: split for part, split in chosen.items() if split is not None}


def _find_image_column(library: Any, table: Any) -> str:
    found = [key for key, kind in table.features.items() if isinstance(kind, library.Image)]
    if len(found) != 1:
        raise UsageError(
            f"Name the image column: {len(found)} of the columns "
            f"{', '.join(table.features)} hold images."
        )
    return found[0]


def _find_label_column(library: Any, table: Any) -> str:
    found = [key for key, kind in table.features.items() if isinstance(kind, library.ClassLabel)]
    if len(found) != 1:
        found = [key for key in ("label", "labels", "class") if key in table.features][:1]
    if not found:
        raise UsageError(f"Name the label column, one of {', '.join(table.features)}.")
    return found[0]


def _check_columns(
    tables: dict[str, Any], chosen: dict[str, str], image_column: str, label_column: str
) -> None:
    for part, table in tables.items():
        for column in (image_column, label_column):
            if column not in table.features:
                raise unknown_name(f"column of the split {chosen[part]}", column, table.features)


def _labels(
    library: Any, tables: dict[str, Any], column: str, classnames: Sequence[str] | None
) -> tuple[tuple[str, ...], Callable[[Any], int | None]]:
    """The class names, and the function from a cell of the label column to a label."""
    feature = tables["train"].features[column]
    if isinstance(feature, library.ClassLabel):
        for part, table in tables.items():
            if table.features[column] != feature:
                raise DataError(f"The {part} split numbers its classes differently from train.")
        names = tuple(classnames or feature.names)
        return names, _number_of(names)
    if getattr(feature, "dtype", None) in ("string", "large_string"):
        found = {name for table in tables.values() for name in table.unique(column) if name}
        names = tuple(classnames or sorted(found))
        # A name that is not in `classnames` gives None, which is reported with its place.
        return names, {name: label for label, name in enumerate(names)}.get
    if classnames is None:
        raise UsageError(f"The column {column} holds numbers without names: give the class names.")
    return tuple(classnames), _number_of(tuple(classnames))


def _number_of(names: Sequence[str]) -> Callable[[Any], int | None]:
    def number(value: Any) -> int | None:
        # -1 is how `datasets` marks an image whose label is kept secret.
        return value if isinstance(value, int) and 0 <= value < len(names) else None

    return number


def _examples(
    library: Any,
    table: Any,
    split: str,
    image_column: str,
    label_column: str,
    to_label: Callable[[Any], int | None],
) -> tuple[Example, ...]:
    # Undecoded: pictures are opened when they are used, and no decoder is chosen for us.
    table = table.select_columns([image_column, label_column])
    table = table.cast_column(image_column, library.Image(decode=False))
    examples = []
    for row, values in enumerate(table):
        label = to_label(values[label_column])
        if label is None:
            raise DataError(
                f"Row {row} of the split {split} has the label {values[label_column]!r}, "
                "which is none of the classes."
            )
        image = values[image_column]
        if not image or not (image["bytes"] or image["path"]):
            raise DataError(f"Row {row} of the split {split} has no image.")
        # Rows are numbered: file names within a parquet file need not be there, nor be unique.
        key = f"{split}/{row:06d}"
        examples.append(Example(key, label, image["bytes"] or Path(image["path"])))
    return tuple(examples)
