"""Do the extras work at the lowest versions that they declare?

    python checks/lower_bounds.py                  # every extra that has tests, some minutes each
    python checks/lower_bounds.py plots sklearn    # these

The packages of an extra are downloaded at their lower bounds into a folder of their own, before a
fresh environment with the core's packages, theirs and pytest's, linked from the one that runs this
(`checks/release.py`). There the tests of the extra run. The exit code is 1 if one fails.
"""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from release import ROOT, linked, needed

TESTS = {
    "heic": "tests/data/test_image_formats.py",
    "onnx": "tests/export/test_onnx.py",
    "peft": "tests/export/test_transformers.py -k peft",
    "plots": "tests/report/test_figures.py",
    "serve": "tests/serve/test_serve.py",
    "sklearn": "tests/test_estimator.py",
    "tensorboard": "tests/observers/test_tracking.py -k tensorboard",
    "wandb": "tests/observers/test_tracking.py -k wandb",
}
"""What tries an extra."""


def main() -> int:
    """Tries the extras that are named, or all; how many fail."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = [Requirement(text) for text in project["dependencies"]]
    failed = 0
    for name in sys.argv[1:] or TESTS:
        extra = [Requirement(text) for text in project["optional-dependencies"][name]]
        with tempfile.TemporaryDirectory() as folder:
            said = tried(core, extra, TESTS[name], Path(folder))
        lowest = " ".join(map(str, map(at_lower_bound, extra)))
        print(f"{'FAILED' if said else 'ok':6}  {name}: {lowest}", flush=True)
        if said:
            print(said)
        failed += bool(said)
    return failed


def tried(core: list[Requirement], extra: list[Requirement], tests: str, folder: Path) -> str:
    """What tests of an extra say when they fail; empty when they pass."""
    lowest = folder / "lowest"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    wanted = [str(at_lower_bound(one)) for one in extra]
    done = run([*pip, "--no-deps", "--only-binary", ":all:", "--target", str(lowest), *wanted])
    if done.returncode:
        return done.stderr[-500:]
    fresh = linked(needed([*core, *extra, Requirement("pytest")]), folder / "fresh")
    environ = os.environ | {"PYTHONPATH": str(lowest), "OMP_NUM_THREADS": "1"}
    options = ["-x", "-p", "no:cacheprovider", "-m", "", "-W", "default"]
    command = [str(fresh / "bin" / "python"), "-m", "pytest", *options, *tests.split()]
    done = run(command, environ)
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-3000:]


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
