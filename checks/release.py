"""The release checklist: does the wheel hold what it must, and work with what it declares alone?

    python checks/release.py                              # every point, some minutes
    python checks/release.py --write docs/installing.md   # what an installation weighs
    python checks/release.py --prepare 0.2.0              # this version everywhere, dated today

The wheel and the source archive are built from this checkout with `python -m build`; where the
change log has unreleased changes, from a copy of the last commit under the next version, so that a
release from here is tried before it is one. The wheel is
then installed in a fresh environment that has the packages it declares and theirs, and no other:
they are linked from the environment that runs this, so that nothing is downloaded. There it runs
outside the checkout: a fit and a run with the embedded model, and each thing that needs an extra,
which must say so. The exit code is 1 if a point fails.
"""

import argparse
import datetime
import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from shotfit import __version__

ROOT = Path(__file__).parent.parent
MARKS = "<!-- sizes -->", "<!-- /sizes -->"
UNRELEASED = "## Unreleased"
LIMIT = 25_000_000
"""Bytes that the wheel may have at most."""
CONTENTS = (
    "shotfit/py.typed",
    "shotfit/CITATION.cff",
    "shotfit/assets/iconclip/model.safetensors",
    "shotfit/assets/iconclip/NOTICE",
    "shotfit/assets/suite/NOTICE",
    "licenses/LICENSE",
)
"""What the wheel must hold: ends of names."""
JOBS = (
    "--version",
    "list-methods",
    "fit digits --shots 1 --iters-per-shot 2 --out {work}/model -q",
    "fit digits --shots 1 --method layernorm -o training.iterations=1 --out {work}/tuned -q",
    "info {work}/model",
    "bench --datasets digits --methods zero_shot --results {work}/records -q",
)
"""Commands that need no extra."""
EXTRAS = {
    "plots": "plot ranking --results {work}/records --out {work}/ranking.png",
    "tensorboard": "fit digits --observe tensorboard --out {work}/other",
    "wandb": "fit digits --observe wandb --out {work}/other",
    "mlflow": "fit digits --observe mlflow --out {work}/other",
    "trackio": "fit digits --observe trackio --out {work}/other",
    "app": "app {work}/project --no-browser",
    "onnx": "export onnx {work}/model {work}/onnx",
    "peft": "export peft {work}/tuned {work}/peft",
    "serve": "serve {work}/model",
    "bench": "bench --datasets digits --methods 2sfs --ray --results {work}/records",
}
"""A command, after those, that needs an extra, and must name it where it is missing."""


@dataclass(frozen=True)
class Built:
    """What `python -m build` has made."""

    wheel: Path
    archive: Path


def main() -> int:
    """Parses the command line; how many points fail."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, help="the page that has the sizes")
    parser.add_argument("--prepare", type=Version, metavar="VERSION", help="the next one")
    given = parser.parse_args()
    if given.prepare is not None:
        if given.prepare <= Version(__version__):
            parser.error(f"{given.prepare} does not come after {__version__}")
        prepare(ROOT, given.prepare, datetime.date.today())
        print(f"Wrote {given.prepare} into the package, CITATION.cff and CHANGELOG.md")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        if given.write is not None:
            write_sizes(given.write, build(ROOT, Path(folder) / "dist"))
            return 0
        return checklist(candidate(Path(folder) / "source"), Path(folder))


def candidate(folder: Path) -> Path:
    """What would be released: this checkout, or in `folder` its last commit under the next version
    where changes wait for one."""
    if newest(ROOT) != UNRELEASED:
        return ROOT
    archive = folder.with_suffix(".tar")
    git = ["git", "-C", str(ROOT), "archive", "--output", str(archive), "HEAD"]
    subprocess.run(git, check=True)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    release = Version(__version__)
    following = Version(f"{release.major}.{release.minor + 1}.0")
    prepare(folder, following, datetime.date.today())
    print(f"A rehearsal: `--prepare {following}` would write that version here, too.")
    return folder


def checklist(root: Path, folder: Path) -> int:
    """Every point of a release of a checkout, in order; how many fail."""
    built = build(root, folder / "dist")
    points: dict[str, Callable[[], list[str]]] = {
        "one version everywhere": lambda: versions(root),
        "nothing uncommitted": uncommitted,
        "the wheel holds what it must and nothing else": lambda: contents(built.wheel),
        "it runs with its declared packages alone": lambda: alone(built.wheel, folder),
    }
    failed = 0
    for name, check in points.items():
        found = check()
        print(f"{'FAILED' if found else 'ok':6}  {name}", flush=True)
        for line in found:
            print(f"        {line}")
        failed += bool(found)
    for path in (built.wheel, built.archive):
        print(f"        {path.name}: {path.stat().st_size / 1e6:.1f} MB")
    return failed


def build(root: Path, out: Path) -> Built:
    """The wheel and the source archive of a checkout."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(root)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"python -m build failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    (wheel,), (archive,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Built(wheel, archive)


def versions(root: Path) -> list[str]:
    """Where another version stands than in the package, and a change log with loose ends."""
    citation = re.search(r"^version: (.*)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    package = (root / "src/shotfit/__init__.py").read_text(encoding="utf-8")
    version = re.findall(r'^__version__ = "(.*)"$', package, re.MULTILINE)[0]
    found, title = [], newest(root)
    if citation is None or citation.group(1) != version:
        found.append(f"CITATION.cff has another version than {version}")
    if not re.fullmatch(rf"## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", title):
        found.append(f"CHANGELOG.md begins with {title!r}, not with {version} and its date")
    return found


def newest(root: Path) -> str:
    """The first heading of a checkout's change log."""
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    return next(line for line in changes.splitlines() if line.startswith("## "))


def prepare(root: Path, version: Version, today: datetime.date) -> None:
    """Writes the next version into the package, the citation and the change log.

    Raises:
        ValueError: when one of them is not as `versions` wants it; nothing is written then.
    """
    pairs = {
        "src/shotfit/__init__.py": (r'^__version__ = ".*"$', f'__version__ = "{version}"'),
        "CITATION.cff": (
            r"^version: .*$(\ndate-released: .*$)?",
            f"version: {version}\ndate-released: {today}",
        ),
        "CHANGELOG.md": (f"^{UNRELEASED}$", f"## {version} ({today})"),
    }
    texts = {}
    for name, (line, new) in pairs.items():
        text = (root / name).read_text(encoding="utf-8")
        texts[name], count = re.subn(line, new, text, count=1, flags=re.MULTILINE)
        if not count:
            raise ValueError(f"{name} has no line like {line}")
    for name, text in texts.items():
        (root / name).write_text(text, encoding="utf-8")


def uncommitted() -> list[str]:
    """Files that a tag of this checkout would not have."""
    command = ["git", "-C", str(ROOT), "status", "--porcelain"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def contents(wheel: Path) -> list[str]:
    """What is missing in a wheel, and what does not belong there."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    version = wheel.name.split("-")[1]
    found = [f"{end} is missing" for end in CONTENTS if not any(n.endswith(end) for n in names)]
    for name in names:
        if not name.startswith(("shotfit/", f"shotfit-{version}.dist-info/")):
            found.append(f"{name} is not ours to install")
        if name.endswith((".pyc", ".pkl", ".pt", ".orig")):
            found.append(f"{name} does not belong into a wheel")
    if wheel.stat().st_size > LIMIT:
        found.append(f"it has {wheel.stat().st_size:,} bytes; {LIMIT:,} are the limit")
    return found


def alone(
    wheel: Path,
    folder: Path,
    jobs: Sequence[str] = JOBS,
    extras: Mapping[str, str] = EXTRAS,
) -> list[str]:
    """What does not work in an environment of the wheel and its declared packages."""
    fresh, work = environment(wheel, folder / "fresh"), folder / "work"
    work.mkdir()
    found = []
    for job in (text.format(work=work) for text in jobs):
        code, said = shotfit(fresh, job, work)
        if code:
            found.append(f"`shotfit {job}` ended with {code}: {said[-300:]}")
    for extra, text in extras.items():
        job = text.format(work=work)
        code, said = shotfit(fresh, job, work)
        if not code or f"shotfit[{extra}]" not in "".join(said.split()):
            found.append(f"`shotfit {job}` without {extra} ended with {code}: {said[-300:]}")
    said, version = shotfit(fresh, "--version", work)[1].split(), wheel.name.split("-")[1]
    if version not in said:
        found.append(f"`shotfit --version` does not say {version}, but {' '.join(said)}")
    place = "import shotfit; print(shotfit.__file__)"
    if not run([fresh / "bin" / "python", "-c", place], work)[1].startswith(str(fresh)):
        found.append("shotfit was imported from somewhere else")
    return found


def environment(wheel: Path, folder: Path) -> Path:
    """A fresh environment with the wheel, and links to the packages that it declares and theirs."""
    linked(needed(declared(wheel)), folder)
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    command += ["--python", str(folder / "bin" / "python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*command, str(wheel)], check=True)
    return folder


def linked(packages: set[str], folder: Path) -> Path:
    """A fresh environment with links to packages of the one that runs this."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in sorted(packages):
        link(importlib.metadata.distribution(name), site)
    return folder


def declared(wheel: Path) -> list[Requirement]:
    """What a wheel asks for without any extra."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    found = [Requirement(line[15:]) for line in text.splitlines() if line[:15] == "Requires-Dist: "]
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]


def needed(requirements: list[Requirement]) -> set[str]:
    """The packages of this environment that these ask for, and those that they ask for."""
    found: set[str] = set()
    left = [(one, "") for one in requirements]
    while left:
        requirement, _ = left.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            key = f"{name}[{extra}]"
            if key in found:
                continue
            found.add(key)
            for text in importlib.metadata.requires(name) or ():
                one = Requirement(text)
                if one.marker is None or one.marker.evaluate({"extra": extra}):
                    left.append((one, extra))
    return {key.partition("[")[0] for key in found}


def link(package: importlib.metadata.Distribution, site: Path) -> None:
    """Links to all that a package has put beside others."""
    for entry in entries(package):
        source, target = Path(str(package.locate_file(entry))), site / entry
        if source.exists() and not target.is_symlink():
            target.symlink_to(source)


def entries(package: importlib.metadata.Distribution) -> Iterator[str]:
    """The files and folders of a package in `site-packages`."""
    tops = {file.parts[0] for file in package.files or ()}
    yield from sorted(top for top in tops if top not in ("..", "__pycache__"))


def shotfit(fresh: Path, words: str, work: Path) -> tuple[int, str]:
    """Runs a command in an environment; its exit code and what it has printed."""
    return run([fresh / "bin" / "shotfit", *words.split()], work)


def run(command: list[str | Path], work: Path) -> tuple[int, str]:
    """Runs a program away from the checkout, with no settings of anybody's."""
    environ = {"HOME": str(work), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(
        list(map(str, command)), cwd=work, env=environ, capture_output=True, text=True, timeout=600
    )
    return done.returncode, done.stdout + done.stderr


def write_sizes(page: Path, built: Built) -> None:
    """What an installation weighs, between the marks of a page."""
    sizes = {name: size(name) for name in needed(declared(built.wheel))}
    with zipfile.ZipFile(built.wheel) as archive:
        ours = sum(info.file_size for info in archive.infolist())
    rows = [("shotfit", ours), *sorted(sizes.items(), key=lambda item: -item[1])]
    shown, rest = rows[:9], rows[9:]
    lines = ["| package | installed |", "|---|---:|"]
    lines += [f"| {name} | {amount / 1e6:,.0f} MB |" for name, amount in shown]
    lines += [f"| {len(rest)} others | {sum(amount for _, amount in rest) / 1e6:,.0f} MB |"]
    lines += [f"| **all** | **{sum(amount for _, amount in rows) / 1e6:,.0f} MB** |"]
    download = built.wheel.stat().st_size / 1e6
    lines += ["", f"The wheel itself is a download of {download:.1f} MB."]
    text, (start, end) = page.read_text(encoding="utf-8"), MARKS
    before, after = text.partition(start)[0], text.partition(end)[2]
    body = [before + start, "", *lines, "", end + after]
    page.write_text("\n".join(body), encoding="utf-8")
    print(f"Wrote {page}")


def size(name: str) -> int:
    """Bytes of a package's files here."""
    package = importlib.metadata.distribution(name)
    places = (Path(str(package.locate_file(file))) for file in package.files or ())
    return sum(path.stat().st_size for path in places if path.is_file())


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
