"""The release checklist finds what is wrong with a wheel, and nothing wrong with ours."""

import datetime
import shutil
import subprocess
import tomllib
import zipfile

import lower_bounds
import pytest
import release
from packaging.requirements import Requirement
from packaging.version import Version

from shotfit import __version__

CITATION = f"cff-version: 1.2.0\nversion: {__version__}\n"


def checkout(folder, title, citation=CITATION):
    package = folder / "src" / "shotfit" / "__init__.py"
    package.parent.mkdir(parents=True, exist_ok=True)
    package.write_text(f'__version__ = "{__version__}"\n')
    (folder / "CITATION.cff").write_text(citation)
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n{title}\n\n- A change.\n")
    return folder


def test_one_version_everywhere(tmp_path):
    dated = f"## {__version__} (2026-11-22)"
    assert release.versions(checkout(tmp_path, dated)) == []
    (found,) = release.versions(checkout(tmp_path, "## Unreleased"))
    assert "'## Unreleased'" in found
    (found,) = release.versions(checkout(tmp_path, "## 0.0.1 (2026-11-22)"))
    assert "'## 0.0.1 (2026-11-22)'" in found
    (found,) = release.versions(checkout(tmp_path, dated, "version: 0.0.1\n"))
    assert "CITATION.cff" in found


def test_the_next_version_is_written_everywhere_or_nowhere(tmp_path):
    for name in ("CHANGELOG.md", "CITATION.cff", "src/shotfit/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / name, tmp_path / name)
    later, day = Version(f"{Version(__version__).major + 1}.0"), datetime.date(2026, 11, 23)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.0.1\n")
    before = (tmp_path / "CITATION.cff").read_text()
    with pytest.raises(ValueError, match="CHANGELOG.md has no line like"):
        release.prepare(tmp_path, later, day)
    assert (tmp_path / "CITATION.cff").read_text() == before
    for _ in range(2):  # a second release finds the date of the first
        (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- A change.\n")
        release.prepare(tmp_path, later, day)
    assert (tmp_path / "CHANGELOG.md").read_text().splitlines()[2] == f"## {later} (2026-11-23)"
    citation = (tmp_path / "CITATION.cff").read_text().splitlines()
    assert citation.count(f"version: {later}") == citation.count("date-released: 2026-11-23") == 1
    assert f'__version__ = "{later}"' in (tmp_path / "src/shotfit/__init__.py").read_text()


def test_a_release_is_rehearsed_from_the_last_commit(tmp_path, monkeypatch, capsys):
    (tmp_path / "root").mkdir()
    root = checkout(tmp_path / "root", "## Unreleased", "version: 0\ndate-released: 2020-01-01\n")
    git = ("git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b")
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one")):
        subprocess.run([*git, *command], check=True)
    (root / "untracked.txt").write_text("later")
    monkeypatch.setattr(release, "ROOT", root)
    found = release.candidate(tmp_path / "source")
    assert found == tmp_path / "source" and not (found / "untracked.txt").exists()
    assert release.versions(found) == []
    version = Version(__version__)
    later = f"{version.major}.{version.minor + 1}.0"
    assert release.newest(found).startswith(f"## {later} (20")
    assert f"`--prepare {later}`" in capsys.readouterr().out
    assert release.newest(root) == "## Unreleased", "the checkout stays as it is"
    checkout(root, f"## {__version__} (2026-11-22)")
    assert release.candidate(tmp_path / "other") == root


def wheel(folder, names, requires=()):
    path = folder / f"shotfit-{__version__}-py3-none-any.whl"
    lines = "".join(f"Requires-Dist: {one}\n" for one in requires)
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        archive.writestr(f"shotfit-{__version__}.dist-info/METADATA", lines)
    return path


def test_what_is_missing_and_what_does_not_belong_is_told(tmp_path):
    names = [end if end.startswith("shotfit/") else f"shotfit/{end}" for end in release.CONTENTS]
    assert release.contents(wheel(tmp_path, names)) == []
    found = release.contents(wheel(tmp_path, [*names[1:], "tests/test_a.py", "shotfit/a.pyc"]))
    assert found == [
        "shotfit/py.typed is missing",
        "tests/test_a.py is not ours to install",
        "shotfit/a.pyc does not belong into a wheel",
    ]


def test_what_is_declared_is_what_is_asked_for_without_extras(tmp_path):
    path = wheel(tmp_path, [], ["rich>=13", "matplotlib>=3.9; extra == 'plots'"])
    assert [str(one) for one in release.declared(path)] == ["rich>=13"]
    names = release.needed(release.declared(path))
    assert {"rich", "pygments"} <= names and "matplotlib" not in names


def test_the_lower_bound_of_a_requirement():
    def lowest(text):
        return str(lower_bounds.at_lower_bound(Requirement(text)))

    assert lowest("mkdocstrings[python]>=0.27") == "mkdocstrings[python]==0.27"
    assert lowest("transformers<6,>=5.0") == "transformers==5.0"
    with pytest.raises(ValueError, match="ray"):
        lowest("ray<3")


def test_every_extra_is_tried_at_its_lower_bounds():
    project = tomllib.loads((release.ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert not lower_bounds.TESTS.keys() & lower_bounds.TOOLS.keys()
    assert lower_bounds.TESTS.keys() | lower_bounds.TOOLS.keys() == extras.keys()
    for name, tests in lower_bounds.TESTS.items():
        for requirement in lower_bounds.requirements(name, extras):
            lower_bounds.at_lower_bound(requirement)
        for word in tests.split():
            assert not word.endswith(".py") or (release.ROOT / word).is_file()


def test_an_extra_of_extras_is_theirs_too():
    extras = {"serve": ["fastapi>=0.115"], "ray": ["ray[serve]>=2.60", "shotfit[serve]"]}
    found = lower_bounds.requirements("ray", extras)
    assert [str(one) for one in found] == ["ray[serve]>=2.60", "fastapi>=0.115"]


def test_the_lowest_version_takes_the_place_of_a_linked_one(tmp_path):
    newest, site, lowest = (tmp_path / name for name in ("newest", "site", "lowest"))
    for folder, version in ((newest, 2), (lowest, 1)):
        (folder / "one").mkdir(parents=True)
        (folder / "one" / "__init__.py").write_text(f"version = {version}")
    site.mkdir()
    (site / "one").symlink_to(newest / "one")
    lower_bounds.put_in(lowest, site)
    assert (site / "one" / "__init__.py").read_text() == "version = 1"
    assert (newest / "one" / "__init__.py").read_text() == "version = 2"


@pytest.mark.long
@pytest.mark.slow
def test_our_wheel_works_with_its_declared_packages_alone(tmp_path):
    """A part of `make release-check`, which takes minutes."""
    built = release.build(release.ROOT, tmp_path / "dist")
    assert release.contents(built.wheel) == []
    jobs = ("--version", "fit digits --shots 1 --iters-per-shot 2 --out {work}/model -q")
    missing = {"onnx": release.EXTRAS["onnx"]}
    assert release.alone(built.wheel, tmp_path, jobs, missing) == []
