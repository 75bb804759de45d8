"""What is opened as an image, and what is not, whatever it is called."""

import io
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import EpsImagePlugin, ExifTags, Image

from shotfit.data import images
from shotfit.data.images import FORMATS, open_image
from shotfit.errors import DataError

POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.fixture
def no_ghostscript(monkeypatch):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("it was run"))


@pytest.mark.usefixtures("no_ghostscript")
def test_postscript_under_another_name_starts_no_ghostscript(tmp_path):
    path = tmp_path / "cat.png"
    path.write_bytes(POSTSCRIPT)
    with Image.open(path) as opened:
        assert opened.format == "EPS"  # so it would be opened
        for source in (path, POSTSCRIPT, opened):
            with pytest.raises(DataError, match=r"not an image that can be read \(AVIF, BMP"):
                open_image(source)


@pytest.mark.parametrize("name", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_the_formats_of_folders_are_opened(name):
    assert name in FORMATS
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, name)
    assert open_image(file.getvalue()).size == (8, 8)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "cat.png")
    (tmp_path / "linked.png").symlink_to(tmp_path / "cat.png")
    for path in (tmp_path / "cat.png", tmp_path / "linked.png", "/dev/zero"):
        with pytest.raises(DataError, match="it is not a file"):
            open_image(path)


def pictures():
    """A picture of every mode, of uneven sizes, with transparency and orientation of every kind."""
    noise = np.random.default_rng(0).integers(0, 256, (23, 31, 4), dtype=np.uint8)
    rgba = Image.fromarray(noise)
    palette = rgba.convert("RGB").quantize(16)
    for mode in ("1", "L", "LA", "RGB", "RGBA", "CMYK", "YCbCr", "P"):
        yield mode, rgba.convert("RGB").convert(mode) if mode != "RGBA" else rgba
    for name, transparency in (("one", 3), ("each", bytes(range(0, 256, 16)))):
        marked = palette.copy()
        marked.info["transparency"] = transparency
        yield f"P with {name}", marked
    keyed = rgba.convert("RGB")
    keyed.info["transparency"] = keyed.getpixel((0, 0))
    yield "RGB with a key", keyed
    wide = noise[:, :, 0].astype(np.uint16) * 257
    yield "I;16", Image.fromarray(wide)
    yield "I", Image.fromarray(wide.astype(np.int32))
    yield "F", Image.fromarray(wide.astype(np.float32) / 65535)
    turned = rgba.copy()
    turned.getexif()[ExifTags.Base.Orientation] = 6
    yield "turned", turned


@pytest.mark.parametrize(("kind", "picture"), tuple(pictures()), ids=lambda value: str(value)[:14])
def test_strips_are_converted_as_the_whole_picture_is(kind, picture, monkeypatch):
    whole = open_image(picture.copy() if kind != "turned" else picture)
    monkeypatch.setattr(images, "STRIP", 100)
    assert len(list(images._strips(picture))) == 8
    found = open_image(picture)
    assert found.mode == "RGB" and np.array_equal(np.asarray(found), np.asarray(whole))


def test_what_is_taken_for_a_large_picture_is_somebody_elses_still(monkeypatch):
    """A large one that was opened here is handed on as it is; an array or a picture is not."""
    monkeypatch.setattr(images, "LARGE", 0)
    array = np.zeros((8, 8, 3), np.uint8)
    picture = Image.fromarray(array.copy())
    for source in (array, picture):
        made = open_image(source)
        made.paste("red", (0, 0, 8, 8))
    assert not array.any() and not np.asarray(picture).any()


def test_one_large_image_is_open_at_a_time_and_small_ones_as_they_come(monkeypatch):
    open_at_once, most = [], []
    lock = threading.Lock()

    def use(size):
        with images.opened_image(Image.new("RGB", (size, size))):
            with lock:
                open_at_once.append(size)
                most.append(len(open_at_once))
            time.sleep(0.01)
            with lock:
                open_at_once.remove(size)

    for large, expected in ((100, {1}), (10_000, {4})):
        monkeypatch.setattr(images, "LARGE", large)
        most.clear()
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(use, [20] * 8))
        assert {max(most)} == expected


def test_a_large_image_in_which_another_one_is_opened_does_not_wait_for_itself(monkeypatch):
    monkeypatch.setattr(images, "LARGE", 0)
    with images.opened_image(lambda: Image.new("RGB", (9, 9))) as one:
        assert open_image(one).size == (9, 9)


def test_a_file_that_is_larger_than_any_image_is_not_read(tmp_path):
    path = tmp_path / "sparse.png"
    with path.open("wb") as file:
        file.truncate(images.MAX_BYTES + 1)
    with pytest.raises(DataError, match="it holds 1,073,741,825 bytes, more than 1,073,741,824"):
        open_image(path)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is asked of Linux")
def test_images_cost_what_is_said_of_them(tmp_path):
    """Four of 69 megapixels in four threads, transparent ones, in files of 270 KB."""
    path = tmp_path / "large.png"
    Image.new("RGBA", (8300, 8300)).save(path, compress_level=1)
    code = """
import resource, sys
from shotfit.data.prefetch import Loading, prepared_batches
from shotfit.data.transforms import ImageSpec
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
named = [(sys.argv[1], None)] * 4
(batch,) = prepared_batches(named, ImageSpec(), 4, loading=Loading(workers=4))
assert not batch.broken
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / 8300**2)
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(path)]
    taken = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(taken) < images.BYTES_PER_PIXEL
