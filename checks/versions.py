"""Do the fast tests pass at the ends of what pyproject.toml allows?

    make oldest                     # what ShotFit needs, at its lowest versions
    make newest PYTHON=python3.13   # everything at its newest

A fresh environment is made with the Python that runs this, which need not have any package, in
build/, by uv, and kept: run again, it is used as it is. What the tests need beside the core is at
its newest in both (`lower_bounds.py` tries the extras at their lowest). Numbers that were recorded
with the pinned versions to the last digit are not asked of others (`RECORDED`). What came of it is
kept in results/reliability/versions.json, from which `python -m torture write` writes
docs/reliability.md. The exit code is that of the tests.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results/reliability/versions.json"
MARKS = "not slow and not long and not network and not gpu and not data and not pages"
RECORDED = ("tests/test_golden.py",)
"""Tests of digits that follow the versions of torch and Pillow."""
COUNTS = re.compile(r"(\d+) (passed|failed|skipped|error)")
NEWER = ("heic",)
"""Extras that need newer versions of what ShotFit needs than it does."""
BESIDE = ("pyarrow<22",)
"""Of what the tests need, the versions that work with the oldest NumPy and do not say so."""
BOUND = re.compile(r"^([\w-]+)\s*>=\s*([\w.]+)")


def main() -> int:
    """Parses the command line; the exit code of the tests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", choices=("oldest", "newest"))
    parser.add_argument("tests", nargs="*", help="of pytest; none is written down then")
    given, options = parser.parse_known_args()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = ROOT / "build" / f"{given.versions}-{python}"
    if not (folder / "installed").exists():
        pins = [f"{name}=={version}" for name, version in bounds().items()]
        install(folder, [*pins, *BESIDE] if given.versions == "oldest" else [])
    done = tested(folder, [*given.tests, *options])
    print(done.stdout[-20_000:] + done.stderr[-5000:])
    if not (given.tests or options):
        write(f"{given.versions}, Python {python}", folder, done)
    return done.returncode


def bounds() -> dict[str, str]:
    """The lowest version of each package that ShotFit needs.

    Raises:
        ValueError: for one without a lower bound.
    """
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = {}
    for requirement in tomllib.loads(text)["project"]["dependencies"]:
        bound = BOUND.match(requirement)
        if bound is None:
            raise ValueError(f"{requirement} has no lower bound")
        found[bound[1]] = bound[2]
    return found


def install(folder: Path, pins: list[str]) -> None:
    """A fresh environment with this checkout and what its tests need.

    Raises:
        SystemExit: when there is no such set of packages, with what uv says.
    """
    venv.create(folder, with_pip=True, clear=True)
    (folder / "pins.txt").write_text("".join(f"{pin}\n" for pin in pins))
    tools, extras = needed()
    own = f"{ROOT}[{','.join(one for one in extras if not pins or one not in NEWER)}]"
    pip = [python_of(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "uv"], check=True)
    uv = [python_of(folder), "-m", "uv", "pip", "install", "--quiet", "--python", str(folder)]
    command = [*uv, "--constraint", str(folder / "pins.txt"), "--editable", own, *tools]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-4000:])
    (folder / "installed").touch()


def needed() -> tuple[list[str], list[str]]:
    """What `dev` asks for: packages, and extras of ShotFit's own."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = tomllib.loads(text)["project"]["optional-dependencies"]["dev"]
    own = [re.fullmatch(r"shotfit\[(.*)\]", one) for one in wanted]
    extras = [name for found in own if found for name in found[1].split(",")]
    return [one for one, found in zip(wanted, own, strict=True) if not found], extras


def tested(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """The fast tests, or those that are named, in an environment. Warnings of other versions are no
    failures."""
    command = [python_of(folder), "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-W", "default"]
    left_out = [f"--ignore={name}" for name in RECORDED]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environ.pop("PYTHONPATH", None)  # it may lead to other packages
    command += [*left_out, "-m", MARKS, *words]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)


def python_of(folder: Path) -> str:
    """The interpreter of an environment."""
    return str(folder / "bin" / "python")


def write(name: str, folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    """Puts what came of it into the record, with the versions that it was tried with."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record[name] = outcome(done.stdout, versions_in(folder))
    RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def outcome(said: str, versions: dict[str, str]) -> dict[str, Any]:
    """The counts that pytest closes with, and where this was."""
    counts = {kind: int(count) for count, kind in COUNTS.findall(said.strip().splitlines()[-1])}
    return {"versions": versions, "system": platform.system(), **counts}


def versions_in(folder: Path) -> dict[str, str]:
    """The versions of ShotFit's own requirements in an environment."""
    code = "import sys, json; from importlib.metadata import version as v; "
    code += "print(json.dumps({n: v(n) for n in sys.argv[1:]}))"
    command = [python_of(folder), "-c", code, *bounds()]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    sys.exit(main())
