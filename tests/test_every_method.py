"""Every method from the command line: fit on folders of images, saved, asked for unseen names."""

import json

import pytest
from conftest import shapes_dataset
from example_images import picture, write_images

from shotfit.methods import get_method, published_names

QUICK = ["--shots", "2", "--iters-per-shot", "2", "--budget", "shared", "--quiet"]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Folders of train and test images, and a picture beside them."""
    folder = tmp_path_factory.mktemp("shapes")
    dataset = shapes_dataset(3, train=3, test=2)
    picture(dataset.test[0]).save(folder / "one.png")
    return write_images(folder / "data", (*dataset.train, *dataset.test)), folder / "one.png"


@pytest.mark.parametrize("name", list(published_names()))
def test_fit_then_unseen_names(shotfit, checkpoint, shapes, tmp_path, name):
    folder, (data, picture) = tmp_path / name, shapes
    code, _, err = shotfit(
        *["fit", data, "--method", name, "--backbone", checkpoint, "--out", folder, *QUICK]
    )
    assert code == 0, err
    code, out, err = shotfit("predict", folder, picture, "--json", "--quiet")
    assert code == 0, err
    assert len(json.loads(out)["answers"]) == 1
    code, out, err = shotfit("predict", folder, picture, "--classes", "zebra,lion", "--quiet")
    if get_method(published_names()[name].method).open_vocabulary:
        assert code == 0 and ("zebra" in out or "lion" in out)
    else:
        assert code == 2 and "cannot score classes" in err and "zebra" in err


def test_bad_pairs_of_stages_and_long_names_say_so(shotfit, checkpoint, tmp_path):
    common = ["--backbone", checkpoint, "--out", tmp_path / "model", *QUICK]
    for method in ("2sfs:zero_shot", "2sfs:taskres", "2sfs:lp_pp"):
        code, _, err = shotfit("fit", "digits", "--method", method, *common)
        assert code == 2 and "first stage" in err
    template = "very " * 90 + "{}."
    code, _, err = shotfit("fit", "digits", "--template", template, *common)
    assert code == 3 and "tokens" in err
    assert not (tmp_path / "model").exists()


def test_a_class_bound_method_says_why_novel_classes_have_no_number(shotfit, checkpoint, tmp_path):
    for method, bound in (("taskres", True), ("zero_shot", False)):
        common = ["--backbone", checkpoint, "--out", tmp_path / method, *QUICK]
        code, out, err = shotfit(
            "fit", "digits", "--setting", "base-to-novel", "--method", method, *common
        )
        assert code == 0, err
        assert ("Novel classes are not scored" in out) == bound
