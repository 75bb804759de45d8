"""What Python has at hand, as data: the real libraries, each once, and sentences for the rest."""

import http.server
import io
import threading

import datasets
import numpy as np
import pandas
import polars
import pytest
import torch
from conftest import COLORS, shapes_dataset
from PIL import Image

from shotfit.classifier import FewShotClassifier
from shotfit.data.images import open_image
from shotfit.data.inputs import as_dataset
from shotfit.data.python_data import Naming, images_of
from shotfit.errors import DataError, UsageError
from shotfit.recipe import named_recipe

RED, BLUE = (200, 30, 30), (30, 30, 200)
NAMES = ["red", "blue"]


def picture(color, size=(40, 30)):
    return Image.new("RGB", size, color)


def png(color):
    stream = io.BytesIO()
    picture(color).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def files(tmp_path):
    made = []
    for number, color in enumerate((RED, BLUE, RED, BLUE)):
        path = tmp_path / f"{number}.png"
        path.write_bytes(png(color))
        made.append(path)
    return made


LABELS = ["red", "blue", "red", "blue"]
ARRAYS = np.stack([np.asarray(picture(color)) for color in (RED, BLUE, RED, BLUE)])


class Pairs(torch.utils.data.Dataset):
    """A torch dataset that counts how often it is asked."""

    def __init__(self, targets=None, classes=None):
        self.asked = []
        if targets is not None:
            self.targets, self.classes = targets, classes

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.asked.append(index)
        return picture((RED, BLUE)[index % 2]), index % 2


def hugging_face(files, names=NAMES):
    feature = datasets.Features(
        {"photo": datasets.Image(), "label": datasets.ClassLabel(names=names)}
    )
    rows = {"photo": [str(file) for file in files], "label": [0, 1, 0, 1]}
    return datasets.Dataset.from_dict(rows, features=feature)


def given(kind, files):
    """The same four images as (data, labels, naming)."""
    paths = [str(file) for file in files]
    numbers = Naming(NAMES)
    frame = {"path": paths, "label": LABELS}
    return {
        "paths": lambda: (paths, LABELS, None),
        "Path": lambda: (files, tuple(LABELS), None),
        "bytes": lambda: ([file.read_bytes() for file in files], LABELS, None),
        "file objects": lambda: ([io.BytesIO(file.read_bytes()) for file in files], LABELS, None),
        "pictures": lambda: ([Image.open(file) for file in files], np.array(LABELS), None),
        "array": lambda: (ARRAYS, LABELS, None),
        "array, numbers": lambda: (ARRAYS, np.array([0, 1, 0, 1]), numbers),
        "array, floats as labels": lambda: (ARRAYS, np.array([0.0, 1.0, 0.0, 1.0]), numbers),
        "tensor": lambda: (
            torch.from_numpy(ARRAYS).permute(0, 3, 1, 2),
            torch.tensor([0, 1, 0, 1]),
            numbers,
        ),
        "mapping of names": lambda: (ARRAYS, [7, 9, 7, 9], Naming({7: "red", 9: "blue"})),
        "pairs": lambda: (list(zip(paths, LABELS, strict=True)), None, None),
        "generator of pairs": lambda: (zip(ARRAYS, LABELS, strict=True), None, None),
        "generators": lambda: (iter(paths), iter(LABELS), None),
        "pandas": lambda: (pandas.DataFrame(frame), None, None),
        "pandas, columns named": lambda: (
            pandas.DataFrame({"a": paths, "b": [0, 1, 0, 1]}),
            None,
            Naming(NAMES, "a", "b"),
        ),
        "pandas, labels apart": lambda: (pandas.DataFrame({"image": list(ARRAYS)}), LABELS, None),
        "pandas, labels by column": lambda: (
            pandas.DataFrame({**frame, "breed": LABELS}).drop(columns="label"),
            "breed",
            None,
        ),
        "pandas series": lambda: (pandas.Series(paths), pandas.Series(LABELS), None),
        "polars": lambda: (polars.DataFrame(frame), None, None),
        "polars, bytes": lambda: (
            polars.DataFrame({"image": [f.read_bytes() for f in files], "class": LABELS}),
            None,
            None,
        ),
        "polars series": lambda: (polars.Series(paths), polars.Series(LABELS), None),
        "Hugging Face": lambda: (hugging_face(files), None, None),
        "Hugging Face, splits": lambda: (
            datasets.DatasetDict({"train": hugging_face(files)}),
            None,
            None,
        ),
        "torch": lambda: (Pairs(), None, numbers),
        "torchvision": lambda: (Pairs([0, 1, 0, 1], NAMES), None, None),
    }[kind]()


KINDS = [
    "paths", "Path", "bytes", "file objects", "pictures", "array", "array, numbers",
    "array, floats as labels", "tensor", "mapping of names", "pairs", "generator of pairs",
    "generators", "pandas", "pandas, columns named", "pandas, labels apart",
    "pandas, labels by column", "pandas series", "polars", "polars, bytes", "polars series",
    "Hugging Face", "Hugging Face, splits", "torch", "torchvision",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_images_and_labels_whatever_they_come_in(kind, files):
    data, labels, naming = given(kind, files)
    dataset = as_dataset(data, labels, naming=naming)
    assert dataset.classnames == ("red", "blue")
    assert [example.label for example in dataset.train] == [0, 1, 0, 1]
    assert len({example.key for example in dataset.train}) == 4
    for example, expected in zip(dataset.train, ARRAYS, strict=True):
        assert np.array_equal(np.asarray(open_image(example.image)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_images_without_their_labels(kind, files):
    data, _, naming = given(kind, files)
    if kind == "Hugging Face, splits":
        with pytest.raises(UsageError, match=r"data\['train'\]"):
            images_of(data)
        return
    column = "a" if naming and naming.image_column else None
    images, single = images_of(data, column)
    assert not single
    found = [np.asarray(open_image(image)) for image in images]
    assert np.array_equal(found, ARRAYS)


@pytest.mark.parametrize(
    "one",
    [png(RED), picture(RED), np.asarray(picture(RED)), io.BytesIO(png(RED))],
    ids=["bytes", "picture", "array", "file object"],
)
def test_one_image_is_one(one):
    images, single = images_of(one)
    assert single
    assert np.array_equal(np.asarray(open_image(next(images))), ARRAYS[0])


def test_a_file_that_is_open_is_one_image_and_a_tensor_too(files):
    with files[0].open("rb") as file:
        images, single = images_of(file)
        assert (single, open_image(next(images)).size) == (True, (40, 30))
    images, single = images_of(torch.from_numpy(ARRAYS[0]).permute(2, 0, 1))
    assert (single, open_image(next(images)).size) == (True, (40, 30))


def test_a_torch_dataset_with_targets_is_only_asked_for_what_is_used():
    data = Pairs([0, 1, 0, 1], NAMES)
    dataset = as_dataset(data)
    assert data.asked == []
    open_image(dataset.train[2].image)
    assert data.asked == [2]


@pytest.mark.parametrize(
    ("data", "labels", "naming", "words"),
    [
        (ARRAYS, [0, 1, 0, 1], None, "Labels are numbers.*classnames="),
        (ARRAYS, LABELS[:3], None, "4 images and 3 labels"),
        (ARRAYS, [0, "red", 0, 1], Naming(NAMES), "all names or all numbers"),
        (ARRAYS, [0.5, 1, 0, 1], Naming(NAMES), "class name or a whole number, got 0.5"),
        (ARRAYS, [0, 1, None, 1], Naming(NAMES), "Image 2 has no label"),
        (ARRAYS, [0, 1, float("nan"), 1], Naming(NAMES), "Image 2 has no label"),
        (ARRAYS, [0, 1, 0, 2], Naming(NAMES), "Image 3 has the label 2, which is none"),
        (ARRAYS, LABELS, Naming("red blue"), "Class names are a list"),
        (list(ARRAYS), None, None, "Item 0 is ndarray and no pair"),
        (["a.png", "b.png"], None, None, "Item 0 is str and no pair"),
        ([], None, None, "no images"),
        ({"red": ["1.png"]}, None, None, "dict is not understood.*DataFrame"),
        (None, None, None, "NoneType is not understood"),
        (5, None, None, "int is not understood"),
        ([3.5], ["red"], None, "file object, a PIL image or an array, got float"),
        ([io.StringIO("x")], ["red"], None, "binary mode"),
        (pandas.DataFrame({"a": [1], "b": [2]}), None, None, "Which column is the image.*a, b"),
        (pandas.DataFrame({"path": [1], "file": [2]}), None, None, "Which column is the image"),
        (
            pandas.DataFrame({"photo": ["x"]}), None, Naming(None, "foto"),
            "Unknown image column 'foto'. Did you mean 'photo'",
        ),
        (polars.LazyFrame({"path": ["x"]}), None, None, r"lazy\.collect\(\)"),
        ("animals", LABELS, None, "is not understood|labels"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_says_what_can(data, labels, naming, words):
    with pytest.raises((UsageError, DataError), match=words):
        as_dataset(data, labels, naming=naming)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (ARRAYS[0].transpose(2, 0, 1), r"channels first: array\.transpose\(1, 2, 0\)"),
        (ARRAYS[0] / 255, r"got float64.*255 \* array"),
        (ARRAYS[0].astype(np.int64), "got int64"),
        (ARRAYS[0][:, :, :2], r"\(30, 40, 2\)"),
    ],
)
def test_arrays_that_are_no_images(image, words):
    with pytest.raises(UsageError, match=words):
        open_image(image)
    assert open_image(ARRAYS[0][:, :, :1]).size == (40, 30)


def test_tensors_that_were_prepared_for_another_model():
    with pytest.raises(UsageError, match="float32 is an image that was prepared for some model"):
        as_dataset(torch.rand(2, 3, 8, 8), ["red", "blue"])


def test_a_stream_of_hugging_face_needs_pairs(files):
    stream = hugging_face(files).to_iterable_dataset()
    with pytest.raises(UsageError, match="streamed"):
        as_dataset(stream)
    pairs = ((row["photo"], NAMES[row["label"]]) for row in stream.take(2))
    assert as_dataset(pairs).classnames == ("red", "blue")
    with pytest.raises(UsageError, match="has its labels"):
        as_dataset(hugging_face(files), LABELS)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response({"/away": 302}.get(self.path, 200 if self.path == "/red" else 404))
        if self.path == "/away":
            self.send_header("Location", "ftp://nowhere/red")
        self.end_headers()
        if self.path == "/red":
            self.wfile.write(png(RED))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_addresses_are_fetched_only_where_that_is_asked_for(server):
    images, single = images_of(f"{server}/red")
    assert single
    with pytest.raises(DataError, match=r"on the web.*fetch_urls=True"):
        open_image(next(images))
    images, _ = images_of([f"{server}/red"], fetch_urls=True)
    assert np.array_equal(np.asarray(open_image(next(images))), ARRAYS[0])
    for path, words in (("/none", "404"), ("/away", "cannot be fetched")):
        images, _ = images_of(f"{server}{path}", fetch_urls=True)
        with pytest.raises(DataError, match=words):
            next(images)


@pytest.fixture(scope="module")
def fitted(checkpoint):
    recipe = named_recipe("2sfs", iters_per_shot=2)
    return FewShotClassifier(str(checkpoint), recipe).fit(shapes_dataset(4), verbose=False)


def test_a_fit_tells_what_it_was_to_do_and_has_done(fitted):
    assert [stage.stage.method for stage in fitted.plan] == ["layernorm", "linear"]
    assert [row["stage"] for row in fitted.history] == [1] * 7 + [2] * 5
    assert [row["iteration"] for row in fitted.history] == [*range(1, 8), *range(1, 6)]
    assert set(fitted.history[0]) == {"stage", "iteration", "loss", "accuracy", "lr"}
    assert "accuracy" in fitted.metrics
    tests = shapes_dataset(4).test
    images, labels = [e.image for e in tests], [COLORS[e.label] for e in tests]
    assert fitted.score(images, labels) == pytest.approx(fitted.metrics["accuracy"] / 100)
    answers = fitted.predict(images)
    right = sum(a == b for a, b in zip(answers, labels, strict=True))
    assert fitted.score(images, labels) == right / len(labels)
    numbers = [e.label for e in tests]
    assert fitted.score(images, numbers, classnames=COLORS) == right / len(labels)


def test_fit_forgets_the_fit_before(checkpoint):
    recipe = named_recipe("2sfs", iters_per_shot=1)
    one, other = (FewShotClassifier(str(checkpoint), recipe) for _ in range(2))
    one.fit(ARRAYS, LABELS, verbose=False)
    one.add_classes(["green"])
    one.fit(shapes_dataset(2), verbose=False)
    other.fit(shapes_dataset(2), verbose=False)
    assert one.classes == other.classes == ("red", "green")
    images = [e.image for e in shapes_dataset(2).test]
    assert np.array_equal(one.predict_proba(images), other.predict_proba(images))
    assert one.history == other.history


def test_progress_names_its_phases_and_can_be_silent(checkpoint, capsys):
    classifier = FewShotClassifier(str(checkpoint), named_recipe("2sfs", iters_per_shot=1))
    classifier.fit(ARRAYS, LABELS, verbose=False)
    assert capsys.readouterr() == ("", "")
    classifier.fit(shapes_dataset(2))
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0].startswith(f"loading {checkpoint}")
    assert lines[1] == "decoding images: 12 …"
    assert lines[2].startswith("stage 1 (layernorm) 1/3: loss ")
    assert not any("s left" in line for line in lines), "nothing is known after one update"
    assert lines[-1].startswith("evaluating ")


def test_parameters_as_scikit_learn_wants_them(checkpoint):
    sklearn = pytest.importorskip("sklearn.base")
    classifier = FewShotClassifier(str(checkpoint), "zero_shot", seed=5)
    copy = sklearn.clone(classifier)
    assert copy.get_params() == classifier.get_params()
    assert copy.experiment == classifier.experiment
    classifier.fit(ARRAYS, LABELS, verbose=False)
    assert classifier.set_params(seed=6).get_params()["seed"] == 6
    with pytest.raises(UsageError, match="not been fitted"):
        classifier.predict(ARRAYS)
    with pytest.raises(UsageError, match="Unknown parameter 'sed'. Did you mean 'seed'"):
        classifier.set_params(sed=3)
