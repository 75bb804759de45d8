"""Formats of phones and of instruments: opened rightly, or refused with what to do."""

import sys

import numpy as np
import pytest
from PIL import Image

from shotfit.data.image_files import is_image
from shotfit.data.images import open_image
from shotfit.errors import DataError

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)
GRAY = np.asarray(Image.fromarray(RAMP).convert("RGB"))


def saved(folder, values, name="image.tif", **options):
    path = folder / name
    Image.fromarray(values).save(path, **options)
    return path


@pytest.mark.parametrize("suffix", ["heic", "avif"])
def test_photographs_of_phones(tmp_path, suffix):
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    path = tmp_path / f"photo.{suffix}"
    smooth = Image.fromarray(RAMP).resize((64, 48), Image.Resampling.BICUBIC).convert("RGB")
    smooth.save(path, quality=95)
    found = np.asarray(open_image(path)).astype(int)
    assert found.shape == (48, 64, 3)
    assert np.abs(found - np.asarray(smooth)).mean() < 3
    assert is_image(path.name) and is_image("A.HEIF")
    assert open_image(path, enough=16).size == (22, 16)


def test_a_missing_plug_in_is_named(tmp_path, monkeypatch):
    path = tmp_path / "photo.heic"
    path.write_bytes(b"\x00\x00\x00\x1cftypheic\x00\x00\x00\x00mif1heic" + bytes(100))
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    with pytest.raises(DataError, match=r"photo\.heic .*pip install 'shotfit\[heic\]'"):
        open_image(path)


@pytest.mark.parametrize("name", ["image.tif", "image.png"])
def test_sixteen_bits(tmp_path, name):
    path = saved(tmp_path, RAMP.astype(np.uint16) * 257, name)
    assert np.array_equal(np.asarray(open_image(path)), GRAY)


def test_twelve_bits_are_taken_as_such_where_they_are_declared(tmp_path):
    """Pillow writes no TIFF of 12 bits: two samples in three bytes, by hand."""
    samples = RAMP.astype(np.uint16).ravel() * 16
    packed = bytearray()
    for first, second in zip(samples[::2].tolist(), samples[1::2].tolist(), strict=True):
        packed += bytes([first >> 4, (first & 15) << 4 | second >> 8, second & 255])
    facts = [(256, 16), (257, 16), (258, 12), (259, 1), (262, 1), (273, 8), (277, 1), (278, 16)]
    facts.append((279, len(packed)))
    entries = b"".join(
        tag.to_bytes(2, "little")
        + (4).to_bytes(2, "little")
        + (1).to_bytes(4, "little")
        + value.to_bytes(4, "little")
        for tag, value in facts
    )
    offset = (8 + len(packed)).to_bytes(4, "little")
    directory = len(facts).to_bytes(2, "little") + entries + bytes(4)
    path = tmp_path / "image.tif"
    path.write_bytes(b"II*\x00" + offset + packed + directory)
    with Image.open(path) as image:
        assert image.mode == "I;16"
    assert np.array_equal(np.asarray(open_image(path)), GRAY)


def test_floating_point_from_zero_to_one(tmp_path):
    path = saved(tmp_path, RAMP.astype(np.float32) / 255)
    assert np.array_equal(np.asarray(open_image(path)), GRAY)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (RAMP.astype(np.uint16) * 16, "end at 4080"),
        (RAMP.astype(np.float32), "from 0 to 255"),
        (RAMP.astype(np.float32) - 1, "from -1 to 254"),
        (np.full((4, 4), np.nan, dtype=np.float32), "floating-point"),
        (RAMP.astype(np.int32) * 100_000, "from 0 to 25500000"),
        (RAMP.astype(np.int32) - 5, "from -5 to 250"),
    ],
)
def test_what_black_and_white_are_is_not_guessed(tmp_path, values, why):
    path = saved(tmp_path, values)
    with pytest.raises(DataError, match=f"image.tif cannot be read as an image.*{why}.*8"):
        open_image(path)
