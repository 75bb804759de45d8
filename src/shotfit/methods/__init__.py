"""Adaptation methods, one file each: the file name is the name on the command line.

What a file says of itself, its written name and its forms, is read without importing it, so that
tables and `--help` need no torch.
"""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shotfit.errors import unknown_name

if TYPE_CHECKING:
    from shotfit.methods.base import Method

# Not methods to choose: the protocol itself, what two methods share, and the second stage, which a
# recipe adds.
_NOT_LISTED = ("base", "published", "shared_representation", "linear")


@dataclass(frozen=True)
class PublishedName:
    """A name on the command line: a method, or a form of it that was published under its own name.

    `label` is how it is written; `options` are what sets the form apart, empty for the method;
    `selects_on` are the images on which it chooses what training leaves open.
    """

    name: str
    label: str
    summary: str
    method: str
    options: Mapping[str, Any]
    selects_on: str


def list_methods() -> list[str]:
    """The names of all methods, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _NOT_LISTED)


def published_names() -> dict[str, PublishedName]:
    """Every method and every form of one, by its name on the command line, sorted."""
    found = {entry.name: entry for name in list_methods() for entry in _names_in(_file(name))}
    return dict(sorted(found.items()))


def published_name(method: str, options: Mapping[str, Any]) -> PublishedName:
    """What a method with these options was published as: the form whose options they hold, else
    the method itself.

    Raises:
        UsageError: for an unknown method.
    """
    if method not in list_methods():
        raise unknown_name("method", method, list_methods())
    itself, *forms = _names_in(_file(method))
    return next((form for form in forms if form.options.items() <= options.items()), itself)


def method_key(word: str) -> str:
    """A method's name from how it is written: "CLIP-LoRA", "PLOT++", "coop". Unknown words come
    back as they are, with underscores."""
    entries = published_names()
    labels = {entry.label.lower(): name for name, entry in entries.items()}
    key = word.replace("-", "_")
    if key.lower() in entries:
        return key.lower()
    return labels.get(word.lower(), key)


def get_method(name: str) -> "type[Method]":
    """The class of the method called `name` (hyphens may stand for underscores).

    Raises:
        UsageError: for an unknown name, with the nearest known one.
    """
    from shotfit.methods.base import Method

    key = name.replace("-", "_")
    if key not in (*list_methods(), "linear"):
        raise unknown_name("method", name, list_methods())
    module = importlib.import_module(f"{__name__}.{key}")
    classes = [
        member
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, Method) and member.__module__ == module.__name__
    ]
    assert len(classes) == 1, f"{module.__name__} must define one method"
    return classes[0]


def _file(name: str) -> Path:
    return next(path for folder in __path__ if (path := Path(folder) / f"{name}.py").is_file())


@cache
def _names_in(file: Path) -> tuple[PublishedName, ...]:
    """The method in a file and its forms: the docstring begins "LABEL: what it does.", and a
    constant `FORMS` has the options of each form by its label."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    summary = (ast.get_docstring(tree) or file.stem).split("\n")[0]
    label = summary.partition(":")[0]
    members = [part for node in tree.body if isinstance(node, ast.ClassDef) for part in node.body]
    selects_on = _constant(members, "selects_on", "nothing")
    itself = PublishedName(file.stem, label, summary, file.stem, {}, selects_on)
    forms = _constant(tree.body, "FORMS", {})
    return itself, *(
        dataclasses.replace(
            itself,
            name=_key(form),
            label=form,
            summary=f"{file.stem} {_words(options)}",
            options=options,
        )
        for form, options in forms.items()
    )


def _constant(body: Sequence[ast.stmt], name: str, default: Any) -> Any:
    """What statements assign to `name`."""
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    return default


def _key(label: str) -> str:
    return label.lower().replace("-", "_")


def _words(options: Mapping[str, Any]) -> str:
    return " ".join(f"-o {key}={value}" for key, value in options.items())
