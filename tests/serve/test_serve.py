"""A real server in a process of its own: answers, limits, and classes that change under load."""

import asyncio
import base64
import json
import re

import aiohttp
import pytest
from conftest import shapes_dataset
from example_images import picture
from PIL import Image
from served import Server, png

from shotfit.export.onnx import export_onnx
from shotfit.runtime import ExportedClassifier
from shotfit.serve.messages import Predictions

TOKEN = "a secret"
IMAGES = [picture(example) for example in shapes_dataset().test[:6]]


@pytest.fixture(scope="module")
def exported(classifier, tmp_path_factory):
    return export_onnx(classifier, tmp_path_factory.mktemp("serve") / "onnx").folder


@pytest.fixture(scope="module")
def server(exported):
    limits = ["--max-images", "4", "--max-bytes", "100000", "--max-pixels", "10000"]
    limits += ["--max-requests", "1001"]
    server = Server(exported, "--token", TOKEN, "--save", *limits)
    yield server
    server.stop()


def test_it_answers_as_the_classifier(server, classifier):
    files = [(f"{number}.png", png(image)) for number, image in enumerate(IMAGES[:4])]
    status, found = server.upload("/predict?top=2", files)
    assert status == 200 and found["version"] == 1
    for result, image in zip(found["results"], IMAGES, strict=False):
        expected = dict(zip(classifier.classes, classifier.predict_proba(image), strict=True))
        best = result["answers"]
        assert len(best) == 2 and best[0]["class"] == max(expected, key=lambda name: expected[name])
        for answer in best:
            assert answer["probability"] == pytest.approx(expected[answer["class"]], abs=1e-4)
    text = base64.b64encode(files[0][1]).decode()
    status, same = server.post("/predict/json", {"images": [{"base64": text}], "top": 2})
    assert status == 200
    for one, other in zip(
        same["results"][0]["answers"], found["results"][0]["answers"], strict=True
    ):
        assert one["class"] == other["class"]
        # In another batch the last digits differ.
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-5)


def decided_as(classifier, found, images):
    """Whether sets and refusals are the classifier's own."""
    sets = classifier.prediction_sets(images, 0.8)
    refused = classifier.predict(images, reject=0.3)
    assert len(found["results"]) == len(images)
    for result, expected, name in zip(found["results"], sets, refused, strict=True):
        assert tuple(answer["class"] for answer in result["set"]) == expected
        assert result["refused"] == (name is None)
        assert result["answers"][0] == result["set"][0]
    return [result["refused"] for result in found["results"]]


NOISE = Image.effect_noise((40, 40), 120).convert("RGB")


def test_sets_and_refusals_are_those_of_the_classifier(server, classifier):
    images = [*IMAGES[:3], NOISE]
    files = [(f"{number}.png", png(image)) for number, image in enumerate(images)]
    status, found = server.upload("/predict?coverage=0.8&reject=0.3", files)
    assert status == 200
    many = decided_as(classifier, found, images)
    assert len(set(many)) == 2, "neither all nor none: the test would see nothing"
    for file, image, refused in zip(files, images, many, strict=True):
        status, found = server.upload("/predict?coverage=0.8&reject=0.3", [file])
        assert status == 200 and decided_as(classifier, found, [image]) == [refused]
    text = [{"base64": base64.b64encode(content).decode()} for _, content in files]
    asked = {"images": text, "coverage": 0.8, "reject": 0.3}
    status, found = server.post("/predict/json", asked)
    assert status == 200 and decided_as(classifier, found, images) == many
    plain = server.upload("/predict", files[:1])[1]["results"][0]
    assert set(plain) == {"image", "answers"}


def test_what_the_shots_cannot_promise_is_refused_with_what_they_can(server):
    file = [("a.png", png(IMAGES[0]))]
    status, found = server.upload("/predict?coverage=0.99", file)
    assert status == 422 and "8 held-out images cannot promise 99%" in found["error"]
    status, found = server.upload("/predict?reject=0.01", file)
    assert status == 422 and "smallest rate they can is 11.2%" in found["error"]
    assert server.upload("/predict?coverage=1.5", file)[0] == 422
    assert server.upload("/predict?reject=0", file)[0] == 422


def test_what_is_beyond_a_limit_has_its_status(server):
    one = png(IMAGES[0])
    assert server.upload("/predict", [("a", one)] * 5)[0] == 413
    assert server.upload("/predict", [("a", one + bytes(200_000))])[0] == 413
    assert server.upload("/predict", [("a", png(IMAGES[0].resize((101, 100))))])[0] == 413
    status, refused = server.upload("/predict", [("bad.png", one[:-30])])
    assert status == 422 and "bad.png" in refused["error"]
    assert server.post("/predict/json", {"images": [{"base64": "?"}]})[0] == 422
    assert server.post("/predict/json", {"images": [{}]})[0] == 422
    url = {"images": [{"url": "http://127.0.0.1:1/a.png"}]}
    assert server.post("/predict/json", url)[0] == 403
    assert server.get("/nothing")[0] == 404


def test_classes_change_for_who_has_the_token(server, exported):
    before = server.post("/classes", {"names": ["orange"]})
    assert before[0] == 401
    assert server.post("/classes", {"names": ["orange"]}, "wrong")[0] == 401
    status, found = server.post("/classes", {"names": ["orange"]}, TOKEN)
    assert status == 200 and found["version"] == 2
    assert found["classes"][-1] == {"name": "orange", "known_by": "name"}
    image = [("a.png", png(IMAGES[0]))]
    assert server.upload("/predict", image)[1]["version"] == 2
    correct = server.upload("/classes/orange/images", image, "file", TOKEN)
    assert correct[0] == 200 and correct[1]["version"] >= 2
    assert ExportedClassifier.load(exported).matrix.version == correct[1]["version"]
    header = {"Authorization": f"Bearer {TOKEN}"}
    assert server.ask("DELETE", "/classes/orange", **header)[0] == 200
    assert server.ask("DELETE", "/classes/orange", **header)[0] == 422
    assert "orange" not in [row["name"] for row in json.loads(server.get("/classes")[1])["classes"]]


def test_metrics_and_the_description(server):
    server.upload("/predict", [("a.png", png(IMAGES[0]))])
    text = server.get("/metrics")[1].decode()
    assert 'shotfit_requests_total{path="/predict",status="200"}' in text
    assert "shotfit_batch_images_bucket" in text and "shotfit_classes_version" in text
    described = json.loads(server.get("/openapi.json")[1])
    assert described["components"]["schemas"]["JsonImages"]["examples"][0]["images"]
    shown = described["paths"]["/predict"]["post"]["responses"]["200"]["content"]
    for example in shown["application/json"]["examples"].values():
        Predictions.model_validate(example["value"])
    for example in described["components"]["schemas"]["JsonImages"]["examples"]:
        assert server.post("/predict/json", {**example, "coverage": 0.5, "reject": 0.5})[0] == 200
    assert server.get("/health") == (200, b'{"status":"ok"}')


def test_the_page_of_the_interface_loads_nothing(server):
    described = json.loads(server.get("/openapi.json")[1])
    status, page = server.get("/")
    text = page.decode()
    assert status == 200 and text == server.get("/docs")[1].decode()
    for path, routes in described["paths"].items():
        for method, route in routes.items():
            assert f"<h2>{method.upper()} {path}</h2>" in text and route["description"] in text
    assert f"curl -F files=@a.jpg {server.url}/predict" in text
    assert "Authorization: Bearer $TOKEN" in text
    assert not re.search(r"(src|href)=.(https?:)?//|<script", text)


def test_no_request_is_lost_while_a_class_is_added(server):
    """A thousand requests, in the middle of which a class comes and goes."""
    text = base64.b64encode(png(IMAGES[0])).decode()
    before = json.loads(server.get("/classes")[1])["version"]

    async def flood():
        answers = []
        async with aiohttp.ClientSession(server.url) as session:

            async def one():
                body = {"images": [{"base64": text}], "top": 10}
                async with session.post("/predict/json", json=body) as answer:
                    answers.append((answer.status, await answer.json()))

            async def change():
                while len(answers) < 300:
                    await asyncio.sleep(0.01)
                header = {"Authorization": f"Bearer {TOKEN}"}
                names = {"names": ["yellow pear"]}
                # A session of its own: in that of the others it would wait for a free connection.
                async with (
                    aiohttp.ClientSession(server.url) as admin,
                    admin.post("/classes", json=names, headers=header) as answer,
                ):
                    assert answer.status == 200

            await asyncio.gather(change(), *(one() for _ in range(1000)))
        return answers

    answers = asyncio.run(flood())
    assert [status for status, _ in answers] == [200] * 1000
    versions = {found["version"] for _, found in answers}
    assert versions == {before, before + 1}
    for _, found in answers:
        names = {answer["class"] for answer in found["results"][0]["answers"]}
        assert ("yellow pear" in names) == (found["version"] == before + 1)


def test_a_saved_classifier_is_served_by_pytorch(classifier, tmp_path):
    classifier.save_pretrained(tmp_path / "saved")
    server = Server(tmp_path / "saved")
    try:
        status, found = server.upload("/predict", [("a.png", png(IMAGES[0]))])
        assert status == 200
        assert found["results"][0]["answers"][0]["class"] == classifier.predict(IMAGES[0])
        files = [("a.png", png(IMAGES[0])), ("b.png", png(NOISE))]
        status, found = server.upload("/predict?coverage=0.8&reject=0.3", files)
        assert status == 200
        decided_as(classifier, found, [IMAGES[0], NOISE])
        assert server.post("/classes", {"names": ["pear"]}, TOKEN)[0] == 403
    finally:
        server.stop()
