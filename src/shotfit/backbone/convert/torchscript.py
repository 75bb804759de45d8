"""The weights in a TorchScript archive, as OpenAI published CLIP, without running any of it.

`torch.jit.load` runs code that an archive brings: the `__setstate__` of its modules. An archive is
a zip of raw storages, with a pickle that says which tensor lies where. That pickle is read here as
a list of instructions on plain values: no class is looked up, no function called, whatever it
names. Which of a module's tensors are weights is in the text of its class.
"""

import pickletools
import re
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_DTYPES = {
    "FloatStorage": torch.float32,
    "DoubleStorage": torch.float64,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
# A description of modules; CLIP's largest takes a third of a megabyte.
_MAX_DESCRIPTION = 64 << 20
_CLASS = re.compile(
    r"^class (\w+)\(Module\):\n  __parameters__ = \[(.*?)\]\n(?:  __buffers__ = \[(.*?)\]\n)?",
    re.MULTILINE,
)


@dataclass(frozen=True)
class _Named:
    """A class or function, by name only."""

    name: str


@dataclass
class _Object:
    """A module: its class by name, and what it holds."""

    kind: str
    state: Any = field(default_factory=dict)


class _Mark:
    """Where a tuple or the entries of a dict begin on the stack."""


def read_torchscript(path: Path) -> dict[str, Tensor]:
    """Parameters and buffers by their names in the module.

    Raises:
        ValueError: for what no archive of torch holds; KeyError: for a part that is missing.
    """
    with zipfile.ZipFile(path) as archive:
        reader = _Reader(archive)
        root = reader.run(reader.content("data.pkl"))
        weights = _weight_names(reader)
    found: dict[str, Tensor] = {}
    waiting = [("", root, 0)]
    while waiting:
        prefix, module, depth = waiting.pop()
        if not isinstance(module, _Object) or not isinstance(module.state, dict):
            raise ValueError(f"{prefix or 'its root'} is no module with named tensors")
        if depth > 100:
            raise ValueError("its modules hold each other in a circle")
        for name, value in module.state.items():
            if isinstance(value, _Object):
                waiting.append((f"{prefix}{name}.", value, depth + 1))
            elif isinstance(value, Tensor) and name in weights.get(module.kind, (name,)):
                found[f"{prefix}{name}"] = value
    return found


def _weight_names(reader: "_Reader") -> dict[str, set[str]]:
    """The parameters and buffers of each class: a module has other tensors too, such as masks."""
    names: dict[str, set[str]] = {}
    for file in reader.archive.namelist():
        inner = file.removeprefix(f"{reader.prefix}/code/")
        if inner == file or not inner.endswith(".py"):
            continue
        text = reader.content(f"code/{inner}").decode("utf-8", "replace")
        module = inner.removesuffix(".py").replace("/", ".")
        for name, parameters, buffers in _CLASS.findall(text):
            names[f"{module}.{name}"] = set(re.findall(r'"([^"]*)"', f"{parameters} {buffers}"))
    return names


class _Reader:
    """Reads a description of modules as instructions on a stack of plain values."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        # The archive's own folder, by the file that each has once.
        (found,) = [n for n in archive.namelist() if n.count("/") == 1 and n.endswith("/data.pkl")]
        self.prefix = found.removesuffix("/data.pkl")
        self.storages: dict[str, Tensor] = {}

    def content(self, name: str) -> bytes:
        """A file of the archive that says what there is."""
        with self.archive.open(f"{self.prefix}/{name}") as file:
            content = file.read(_MAX_DESCRIPTION + 1)
        if len(content) > _MAX_DESCRIPTION:
            raise ValueError(f"{name} is larger than archives of torch have it")
        return content

    def run(self, description: bytes) -> Any:
        stack: list[Any] = []
        memo: dict[int, Any] = {}
        argument: Any
        for opcode, argument, place in pickletools.genops(description):
            name = opcode.name
            if name in ("PROTO", "FRAME"):
                continue
            if name == "STOP":
                return stack.pop()
            if name in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = stack[-1]
            elif name in ("BINGET", "LONG_BINGET"):
                stack.append(memo[argument])
            elif name in _VALUES:
                stack.append(_VALUES[name](argument))
            elif name in _COMBINING:
                _COMBINING[name](stack)
            elif name == "BINPERSID":
                stack.append(self._storage(stack.pop()))
            else:
                raise ValueError(f"its description has {name} at byte {place}")
        raise ValueError("its description has no end")

    def _storage(self, what: Any) -> Tensor:
        _, kind, key, _, count = what
        if not isinstance(kind, _Named) or not kind.name.startswith("torch "):
            raise ValueError(f"a storage is of {kind!r}")
        dtype = _DTYPES[kind.name.removeprefix("torch ")]
        if key not in self.storages:
            entry = self.archive.getinfo(f"{self.prefix}/data/{key}")
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != (
                count * dtype.itemsize
            ):
                raise ValueError(f"data/{key} is not {count} numbers as they are in memory")
            raw = self.archive.read(entry)
            self.storages[key] = (
                torch.frombuffer(bytearray(raw), dtype=dtype)
                if raw
                else (torch.empty(0, dtype=dtype))
            )
        return self.storages[key]


def _above_mark(stack: list[Any]) -> list[Any]:
    place = len(stack) - 1
    while not isinstance(stack[place], _Mark):
        place -= 1
    values = stack[place + 1 :]
    del stack[place:]
    return values


def _tuple(count: int):
    def combine(stack: list[Any]) -> None:
        values = tuple(stack[-count:])
        del stack[-count:]
        stack.append(values)

    return combine


def _mark_tuple(stack: list[Any]) -> None:
    stack.append(tuple(_above_mark(stack)))


def _set_items(stack: list[Any]) -> None:
    values = _above_mark(stack)
    stack[-1].update(zip(values[::2], values[1::2], strict=True))


def _set_item(stack: list[Any]) -> None:
    value, key = stack.pop(), stack.pop()
    stack[-1][key] = value


def _append_items(stack: list[Any]) -> None:
    values = _above_mark(stack)
    stack[-1].extend(values)


def _append(stack: list[Any]) -> None:
    value = stack.pop()
    stack[-1].append(value)


def _new(stack: list[Any]) -> None:
    stack.pop()
    stack.append(_Object(stack.pop().name.replace(" ", ".")))


def _build(stack: list[Any]) -> None:
    state = stack.pop()
    stack[-1].state = state


def _apply(stack: list[Any]) -> None:
    """What a call would give, of the few that an archive's description makes."""
    arguments, function = stack.pop(), stack.pop()
    if function == _Named("torch._utils _rebuild_tensor_v2"):
        storage, offset, size, stride = arguments[:4]
        # Within the storage: torch checks it.
        stack.append(storage.as_strided(size, stride, offset))
    elif function == _Named("collections OrderedDict"):
        stack.append({})
    elif isinstance(function, _Named) and function.name.startswith("torch.jit._pickle "):
        stack.append(arguments[0])  # a list or a dict, said to be of a type
    else:
        raise ValueError(f"its description calls {getattr(function, 'name', function)!r}")


_COMBINING = {
    "TUPLE": _mark_tuple,
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "SETITEMS": _set_items,
    "SETITEM": _set_item,
    "APPENDS": _append_items,
    "APPEND": _append,
    "NEWOBJ": _new,
    "BUILD": _build,
    "REDUCE": _apply,
}
_VALUES = {
    "MARK": lambda _: _Mark(),
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_DICT": lambda _: {},
    "EMPTY_LIST": lambda _: [],
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "GLOBAL": _Named,
    **dict.fromkeys(
        ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        lambda value: value,
    ),
}
