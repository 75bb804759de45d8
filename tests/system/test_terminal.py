"""Names from elsewhere come out harmless, wherever they are shown."""

import json

import pytest
from conftest import shapes_dataset
from PIL import Image

from shotfit.averages import Estimate
from shotfit.data.names import check_names
from shotfit.errors import DataError
from shotfit.report.render import render
from shotfit.report.tables import Cell, Column, Panel, Report, Row
from shotfit.system.terminal import printable

# Colours a terminal, sets its title, turns the direction of writing, closes tags and cells.
HOSTILE = "[/red]\x1b[31m\x1b]0;title\x07\u202e<script>alert(1)</script>|&$^~\\input{x}_{0.a}%s"


def test_what_a_terminal_would_act_on_is_shown():
    assert printable("a\x1b[31mb\x07\u202ec\udce9") == "a\\x1b[31mb\\x07\\u202ec\\udce9"
    assert printable("Fußball 犬 👩\u200d🚀\n\tend") == "Fußball 犬 👩\u200d🚀\n\tend"


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\nb", "a\x00", "\u2028"])
def test_class_names_with_controls_are_refused(name):
    with pytest.raises(DataError, match=r"control characters|is empty"):
        check_names(["fine", name])


def test_a_hostile_path_in_an_error(tmp_path, shotfit):
    code, _, error = shotfit("fit", tmp_path / "no\x1b[31mfolder", "--out", tmp_path / "out")
    assert code in (2, 3)
    assert "\x1b" not in error
    assert "\\x1b[31m" in error


def test_a_hostile_file_name_in_answers(tmp_path, shotfit, checkpoint):
    from shotfit import FewShotClassifier

    model = FewShotClassifier(str(checkpoint), "zero_shot").fit(shapes_dataset(2))
    model.save_pretrained(tmp_path / "saved")
    path = tmp_path / "a\x1b[31m [red]b.png"
    Image.new("RGB", (8, 8)).save(path)
    code, out, _ = shotfit("predict", tmp_path / "saved", path)
    assert code == 0
    assert "\x1b" not in out
    assert "[red]b.png" in out
    code, out, _ = shotfit("predict", tmp_path / "saved", path, "--json")
    assert json.loads(out)["image"] == str(path)


@pytest.mark.parametrize("form", ["terminal", "markdown", "latex", "html"])
def test_a_hostile_name_in_every_form_of_a_table(form):
    cell = Cell(Estimate(50.0, None, 1))
    panel = Panel(HOSTILE, (Column(HOSTILE, HOSTILE),), (Row(HOSTILE, (cell,)),))
    text = render(Report("id", HOSTILE, (panel,), (HOSTILE,)), form)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    if form in ("html", "markdown"):
        assert "<script" not in text
    if form == "latex":
        assert "\\input" not in text
