"""Threads, prefetch and memory: what they cost may change, what comes out may not."""

import io
import itertools
import random
import shutil
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from conftest import SPEC, make_backbone
from PIL import Image

from shotfit.classifier import FewShotClassifier
from shotfit.data.dataset import Example, Split
from shotfit.data.images import open_image, opened_image
from shotfit.data.prefetch import Loading, ahead, memory_bytes, plain_batches, prepared_batches
from shotfit.data.sources import load_dataset
from shotfit.data.support_set import SupportSet
from shotfit.data.task import make_task
from shotfit.data.transforms import (
    CROP_SCALE,
    ImageSpec,
    draw_crop,
    enough_for_crops,
    enough_for_prediction,
    prepare,
)
from shotfit.errors import DataError, UsageError
from shotfit.experiment import Experiment
from shotfit.methods import get_method
from shotfit.methods.published import TrainConfig
from shotfit.recipe import named_recipe
from shotfit.training.loop import train


def photo(seed: int, size=(200, 150)) -> bytes:
    """A smooth random picture, larger than what threads are too slow for, as a JPEG."""
    noise = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def photos(count=7, **options) -> Split:
    examples = tuple(Example(f"{n}.jpg", n % 2, photo(n)) for n in range(count))
    return Split(("red", "blue"), examples, **options)


def support(loading=None, split=None) -> SupportSet:
    return SupportSet(split or photos(), SPEC, random.Random(3), loading)


def ours(kind: str = "") -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith(f"shotfit-{kind}")}


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("memory", [0, 1 << 30])
@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("prefetch", [1, 5])
def test_the_same_batches_and_the_same_draws_afterwards(workers, prefetch, memory):
    plain = support(Loading(workers=1, prefetch=0))
    threaded = support(Loading(memory, workers, prefetch))
    for batch_size in (3, 4):
        expected = list(itertools.islice(plain.batches(batch_size), 5))
        for one, other in zip(expected, threaded.batches(batch_size), strict=False):
            assert equal(one, other)
        # `zip` has asked for nothing more than it was given.
        assert plain.stream.getstate() == threaded.stream.getstate()
        views = zip(plain.augmented_once(4), threaded.augmented_once(4), strict=True)
        assert all(equal(one, other) for one, other in views)
        assert plain.stream.getstate() == threaded.stream.getstate()


@pytest.mark.parametrize(("memory", "kept"), [(0, 0), (250_000, 2), (1 << 30, 7)])
def test_the_budget_of_memory_is_kept_and_what_is_kept_is_not_decoded_again(
    monkeypatch, memory, kept
):
    opened = []
    monkeypatch.setattr(
        "shotfit.data.decoded.opened_image",
        lambda *a, **k: opened.append(a[1]) or opened_image(*a, **k),
    )
    images = support(Loading(memory, workers=4, prefetch=0, disk=0))
    with pytest.warns(UserWarning, match=f"{7 - kept} of 7") if kept < 7 else nullcontext():
        images.decode()
    assert len(opened) == 7
    assert images.images.memory_bytes == kept * 200 * 150 * 4 <= memory
    next(images.batches(7))
    assert len(opened) - 7 == 7 - kept


def test_no_more_images_are_decoded_at_a_time_than_there_are_threads(monkeypatch):
    alive, peak = [], []

    @contextmanager
    def counted(*args, **options):
        with opened_image(*args, **options) as image:
            alive.append(1)
            peak.append(len(alive))
            weakref.finalize(image, alive.pop)
            yield image

    for opener in ("decoded", "prefetch"):
        monkeypatch.setattr(f"shotfit.data.{opener}.opened_image", counted)
    with support(Loading(memory=0, workers=2, disk=0), photos(24)) as images:
        with pytest.warns(UserWarning, match="24 of 24"):
            images.decode()
        next(images.batches(24))
        assert len(list(images.augmented_once())) == 1
    assert len(peak) >= 3 * 24
    assert max(peak) <= 2
    assert not alive


def test_a_spoilt_image_is_named_before_training():
    split = photos()
    bad = Example("bad.jpg", 0, photo(0)[:300])
    spoilt = Split(split.classnames, (*split.examples, bad))
    with pytest.raises(DataError, match=r"bad\.jpg cannot be read"):
        support(split=spoilt).decode()


def test_leaving_a_loop_early_ends_its_thread_and_closing_the_others():
    before = ours()
    images = support(Loading(workers=2, prefetch=3))
    for number, _ in enumerate(images.batches(2)):
        assert ours("ahead")
        if number == 2:
            break
    assert not ours("ahead")
    assert ours("images") - before
    pool = images._pool
    next(images.batches(2))
    assert images._pool is pool, "threads start once"
    images.close()
    assert ours() <= before
    method = get_method("layernorm")(make_backbone())
    for step in train(method, images, TrainConfig(iterations=9, batch_size=2)):
        if step.iteration == 2:
            break
    images.close()
    assert ours() <= before


def test_tiny_images_need_no_thread(task):
    with SupportSet(task.support, SPEC, random.Random(1), Loading(prefetch=2)) as images:
        batches = images.batches(4)
        next(batches)
        next(batches)
        assert not ours("ahead")


@pytest.mark.parametrize("large", [0, 4])
def test_one_large_image_among_tiny_ones_is_worth_a_thread(large):
    sizes = [(200, 150) if number == large else (40, 30) for number in range(6)]
    examples = [Example(f"{n}.jpg", 0, photo(n, size)) for n, size in enumerate(sizes)]
    split = Split(("red",), tuple(examples))
    plain = support(Loading(prefetch=0), split)
    with support(Loading(prefetch=2), split) as images:
        batches = images.batches(2)
        assert equal(next(batches), next(plain.batches(2)))
        assert ours("ahead")
        assert images.stream.getstate() == plain.stream.getstate()
        assert isinstance(batches, Generator)
        batches.close()


@pytest.mark.parametrize("first", [photo(0, (40, 30)), b"no image"])
def test_what_comes_first_in_a_folder_does_not_decide_for_the_rest(first):
    images = ((photo(n) if n >= 6 else first, f"{n}.jpg") for n in range(1000))
    batches = prepared_batches(images, SPEC, 3, loading=Loading(workers=2, prefetch=2))
    found = list(itertools.islice(batches, 4))
    assert ours("ahead")
    assert [len(batch.images) for batch in found] == [3, 3, 3, 3]
    assert torch.equal(found[2].pixels[1], torch.from_numpy(prepare(open_image(photo(7)), SPEC)))
    batches.close()
    assert not ours("ahead")


def test_a_folder_of_tiny_images_is_prepared_where_it_is_asked_for(monkeypatch):
    where = set()
    monkeypatch.setattr(
        "shotfit.data.prefetch.opened_image",
        lambda *a, **k: where.add((a[1], threading.current_thread().name)) or opened_image(*a, **k),
    )
    images = ((photo(0, (40, 30)), f"{number}") for number in range(9))
    for _ in prepared_batches(images, SPEC, 3, loading=Loading(prefetch=2)):
        assert not ours("ahead")
    inline = {name for name, thread in where if not thread.startswith("shotfit")}
    assert inline == {str(number) for number in range(3, 9)}, "all but the first batch"


def test_ahead_keeps_order_works_ahead_and_passes_errors_on():
    made = []

    def items():
        for number in range(6):
            made.append(number)
            yield number
        raise DataError("the seventh")

    numbers = ahead(items(), 3)
    assert next(numbers) == 0
    for _ in range(500):
        if len(made) > 3:
            break
        time.sleep(0.01)
    assert made == [0, 1, 2, 3]
    assert list(itertools.islice(numbers, 5)) == [1, 2, 3, 4, 5]
    with pytest.raises(DataError, match="the seventh"):
        next(numbers)
    assert list(ahead(iter([1, 2]), 5)) == [1, 2]


def test_test_time_batches_stream_and_set_what_is_broken_aside():
    taken = []

    def images():
        for number in range(1000):
            taken.append(number)
            yield (b"no image", "bad.png") if number == 4 else (photo(number % 3), None)

    batches = prepared_batches(images(), SPEC, 3, loading=Loading(workers=2, prefetch=2))
    first, second, third = itertools.islice(batches, 3)
    batches.close()
    assert len(taken) <= 3 * 6
    assert torch.equal(first.pixels[1], torch.from_numpy(prepare(open_image(photo(1)), SPEC)))
    assert (len(second.images), len(second.pixels)) == (3, 2)
    assert list(second.broken) == [1]
    assert "bad.png is not an image" in str(second.broken[1])
    assert torch.equal(second.pixels[1], first.pixels[2])
    assert third.broken == {}
    assert not ours("ahead")


def test_a_reduced_photo_is_decoded_in_part_and_gives_nearly_the_same_pixels():
    big = photo(1, (1600, 1200))
    enough = enough_for_prediction(SPEC)
    small = open_image(big, enough=enough)
    assert open_image(big).size == (1600, 1200)
    assert small.size == (100, 75)
    assert enough == 64
    exact, reduced = prepare(open_image(big), SPEC), prepare(small, SPEC)
    assert np.abs(exact - reduced).mean() < 0.02 * np.abs(exact).mean()
    # Not only JPEGs; what is small enough is left as it is.
    assert open_image(Image.new("RGB", (900, 700)), enough=enough).size == (90, 70)
    assert open_image(np.zeros((700, 900, 3), np.uint8), enough=enough).size == (90, 70)
    assert open_image(photo(1, (127, 127)), enough=enough).size == (127, 127)


def test_a_picture_that_is_given_stays_as_it_is():
    given = Image.open(io.BytesIO(photo(1, (1600, 1200))))
    assert open_image(given, enough=100).size == (134, 100)
    assert given.size == (1600, 1200)


@pytest.mark.parametrize(("size", "smallest", "enough"), [(32, 0.5, 46), (224, 0.08, 792)])
def test_what_the_crops_of_a_model_need(size, smallest, enough):
    """n / sqrt(s) pixels on the short side, for crops of a share s resized to n pixels."""
    assert enough_for_crops(ImageSpec(size=size, resize=size), smallest) == enough


def test_the_smallest_square_crop_of_a_reduced_photo_has_all_pixels():
    enough = enough_for_crops(SPEC, CROP_SCALE[0])
    image = open_image(photo(1, (4000, 3000)), enough=enough)
    assert image.size == (167, 125)
    stream = random.Random(0)
    smallest = min(
        (box[2] - box[0]) * (box[3] - box[1])
        for box in (draw_crop(image.size, stream).box for _ in range(3000))
    )
    assert smallest >= 0.98 * SPEC.size**2


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("1.5 gib", 3 << 29), ("500MB", 5 * 10**8), ("0", 0), (4096, 4096)],
)
def test_memory_in_words(text, size):
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["2 XB", "much", "-1GB", "GB", -1])
def test_memory_that_is_none(text):
    with pytest.raises(UsageError, match="such as 2GB"):
        memory_bytes(text)


def folder_of_photos(top, count=1, size=(1600, 1200)):
    for name in ("red", "blue"):
        (top / name).mkdir()
        for number in range(count):
            (top / name / f"{number}.jpg").write_bytes(photo(number, size))
    return top


def test_reduction_belongs_to_the_data_and_to_a_runs_identity(tmp_path):
    folder_of_photos(tmp_path)
    plain = load_dataset("folder", path=str(tmp_path))
    reduced = load_dataset("folder", path=str(tmp_path), reduced=True)
    sizes, pixels = [], []
    for dataset in (plain, reduced):
        split = make_task(dataset, "all_to_all", 1, 1).support
        images = support(Loading(prefetch=0), split)
        images.decode()
        sizes.append(images.images.memory_bytes)
        pixels.append(next(plain_batches(split, SPEC))[0])
    assert sizes == [2 * 1600 * 1200 * 4, 2 * 200 * 150 * 4]
    assert torch.equal(*pixels), "the test-time transform sees the whole image"
    runs = [Experiment("folder", {"path": "x", **more}) for more in ({}, {"reduced": True})]
    assert runs[0].id != runs[1].id


@pytest.mark.parametrize("full_size", [False, True])
@pytest.mark.parametrize("memory", [0, 100_000, 1 << 30])
def test_a_fit_decodes_each_photo_once(tmp_path, monkeypatch, memory, full_size):
    """Two stages and cached views, whatever fits into memory."""
    folder_of_photos(tmp_path, count=3, size=(400, 300))
    opened = []
    monkeypatch.setattr(
        "shotfit.data.decoded.opened_image",
        lambda *a, **k: opened.append(a[0]) or opened_image(*a, **k),
    )
    recipe = named_recipe("2sfs", iters_per_shot=2)
    classifier = FewShotClassifier(method=recipe)
    classifier.fit(tmp_path, image_memory=memory, full_size=full_size)
    assert sorted(opened) == sorted(tmp_path.rglob("*.jpg"))


@pytest.mark.parametrize("method", ["tip_adapter", "lp_pp", "2sfs"])
def test_methods_that_look_at_images_again_decode_none_again(tmp_path, monkeypatch, method):
    folder_of_photos(tmp_path, count=2, size=(400, 300))
    opened = []
    for module in ("decoded", "prefetch"):
        monkeypatch.setattr(
            f"shotfit.data.{module}.opened_image",
            lambda *a, **k: opened.append(a[0]) or opened_image(*a, **k),
        )
    recipe = named_recipe(method, iters_per_shot=3, budget="shared")
    FewShotClassifier(method=recipe).fit(tmp_path)
    assert sorted(opened) == sorted(tmp_path.rglob("*.jpg"))


def test_what_is_on_the_disk_has_the_same_bits_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    room = 2 * 200 * 150 * 3
    kept, spilled, both = (
        support(Loading(memory, workers=2, disk=disk, prefetch=0))
        for memory, disk in ((1 << 30, 0), (0, 1 << 30), (3 * 200 * 150 * 4, room))
    )
    spilled.decode()
    with pytest.warns(UserWarning, match="2 of 7"):
        both.decode()
    assert (spilled.images.memory_bytes, spilled.images.disk_bytes) == (0, 7 * 200 * 150 * 3)
    assert (both.images.memory_bytes, both.images.disk_bytes) == (3 * 200 * 150 * 4, room)
    for one, other, third in zip(
        *(itertools.islice(s.batches(4), 5) for s in (kept, spilled, both)), strict=True
    ):
        assert equal(one, other)
        assert equal(one, third)
    for s in (kept, spilled, both):
        assert equal(next(s.plain()), next(plain_batches(s.split, SPEC)))
    assert not list(tmp_path.iterdir())


def test_a_disk_that_cannot_be_written_is_done_without(monkeypatch):
    monkeypatch.setattr(
        "tempfile.TemporaryFile", lambda *a, **k: (_ for _ in ()).throw(OSError("full"))
    )
    images = support(Loading(memory=0, prefetch=0))
    with pytest.warns(UserWarning, match="7 of 7"):
        images.decode()
    assert equal(next(images.plain()), next(plain_batches(images.split, SPEC)))


def test_at_most_half_of_a_disk_is_taken(monkeypatch):
    usage = type(shutil.disk_usage("/"))
    free = 4 * 200 * 150 * 3
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(10**9, 0, free))
    images = support(Loading(memory=0, prefetch=0))
    with pytest.warns(UserWarning, match="5 of 7"):
        images.decode()
    assert images.images.disk_bytes == free // 2
