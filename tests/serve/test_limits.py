"""What a real server does with too much, too slow and malformed: a status, and it goes on."""

import json
import socket
import threading
import time

import pytest
from conftest import shapes_dataset
from example_images import picture
from served import Server, png, raw, received

from shotfit.export.onnx import export_onnx

IMAGE = png(picture(shapes_dataset().test[0]))
SECONDS = 3


@pytest.fixture(scope="module")
def server(classifier, tmp_path_factory):
    """Two images are a batch; one alone waits longer than any request may take."""
    folder = export_onnx(classifier, tmp_path_factory.mktemp("limits") / "onnx").folder
    limits = ["--batch-size", "2", "--batch-delay", "60000", "--max-seconds", str(SECONDS)]
    server = Server(folder, *limits, "--max-requests", "2", "--max-bytes", "100000")
    yield server
    server.stop()


def answers(server):
    status, _ = server.upload("/predict", [("a.png", IMAGE), ("b.png", IMAGE)])
    return status == 200


def head(length, kind="application/json", path="/predict/json"):
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n{length}\r\n\r\n".encode()


def refusal(answer):
    """The status of a raw answer, and why."""
    top, _, body = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]), json.loads(body)["error"]


def test_no_answer_in_time_is_504(server):
    started = time.monotonic()
    status, found = server.upload("/predict", [("a.png", IMAGE)])
    assert (status, found) == (504, {"error": f"Not answered in {SECONDS} seconds."})
    assert time.monotonic() - started >= SECONDS
    assert answers(server), "what was given up is not computed with the next"


def test_more_requests_than_allowed_are_503_and_others_are_answered(server):
    slow = [raw(server, head("Content-Length: 9000") + b"{") for _ in range(2)]
    time.sleep(0.2)
    started = time.monotonic()
    with raw(server, head("Content-Length: 2") + b"{}") as third:
        busy = received(third)
    assert refusal(busy) == (503, "The server is busy.")
    assert b"retry-after: 1\r\n" in busy.lower()
    assert server.get("/health")[0] == server.get("/ready")[0] == 200
    assert time.monotonic() - started < SECONDS, "those who are slow are not waited for"
    for client in slow:
        assert refusal(received(client)) == (408, f"The request was not sent in {SECONDS} seconds.")
        client.close()
    assert answers(server)


def test_who_sends_no_request_is_not_kept(server):
    """Nothing at all, half a head, and a second head that never ends."""
    started = time.monotonic()
    clients = [raw(server, b""), raw(server, b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: ")]
    second = raw(server, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /he")
    answer = second.recv(4096)
    while not answer.endswith(b'{"status":"ok"}'):
        answer += second.recv(4096)
    for client in (*clients, second):
        assert client.recv(4096) == b""
        client.close()
    assert time.monotonic() - started >= SECONDS, "who is slow has that long"
    assert answers(server)


def pour(client, stopped, piece=b"10000\r\n" + bytes(0x10000) + b"\r\n"):
    """Sends for ever; a server that takes it all would never stop it."""
    try:
        while not stopped.is_set():
            client.sendall(piece)
    except OSError:
        stopped.set()


@pytest.mark.parametrize(("path", "status"), [("/predict/json", 413), ("/nothing", 404)])
def test_an_endless_body_ends(server, path, status):
    client = raw(server, head("Transfer-Encoding: chunked", path=path))
    stopped = threading.Event()
    sender = threading.Thread(target=pour, args=(client, stopped))
    sender.start()
    if status == 413:
        assert int(client.recv(4096).split()[1]) == 413
    sender.join(timeout=30)
    ended, _ = stopped.is_set(), stopped.set()
    client.close()
    sender.join()
    assert ended, "the server received on and on"
    assert answers(server)


def test_a_declared_length_is_refused_before_it_is_sent(server):
    with raw(server, head("Content-Length: 99999999999")) as client:
        assert refusal(received(client)) == (413, "At most 100,000 bytes in a request.")


FORM = "multipart/form-data; boundary=edge"
MALFORMED = {
    "no boundary": ("multipart/form-data", b"--edge--\r\n"),
    "no parts": (FORM, b""),
    "nothing of it": (FORM, b"\x00\xff" * 50),
    "cut off": (FORM, b'--edge\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n'),
    "no name": (
        FORM,
        b'--edge\r\nContent-Disposition: form-data; filename="a"\r\n\r\nx\r\n--edge--',
    ),
    "no file": (
        FORM,
        b'--edge\r\nContent-Disposition: form-data; name="files"\r\n\r\nx\r\n--edge--',
    ),
    "another field": (
        FORM,
        b'--edge\r\nContent-Disposition: form-data; name="f"\r\n\r\n\r\n--edge--',
    ),
    "a part without head": (FORM, b"--edge\r\n\r\nx\r\n--edge--\r\n"),
    "not a form": ("text/plain", b"hello"),
    "many parts": (FORM, b'--edge\r\nContent-Disposition: form-data; name="f"\r\n\r\n\r\n' * 1500),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_forms_are_the_clients_fault(server, name):
    kind, body = MALFORMED[name]
    status, answer = server.ask("POST", "/predict", body, **{"Content-Type": kind})
    assert status in (400, 422) and set(json.loads(answer)) == {"error"}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"images": 3}', b'{"images": []}', b"\xff", b"[" * 50_000]
)
def test_malformed_json_is_the_clients_fault(server, body):
    status, answer = server.ask(
        "POST", "/predict/json", body, **{"Content-Type": "application/json"}
    )
    assert status in (400, 422) and set(json.loads(answer)) == {"error"}


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9\r\n\r\n", b"A" * 100_000, b"\r\n" * 9]
)
def test_what_is_no_http_ends_the_connection(server, sent):
    with raw(server, sent) as client:
        client.shutdown(socket.SHUT_WR)
        answer = received(client)
    assert not answer or answer.startswith(b"HTTP/1.1 400")
    assert answers(server)


def test_every_refusal_is_counted(server):
    assert server.upload("/predict", [("a.png", IMAGE)])[0] == 504
    slow = [raw(server, head("Content-Length: 9000") + b"{") for _ in range(2)]
    time.sleep(0.2)
    for length in ("2", "200000"):
        with raw(server, head(f"Content-Length: {length}") + b"{}") as client:
            assert refusal(received(client))[0] in (503, 413)
    for client in slow:
        assert refusal(received(client))[0] == 408
        client.close()
    with raw(server, head("Content-Length: 200000") + b"{}") as client:
        assert refusal(received(client))[0] == 413
    counted = server.get("/metrics")[1].decode()
    for status in (408, 413, 503, 504):
        assert f'status="{status}"' in counted
    assert "shotfit_requests_in_flight 1.0" in counted, "the one that asks for it"
