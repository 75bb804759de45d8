"""The tutorial, docs/own-photographs.md, from start to end on photographs of another origin."""

import csv
import re
import shlex
import shutil
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "own-photographs.md").read_text()
BLOCKS = re.findall(r"<!-- run -->\n```(\w*)\n(.*?)```", PAGE, re.DOTALL)
KINDS = ("global", "local", "nominal")
EACH = 24


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """Photographs of fabric, as many of each kind."""
    root = Path(pytest.importorskip("conformal_clip_data").textile_simulated_root())
    for kind in KINDS:
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for number, source in enumerate(sorted((root / kind).glob("*.jpg"))[:EACH]):
            shutil.copy(source, tmp_path / "photos" / kind / f"{number}.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_tutorial_works_from_start_to_end(shotfit, photos):
    said = {}
    values = {}
    for language, text in BLOCKS:
        if language == "python":
            exec(text, values)
            continue
        for line in text.splitlines():
            code, out, err = shotfit(*shlex.split(line)[1:])
            assert code == 0, f"{line}: {err}"
            said.setdefault(shlex.split(line)[1], (out, err))
    assert said.keys() == {"check", "fit", "evaluate", "predict", "add-classes"}
    assert "No problems found" in said["check"][0]
    assert "knows nothing of photographs" in said["fit"][1]
    # Eight a class were trained on.
    assert str(len(KINDS) * (EACH - 8)) in said["evaluate"][0]
    with (photos / "answers.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [Path(row["image"]).name for row in rows] == sorted(f"{n}.jpg" for n in range(EACH))
    assert {row["class"] for row in rows} <= set(KINDS)
    assert f"{EACH} images: " in said["predict"][1]
    assert len(values["answers"]) == len(values["sure"]) == EACH
    assert "stained fabric" in values["classifier"].classes
