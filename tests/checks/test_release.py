"""The release checklist finds what is wrong with a wheel, and nothing wrong with ours."""

import zipfile

import lower_bounds
import pytest
import release
from packaging.requirements import Requirement

from shotfit import __version__

CITATION = f"cff-version: 1.2.0\nversion: {__version__}\n"


def checkout(folder, title, citation=CITATION):
    (folder / "CITATION.cff").write_text(citation)
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n{title}\n\n- A change.\n")
    return folder


def test_one_version_everywhere(tmp_path):
    dated = f"## {__version__} (2026-11-22)"
    assert release.versions(checkout(tmp_path, dated)) == []
    (found,) = release.versions(checkout(tmp_path, "## Unreleased"))
    assert "'## Unreleased'" in found
    (found,) = release.versions(checkout(tmp_path, dated, "version: 0.0.1\n"))
    assert "CITATION.cff" in found


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

    assert lowest("mkdocstrings[python]>=0.27") == "mkdocstrings==0.27"
    assert lowest("transformers<6,>=5.0") == "transformers==5.0"
    with pytest.raises(ValueError, match="ray"):
        lowest("ray<3")


@pytest.mark.long
@pytest.mark.slow
def test_our_wheel_works_with_its_declared_packages_alone(tmp_path):
    """A part of `make release-check`, which takes minutes."""
    built = release.build(tmp_path / "dist")
    assert release.contents(built.wheel) == []
    jobs = ("--version", "fit digits --shots 1 --iters-per-shot 2 --out {work}/model -q")
    missing = {"onnx": release.EXTRAS["onnx"]}
    assert release.alone(built.wheel, tmp_path, jobs, missing) == []
