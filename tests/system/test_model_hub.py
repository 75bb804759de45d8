"""Uploads and downloads with the hub's own client, against a server that speaks its protocol."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import yaml
from conftest import shapes_dataset
from example_images import picture

from shotfit.classifier import FewShotClassifier
from shotfit.data.images import open_image
from shotfit.export.merged import export_merged
from shotfit.recipe import named_recipe

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Repositories as the hub has them: made, committed to, listed and read."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.asked: list[tuple[str, dict]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Answers(BaseHTTPRequestHandler):
    @property
    def hub(self) -> Hub:
        assert isinstance(self.server, Hub)
        return self.server

    def log_message(self, format, *args):
        pass

    def _say(self, value, status=200, **headers):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name.replace("_", "-"), text)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if self.headers.get("Authorization") != "Bearer a-token":
            return self._say({"error": "who are you?"}, 401)
        if path == "/api/repos/create":
            asked = json.loads(body)
            self.hub.asked.append(("create", asked))
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.hub.repositories.setdefault(name, {})
            return self._say({"url": f"{self.hub.url}/{name}", "id": name})
        if path == "/api/validate-yaml":
            self.hub.asked.append(("card", json.loads(body)))
            return self._say({"errors": [], "warnings": []})
        _, _, _, user, name, what, *rest = path.split("/")
        repository = self.hub.repositories[f"{user}/{name}"]
        if what == "preupload":
            files = json.loads(body)["files"]
            modes = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files
            ]
            return self._say({"files": modes})
        if what == "branch":
            self.hub.asked.append(("branch", {"name": rest[0]}))
            return self._say({})
        assert what == "commit"
        for line in body.splitlines():
            change = json.loads(line)
            if change["key"] == "file":
                value = change["value"]
                repository[value["path"]] = base64.b64decode(value["content"])
        query = dict(parse_qsl(urlsplit(self.path).query))
        self.hub.asked.append(("commit", {"revision": rest[0], **query}))
        address = f"{self.hub.url}/{user}/{name}/commit/{COMMIT}"
        made = {"commitUrl": address, "commitOid": COMMIT, "success": True}
        if query.get("create_pr"):
            made["pullRequestUrl"] = f"{self.hub.url}/{user}/{name}/discussions/1"
        return self._say(made)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        parts = self.path.split("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            files = self.hub.repositories.get("/".join(parts[2:4]))
            if files is None:
                return self._say({"error": "no such"}, 404, X_Error_Code="RepoNotFound")
            if "tree" in parts:
                tree = [
                    {"type": "file", "path": name, "size": len(content), "oid": COMMIT}
                    for name, content in files.items()
                ]
                return self._say(tree)
            found = {"id": "/".join(parts[2:4]), "sha": COMMIT, "private": False}
            return self._say({**found, "siblings": [{"rfilename": name} for name in files]})
        if parts[0] == "api":
            return self._say({"error": "no such"}, 404)
        content = self.hub.repositories["/".join(parts[:2])].get("/".join(parts[4:]))
        if content is None:
            return self._say({"error": "no such"}, 404, X_Error_Code="EntryNotFound")
        etag = f'"{hashlib.sha1(content).hexdigest()}"'
        return self._say(content, X_Repo_Commit=COMMIT, ETag=etag)


@pytest.fixture
def hub():
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def run(hub, cache, *words, token="a-token", program=("-m", "shotfit"), offline=False):
    """A process of its own, since the client reads where its hub is when it is imported."""
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1"}
    own |= {"HF_HUB_OFFLINE": "1"} if offline else {}
    own |= {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    unset = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    environment = {k: v for k, v in os.environ.items() if k not in unset} | own
    environment["HF_TOKEN"] = token
    done = subprocess.run(
        [sys.executable, *map(str, [*program, *words])],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def card_of(text):
    _, header, _ = text.split("---\n", 2)
    return yaml.safe_load(header)


@pytest.mark.long
@pytest.mark.slow
def test_a_classifier_travels_over_the_hub(hub, tmp_path):
    recipe = named_recipe("2sfs", iters_per_shot=2)
    dataset = shapes_dataset(4)
    classifier = FewShotClassifier("iconclip", recipe).fit(dataset, shots=2)
    classifier.save_pretrained(tmp_path / "pets")
    image = tmp_path / "one.png"
    open_image(dataset.test[0].image).save(image)
    words = ("push", tmp_path / "pets", "me/pets", "--private", "--revision", "v2")
    code, out, error = run(hub, tmp_path / "cache", *words, "--example", image)
    assert (code, out) == (0, f"{hub.url}/me/pets/commit/{COMMIT}"), error
    kinds = [kind for kind, _ in hub.asked if kind != "card"]
    assert list(dict.fromkeys(kinds)) == ["create", "branch", "commit"]
    created = dict(hub.asked)["create"]
    # Clients before 2.0 say it in one word, later ones in another.
    assert created.get("private") is True or created.get("visibility") == "private"
    assert dict(hub.asked)["commit"] == {"revision": "v2"}
    files = hub.repositories["me/pets"]
    assert json.loads(files["shotfit.json"])["backbone_folder"] is None
    card = card_of(files["README.md"].decode())
    assert card["pipeline_tag"] == "image-classification" and "base_model" not in card
    [result] = card["model-index"][0]["results"]
    [metric] = result["metrics"]
    low, high = (classifier.metrics[f"accuracy_{end}"] for end in ("low", "high"))
    assert metric["value"] == round(classifier.metrics["accuracy"], 2)
    assert metric["name"] == f"accuracy, %, 95 % interval {low:.1f} to {high:.1f}"
    [widget] = card["widget"]
    assert widget["example_title"] == classifier.predict(image)
    assert open_image(files[widget["src"]]).size == open_image(image).size
    for offline in (False, True):
        code, out, error = run(
            hub, tmp_path / "cache", "predict", "me/pets", image, offline=offline
        )
        assert code == 0 and classifier.predict(image) in out, error


@pytest.mark.long
@pytest.mark.slow
def test_nobody_is_told_apart_from_a_network_without_a_hub(hub, tmp_path, checkpoint):
    recipe = named_recipe("2sfs", iters_per_shot=2)
    classifier = FewShotClassifier(str(checkpoint), recipe).fit(shapes_dataset(4), shots=1)
    image = picture(shapes_dataset(4).test[0])
    merged = export_merged(classifier, tmp_path / "merged", example=image).folder
    code, _, error = run(hub, tmp_path / "cache", "push", merged, "me/plain", token="wrong")
    assert code == 3 and "me/plain" in error and "Traceback" not in error
    code, out, error = run(hub, tmp_path / "cache", "push", merged, "me/plain", "--pull-request")
    assert (code, out) == (0, f"{hub.url}/me/plain/discussions/1"), error
    assert dict(hub.asked)["commit"] == {"revision": "main", "create_pr": "1"}
    files = hub.repositories["me/plain"]
    card = card_of(files["README.md"].decode())
    assert card["pipeline_tag"] == "zero-shot-image-classification"
    [widget] = card["widget"]
    assert widget["candidate_labels"] == ", ".join(classifier.classes)
    assert widget["src"] in files
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files.keys()
    # As the card says, by the name of the repository.
    image.save(tmp_path / "image.png")
    ask = (
        "from transformers import pipeline; import sys; "
        "ask = pipeline('zero-shot-image-classification', model='me/plain'); "
        "print(ask(sys.argv[1], candidate_labels=sys.argv[2].split(', '))[0]['label'])"
    )
    words = (tmp_path / "image.png", widget["candidate_labels"])
    code, out, error = run(hub, tmp_path / "cache", *words, program=("-c", ask))
    assert code == 0 and out in classifier.classes, error


def test_what_is_no_model_is_not_uploaded(shotfit, tmp_path):
    code, _, error = shotfit("push", tmp_path, "me/pets")
    assert code == 3 and "nothing to upload" in error
