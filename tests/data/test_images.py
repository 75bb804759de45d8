"""What is opened as an image, and what is not, whatever it is called."""

import io
import os

import pytest
from PIL import EpsImagePlugin, Image

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
