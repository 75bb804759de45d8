"""What the README shows runs: its Python, its shell lines, its links."""

import re
import shlex
import sys
from pathlib import Path

import pytest

import shotfit.timed_plan
from shotfit.apps import cli
from shotfit.data.images import open_image
from shotfit.data.sources import load_dataset
from shotfit.recipe import named_recipe

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language):
    text, *_ = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return text


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder as the README has it: photos/cat/1.png and so on, in the working directory."""
    monkeypatch.chdir(tmp_path)
    dataset = load_dataset("demo", name="animals")
    for name, label in (("cat", 0), ("dog", 1)):
        chosen = [e for e in dataset.train + dataset.test if e.label == label][:6]
        for number, example in enumerate(chosen, 1):
            path = Path("photos") / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            open_image(example.image).save(path)


def short_recipe(name):
    """The README's budgets take a minute; what runs is the same in five iterations a shot."""
    return named_recipe(name, iters_per_shot=5)


def test_python(photos, monkeypatch):
    monkeypatch.setattr(shotfit.timed_plan, "named_recipe", short_recipe)
    exec(compile(block("python"), "README.md", "exec"), {})
    assert (Path("pets") / "shotfit.json").exists()


@pytest.mark.slow
def test_shell(photos, monkeypatch, capsys):
    lines = [line for line in block("shell").splitlines() if line.startswith("shotfit ")]
    assert len(lines) >= 10
    for line in lines:
        words = shlex.split(line)
        if words[1] == "fit":
            words += ["--iters-per-shot", "3"]
        if words[1] == "demo":
            words = [*words[:2], "--help"]
        monkeypatch.setattr(sys, "argv", words)
        try:
            cli.main()
        except SystemExit as stop:
            assert not stop.code, f"{line}: {capsys.readouterr().err}"


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
