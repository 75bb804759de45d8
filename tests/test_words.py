"""Several templates and descriptions: what a class is then, in every stage, saved, and refused."""

import json

import numpy as np
import pytest
import torch
from conftest import COLORS, make_backbone, shapes_dataset
from torch.nn import functional as F

from shotfit.bench.grid import expand
from shotfit.classifier import FewShotClassifier
from shotfit.data.sources import load_dataset
from shotfit.data.template import TEMPLATE, Words, given_words
from shotfit.errors import DataError, UsageError
from shotfit.methods import get_method, list_methods
from shotfit.methods.linear import LinearClassifier
from shotfit.recipe import Recipe, Stage

TEMPLATES = ("a photo of a {}.", "red {}.", "a green blue {}")
SENTENCES = {"yellow": ("of a photo", "purple {} of"), "sky_blue": ("a blue photo.",)}
WORDS = Words(TEMPLATES, SENTENCES)
RECIPE = Recipe(
    (
        Stage("layernorm", training={"iterations": 2, "lr": 1e-2}),
        Stage("linear", training={"iterations": 3, "lr": 1e-2}),
    )
)
READING = [name for name in list_methods() if get_method(name).reads == "words"]


def mean_of(backbone, texts):
    """The mean of unit embeddings, brought to unit norm, one text at a time."""
    each = [F.normalize(backbone.encode_text([text])[0], dim=-1) for text in texts]
    return F.normalize(torch.stack(each).mean(dim=0), dim=-1)


def test_the_texts_of_a_class():
    assert WORDS.texts("yellow") == (
        *("a photo of a yellow.", "red yellow.", "a green blue yellow"),
        *("of a photo", "purple yellow of"),
    )
    # As folders are named, and as classes are.
    assert WORDS.texts("sky blue")[-1] == "a blue photo."
    assert len(WORDS.texts("red")) == 3
    assert WORDS.undescribed(["yellow", "red", "sky blue"]) == ("red",)
    assert Words.from_plain(json.loads(json.dumps(WORDS.plain()))) == WORDS
    assert not Words().several and Words(descriptions=SENTENCES).several


@torch.no_grad()
def test_a_class_is_the_mean_of_its_unit_embeddings():
    backbone = make_backbone()
    found = get_method("zero_shot")(backbone, None, WORDS).encode_classes(["red", "yellow"])
    expected = [mean_of(backbone, WORDS.texts(name)) for name in ("red", "yellow")]
    torch.testing.assert_close(found.weight, torch.stack(expected))
    # It is not the mean of their raw embeddings, and one template is what it was, to the bit.
    raw = F.normalize(backbone.encode_text(list(WORDS.texts("red"))).mean(dim=0), dim=-1)
    assert (found.weight[0] - raw).abs().max() > 1e-4
    single = get_method("zero_shot")(backbone, None, Words()).encode_classes(["red"])
    plain = get_method("zero_shot")(backbone).encode_classes(["red"])
    assert torch.equal(single.weight, plain.weight)


@pytest.mark.parametrize("name", [n for n in READING if get_method(n).open_vocabulary])
@torch.no_grad()
def test_every_method_that_reads_words_embeds_names_by_them(name):
    backbone = make_backbone()
    method = get_method(name)(backbone, None, WORDS)
    if not method.starts_at_zero_shot or name in ("lp_pp",):
        pytest.skip("a fresh one has no rows for names")
    found = method.encode_classes(["yellow"]).weight
    torch.testing.assert_close(found[0], mean_of(method.backbone, WORDS.texts("yellow")))


@pytest.mark.parametrize("name", sorted(set(list_methods()) - set(READING)))
def test_methods_of_one_template_refuse_several(name):
    with pytest.raises(UsageError, match="reads (a single|no) template"):
        get_method(name)(make_backbone(), None, WORDS)
    with pytest.raises(UsageError, match="have no effect"):
        expand([name], ["digits"], template=WORDS)


def test_gradients_reach_the_towers_through_the_mean(task):
    from conftest import make_support

    method = get_method("layernorm")(make_backbone(), None, WORDS)
    support = make_support(task)
    method.setup(support)
    pixels, labels = next(method.batches(support, 4, drop_last=False))
    method.loss(pixels, labels, support.classnames).loss.backward()
    text = [p.grad for n, p in method.named_parameters() if "text" in n and p.requires_grad]
    assert text and all(grad is not None and grad.abs().sum() > 0 for grad in text)


def test_both_stages_and_what_is_saved(checkpoint, tmp_path):
    data = shapes_dataset(3)
    fitted = FewShotClassifier(str(checkpoint), RECIPE).fit(
        data, shots=2, templates=TEMPLATES, descriptions=SENTENCES, verbose=False
    )
    assert isinstance(fitted.method, LinearClassifier) and fitted.method.words == WORDS
    assert fitted.experiment.data["words"] == WORDS.plain()
    saved = fitted.save_pretrained(tmp_path / "model")
    read = FewShotClassifier.from_pretrained(saved)
    assert read.method.words == WORDS
    read.add_classes(["yellow"])
    with torch.no_grad():
        row = read.method.encode_classes(["yellow"]).weight[0]
        backbone = read.method.backbone
        torch.testing.assert_close(row, mean_of(backbone, WORDS.texts("yellow")))
    # The untouched model beside it is scored by the same words.
    plain = FewShotClassifier(str(checkpoint), "zero_shot").fit(
        data, templates=TEMPLATES, descriptions=SENTENCES, verbose=False
    )
    found = fitted.evaluate(data)
    alone = plain.evaluate(data)
    assert found.zero_shot_accuracy is not None
    assert found.zero_shot_accuracy.percent == pytest.approx(alone.accuracy.percent)


def test_of_strangers_words_are_read_as_data(checkpoint, tmp_path):
    from shotfit.saved_settings import checksum

    fitted = FewShotClassifier(str(checkpoint), "zero_shot").fit(
        shapes_dataset(3), templates=TEMPLATES, verbose=False
    )
    saved = fitted.save_pretrained(tmp_path / "model")
    path = saved / "shotfit.json"
    settings = json.loads(path.read_text())
    for words in ({"templates": ["no place"]}, {"templates": "{}"}, {"code": 1}, [1]):
        changed = {**settings, "words": words}
        changed["checksum"] = checksum(changed)
        path.write_text(json.dumps(changed))
        with pytest.raises(DataError, match="words that cannot be used"):
            FewShotClassifier.from_pretrained(saved)


def test_words_are_options_of_data_and_part_of_an_identity():
    dataset = load_dataset("demo", name="digits", words=WORDS.plain())
    assert dataset.template == WORDS
    plain, several, other = (
        expand(["zero_shot"], ["digits"], template=template)[0]
        for template in (None, WORDS, Words(TEMPLATES))
    )
    assert len({plain.id, several.id, other.id}) == 3
    assert "words" not in plain.data


@pytest.mark.parametrize(
    "templates, descriptions",
    [
        (["no place"], {}),
        (["{} and {}"], {}),
        (TEMPLATES, {"red": "one text"}),
        (TEMPLATES, {"red": []}),
        (TEMPLATES, {"red": [" "]}),
        (TEMPLATES, {"red": ["\x1b[31m"]}),
        (TEMPLATES, {"red": [3]}),
        ("a {}", {}),
    ],
)
def test_what_are_no_words(templates, descriptions):
    with pytest.raises(UsageError):
        given_words(templates, descriptions)


def test_nothing_one_and_several():
    assert given_words((), {}) is None
    assert given_words(["a {}"], {}) == "a {}"
    assert given_words((), SENTENCES) == Words((TEMPLATE,), SENTENCES)


@pytest.fixture
def photos(tmp_path):
    for label, name in enumerate(COLORS[:3]):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.full((32, 32, 3), 40 * label + number, np.uint8)
            from PIL import Image

            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def test_on_the_command_line(shotfit, photos, checkpoint, tmp_path):
    templates, described = tmp_path / "templates.txt", tmp_path / "descriptions.json"
    templates.write_text("# of mine\n\nred {}.\na green blue {}\n")
    described.write_text(json.dumps({"red": ["a photo, of red"], "zebra": ["of {}"]}))
    fit = ("fit", photos, "--backbone", checkpoint, "--method", "zero_shot")
    code, _, err = shotfit(
        *fit,
        *("--template", "a photo of a {}.", "--template", "{}, of a photo"),
        *("--templates", templates, "--descriptions", described, "--out", tmp_path / "model"),
    )
    assert code == 0
    assert "2 classes have no description: 'blue', 'green'" in " ".join(err.split())
    assert (
        "described but no class here, and kept for names that are added later: 'zebra'"
        in " ".join(err.split())
    )
    read = FewShotClassifier.from_pretrained(tmp_path / "model")
    assert read.method.words.templates == (
        *("a photo of a {}.", "{}, of a photo", "red {}.", "a green blue {}"),
    )
    assert read.method.words.texts("zebra")[-1] == "of zebra"
    said = shotfit("info", tmp_path / "model")[1]
    assert "words      4 templates: 'a photo of a {}.', '{}, of a photo'" in said
    assert "2 sentences about 2 names" in said
    # What repeats the fit has them, too.
    again = ("fit", "--config", tmp_path / "model" / "config.yaml", "--out", tmp_path / "again")
    assert shotfit(*again)[0] == 0
    assert FewShotClassifier.from_pretrained(tmp_path / "again").method.words == read.method.words
    assert shotfit(*fit, "--template", "none")[0] == 2
    assert shotfit(*fit, "--templates", tmp_path / "none.txt")[0] == 3
    described.write_text("[]")
    assert shotfit(*fit, "--descriptions", described)[0] == 3
    described.write_text('{"red": "one"}')
    assert shotfit(*fit, "--descriptions", described)[0] == 2
    code, _, err = shotfit(*fit[:4], "--method", "coop", "--templates", "imagenet")
    assert code == 2 and "no template" in err


def test_a_grid_takes_templates_with_commas(shotfit, tmp_path):
    words = ("--template", "a {}, drawn", "--template", "an icon of a {}")
    grid = ("bench", "--methods", "zero_shot", "--datasets", "digits", "--results", tmp_path, "-q")
    assert shotfit(*grid, *words)[0] == 0
    (record,) = [json.loads(path.read_text()) for path in tmp_path.rglob("*.json")]
    assert record["experiment"]["data"]["words"] == {
        "templates": ["a {}, drawn", "an icon of a {}"],
        "descriptions": {},
    }
    said = shotfit("table", "runs", "--results", tmp_path)[1]
    assert "2 templates" in " ".join(said.split())
    assert shotfit(*grid, "--template", "specific", "--templates", "imagenet")[0] == 2


def test_a_missing_file_is_said_once(shotfit, tmp_path):
    code, _, error = shotfit("fit", "digits", "--descriptions", tmp_path / "none.json")
    assert code == 3 and error.count("cannot be read") == 1
