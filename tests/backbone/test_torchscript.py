"""Archives are read as instructions on plain values: what is in them never runs."""

import warnings
import zipfile

import pytest
import torch
from torch import Tensor, nn

from shotfit.backbone.convert import tensor_files
from shotfit.backbone.convert.torchscript import read_torchscript
from shotfit.errors import DataError


class Writing(nn.Module):
    """Writes a file when it is loaded."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight

    @torch.jit.export
    def __getstate__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
    ) -> tuple[Tensor, str, bool]:
        return self.weight, self.path, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[Tensor, str, bool]) -> None:
        self.weight = state[0]
        self.path = state[1]
        self.training = state[2]
        torch.save(self.weight, self.path)


class Layers(nn.Module):
    """Halves, integers, a tied weight, a mask that is no weight, a view of a larger storage."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 2), nn.Linear(2, 3).half()
        self.tied = self.first.weight
        self.register_buffer("count", torch.arange(4))
        self.register_buffer("part", torch.randn(4, 6)[1:3, ::2])
        self.mask = torch.ones(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) + self.mask[0]


def script(model, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(model).save(path)
    return path


def rewritten(source, target, change):
    """The archive with its description of modules changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for entry in old.infolist():
            content = old.read(entry)
            changed = change(content) if entry.filename.endswith("/data.pkl") else content
            new.writestr(entry.filename, changed)
    return target


def test_weights_are_those_that_torch_reads(tmp_path):
    model = Layers()
    read = read_torchscript(script(model, tmp_path / "model.pt"))
    expected = model.state_dict()
    assert sorted(read) == sorted(expected)
    for name, value in expected.items():
        assert read[name].dtype == value.dtype
        assert torch.equal(read[name], value)


def test_what_an_archive_runs_when_it_is_loaded_does_not_run(tmp_path):
    written = tmp_path / "written"
    script(Writing(str(written)), tmp_path / "model.pt")
    written.unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.load(tmp_path / "model.pt")
    assert written.exists()  # so it would
    written.unlink()
    with pytest.raises(DataError, match="no module with named tensors"):
        tensor_files.read_source(tmp_path / "model.pt")
    assert not written.exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"ctorch._utils\n_rebuild_tensor_v2\n", b"cposix\nsystem\n", "calls 'posix system'"),
        (b"ctorch\nFloatStorage\n", b"cbuiltins\nexec\n", "a storage is of"),
        (b"ctorch\nFloatStorage\n", b"ctorch\nDoubleStorage\n", "numbers as they are in memory"),
        (b"\x80\x02", b"\x80\x02\x82\x01", "its description has EXT1"),
        (b"X\x01\x00\x00\x000q", b"X\x01\x00\x00\x009q", "no item named"),
        (b"\x80\x02", b"\x80\x02N.", "its root is no module"),
    ],
)
def test_a_description_of_anything_else_is_refused(tmp_path, old, new, message):
    source = script(Layers(), tmp_path / "model.pt")
    path = rewritten(source, tmp_path / "bad.pt", lambda content: content.replace(old, new))
    with pytest.raises(DataError, match=message):
        tensor_files.read_source(path)


def test_a_tensor_outside_its_storage_is_refused(tmp_path):
    source = script(nn.Linear(3, 2), tmp_path / "model.pt")
    # The sizes (2, 3) of the weight become (9, 3).
    path = rewritten(
        source,
        tmp_path / "bad.pt",
        lambda content: content.replace(b"(K\x02K\x03t", b"(K\x09K\x03t"),
    )
    with pytest.raises(DataError, match="out of bounds"):
        tensor_files.read_source(path)
