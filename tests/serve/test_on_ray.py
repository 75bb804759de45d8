"""`shotfit serve --ray` on a real cluster of this machine."""

import concurrent.futures
import json
import sys
import threading
import time

import psutil
import pytest
from conftest import shapes_dataset
from example_images import picture
from served import Server, png

from shotfit.errors import UsageError
from shotfit.export.onnx import export_onnx
from shotfit.runtime import ExportedClassifier
from shotfit.serve.on_ray import Replicas

IMAGES = [picture(example) for example in shapes_dataset().test[:3]]
FILES = [(f"{number}.png", png(image)) for number, image in enumerate(IMAGES)]
PATIENCE = 600


def below(server, name):
    """The processes of Ray below the server's, with this in their titles."""
    found = []
    for process in psutil.Process(server.process.pid).children(recursive=True):
        try:
            if name in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def replicas(server):
    """The processes of replicas."""
    return below(server, "ServeReplica")


def under_load(server, until):
    """Asks from eight sides until this comes true; every answer must be one."""
    ended, wrong = threading.Event(), []

    def ask():
        while not ended.is_set():
            status, found = server.upload("/predict", FILES)
            if status not in (200, 503):
                wrong.append((status, found))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    reached = eventually(until)
    ended.set()
    for thread in threads:
        thread.join()
    assert not wrong
    return reached


def versions(server, path, ask=20):
    """The versions that many answers name, asked one after the other."""
    return [json.loads(server.get(path)[1])["version"] for _ in range(ask)]


@pytest.mark.long
@pytest.mark.xdist_group("machine")
@pytest.mark.slow
def test_replicas_answer_alike_and_share_their_classes(classifier, tmp_path):
    pytest.importorskip("ray.serve")
    folder = export_onnx(classifier, tmp_path / "onnx").folder
    options = ["--ray", "--min-replicas", "1", "--max-replicas", "2", "--batch-size", "1"]
    server = Server(folder, *options, "--token", "t", "--save", "--max-bytes", "100000")
    try:
        status, found = server.upload("/predict?coverage=0.8&reject=0.3", FILES)
        assert status == 200
        sets = classifier.prediction_sets(IMAGES, 0.8)
        for result, expected in zip(found["results"], sets, strict=True):
            assert tuple(answer["class"] for answer in result["set"]) == expected
        assert server.upload("/predict", [("a", bytes(200_000))])[0] == 413
        assert server.post("/classes", {"names": ["a"]})[0] == 401
        assert under_load(server, lambda: len(replicas(server)) == 2), "load starts another replica"
        # The second one answers, too, before the classes change.
        assert eventually(lambda: answering(server) == 2)

        def add(number):
            status, found = server.post("/classes", {"names": [f"class {number}"]}, "t")
            then = min(versions(server, "/classes"))
            return status, found.get("version", 0), then

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            added = list(pool.map(add, range(12)))
        assert [status for status, _, _ in added] == [200] * 12
        for _, confirmed, seen in added:
            assert seen >= confirmed, "no replica answers with classes from before"
        assert set(versions(server, "/classes")) == {13}, "no change took the place of another"
        names = {f"class {number}" for number in range(12)}
        assert names <= set(ExportedClassifier.load(folder).classes)

        killed = replicas(server)[0]
        killed.kill()
        killed.wait()
        assert eventually(lambda: all_know(server, names)), "it is replaced, and knows them"
        (keeper,) = below(server, "ray::Keeper")
        keeper.kill()
        keeper.wait()
        assert eventually(lambda: all_know(server, names)), "what was saved is read again"
    finally:
        code = server.stop()
    assert code == 0
    assert server.get("/health")[0] == 0


def answering(server):
    """How many replicas answer: they are told from each other by what each has counted."""
    counts = set()
    for _ in range(12):
        lines = server.get("/metrics")[1].decode().splitlines()
        counts |= {line for line in lines if line.startswith("shotfit_images_total")}
    return len(counts)


def eventually(found):
    """Whether this comes true."""
    end = time.monotonic() + PATIENCE
    while not found() and time.monotonic() < end:
        time.sleep(0.5)
    return found()


def all_know(server, names):
    """Whether ten answers have all of these classes, and come from two replicas."""
    found = [server.get("/classes") for _ in range(10)]
    if len(replicas(server)) < 2 or any(status != 200 for status, _ in found):
        return False
    known = [{row["name"] for row in json.loads(body)["classes"]} for _, body in found]
    assert all(names <= rows for rows in known)
    return True


def test_numbers_of_replicas_that_cannot_be(shotfit, classifier, tmp_path):
    with pytest.raises(UsageError, match="at least one and at most 2 replicas, got 3"):
        Replicas("pets", least=3, most=2)
    code, _, err = shotfit("serve", tmp_path, "--min-replicas", "2")
    assert code == 2 and "are about --ray" in err
    code, _, err = shotfit("serve", tmp_path, "--ray", "--min-replicas", "3", "--max-replicas", "2")
    assert code == 2 and "at most 2 replicas" in err
    classifier.save_pretrained(tmp_path / "saved")
    code, _, err = shotfit("serve", tmp_path / "saved", "--ray", "--save")
    assert code == 2 and "for exported folders" in err


def test_without_ray_the_extra_is_named(shotfit, classifier, tmp_path, monkeypatch):
    folder = export_onnx(classifier, tmp_path / "onnx").folder
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = shotfit("serve", folder, "--ray")
    assert code == 2 and "pip install 'shotfit[ray]'" in err
