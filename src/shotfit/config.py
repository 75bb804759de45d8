"""Frozen dataclasses to plain values and back, strictly: what a config does not know, it refuses.

A config owns its options. YAML files, command lines and saved folders all meet here, so that a
misspelt key is an error with a suggestion wherever it is written.
"""

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import yaml

from shotfit.errors import UsageError, unknown_name

T = TypeVar("T")

# Options are nested three deep.
MAX_DEPTH = 50
# Larger ones are not what was written once they were a float, and no machine counts to them.
WHOLE = 1 << 53


@dataclass(frozen=True)
class Must:
    """What an option must be besides its type, as in `Annotated[int, Must(...)]`."""

    be: str
    """The requirement as it ends "NAME must ..."."""
    holds: Callable[[Any], bool]


Count = Annotated[int, Must("be at least 1", lambda value: value >= 1)]
# What decides the size of tensors: a saved file of some bytes could ask for all memory. Towers are
# some 1,000 wide.
Size = Annotated[int, Must("lie between 1 and 1024", lambda value: 1 <= value <= 1024)]
NotNegativeInt = Annotated[int, Must("not be negative", lambda value: value >= 0)]
Positive = Annotated[float, Must("be above 0", lambda value: value > 0)]
NotNegative = Annotated[float, Must("not be negative", lambda value: value >= 0)]
Share = Annotated[float, Must("lie between 0 and 1", lambda value: 0 <= value <= 1)]


def to_dict(config: Any) -> dict[str, Any]:
    """A config dataclass as JSON-ready plain values; tuples become lists."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def from_dict(cls: type[T], values: Mapping[str, Any]) -> T:
    """A `cls` from plain values.

    Raises:
        UsageError: for an unknown key (with the nearest known one), or a value of a wrong type or
            out of its range.
    """
    if not isinstance(values, Mapping):
        raise UsageError(f"{cls.__name__} must be a mapping of options, got {values!r}.")
    hints = typing.get_type_hints(cls, include_extras=True)
    known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise unknown_name(f"option of {cls.__name__}", str(key), known)
    converted = {
        key: _convert(f"{cls.__name__}.{key}", hints[key], value) for key, value in values.items()
    }
    try:
        return cls(**converted)
    except TypeError as error:
        raise UsageError(f"{cls.__name__}: {error}") from error


def override(config: T, overrides: Mapping[str, Any]) -> T:
    """`config` with some fields replaced; strings (as a command line gives them) are parsed.

    Raises:
        UsageError: as `from_dict`.
    """
    current = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(config)  # type: ignore[arg-type]
    }
    for key in overrides:
        if key not in current:
            raise unknown_name(f"option of {type(config).__name__}", key, current)
    return from_dict(type(config), {**current, **overrides})


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that a YAML file holds.

    Raises:
        UsageError: when the file is missing, is no YAML, or holds no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"Cannot read the config file {path}: {error}") from error
    return parse_yaml(text, path)


def parse_yaml(text: str, where: Path | str) -> dict[str, Any]:
    """The mapping that the text of a config file holds; `where` is its name for people.

    Raises:
        UsageError: when it is no YAML, or holds no mapping.
    """
    try:
        _check_shape(text)
        values = yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(f"Cannot read the config file {where}: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"The config file {where} must hold a mapping of options.")
    return values


def _check_shape(text: str) -> None:
    """Refuses YAML that would take minutes to read, before it does.

    Raises:
        ValueError: for aliases, a few lines of which stand for billions of values, and for depth,
            which costs its square.
    """
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it has aliases (*name); write the values out")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError(f"its values are nested more than {MAX_DEPTH} deep")


class Option(NamedTuple):
    """What people may be told of an option."""

    name: str
    default: Any
    values: str
    """The type or the values that it takes."""


def options_of(config: Any) -> list[Option]:
    """The options of a config with the values that it has, in order."""
    hints = typing.get_type_hints(type(config), include_extras=True)
    return [
        Option(part.name, getattr(config, part.name), _values(hints[part.name]))
        for part in dataclasses.fields(config)
    ]


def _values(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        musts = ", ".join(
            must.be.removeprefix("be ").replace("not be", "not") for must in arguments[1:]
        )
        return f"{_values(arguments[0])}, {musts}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join("none" if one is type(None) else _values(one) for one in arguments)
    if origin is typing.Literal:
        return " | ".join(map(str, arguments))
    if origin in (tuple, list):
        return f"list of {_values(arguments[0])}"
    return {int: "whole number", float: "number", bool: "true | false", str: "text"}.get(
        hint, getattr(hint, "__name__", str(hint))
    )


def digest(values: Any, length: int = 12) -> str:
    """The first hex digits of the SHA-256 of `values` in canonical JSON."""
    if dataclasses.is_dataclass(values) and not isinstance(values, type):
        values = to_dict(values)
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _convert(where: str, hint: Any, value: Any) -> Any:
    """`value` as type `hint`, accepting what YAML, JSON and command lines make of it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        value = _convert(where, arguments[0], value)
        for must in arguments[1:]:
            if not must.holds(value):
                raise UsageError(f"{where} must {must.be}, got {value!r}.")
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(where, arguments, value)
    if origin is typing.Literal:
        if value not in arguments:
            raise unknown_name(f"value for {where}", str(value), map(str, arguments))
        return value
    if origin in (tuple, list):
        items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise UsageError(f"{where} must be a list, got {value!r}.")
        return origin(_convert(where, arguments[0], item) for item in items)
    if origin is dict or hint is dict:
        if not isinstance(value, Mapping):
            raise UsageError(f"{where} must be a mapping, got {value!r}.")
        return dict(value)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, hint):  # type: ignore[arg-type]
            return value
        if not isinstance(value, Mapping):
            raise UsageError(f"{where} must be a mapping of options, got {value!r}.")
        return from_dict(hint, value)  # type: ignore[arg-type]
    return _convert_scalar(where, hint, value)


def _convert_union(where: str, options: tuple[Any, ...], value: Any) -> Any:
    if value is None or (type(None) in options and value in ("none", "None", "null")):
        if type(None) in options:
            return None
        raise UsageError(f"{where} must not be empty.")
    failure: UsageError | None = None
    for option in options:
        if option is type(None):
            continue
        try:
            return _convert(where, option, value)
        except UsageError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def _convert_scalar(where: str, hint: Any, value: Any) -> Any:
    wrong = UsageError(f"{where} must be of type {hint.__name__}, got {value!r}.")
    if hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise wrong
    if hint is str:
        if isinstance(value, str):
            return value
        raise wrong
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    except ValueError:
        raise wrong from None
    if not math.isfinite(number):
        raise UsageError(f"{where} must be a finite number, got {value!r}.")
    if hint is int:
        if number != int(number):
            raise wrong
        if abs(number) > WHOLE:
            raise UsageError(f"{where} must be a whole number of up to {WHOLE:,}, got {value!r}.")
        return int(number)
    return number
