"""Threads, prefetch and memory: what they cost may change, what comes out may not."""

import io
import itertools
import random
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from conftest import SPEC, make_backbone
from PIL import Image

from shotfit.data.dataset import Example, Split
from shotfit.data.images import open_image
from shotfit.data.prefetch import Loading, ahead, memory_bytes, plain_batches, prepared_batches
from shotfit.data.sources import load_dataset
from shotfit.data.support_set import SupportSet
from shotfit.data.task import make_task
from shotfit.data.transforms import CROP_SCALE, draft_side, draft_side_of_crops, draw_crop, prepare
from shotfit.errors import DataError, UsageError
from shotfit.experiment import Experiment
from shotfit.methods import get_method
from shotfit.methods.published import TrainConfig
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
        "shotfit.data.support_set.open_image",
        lambda *a, **k: opened.append(a[1]) or open_image(*a, **k),
    )
    images = support(Loading(memory, workers=4, prefetch=0))
    images.decode()
    assert len(opened) == 7
    assert images.cached_bytes == kept * 200 * 150 * 4 <= memory
    next(images.batches(7))
    assert len(opened) - 7 == 7 - kept


def test_no_more_images_are_decoded_at_a_time_than_there_are_threads(monkeypatch):
    alive, peak = [], []

    def counted(*args, **options):
        image = open_image(*args, **options)
        alive.append(1)
        peak.append(len(alive))
        weakref.finalize(image, alive.pop)
        return image

    for opener in ("support_set", "prefetch"):
        monkeypatch.setattr(f"shotfit.data.{opener}.open_image", counted)
    with support(Loading(memory=0, workers=2), photos(24)) as images:
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
        "shotfit.data.prefetch.open_image",
        lambda *a, **k: where.add((a[1], threading.current_thread().name)) or open_image(*a, **k),
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


def test_draft_decodes_less_of_a_large_photo_and_gives_nearly_its_pixels():
    big = photo(1, (1600, 1200))
    enough = draft_side(SPEC)
    small = open_image(big, enough=enough)
    assert open_image(big).size == (1600, 1200)
    assert small.size == (200, 150)
    assert min(small.size) >= enough
    exact, drafted = prepare(open_image(big), SPEC), prepare(small, SPEC)
    assert np.abs(exact - drafted).mean() < 0.02 * np.abs(exact).mean()
    # What is small enough, or no JPEG, is left as it is.
    assert open_image(photo(1, (60, 80)), enough=enough).size == (60, 80)
    assert open_image(Image.new("RGB", (900, 900)), enough=enough).size == (900, 900)


def test_a_drafted_photo_is_enough_for_the_smallest_crop():
    enough = draft_side_of_crops(SPEC, CROP_SCALE[0])
    image = open_image(photo(1, (4000, 3000)), enough=enough)
    assert image.size < (4000, 3000)
    stream = random.Random(0)
    smallest = min(
        min(box[2] - box[0], box[3] - box[1])
        for box in (draw_crop(image.size, stream).box for _ in range(3000))
    )
    assert smallest >= SPEC.size


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


def test_draft_belongs_to_the_data_and_to_a_runs_identity(tmp_path):
    for name in ("red", "blue"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(photo(1, (1600, 1200)))
    plain = load_dataset("folder", path=str(tmp_path))
    drafted = load_dataset("folder", path=str(tmp_path), draft=True)
    sizes = []
    for dataset in (plain, drafted):
        split = make_task(dataset, "all_to_all", 1, 1).support
        images = support(Loading(prefetch=0), split)
        images.decode()
        sizes.append(images.cached_bytes)
        pixels, labels = next(plain_batches(split, SPEC))
        assert pixels.shape == (2, 3, 32, 32)
        assert labels.tolist() == [0, 1]
    assert sizes[1] <= sizes[0] / 16
    runs = [Experiment("folder", {"path": "x"}), Experiment("folder", {"path": "x", "draft": True})]
    assert runs[0].id != runs[1].id
