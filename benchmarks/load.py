"""Latency and throughput of `shotfit serve` under load: batches, replicas.

    python benchmarks/load.py            # measures, and keeps results/serving/load.json
    python benchmarks/load.py --write docs/serving.md

The load is locust's: so many users, each of whom asks again as soon as the answer is there. The
servers of a pair are asked in turn, so that whatever else the machine does falls on both, and the
median of the rounds is reported. They share the cores with the load.
"""

import argparse
import base64
import csv
import io
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent
RESULTS = REPOSITORY / "results" / "serving" / "load.json"
MARK = "<!-- load -->"
SECONDS, ROUNDS = 8, 3
USERS = (1, 16)
WAIT = 300
LONGEST = 120
PAIRS = {
    "batching": {
        "one image at a time": ["--batch-size", "1", "--batch-delay", "0"],
        "batches of up to 16": ["--batch-size", "16", "--batch-delay", "5"],
    },
    "replicas": {
        "one replica on Ray": ["--ray", "--min-replicas", "1"],
        "two replicas on Ray": ["--ray", "--min-replicas", "2"],
    },
}
"""What is compared with what, by its options; the first of each pair is what ratios are to."""

USER = """
import os
from locust import FastHttpUser, task

BODY = open(os.environ["LOAD_BODY"], "rb").read()

class Asking(FastHttpUser):
    @task
    def ask(self):
        self.client.post("/predict/json", data=BODY, headers={"Content-Type": "application/json"})
"""


def main() -> None:
    """Measures, or writes what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="Write the table into a page.")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="Of each round.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    arguments = parser.parse_args()
    if arguments.write:
        return write(arguments.write)
    record: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder, body = classifier(Path(scratch))
        for pair in arguments.pairs:
            before = machine()
            rows = measured(pair, folder, body, arguments.seconds, arguments.rounds)
            record[pair] = {"machine": before, "seconds": arguments.seconds, "rounds": rows}
            RESULTS.parent.mkdir(parents=True, exist_ok=True)
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")


def classifier(scratch: Path) -> tuple[Path, Path]:
    """An export of the embedded model with a hundred names, since only time is asked for, and a
    request: a photograph's size of soft colours, as JPEG."""
    from PIL import Image

    from shotfit.backbone import Backbone
    from shotfit.classifier import FewShotClassifier
    from shotfit.export.onnx import export_onnx
    from shotfit.methods.zero_shot import ZeroShot

    names = tuple(f"class {number}" for number in range(100))
    fitted = FewShotClassifier("iconclip").take(
        ZeroShot(Backbone.from_pretrained("iconclip")), added=names
    )
    folder = export_onnx(fitted, scratch / "onnx").folder
    buffer = io.BytesIO()
    Image.effect_noise((16, 12), 100).convert("RGB").resize((640, 480)).save(buffer, "JPEG")
    body = scratch / "body.json"
    text = base64.b64encode(buffer.getvalue()).decode()
    body.write_text(json.dumps({"images": [{"base64": text}]}))
    return folder, body


def measured(
    pair: str, folder: Path, body: Path, seconds: int, rounds: int
) -> list[dict[str, Any]]:
    """A row for each server, number of users and round."""
    rows = []
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(Server(folder, options))
            for name, options in PAIRS[pair].items()
        }
        for server in servers.values():
            for _ in range(8):  # the first answers of a process are slow
                server.ask(body)
        for number in range(rounds):
            for users in USERS:
                for name, server in servers.items():
                    row = {"server": name, "users": users, "round": number}
                    rows.append(row | loaded(server, body, users, seconds))
                    print(rows[-1], flush=True)
    return rows


class Server:
    """`shotfit serve` on a free port, with one thread for each model."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "shotfit", "serve", str(folder)]
        command += ["--port", str(self.port), "--threads", "1", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def __enter__(self) -> "Server":
        end = time.monotonic() + WAIT
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit("The server does not answer.")
            time.sleep(0.5)
        return self

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, body: Path) -> None:
        """One request of the load."""
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/predict/json", body.read_bytes(), kind)
        with urllib.request.urlopen(request, timeout=WAIT) as answer:
            answer.read()

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=WAIT)


def loaded(server: Server, body: Path, users: int, seconds: int) -> dict[str, Any]:
    """What locust saw: requests, failures, milliseconds at percentiles, requests a second."""
    with tempfile.TemporaryDirectory() as scratch:
        user = Path(scratch) / "user.py"
        user.write_text(USER)
        prefix = Path(scratch) / "found"
        command = [sys.executable, "-m", "locust", "-f", user, "--headless", "--host", server.url]
        command += ["-u", users, "-r", users, "-t", f"{seconds}s", "--csv", prefix]
        environment = {**os.environ, "LOAD_BODY": str(body)}
        done = subprocess.run(
            list(map(str, command)), env=environment, capture_output=True, text=True
        )
        with prefix.with_name("found_stats.csv").open() as file:
            row = next(row for row in csv.DictReader(file) if row["Name"] == "Aggregated")
    if not int(row["Request Count"]):
        if seconds > LONGEST:
            raise SystemExit(f"Nothing was answered in {seconds} s.")
        return loaded(server, body, users, 2 * seconds)  # a machine too busy for so short a round
    if int(row["Failure Count"]):
        print(done.stderr[-2000:], file=sys.stderr)
    return {
        "requests": int(row["Request Count"]),
        "failures": int(row["Failure Count"]),
        "per_second": float(row["Requests/s"]),
        **{f"p{part}": float(row[f"{part}%"]) for part in (50, 95, 99)},
    }


def machine() -> dict[str, Any]:
    """What is to be measured on, and how busy it is with other things: asked before it."""
    names = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "processor": names[0].partition(":")[2].strip() if names else "unknown",
        "cores": os.cpu_count(),
        "load_average": [round(value, 1) for value in os.getloadavg()],
    }


def write(page: Path) -> None:
    """Writes the table between two marks of the page."""
    text = page.read_text(encoding="utf-8")
    before, _, after = text.split(MARK)
    page.write_text(before + f"{MARK}\n{table()}\n{MARK}" + after, encoding="utf-8")


def table() -> str:
    """What the record says, as Markdown."""
    record = json.loads(RESULTS.read_text())
    lines = [
        "| users | server | p50 | p95 | p99 | requests/s | to the first of its pair | failed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for pair, servers in PAIRS.items():
        rows = record.get(pair, {"rounds": []})["rounds"]
        for users in sorted({row["users"] for row in rows}):
            for name in servers:
                lines.append(_line(rows, users, name, next(iter(servers))))
    busy = ", ".join(
        f"{part['machine']['load_average'][0]} ({pair})" for pair, part in record.items()
    )
    machine = next(iter(record.values()))["machine"]
    rounds = ", ".join(
        f"{1 + max(row['round'] for row in part['rounds'])} rounds of {part['seconds']} s ({pair})"
        for pair, part in record.items()
    )
    lines += [
        "",
        f"Milliseconds and requests a second, medians of {rounds}; {machine['cores']} cores of an "
        f"{machine['processor']}, which servers, locust and other work shared (load average "
        f"{busy}).",
    ]
    return "\n".join(lines)


def _line(rows: list[dict[str, Any]], users: int, name: str, first: str) -> str:
    def of(server: str, kind: str) -> list[float]:
        return [row[kind] for row in rows if (row["server"], row["users"]) == (server, users)]

    shown = [f"{statistics.median(of(name, kind)):,.0f}" for kind in ("p50", "p95", "p99")]
    speed = statistics.median(of(name, "per_second"))
    pairs = zip(of(name, "per_second"), of(first, "per_second"), strict=True)
    ratio = "" if name == first else f"{statistics.median(a / b for a, b in pairs):.2f} times"
    failed, asked = (int(sum(of(name, kind))) for kind in ("failures", "requests"))
    cells = [str(users), name, *shown, f"{speed:.1f}", ratio, f"{failed} of {asked:,}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
