"""What is there of the benchmark datasets, and what a run would miss."""

from pathlib import Path

import pytest
from example_images import image_file

from shotfit.data.benchmark.catalogue import all_statuses, check, how_to_get, layout_tree, status
from shotfit.data.benchmark.facts import benchmarks, find_benchmark
from shotfit.data.benchmark.making_splits import make_split
from shotfit.data.benchmark.split_files import write_split
from shotfit.data.checks import missing_files, unreadable_files
from shotfit.data.dataset import Dataset, Example
from shotfit.data.sources.coop import load
from shotfit.errors import UsageError


def with_split(root: Path, name: str) -> Path:
    """The replica under `root` completed by a file in the place of the published split."""
    benchmark = find_benchmark(name)
    return write_split(make_split(root, name), benchmark.directory(root) / benchmark.split_file)


def test_every_raw_layout_and_its_split_make_a_dataset_ready(replica) -> None:
    root = replica(*benchmarks())
    for name, benchmark in benchmarks().items():
        if benchmark.split_file:
            assert status(root, name).missing == (benchmark.split_file,)
            with_split(root, name)
    assert {found.state for found in all_statuses(root)} == {"ready"}
    for name in benchmarks():
        found = check(root, name)
        assert found.ok and found.missing == ()
        # a miniature has other numbers than the published dataset, and says so
        assert any(note.startswith("train:") for note in found.notes)


def test_absent_and_incomplete_datasets_are_told_apart(replica) -> None:
    root = replica("fgvc_aircraft")
    (root / "fgvc_aircraft" / "variants.txt").unlink()
    states = {found.benchmark.key: found for found in all_statuses(root)}
    assert states["fgvc_aircraft"].state == "incomplete"
    assert states["fgvc_aircraft"].missing == ("variants.txt",)
    assert states["dtd"].state == "absent"
    assert all_statuses(root / "nowhere")[0].state == "absent"
    with pytest.raises(UsageError, match="Unknown dataset"):
        status(root, "mnist")


def test_the_layout_is_drawn_as_a_tree_with_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "eurosat" / "2750").mkdir(parents=True)
    benchmark = find_benchmark("eurosat")
    tree = layout_tree(benchmark, status(tmp_path, "eurosat"))
    first, images, split = tree.splitlines()
    assert first == "eurosat/"
    assert images.startswith("├── 2750/") and "(missing)" not in images
    assert split.startswith("└── split_zhou_EuroSAT.json") and split.endswith("(missing)")
    assert "(missing)" not in layout_tree(benchmark)


def test_every_dataset_says_where_it_comes_from() -> None:
    for benchmark in benchmarks().values():
        text = how_to_get(benchmark)
        assert benchmark.homepage in text
        assert ("Split:" in text) == bool(benchmark.split_file)


def test_missing_images_are_found_before_a_run(replica) -> None:
    root = replica("dtd")
    with_split(root, "dtd")
    dataset = load(root, "dtd")
    assert missing_files(dataset) == []
    gone = [image_file(dataset.train[3]), image_file(dataset.test[-1])]
    for path in gone:
        path.unlink()
    assert missing_files(dataset) == gone
    found = check(root, "textures")
    assert not found.ok and found.missing == tuple(gone)
    # a folder that is gone, and a name in other capitals
    renamed = image_file(dataset.val[0])
    renamed.rename(renamed.with_suffix(".JPG"))
    assert renamed in missing_files(dataset)
    (root / "dtd" / "images" / "banded").rename(root / "dtd" / "images" / "Banded")
    everything = (*dataset.train, *dataset.val, *dataset.test)
    banded = {image_file(example) for example in everything if example.label == 0}
    assert banded <= set(missing_files(dataset))


def test_images_that_cannot_be_decoded_are_found_on_request(replica) -> None:
    root = replica("dtd")
    with_split(root, "dtd")
    dataset = load(root, "dtd")
    empty, cut, absent = map(image_file, dataset.train[:3])
    whole = cut.read_bytes()
    empty.write_bytes(b"")
    cut.write_bytes(whole[: len(whole) - 40])
    absent.unlink()
    assert unreadable_files(dataset) == [empty, cut]
    assert check(root, "dtd").unreadable == ()
    assert check(root, "dtd", decode=True).unreadable == (empty, cut)


def test_a_dataset_that_cannot_be_loaded_is_a_finding_not_a_crash(replica) -> None:
    root = replica("dtd")
    found = check(root, "dtd")
    assert not found.ok and "split_zhou_DescribableTextures.json is missing" in found.error
    with_split(root, "dtd").write_text("{")
    assert "cannot be read" in check(root, "dtd").error


def test_images_in_memory_are_never_missing() -> None:
    dataset = Dataset("mine", ("a",), train=(Example("x", 0, b"bytes"),))
    assert missing_files(dataset) == unreadable_files(dataset) == []
