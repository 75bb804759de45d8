"""Hidden files and folders are nobody's images."""

import pytest
from PIL import Image

from shotfit.data.image_files import find_images
from shotfit.data.sources import load_dataset
from shotfit.errors import DataError


def test_hidden_files_and_folders_are_left_alone(tmp_path):
    for name in ("red/1.png", "red/.2.png", "red/.thumbnails/3.png", "blue/4.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    (tmp_path / "red" / "._1.png").write_bytes(b"resource fork")
    shown = [str(tmp_path / name) for name in ("blue/4.png", "red/1.png")]
    assert list(find_images([tmp_path])) == shown
    dataset = load_dataset("folder", path=str(tmp_path))
    assert [str(example.image) for example in dataset.train] == shown
    # Whoever names one means it.
    hidden = tmp_path / "red" / ".2.png"
    assert list(find_images([hidden])) == [str(hidden)]
    (tmp_path / "blue" / "4.png").unlink()
    (tmp_path / "blue" / "._4.png").write_bytes(b"resource fork")
    with pytest.raises(DataError, match="holds no images"):
        load_dataset("folder", path=str(tmp_path))
