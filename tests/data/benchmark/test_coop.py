"""The benchmark table and the reader of CoOp's layouts."""

import json
from pathlib import Path

import pytest
from example_images import image_file

from shotfit.data.benchmark.facts import benchmarks, find_benchmark
from shotfit.data.benchmark.split_files import read_split, write_split
from shotfit.data.sources.coop import load
from shotfit.data.task import make_task
from shotfit.errors import DataError, UsageError

# Entries as the published split files have them, one class per quirk.
PUBLISHED = {
    "caltech101": ["Faces/image_0201.jpg", "face", "accordion/image_0001.jpg", "accordion"],
    "oxford_pets": ["Abyssinian_141.jpg", "abyssinian", "Maine_Coon_1.jpg", "maine_coon"],
    "stanford_cars": ["cars_train/00467.jpg", "2012 Acura TL Sedan", "cars_train/1.jpg", "2000 A"],
    "oxford_flowers": ["image_00144.jpg", "pink primrose", "image_00001.jpg", "canterbury bells"],
    "food101": ["apple_pie/1.jpg", "apple_pie", "waffles/2.jpg", "waffles"],
    "sun397": ["a/abbey/s.jpg", "abbey", "a/apartment_building/outdoor/s.jpg", "outdoor x_y"],
    "dtd": ["banded/banded_0117.jpg", "banded", "dotted/dotted_0001.jpg", "dotted"],
    "eurosat": ["AnnualCrop/AnnualCrop_1.jpg", "Annual Crop Land", "River/River_1.jpg", "River"],
    "ucf101": ["Apply_Eye_Makeup/v_A.jpg", "Apply_Eye_Makeup", "Yo_Yo/v_Y.jpg", "Yo_Yo"],
}


def write_published(root: Path, key: str) -> Path:
    benchmark = find_benchmark(key)
    first, first_name, second, second_name = PUBLISHED[key]
    entries = [[second, 1, second_name], [first, 0, first_name]]
    path = benchmark.directory(root) / benchmark.split_file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"train": entries, "val": entries[:1], "test": entries[1:]}))
    return path


def test_the_table_has_the_eleven_datasets_of_the_paper() -> None:
    rows = benchmarks()
    assert len(rows) == 11
    assert {row.counts for row in rows.values()} == {"counted", "derived", "unverified"}
    # methods of the paper's comparison use one prompt set; these three are easily mistyped
    assert rows["dtd"].template == "{} texture."
    assert rows["eurosat"].template == "a centered satellite photo of {}."
    assert rows["food101"].template == "a photo of {}, a type of food."
    for row in rows.values():
        assert row.template.count("{}") == 1
        required = [entry.path for entry in row.layout if entry.required]
        assert not row.split_file or row.split_file in required


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("OxfordPets", "oxford_pets"),
        ("DescribableTextures", "dtd"),
        ("describable_textures", "dtd"),
        ("cars", "stanford_cars"),
        ("flowers102", "oxford_flowers"),
        ("aircraft", "fgvc_aircraft"),
        ("fgvc", "fgvc_aircraft"),
        ("caltech-101", "caltech101"),
        ("ImageNet", "imagenet"),
    ],
)
def test_aliases_name_the_same_dataset(name: str, key: str) -> None:
    assert find_benchmark(name).key == key


def test_no_two_datasets_share_a_name() -> None:
    for row in benchmarks().values():
        for name in (row.key, row.coop_name, row.folder, *row.aliases):
            assert find_benchmark(name) is row


def test_an_unknown_dataset_is_a_usage_error_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="eurosat"):
        load(tmp_path, "eurosta")


@pytest.mark.parametrize("key", PUBLISHED)
def test_a_published_split_is_read(tmp_path: Path, key: str) -> None:
    write_published(tmp_path, key)
    dataset = load(tmp_path, key)
    first, first_name, second, second_name = PUBLISHED[key]
    assert dataset.name == key
    assert dataset.classnames == (first_name.replace("_", " "), second_name.replace("_", " "))
    # in file order: the few-shot draw goes through the classes as they first appear
    assert [(e.key, e.label) for e in dataset.train] == [(second, 1), (first, 0)]
    assert [e.key for e in dataset.val] == [second]
    assert [e.key for e in dataset.test] == [first]
    row = find_benchmark(key)
    assert dataset.test[0].image == tmp_path / row.folder / row.images / first
    assert dataset.template == "a photo of a {}."


def test_templates_and_underscores_are_options(tmp_path: Path) -> None:
    write_published(tmp_path, "oxford_pets")
    specific = load(tmp_path, "pets", template="specific", keep_underscores=True)
    assert specific.template == "a photo of a {}, a type of pet."
    assert specific.classnames == ("abyssinian", "maine_coon")
    assert load(tmp_path, "pets", template="itap of a {}.").template == "itap of a {}."
    with pytest.raises(UsageError, match="template"):
        load(tmp_path, "pets", template="specfic")


def test_a_written_split_reads_back_equal(tmp_path: Path) -> None:
    write_published(tmp_path, "ucf101")
    dataset = load(tmp_path, "ucf101", keep_underscores=True)
    path = write_split(dataset, tmp_path / "ucf101" / "again.json", note="a copy")
    assert load(tmp_path, "ucf101", split_file=path.name, keep_underscores=True) == dataset
    assert load(tmp_path, "ucf101", split_file=path.absolute(), keep_underscores=True) == dataset
    published = read_split(tmp_path / "ucf101" / find_benchmark("ucf101").split_file)
    assert read_split(path) == published


def test_missing_files_are_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data root .*nowhere is not a folder"):
        load(tmp_path / "nowhere", "dtd")
    with pytest.raises(DataError, match=r"the folder .*dtd is missing.*shotfit datasets"):
        load(tmp_path, "dtd")
    (tmp_path / "dtd").mkdir()
    with pytest.raises(DataError, match=r"split_zhou_DescribableTextures.json is missing. Get it"):
        load(tmp_path, "dtd")
    (tmp_path / "dtd" / "split_shotfit_DescribableTextures-seed_1.json").touch()
    with pytest.raises(DataError, match="not the published one"):
        load(tmp_path, "dtd")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "must hold the lists"),
        ('{"train": [], "val": []}', "must hold the lists"),
        ('{"train": [], "val": [], "test": []}', "no training images"),
        ('{"train": [["a.jpg", 0]], "val": [], "test": []}', r"train\[0\]"),
        ('{"train": [["a.jpg", -1, "a"]], "val": [], "test": []}', r"train\[0\]"),
        ('{"train": [["a.jpg", true, "a"]], "val": [], "test": []}', r"train\[0\]"),
        ('{"train": [["a.jpg", 0, ""]], "val": [], "test": []}', r"train\[0\]"),
        ('{"train": [["../a.jpg", 0, "a"]], "val": [], "test": []}', "relative"),
        ('{"train": [["/a.jpg", 0, "a"]], "val": [], "test": []}', "relative"),
        ('{"train": [["a.jpg", 1, "a"]], "val": [], "test": []}', "no image of label 0"),
        ('{"train": [["a.jpg", 0, "a"]], "val": [["b", 0, "b"]], "test": []}', "two class names"),
        # The memory of a machine, if all labels up to the last were looked at.
        (
            '{"train": [["a", 0, "a"], ["b", 9' + 99 * "9" + ', "b"]], "val": [], "test": []}',
            "no image of label 1",
        ),
    ],
)
def test_a_corrupt_split_file_is_a_data_error(tmp_path: Path, text: str, message: str) -> None:
    path = write_published(tmp_path, "dtd")
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        load(tmp_path, "dtd")
    assert path.name in str(caught.value)


def test_two_labels_may_share_a_name(tmp_path: Path) -> None:
    path = write_published(tmp_path, "dtd")
    path.write_text('{"train": [["a", 0, "x"], ["b", "1", "x"]], "val": [], "test": []}')
    dataset = load(tmp_path, "dtd")
    assert dataset.classnames == ("x", "x")
    assert [e.label for e in dataset.train] == [0, 1]


def test_fgvc_is_read_from_the_official_lists(replica) -> None:
    root = replica("fgvc_aircraft")
    dataset = load(root, "FGVCAircraft", template="specific")
    assert dataset.classnames == ("707-320", "Boeing 717", "F-16A/B")
    assert [len(s) for s in (dataset.train, dataset.val, dataset.test)] == [6, 6, 6]
    assert dataset.train[1].key == "0000001.jpg"
    assert [e.label for e in dataset.train] == [0, 2, 1, 0, 2, 1]
    assert all(image_file(e).is_file() for e in dataset.test)
    assert dataset.template == "a photo of a {}, a type of aircraft."


def test_fgvc_faults_are_named(replica) -> None:
    root = replica("fgvc_aircraft")
    train = root / "fgvc_aircraft" / "images_variant_train.txt"
    train.write_text("0000001 707-321\n")
    with pytest.raises(DataError, match=r"Line 1 of .*train.txt.*707-321"):
        load(root, "fgvc")
    train.write_text("\n")
    with pytest.raises(DataError, match="train.txt is empty"):
        load(root, "fgvc")
    train.unlink()
    with pytest.raises(DataError, match="train.txt is missing"):
        load(root, "fgvc")


def test_imagenet_labels_follow_sorted_folders_and_equal_names_keep_their_rows(replica) -> None:
    dataset = load(replica("imagenet"), "imagenet")
    assert dataset.classnames == ("tench", "Chihuahua", "missile", "missile")
    assert [e.label for e in dataset.test] == [0, 1, 2, 3]
    assert [e.key for e in dataset.train[:3]] == [
        f"train/n01440764/n01440764_{number}.JPEG" for number in (1, 10, 9)
    ]
    assert all(image_file(e).is_file() for e in (*dataset.train, *dataset.test))
    # test images never serve as validation images
    assert dataset.val == ()
    task = make_task(dataset, "base_to_novel", shots=2, seed=1)
    assert task.tests["novel"].classnames == ("missile", "missile")
    assert task.tests["novel"].labels == (0, 1)
    assert len(task.support.examples) == 4


def test_an_imagenet_class_that_is_missing_is_an_error(replica) -> None:
    root = replica("imagenet")
    train = root / "imagenet" / "images" / "train"
    (train / "n04008634").rename(train / "n99999999")
    with pytest.raises(DataError, match="no folder n04008634"):
        load(root, "imagenet")
    (train / "n99999999").rename(train / "n04008634")
    (train / "n00000000").mkdir()
    with pytest.raises(DataError, match="unlisted folder n00000000"):
        load(root, "imagenet")


def test_an_unsorted_imagenet_validation_folder_is_an_error(replica) -> None:
    root = replica("imagenet")
    val = root / "imagenet" / "images" / "val"
    val.rename(val.with_name("sorted"))
    val.mkdir()
    (val / "ILSVRC2012_val_00000001.JPEG").touch()
    with pytest.raises(DataError, match="one folder per class"):
        load(root, "imagenet")
    (root / "imagenet" / "classnames.txt").write_text("n01440764\n")
    with pytest.raises(DataError, match=r"Line 1 of .*classnames.txt"):
        load(root, "imagenet")
