"""A real server in a process of its own, and a client for it."""

import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from http.client import HTTPException
from pathlib import Path


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


class Server:
    """`shotfit serve` on a free port."""

    def __init__(self, folder, *options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        words = ["-m", "shotfit", "serve", folder, "--port", self.port, "--threads", "1", *options]
        source = str(Path(__file__).parent.parent / "src")
        self.process = subprocess.Popen(
            [sys.executable, *map(str, words)], env={**os.environ, "PYTHONPATH": source}
        )
        end = time.monotonic() + 300
        while self.get("/ready")[0] != 200:
            assert self.process.poll() is None and time.monotonic() < end
            time.sleep(0.1)

    def ask(self, method, path, body=None, **headers):
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (OSError, HTTPException) as error:  # refused, or cut off in the middle of an answer
            return 0, str(error).encode()

    def get(self, path):
        return self.ask("GET", path)

    def post(self, path, value, token=None):
        headers = {"Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        status, body = self.ask("POST", path, json.dumps(value).encode(), **headers)
        return status, json.loads(body)

    def upload(self, path, files, field="files", token=None):
        edge = uuid.uuid4().hex
        parts = [
            f'--{edge}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n'
            "Content-Type: image/png\r\n\r\n".encode()
            + content
            + b"\r\n"
            for name, content in files
        ]
        headers = {"Content-Type": f"multipart/form-data; boundary={edge}"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        body = b"".join(parts) + f"--{edge}--\r\n".encode()
        status, answer = self.ask("POST", path, body, **headers)
        return status, json.loads(answer)

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=120)


def raw(server, sent):
    """A connection of its own, on which this was sent."""
    client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    client.sendall(sent)
    return client


def received(client):
    """All that comes until the server closes the connection."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)
