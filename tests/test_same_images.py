"""Results know what their images held: other images under the same names are noticed."""

import dataclasses
import hashlib
import os

import numpy as np
import pytest
from conftest import shapes_dataset
from example_images import picture
from PIL import Image

from shotfit.bench.ablation import load_or_measure_gain
from shotfit.bench.contents import current_content, is_current
from shotfit.bench.dynamics import dynamics_recipe, load_or_trace
from shotfit.data.contents import source_hashes, task_content
from shotfit.data.sources import load_dataset
from shotfit.data.task import make_task
from shotfit.errors import DataError
from shotfit.experiment import Experiment, run
from shotfit.recipe import Recipe, Stage
from shotfit.records import load_records, write_record

RECIPE = Recipe((Stage("layernorm", training={"iterations": 1}),))


@pytest.fixture
def photos(tmp_path):
    """A folder of images, six classes, with test images."""
    folder = tmp_path / "photos"
    dataset = shapes_dataset(6, train=2, test=2)
    for example in (*dataset.train, *dataset.test):
        path = folder / example.key
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(example).save(path, format="BMP")
    return folder


def exchange(folder):
    """Every image turned upside down, with the names, sizes and times that were there before."""
    for path in folder.rglob("*.png"):
        facts = path.stat()
        Image.open(path).rotate(180).save(path, format="BMP")
        os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        assert path.stat().st_size == facts.st_size


@pytest.fixture
def experiment(photos, checkpoint):
    return Experiment(
        "folder", {"path": str(photos)}, shots=1, backbone=str(checkpoint), recipe=RECIPE
    )


def test_the_content_of_a_task_is_that_of_every_image_and_of_nothing_else(photos, tmp_path):
    def content(folder=photos):
        return task_content(make_task(load_dataset("folder", path=str(folder)), "all_to_all", 1, 1))

    before = content()
    assert before == content()
    moved = photos.rename(tmp_path / "elsewhere")
    assert content(moved) == before, "wherever they lie"
    for path in sorted((moved / "test").rglob("*.png"))[::5]:
        old = path.read_bytes()
        path.write_bytes(old[:-1] + bytes([old[-1] ^ 1]))
        assert content(moved) != before, path
        path.write_bytes(old)
    assert content(moved) == before


def test_images_of_every_kind_have_a_hash_by_what_they_hold(photos):
    path = sorted(photos.rglob("*.png"))[0]
    expected = hashlib.sha256(path.read_bytes()).digest()
    found = source_hashes([path, str(path), path.read_bytes(), lambda: path])
    assert found == [expected] * 4
    picture, array = Image.open(path), np.asarray(Image.open(path))
    other = picture.rotate(180)
    assert len({*source_hashes([picture, other, array, np.asarray(other), photos / "gone"])}) == 5


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "link.png").symlink_to("/dev/zero")
    nothing = hashlib.sha256().digest()
    assert source_hashes([tmp_path / "pipe.png", tmp_path / "link.png"]) == [nothing] * 2


def test_a_grid_refuses_records_of_images_that_were_exchanged(photos, checkpoint, shotfit):
    results = photos.parent / "results"
    grid = ("bench", "--datasets", photos, "--backbones", checkpoint, "--methods", "layernorm")
    grid += ("--shots", 1, "--results", results, "-o", "training.iterations=1", "-q")
    assert shotfit(*grid)[0] == 0
    (old,) = load_records(results)
    assert "Nothing was missing" in shotfit(*grid)[1]
    exchange(photos)
    code, out, error = shotfit(*grid)
    assert code == 3 and "of other images than there are now" in error and old.id in error
    assert "Nothing was missing" not in out and load_records(results) == [old]
    assert shotfit(*grid, "--overwrite")[0] == 0
    (new,) = load_records(results)
    assert new.id == old.id and new.content != old.content and new.metrics.keys() == {*old.metrics}
    assert "Nothing was missing" in shotfit(*grid)[1]


def test_records_from_before_contents_were_noted_count_as_done(photos, experiment, shotfit):
    record, _ = run(experiment)
    assert record.content == current_content(experiment)
    results = photos.parent / "results"
    write_record(results, dataclasses.replace(record, content=""))
    exchange(photos)
    assert is_current(experiment, "") and not is_current(experiment, record.content)


def test_images_that_are_not_here_are_no_reason_to_run_again(photos, experiment):
    content = current_content(experiment)
    photos.rename(photos.parent / "unplugged")
    assert content is not None
    assert current_content(experiment) is None and is_current(experiment, content)


def test_curves_and_gains_of_other_images_are_run_again_on_request(photos, experiment, tmp_path):
    curve = dataclasses.replace(experiment, recipe=dynamics_recipe("layernorm", 1))
    stages = (*RECIPE.stages, Stage("linear", training={"iterations": 1}))
    gain = dataclasses.replace(experiment, recipe=Recipe(stages))
    cases = (
        (lambda **options: load_or_trace(curve, 1, tmp_path / "curves", **options)),
        (lambda **options: load_or_measure_gain(gain, tmp_path / "gains", **options)),
    )
    before = [load()[0] for load in cases]
    assert [load() for load in cases] == [(kept, False) for kept in before]
    exchange(photos)
    for load, kept in zip(cases, before, strict=True):
        with pytest.raises(DataError, match="A result is of other images"):
            load()
        again, made = load(overwrite=True)
        assert made and again != kept
        assert load() == (again, False)
