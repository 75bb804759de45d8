"""Shifts are the same everywhere, change every image and no label, and are chosen by their rule."""

import json
from pathlib import Path

import numpy as np
import pytest
import shifted_suite
from PIL import Image

from shotfit.bench.grid import find_datasets
from shotfit.data.images import open_image
from shotfit.data.inputs import locate
from shotfit.data.shifts import SHIFTED_SUITE, SHIFTS, list_shifts, shifted
from shotfit.data.sources.demo import list_tasks, load
from shotfit.errors import DataError, UsageError

REPOSITORY = Path(__file__).parent.parent.parent


def drawing():
    image = Image.new("RGB", (48, 48), "white")
    image.paste((200, 30, 30), (12, 12, 36, 36))
    return image


@pytest.mark.parametrize("name", list_shifts())
def test_a_shift_changes_an_image_and_is_the_same_every_time(name):
    once, again = (np.asarray(shifted(drawing(), name, "a")) for _ in range(2))
    assert once.shape == (48, 48, 3)
    assert np.array_equal(once, again)
    assert np.abs(once.astype(int) - np.asarray(drawing())).mean() > 2
    random = not np.array_equal(once, np.asarray(shifted(drawing(), name, "b")))
    assert random == (name in ("fog", "ground", "noise", "rain", "rotation"))
    assert SHIFTS[name].__doc__


def test_values_of_the_plain_ones():
    pixels = np.asarray(drawing(), dtype=int)
    assert np.array_equal(np.asarray(shifted(drawing(), "negative", "")), 255 - pixels)
    thermal = np.asarray(shifted(Image.new("RGB", (4, 4), "black"), "thermal", ""))
    assert not thermal.any()
    edges = np.asarray(shifted(drawing(), "edges", ""))
    assert edges[20, 24].max() == 0  # inside
    assert edges[24, 12].max() > 150  # at the border


def test_noise_is_as_strong_as_it_says():
    gray = Image.new("RGB", (64, 64), (128, 128, 128))
    values = np.asarray(shifted(gray, "noise", "a"), dtype=float) / 255
    # Clipped at black and white, a deviation of 0.6 puts 40 % of the values there.
    assert 0.36 < np.isin(values, (0, 1)).mean() < 0.45


def test_a_task_under_a_shift_is_the_task_with_other_pixels():
    plain, changed = load("digits"), load("digits@negative")
    assert changed.name == "digits@negative"
    assert changed.classnames == plain.classnames
    for before, after in zip(plain.train + plain.test, changed.train + changed.test, strict=True):
        assert (before.key, before.label) == (after.key, after.label)
    pixels = 255 - np.asarray(open_image(plain.test[3].image), dtype=int)
    assert np.array_equal(np.asarray(changed.test[3].image), pixels)


def test_names_on_the_command_line():
    assert locate("digits@noise") == ("demo", {"name": "digits@noise"})
    assert find_datasets("digits@rain") == [("demo", {"name": "digits@rain"})]
    assert [data["name"] for _, data in find_datasets("shifted-suite")] == list(SHIFTED_SUITE)
    with pytest.raises(DataError, match="digits@nois"):
        locate("digits@nois")
    with pytest.raises(UsageError, match="shift"):
        load("digits@nois")
    with pytest.raises(UsageError, match="shifted-suite"):
        find_datasets("shifted-suit")


class TestTheShiftedSuite:
    def test_it_is_what_the_rule_takes_from_the_record(self):
        record = json.loads((REPOSITORY / shifted_suite.RECORD).read_text(encoding="utf-8"))
        assert shifted_suite.choose(record["accuracy"]) == SHIFTED_SUITE
        assert set(record["accuracy"]) == set(list_tasks())
        page = (REPOSITORY / "docs" / "shifts.md").read_text(encoding="utf-8")
        assert shifted_suite.table(record["accuracy"]) in page

    def test_the_rule_by_value(self):
        accuracy = {
            "a": {"": 50.0, "blur": 20.0, "fog": 9.0, "noise": 31.0, "rain": 22.0, "edges": 21.0},
            "b": {"": 40.0, "blur": 17.0, "fog": 24.0, "noise": 8.0, "rain": 0.0, "edges": 40.0},
            "c": {"": 10.0, "blur": 4.0, "fog": 1.9, "noise": 6.1, "rain": 2.0, "edges": 5.8},
            "d": {"": 100.0, "blur": 41.0, "fog": 90.0, "noise": 90.0, "rain": 90.0, "edges": 90.0},
        }
        # a: blur 40, edges 42, rain 44 % (a third), fog and noise are out; b: blur (42.5 %) would
        # be a fourth of it; noise is 20, fog 60 %; c: blur 40, edges 58, rain 20 (a third).
        assert shifted_suite.choose(accuracy) == (
            "a@blur", "a@edges", "b@fog", "b@noise", "c@blur", "c@edges", "d@blur",
        )  # fmt: skip
