"""A method for one family of models: refused on another, with a message, and shown as such."""

import sys

import pytest
from conftest import make_backbone

import shotfit.methods
from shotfit.errors import UsageError
from shotfit.methods import get_method

SOURCE = '''"""Sigmoid: for SigLIP alone."""

from shotfit.methods.base import Method


class Sigmoid(Method):
    """A method that needs what only SigLIP has."""

    families = ("siglip",)
'''


@pytest.fixture
def sigmoid(tmp_path, monkeypatch):
    """The name of a method that is there while the test runs."""
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "sigmoid.py").write_text(SOURCE)
    monkeypatch.setattr(shotfit.methods, "__path__", [*shotfit.methods.__path__, str(folder)])
    yield "sigmoid"
    sys.modules.pop("shotfit.methods.sigmoid", None)


def test_another_family_is_refused(sigmoid):
    method = get_method(sigmoid)
    assert method(make_backbone(family="siglip")).backbone.family == "siglip"
    with pytest.raises(UsageError) as caught:
        method(make_backbone(family="clip"))
    assert str(caught.value) == (
        "Sigmoid works with siglip models only; tiny is of the family 'clip'."
    )


@pytest.mark.parametrize("recipe", ["sigmoid", "2sfs:sigmoid"])
def test_the_command_line_says_so(sigmoid, shotfit, checkpoint, tmp_path, recipe):
    out = tmp_path / "out"
    code, _, err = shotfit(
        *["fit", "digits", "--method", recipe, "--backbone", checkpoint, "--out", out],
        *["--shots", 1, "--quiet"],
    )
    assert code == 2
    assert "works with siglip models only" in err
    assert str(checkpoint) in err
    assert not out.exists()


def test_the_list_of_methods_shows_it(sigmoid, shotfit):
    _, out, _ = shotfit("list-methods")
    row = next(line for line in out.splitlines() if " sigmoid " in line)
    assert "siglip" in row
    assert "clip," not in row
