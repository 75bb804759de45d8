"""The words of classes as a user gives them: templates, a file or a set of them, descriptions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from shotfit.data.template import Words, given_words
from shotfit.errors import DataError, UsageError
from shotfit.system.parsing import parse_json
from shotfit.system.terminal import printable

Templates = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="More templates: a file with one a line, or a JSON list; imagenet (CLIP's seven) or "
        "diverse (sixty).",
    ),
]
Descriptions = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Sentences about classes: a JSON object of names, each with a list of sentences.",
    ),
]
NAMED = 5


def chosen_words(
    template: Sequence[str], templates: str | None, descriptions: str | None
) -> str | Words | None:
    """What is meant by `--template`, `--templates` and `--descriptions` together; None for nothing.

    Raises:
        UsageError: for a template without a place for the name, or sentences that are none.
        DataError: for a file that cannot be read.
    """
    every = [*template, *(() if templates is None else template_set(templates))]
    return given_words(every, {} if descriptions is None else _read_object(Path(descriptions)))


def template_set(where: str) -> tuple[str, ...]:
    """The templates of a set by its name, or of a file.

    Raises:
        DataError: for a file that cannot be read or holds none.
    """
    from shotfit.layers.ensembles import DIVERSE_TEMPLATES, IMAGENET_TEMPLATES

    sets = {"imagenet": IMAGENET_TEMPLATES, "diverse": DIVERSE_TEMPLATES}
    if where in sets:
        return sets[where]
    path = Path(where).expanduser()
    if not path.is_file():
        raise DataError(f"There is no file {path} of templates; sets: {', '.join(sets)}.")
    if path.suffix.lower() == ".json":
        found = _read_json(path)
    else:
        lines = (line.strip() for line in _read(path).splitlines())
        found = [line for line in lines if line and not line.startswith("#")]
    if not isinstance(found, list) or not found or not all(isinstance(t, str) for t in found):
        raise DataError(f"{path} holds no list of templates.")
    return tuple(found)


def words_notes(template: str | Words, classnames: Sequence[str]) -> list[str]:
    """What to say of descriptions and classes that do not meet."""
    if isinstance(template, str) or not template.descriptions:
        return []
    notes = []
    without = template.undescribed(classnames)
    if without:
        notes.append(f"{len(without)} classes have no description: {_listed(without)}")
    known = {name.replace("_", " ") for name in classnames}
    others = [name for name in template.descriptions if name.replace("_", " ") not in known]
    if others:
        notes.append(
            "described but no class here, and kept for names that are added later: "
            f"{_listed(others)}"
        )
    return [printable(note) for note in notes]


def words_lines(words: Words) -> list[str]:
    """What a saved classifier's classes are embedded by."""
    sentences = sum(map(len, words.descriptions.values()))
    lines = [f"{len(words.templates)} templates: {_listed(words.templates)}"]
    if sentences:
        lines.append(f"{sentences} sentences about {len(words.descriptions)} names")
    return [printable(line) for line in lines]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:NAMED])) + (" …" if len(names) > NAMED else "")


def _read_object(path: Path) -> dict[str, Any]:
    found = _read_json(path.expanduser())
    if not isinstance(found, dict) or not found:
        raise DataError(f"{path} must hold an object of names, each with a list of sentences.")
    return found


def _read_json(path: Path) -> Any:
    text = _read(path)
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def template_list(template: str | Sequence[str] | None) -> list[str]:
    """What a flag, given once or more, or a line of a config file means.

    Raises:
        UsageError: for an empty one.
    """
    given = [template] if isinstance(template, str) else list(template or ())
    if not all(given):
        raise UsageError("A template must hold {} once, where the class name goes.")
    return given
