"""Do the extras work at the lowest versions that they declare?

    python checks/lower_bounds.py                  # every extra that has tests, some minutes each
    python checks/lower_bounds.py plots sklearn    # these

The packages of an extra are downloaded at their lower bounds, and what these ask for where what is
installed here is too new for them. A fresh environment gets them, and
links to the core's packages, to what all of these ask for, and to what the tests need, as they are
in the environment that runs this (`checks/release.py`). There the tests of the extra run.
What they skip is shown: those of `app` want a browser (SHOTFIT_BROWSER may name one). The exit code
is 1 if one fails, or none of an extra's tests could run.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from release import ROOT, linked, needed

TESTS = {
    "app": "tests/apps/test_app_page.py tests/apps/test_app_project.py",
    "bench": "tests/apps/test_bench_smoke.py",
    "datasets": "tests/data/sources/test_huggingface.py",
    "heic": "tests/data/test_image_formats.py",
    "mlflow": "tests/observers/test_tracking.py -k mlflow",
    "onnx": "tests/export/test_onnx.py",
    "peft": "tests/export/test_transformers.py -k peft",
    "plots": "tests/report/test_figures.py",
    "ray": "tests/serve/test_on_ray.py",
    "runtime": "tests/export/test_onnx.py -k runtime",
    "serve": "tests/serve/test_serve.py tests/serve/test_limits.py",
    "siglip": "tests/backbone/test_siglip.py -k sentencepiece",
    "site": "tests/tools/test_site.py",
    "sklearn": "tests/test_estimator.py",
    "tensorboard": "tests/observers/test_tracking.py -k tensorboard",
    "trackio": "tests/observers/test_tracking.py -k trackio",
    "wandb": "tests/observers/test_tracking.py -k wandb",
}
"""What tries an extra."""
TOOLS = {
    "dev": "what the pinned environment of constraints.txt is made of",
    "fuzzing": "make torture",
    "load": "make load",
    "mutation": "make mutation",
}
"""Extras of those who work on this package, and where they are used."""
KIT = (
    *("pytest", "pytest-xdist", "psutil", "aiohttp", "playwright", "matplotlib"),
    *("onnx", "onnxruntime"),
)
"""What tests need beside the extra that they try."""


def main() -> int:
    """Tries the extras that are named, or all; how many fail."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = [Requirement(text) for text in project["dependencies"]]
    failed = 0
    for name in sys.argv[1:] or TESTS:
        extra = requirements(name, project["optional-dependencies"])
        with tempfile.TemporaryDirectory() as folder:
            code, said = tried(core, extra, TESTS[name], Path(folder))
        lowest = " ".join(map(str, map(at_lower_bound, extra)))
        counts = said.strip().rpartition("\n")[2]
        works = not code and " passed" in counts
        print(f"{'ok' if works else 'FAILED':6}  {name}: {lowest} ({counts})", flush=True)
        if not works or " skipped" in counts:
            print(said)
        failed += not works
    return failed


def requirements(name: str, extras: dict[str, list[str]]) -> list[Requirement]:
    """What an extra asks for, with what it takes of other extras of this package."""
    found = []
    for one in map(Requirement, extras[name]):
        if one.name == "shotfit":
            found += [part for other in sorted(one.extras) for part in requirements(other, extras)]
        else:
            found.append(one)
    return found


def tried(
    core: list[Requirement], extra: list[Requirement], tests: str, folder: Path
) -> tuple[int, str]:
    """The exit code of an extra's tests, and what they say."""
    lowest, wanted = folder / "lowest", [at_lower_bound(one) for one in extra]
    asked: list[Requirement] = list(wanted)
    while wanted:
        done = download(wanted, lowest)
        if done.returncode:
            return done.returncode, done.stderr[-500:]
        asked += wanted
        wanted = unmet(asked, lowest)
    here = versions(lowest)
    others = [one for one in asks(asked, lowest) if canonicalize_name(one.name) not in here]
    packages = needed([*core, *others, *map(Requirement, KIT)]) - here.keys()
    fresh = linked(packages, folder / "fresh")
    (site,) = fresh.glob("lib/python*/site-packages")
    put_in(lowest, site)
    (site / "shotfit.pth").write_text(f"{ROOT / 'src'}\n")
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PATH": f"{fresh}/bin:{os.environ['PATH']}"}
    options = ["-x", "-rs", "-p", "no:cacheprovider", "-m", "", "-W", "default"]
    command = [str(fresh / "bin" / "python"), "-m", "pytest", *options, *tests.split()]
    done = run(command, environ)
    return done.returncode, (done.stderr + done.stdout)[-3000:]


def download(wanted: list[Requirement], folder: Path) -> subprocess.CompletedProcess[str]:
    """Puts these packages, and no others, into a folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary", ":all:", "--upgrade", "--target", str(folder)]
    return run([*pip, *options, *map(str, wanted)])


def versions(folder: Path) -> dict[str, str]:
    """The packages of a folder, and their versions."""
    found = importlib.metadata.distributions(path=[str(folder)])
    return {canonicalize_name(one.name): one.version for one in found}


def asks(asked: list[Requirement], folder: Path) -> list[Requirement]:
    """What the packages of a folder ask for, with the extras for which they were asked for."""
    extras: dict[str, set[str]] = {}
    for one in asked:
        extras.setdefault(canonicalize_name(one.name), {""}).update(one.extras)
    found = []
    for package in importlib.metadata.distributions(path=[str(folder)]):
        wanted = extras.get(canonicalize_name(package.name), {""})
        for one in map(Requirement, package.requires or ()):
            if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in wanted):
                found.append(one)
    return found


def unmet(asked: list[Requirement], folder: Path) -> list[Requirement]:
    """What the packages of a folder ask for that neither it nor this environment has: an old one
    may want another version of what came along with a new one."""
    here = versions(folder)
    missing = {}
    for one in asks(asked, folder):
        name = canonicalize_name(one.name)
        version = here.get(name) or _installed(name)
        if version is None or not one.specifier.contains(version, prereleases=True):
            both = missing[name].specifier & one.specifier if name in missing else one.specifier
            missing[name] = Requirement(f"{name}{both}")
    return list(missing.values())


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def put_in(lowest: Path, site: Path) -> None:
    """Packages of a folder in place of those that an environment has: processes that tests start
    import them too, whatever they make of PYTHONPATH."""
    for entry in lowest.iterdir():
        target = site / entry.name
        if target.is_symlink():
            target.unlink()
        if entry.is_dir():
            shutil.copytree(entry, target, dirs_exist_ok=True)
        else:
            shutil.copy(entry, target)


def at_lower_bound(requirement: Requirement) -> Requirement:
    """A requirement of the lowest version that another one allows.

    Raises:
        ValueError: when it has no lower bound.
    """
    bounds = [part.version for part in requirement.specifier if part.operator == ">="]
    if len(bounds) != 1:
        raise ValueError(f"{requirement} has no lower bound")
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return Requirement(f"{requirement.name}{extras}=={bounds[0]}")


def run(
    command: list[str], environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program in the checkout."""
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
