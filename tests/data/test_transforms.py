"""Test pixels are transformers' own, bit for bit, and the preprocessor's facts are read."""

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pil_processors import CLIPImageProcessorPil, SiglipImageProcessorPil, pixels

from shotfit.backbone.hub import read_image_spec
from shotfit.data import transforms
from shotfit.data.images import open_image
from shotfit.data.transforms import ImageSpec, draw_crop, prepare
from shotfit.system.memory import MB, peak_memory_bytes, reset_peak_memory

SIZES = [(224, 224), (301, 199), (57, 333), (31, 32), (1, 40), (40, 1), (225, 224)]
PROCESSORS = {
    "clip": CLIPImageProcessorPil(),
    "clip-bilinear-48": CLIPImageProcessorPil(size={"shortest_edge": 56}, crop_size=48, resample=2),
    "siglip": SiglipImageProcessorPil(size={"height": 64, "width": 64}),
    "siglip2": SiglipImageProcessorPil(size={"height": 96, "width": 96}, resample=2),
}


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "LA", "1"])
@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_are_bit_identical(name, mode, tmp_path):
    PROCESSORS[name].save_pretrained(tmp_path)
    spec = read_image_spec(tmp_path)
    stream = np.random.default_rng(0)
    for width, height in SIZES:
        array = stream.integers(0, 256, (height, width, 4), dtype=np.uint8)
        image = Image.fromarray(array)
        image = image if mode == "RGBA" else image.convert("RGB").convert(mode)
        expected = pixels(PROCESSORS[name], image)
        found = prepare(open_image(image), spec)
        assert found.dtype == np.float32
        assert np.array_equal(found, expected.astype(np.float32)), (width, height)


@pytest.mark.parametrize("size", [(2, 701), (999, 4), (7, 3000), (3000, 7)])
def test_the_ends_that_are_cut_off_before_resizing_do_not_matter(size, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image, spec = Image.fromarray(noise), ImageSpec(32, 40)
    monkeypatch.setattr(transforms, "LONGEST", 1000)
    expected = prepare(image, spec)
    monkeypatch.setattr(transforms, "LONGEST", 50)
    found = prepare(image, spec)
    # One of 255 levels: the same sums are rounded elsewhere.
    assert np.abs(found - expected).max() * min(spec.std) * 255 < 1.1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory in /proc")
@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("size", [(1, 300_000), (300_000, 1)])
def test_a_long_image_takes_no_more_memory_than_a_photo(size, square):
    image, cpu = Image.new("RGB", size), torch.device("cpu")
    prepare(Image.new("RGB", (300, 200)), ImageSpec(square=square))
    reset_peak_memory(cpu)
    before = peak_memory_bytes(cpu)
    prepare(image, ImageSpec(square=square))
    assert peak_memory_bytes(cpu) - before < 100 * MB


def test_transparent_palettes_lie_over_white():
    image = Image.new("P", (40, 40), 0)
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.paste(1, (0, 0, 20, 40))
    image.info["transparency"] = 0
    pixels = np.asarray(open_image(image))
    assert pixels[0, 0].tolist() == [0, 255, 0]
    assert pixels[0, 30].tolist() == [255, 255, 255]


def test_siglip_facts(tmp_path):
    facts = {"size": {"height": 256, "width": 256}, "resample": 2, "do_resize": True}
    facts |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(facts))
    spec = read_image_spec(tmp_path)
    assert (spec.size, spec.resize, spec.square, spec.resample) == (256, 256, True, 2)
    assert spec.mean == spec.std == (0.5, 0.5, 0.5)


def test_crops_follow_the_rule():
    stream = random.Random(0)
    width, height = 400, 300
    crops = [draw_crop((width, height), stream) for _ in range(4000)]
    ratios, areas, corners = [], [], []
    for crop in crops:
        left, top, right, bottom = crop.box
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        ratios.append(math.log((right - left) / (bottom - top)))
        areas.append((right - left) * (bottom - top) / (width * height))
        corners.append(left / max(width - (right - left), 1))
    assert 0.075 < min(areas) < 0.1
    assert max(areas) > 0.9
    assert max(ratios) < math.log(4 / 3) + 0.02
    assert min(ratios) > math.log(3 / 4) - 0.02
    assert abs(sum(crop.flip for crop in crops) / 4000 - 0.5) < 0.03
    # Small crops are never rejected: among them, log ratio and corner are uniform.
    small = [r for r, a in zip(ratios, areas, strict=True) if a < 0.4]
    assert abs(np.mean(small)) < 0.02
    assert abs(np.std(small) - 2 * math.log(4 / 3) / math.sqrt(12)) < 0.01
    assert abs(np.mean(corners) - 0.5) < 0.02
    # A strip that no draw fits takes the largest centred box.
    assert draw_crop((400, 3), stream).box == (198, 0, 202, 3)
