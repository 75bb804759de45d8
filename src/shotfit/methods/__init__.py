"""Adaptation methods, one file each: the file name is the name on the command line."""

import importlib
import inspect
import pkgutil

from shotfit.errors import unknown_name
from shotfit.methods.base import Method

# Not methods to choose: the protocol itself, and the second stage, which a recipe adds.
_NOT_LISTED = ("base", "published", "linear")


def list_methods() -> list[str]:
    """The names of all methods, sorted."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _NOT_LISTED)


def get_method(name: str) -> type[Method]:
    """The class of the method called `name` (hyphens may stand for underscores).

    Raises:
        UsageError: for an unknown name, with the nearest known one.
    """
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
