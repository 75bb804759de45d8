"""Do the extras work at the lowest versions that they declare?

    python checks/lower_bounds.py                  # every extra that has tests, some minutes each
    python checks/lower_bounds.py plots sklearn    # these

The packages of an extra are downloaded at their lower bounds. A fresh environment gets them, and
links to the core's packages, to what all of these ask for, and to what the tests need, as they are
in the environment that runs this (`checks/release.py`). There the tests of the extra run.
The exit code is 1 if one fails.
"""

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
KIT = ("pytest", "pytest-xdist", "psutil", "aiohttp", "playwright", "onnx", "onnxruntime")
"""What tests need beside the extra that they try."""


def main() -> int:
    """Tries the extras that are named, or all; how many fail."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = [Requirement(text) for text in project["dependencies"]]
    failed = 0
    for name in sys.argv[1:] or TESTS:
        extra = requirements(name, project["optional-dependencies"])
        with tempfile.TemporaryDirectory() as folder:
            said = tried(core, extra, TESTS[name], Path(folder))
        lowest = " ".join(map(str, map(at_lower_bound, extra)))
        print(f"{'FAILED' if said else 'ok':6}  {name}: {lowest}", flush=True)
        if said:
            print(said)
        failed += bool(said)
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


def tried(core: list[Requirement], extra: list[Requirement], tests: str, folder: Path) -> str:
    """What tests of an extra say when they fail; empty when they pass."""
    lowest = folder / "lowest"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = [str(at_lower_bound(one)) for one in extra]
    done = run([*pip, "--no-deps", "--only-binary", ":all:", "--target", str(lowest), *wanted])
    if done.returncode:
        return done.stderr[-500:]
    own = {canonicalize_name(one.name) for one in extra}
    others = needed([*core, *extra, *map(Requirement, KIT)]) - own
    fresh = linked(others, folder / "fresh")
    (site,) = fresh.glob("lib/python*/site-packages")
    put_in(lowest, site)
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PATH": f"{fresh}/bin:{os.environ['PATH']}"}
    options = ["-x", "-p", "no:cacheprovider", "-m", "", "-W", "default"]
    command = [str(fresh / "bin" / "python"), "-m", "pytest", *options, *tests.split()]
    done = run(command, environ)
    said = (done.stdout + done.stderr)[-3000:]
    return said if done.returncode or " passed" not in done.stdout else ""


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
    return Requirement(f"{requirement.name}=={bounds[0]}")


def run(
    command: list[str], environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program in the checkout."""
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
