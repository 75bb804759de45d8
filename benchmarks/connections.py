"""The memory of a server over thousands of connections, one after the other.

    python benchmarks/connections.py          # keeps results/serving/connections.json
    python benchmarks/connections.py --connections 1000

Every request is a connection of its own, and every tenth is one that the server refuses: no image,
no JSON, too many bytes. The server is `shotfit serve` with the export that `load.py` makes.
"""

import argparse
import http.client
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from load import REPOSITORY, Server, classifier, machine

RESULTS = REPOSITORY / "results" / "serving" / "connections.json"
STEPS = 10
REFUSED = ((b'{"images": [{"base64": "AAAA"}]}', 422), (b"{", 422), (bytes(200_000), 413))


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--connections", type=int, default=10_000)
    count = parser.parse_args().connections
    rows: list[dict[str, Any]] = []
    before, started = machine(), time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder, body = classifier(Path(scratch))
        with Server(folder, ["--max-bytes", "150000"]) as server:
            process, wrong = psutil.Process(server.process.pid), 0
            for step in range(STEPS + 1):
                for number in range(count // STEPS if step else 100):
                    wrong += not answered(server, number, body.read_bytes())
                done = step * (count // STEPS)
                memory = process.memory_info().rss
                files, threads = process.num_fds(), process.num_threads()
                rows.append({"connections": done, "bytes": memory, "files": files})
                rows[-1] |= {"threads": threads, "wrong": wrong}
                print(rows[-1], flush=True)
    facts = {"machine": before, "seconds": time.monotonic() - started, "rows": rows}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")


def answered(server: Server, number: int, body: bytes) -> bool:
    """Whether a connection of its own is answered as it must be."""
    expected = 200
    if number % 10 == 9:
        body, expected = REFUSED[number // 10 % len(REFUSED)]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)
    try:
        connection.request("POST", "/predict/json", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.read() != b"" and answer.status == expected
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main()
