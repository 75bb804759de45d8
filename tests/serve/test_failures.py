"""What fails fails alone, says nothing of the server's inside, and loses nothing."""

import asyncio
import base64
import hmac
import io
import json
import threading
import time
from typing import Any, cast

import numpy as np
import psutil
import pytest
from conftest import shapes_dataset
from example_images import picture
from fastapi.testclient import TestClient
from PIL import Image
from served import Server, png

from shotfit.export.onnx import export_onnx
from shotfit.runtime import ExportedClassifier
from shotfit.serve.app import make_app
from shotfit.serve.batching import Batcher
from shotfit.serve.settings import Settings

IMAGES = [png(picture(example)) for example in shapes_dataset().test[:3]]
BLACK = Image.new("RGB", (32, 32))
SECRET = "/srv/model/secret.onnx"
TOKEN = "gehéim"


class Poisoned:
    """An encoder that cannot take a black image: it raises, or its features are no numbers."""

    def __init__(self, encoder, found):
        self.encoder = encoder
        self.found = found
        self.black = None

    def __getattr__(self, name):
        return getattr(self.encoder, name)

    def features(self, pixels):
        found = self.encoder.features(pixels)
        black = (pixels == pixels.min(axis=(2, 3), keepdims=True)).all(axis=(1, 2, 3))
        # Zeros are what a server asks first.
        black &= pixels.any(axis=(1, 2, 3))
        if black.any() and self.found is None:
            raise RuntimeError(f"{SECRET} has failed")
        found[black] = np.nan
        return found


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    return export_onnx(classifier, tmp_path_factory.mktemp("failures") / "onnx").folder


@pytest.fixture
def client_of(exported):
    """A client of a server in this process; `found` as in `Poisoned`, or none."""

    def make(found=0, **settings):
        classifier = ExportedClassifier.load(exported, threads=1)
        if found != 0:
            classifier.encoder = cast(Any, Poisoned(classifier.encoder, found))
        app = make_app(classifier, Settings(batch_delay=0.2, **settings))
        return TestClient(app, raise_server_exceptions=False)

    return make


def forms(*contents):
    return [("files", (f"{n}.png", content)) for n, content in enumerate(contents)]


@pytest.mark.parametrize("bad", [IMAGES[0][:-40], b"", b"GIF89a", b"<svg/>", IMAGES[0][:20]])
def test_an_unreadable_image_fails_alone(client_of, bad):
    with client_of() as client:
        expected = client.post("/predict", files=forms(IMAGES[0], IMAGES[1])).json()["results"]
        found = client.post("/predict", files=forms(IMAGES[0], bad, IMAGES[1]))
        alone = client.post("/predict", files=forms(bad))
    assert found.status_code == 200
    first, broken, last = found.json()["results"]
    for one, other in ((first, expected[0]), (last, expected[1])):
        assert one["answers"][0]["class"] == other["answers"][0]["class"]
    assert broken["answers"] == [] and "1.png" in broken["error"]
    assert alone.status_code == 422


def test_in_json_too(client_of):
    good = {"base64": base64.b64encode(IMAGES[0]).decode()}
    images = [good, {"base64": "?"}, {"url": "http://127.0.0.1:1/"}, good]
    with client_of() as client:
        found = client.post("/predict/json", json={"images": images})
        many = client.post("/predict/json", json={"images": [good] * 33})
    assert found.status_code == 200
    results = found.json()["results"]
    assert [bool(row["answers"]) for row in results] == [True, False, False, True]
    assert "base64" in results[1]["error"] and "no addresses" in results[2]["error"]
    assert many.status_code == 413


@pytest.mark.parametrize("found", [None, np.nan])
def test_an_image_that_the_model_cannot_take_fails_alone(client_of, found):
    """Among the images of a request, and among the requests of a batch."""
    with client_of(found) as client:
        beside = client.post("/predict", files=forms(IMAGES[0], png(BLACK), IMAGES[1]))
        together = {}

        def ask(name, content):
            together[name] = client.post("/predict", files=forms(content))

        jobs = [("a", IMAGES[0]), ("black", png(BLACK)), ("b", IMAGES[1])]
        threads = [threading.Thread(target=ask, args=job) for job in jobs]
        for step in ("start", "join"):
            for thread in threads:
                getattr(thread, step)()
    assert beside.status_code == 200
    assert [bool(row["answers"]) for row in beside.json()["results"]] == [True, False, True]
    assert {name: answer.status_code for name, answer in together.items()} == {
        "a": 200,
        "b": 200,
        "black": 500,
    }
    for answer in (beside, *together.values()):
        assert "secret" not in answer.text and "Traceback" not in answer.text


def test_a_batch_of_many_is_tried_one_by_one_only_where_it_fails():
    sizes = []

    def run(pixels):
        sizes.append(len(pixels))
        if (pixels == 7).any():
            raise RuntimeError("poison")
        return pixels.reshape(len(pixels), -1)

    async def ask(values):
        batcher = Batcher(run, 4, 0.5)
        batcher.start()
        asked = (batcher.features(np.full((1, 1, 1), value)) for value in values)
        found = await asyncio.gather(*asked, return_exceptions=True)
        await batcher.stop()
        return found

    assert asyncio.run(ask([1, 2, 3, 4])) == [1, 2, 3, 4]
    assert sizes == [4]
    one, poison, *others = asyncio.run(ask([1, 7, 2, 3]))
    assert isinstance(poison, RuntimeError) and [one, *others] == [1, 2, 3]
    assert sizes == [4, 4, 1, 1, 1, 1]


def test_no_error_names_the_servers_inside(client_of, exported, monkeypatch):
    monkeypatch.setattr(
        ExportedClassifier, "add_classes", lambda *_: (_ for _ in ()).throw(RuntimeError(SECRET))
    )
    bearer = {"Authorization": f"Bearer {TOKEN}".encode()}
    with client_of(token=TOKEN) as client:
        answers = [
            client.post("/classes", json={"names": ["a"]}, headers=bearer),
            client.post("/predict", files=forms(b"no image")),
            client.post("/predict", content=b"x", headers={"Content-Type": "multipart/form-data"}),
            client.post("/predict/json", content=b"{"),
            client.get("/nothing"),
            client.get("/predict"),
            client.delete("/classes/none", headers=bearer),
        ]
    assert [answer.status_code for answer in answers] == [500, 422, 400, 422, 404, 405, 422]
    for answer in answers:
        assert set(answer.json()) == {"error"}
        for inside in (SECRET, str(exported), "Traceback", "site-packages", ".py", "0x"):
            assert inside not in answer.text
        assert "uvicorn" not in str(answer.headers).lower()


def test_the_token_is_compared_in_constant_time(client_of, monkeypatch):
    """By `hmac.compare_digest`, on values of one length whatever was given, and by nothing else."""
    compared, answer, real = [], None, hmac.compare_digest

    def spy(one, other):
        compared.append((one, other))
        return real(one, other) if answer is None else answer

    monkeypatch.setattr("shotfit.serve.app.hmac.compare_digest", spy)
    with client_of(token=TOKEN) as client:

        def status(given):
            header = {"Authorization": f"Bearer {given}".encode()}
            return client.post("/classes", json={"names": ["pear"]}, headers=header).status_code

        guesses = ["", "g", TOKEN[:-1], TOKEN.upper(), TOKEN + "x", "x" * 5000]
        assert [status(guess) for guess in guesses] == [401] * len(guesses)
        assert status(TOKEN) == 200
        assert len(compared) == len(guesses) + 1
        assert len({len(value) for pair in compared for value in pair}) == 1
        answer = True
        assert status("anything") == 200
        answer = False
        assert status(TOKEN) == 401


def test_a_change_that_cannot_be_saved_is_told(classifier, tmp_path, client_of, monkeypatch):
    def full(self):
        raise OSError(28, "No space left on device", SECRET)

    monkeypatch.setattr(ExportedClassifier, "save", full)
    header = {"Authorization": f"Bearer {TOKEN}".encode()}
    with client_of(token=TOKEN, save=True) as client:
        told = client.post("/classes", json={"names": ["pear"]}, headers=header)
        names = [row["name"] for row in client.get("/classes").json()["classes"]]
    assert told.status_code == 507 and "not saved" in told.json()["error"]
    assert SECRET not in told.text and "pear" in names


def test_told_to_end_it_finishes_what_it_was_asked(exported):
    """A second and a half is what an image waits for others here; the signal comes meanwhile."""
    server = Server(exported, "--batch-delay", "1500")
    found = []
    asking = threading.Thread(
        target=lambda: found.append(server.upload("/predict", [("a.png", IMAGES[0])]))
    )
    asking.start()
    while b"in_flight 2" not in server.get("/metrics")[1]:
        time.sleep(0.02)
    server.process.terminate()
    asking.join(timeout=60)
    assert found[0][0] == 200 and found[0][1]["results"][0]["answers"]
    assert server.process.wait(timeout=30) in (0, -15)
    assert server.get("/health")[0] == 0


@pytest.mark.slow
def test_what_was_confirmed_survives_a_kill_under_load(classifier, tmp_path):
    """Classes are added one after the other while others ask, and the process is killed."""
    folder = export_onnx(classifier, tmp_path / "onnx").folder
    options = ("--save", "--token", "t")
    confirmed = []
    for start in range(2):
        server = Server(folder, *options)
        known = [row["name"] for row in json.loads(server.get("/classes")[1])["classes"]]
        assert set(confirmed) <= set(known)
        threads = [threading.Thread(target=_ask_until_gone, args=(server,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        killer = threading.Timer(1.5, server.process.kill)
        killer.start()
        for number in range(10_000):
            name = f"class {start} {number}"
            try:
                status, _ = server.post("/classes", {"names": [name]}, "t")
            except (ValueError, OSError):
                break
            if status == 200:
                confirmed.append(name)
        for thread in (killer, *threads):
            thread.join()
        server.process.wait()
    assert len(confirmed) > 2
    assert set(confirmed) <= set(ExportedClassifier.load(folder, check=True).classes)


def _ask_until_gone(server):
    while server.process.poll() is None:
        try:
            status, _ = server.upload("/predict", [("a.png", IMAGES[0])])
        except (ValueError, OSError):
            return
        assert status in (0, 200)


@pytest.mark.slow
def test_memory_is_flat_over_many_connections(exported):
    server = Server(exported)
    try:
        process = psutil.Process(server.process.pid)
        answered, used = 0, []
        for _ in range(3):
            for _ in range(150):
                answered += server.upload("/predict", [("a.png", IMAGES[0])])[0] == 200
            used.append((process.memory_info().rss, process.num_fds(), process.num_threads()))
    finally:
        server.stop()
    assert answered == 450
    (_, _, _), (first, files, threads), (last, files_then, threads_then) = used
    assert last - first < 4e6 and files_then <= files + 1 and threads_then <= threads + 1


def test_images_of_several_requests_are_read_whole(client_of):
    """Files of any name and order come back under their own names."""
    buffer = io.BytesIO()
    BLACK.resize((20, 20)).save(buffer, "JPEG")
    files = [("files", (name, buffer.getvalue())) for name in ("ä.jpg", "../../etc/passwd", "a b")]
    with client_of() as client:
        found = client.post("/predict", files=files).json()
    assert [row["image"] for row in found["results"]] == ["ä.jpg", "../../etc/passwd", "a b"]
