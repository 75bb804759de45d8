"""Every code block of the README and of the documentation runs, and prints what stands below it."""

import shutil
from pathlib import Path

import page_code
import pytest
import site_pages
from markdown_it import MarkdownIt
from PIL import ImageOps
from served import Server
from synthetic_records import suite

import shotfit.timed_plan
from shotfit.classifier import FewShotClassifier
from shotfit.data.images import open_image
from shotfit.data.sources import load_dataset
from shotfit.recipe import named_recipe
from shotfit.records import write_record

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
METHODS = ("2sfs_layernorm", "layernorm", "coop", "zero_shot")
ANIMALS = ("cat face", "dog", "horse", "fox")
MINUTES = {
    *("docs/own-photographs.md", "docs/speed-and-accuracy.md"),
    *("docs/stopping.md", "docs/words.md", "docs/export.md", "docs/index.md"),
}
SECONDS = {"README.md", "docs/observing.md", *MINUTES}
"""Pages that take more than a few seconds, and those for which `make test` has no time."""
WHOLE = {"docs/index.md", "docs/own-photographs.md"}
"""Pages whose fits are not shortened: what they print is what a reader gets."""
HUB = "needs the Hugging Face hub"
HOURS, ENDLESS = "takes hours", "runs until it is stopped"
NOT_RUN = {
    "docs/app.md": [ENDLESS],
    "docs/backbones.md": [HUB, HUB, "needs downloaded weights"],
    "docs/claims.md": ["takes some ten minutes", HOURS, "takes half an hour"],
    "docs/dynamics.md": [HOURS, HOURS],
    "docs/export.md": [HUB],
    "docs/index.md": [HUB],
    "docs/observing.md": [ENDLESS],
    "docs/own-photographs.md": [HUB],
    "docs/paper.md": ["takes minutes", "takes half an hour", "takes minutes"],
    "docs/prediction.md": ["needs a Ray cluster"],
    "docs/serving.md": [ENDLESS, "needs a Ray cluster", "needs Docker"],
    "docs/speed-and-accuracy.md": ["needs a fit that was broken off"] * 2,
    "docs/tables.md": [HOURS, HOURS, "needs the benchmark datasets"],
}
"""Blocks that no test runs, by the reasons that stand before them."""


def photographs(folder):
    """Seven images each of four classes, and these mirrored, as `photos/dog/1.png`."""
    dataset = load_dataset("demo", name="animals")
    for name in ANIMALS:
        label = dataset.classnames.index(name)
        images = [open_image(e.image) for e in dataset.train + dataset.test if e.label == label]
        place = folder / name.removesuffix(" face")
        place.mkdir(parents=True)
        for number, image in enumerate([*images, *map(ImageOps.mirror, images)], 1):
            image.save(place / f"{number}.png")


def short_recipe(name):
    """The published budget takes minutes; what runs is the same in three iterations a shot."""
    return named_recipe(name, iters_per_shot=3)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """What pages may ask for, made once."""
    folder = tmp_path_factory.mktemp("given")
    photographs(folder / "photos")
    return folder


@pytest.fixture(scope="module")
def pets(store):
    classifier = FewShotClassifier(method=short_recipe("2sfs"))
    classifier.fit(store / "photos", shots=6, verbose=False).save_pretrained(store / "pets")
    return store / "pets"


@pytest.fixture
def given(store, tmp_path, request, monkeypatch):
    """Puts what a reader has into the page's folder."""

    def fabric():
        textile = pytest.importorskip("conformal_clip_data").textile_simulated_root()
        for kind in ("global", "local", "nominal"):
            (tmp_path / "photos" / kind).mkdir(parents=True)
            for number, source in enumerate(sorted((Path(textile) / kind).glob("*.jpg"))[:24]):
                shutil.copy(source, tmp_path / "photos" / kind / f"{number}.jpg")

    def records():
        for shots in (4, 8):
            for record in suite(METHODS, shots=shots):
                write_record(tmp_path / "results", record)

    def server():
        if shutil.which("curl") is None:
            pytest.skip("there is no curl here")
        monkeypatch.setenv("SECRET", "a-secret")
        served = Server(tmp_path / "pets-onnx", "--token", "a-secret")
        request.addfinalizer(served.stop)
        monkeypatch.setenv("PAGE_SERVER", served.url.removeprefix("http://"))

    makers = {
        "photos": lambda: shutil.copytree(store / "photos", tmp_path / "photos"),
        "photo.jpg": lambda: open_image(store / "photos" / "cat" / "1.png").save("photo.jpg"),
        "pets": lambda: shutil.copytree(request.getfixturevalue("pets"), tmp_path / "pets"),
        "fabric": fabric,
        "records": records,
        "server": server,
    }

    def give(*names):
        for name in names:
            makers[name]()

    return give


def cost(name):
    """Marks of a page, by how long its code takes."""
    return [pytest.mark.slow] * (name in SECONDS) + [pytest.mark.pages] * (name in MINUTES)


@pytest.mark.parametrize("name", [pytest.param(name, marks=cost(name)) for name in NAMES])
def test_a_page_runs_and_prints_what_it_shows(name, given, tmp_path, monkeypatch):
    document = page_code.parse(ROOT / name, given)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    if name not in WHOLE:
        monkeypatch.setattr(shotfit.timed_plan, "named_recipe", short_recipe)
    assert page_code.run(document) == NOT_RUN.get(name, [])


def fences(text):
    """The blocks of a page, by a parser of Markdown."""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type in ("fence", "code_block"):
            yield token


@pytest.mark.parametrize("name", NAMES)
def test_no_block_escapes(name):
    tokens = list(fences((ROOT / name).read_text(encoding="utf-8")))
    assert not [token.content for token in tokens if token.type == "code_block"], "use a fence"
    run = [token.content for token in tokens if token.info in ("python", "shell", "text")]
    regions = [example.region for example in page_code.parse(ROOT / name, print).examples()]
    assert [str(region.parsed) for region in regions if region.lexemes.get("language")] == run


GENERATED = site_pages.pages()


@pytest.mark.parametrize("name", [*NAMES, *GENERATED])
def test_every_command_is_understood(name):
    """Also where it is not run, and on pages that are made from the code."""
    text = GENERATED.get(name) or (ROOT / name).read_text(encoding="utf-8")
    for token in fences(text):
        if token.info == "python":
            compile(token.content, name, "exec")
        for line in page_code.lines(token.content) if token.info == "shell" else ():
            program, *words = page_code.arguments(line)
            if program == "shotfit":
                page_code.understood(words)
