"""A service that takes rows by HTTP, in a process of its own: it notes every request, and answers as it is told.

Arguments: the file for its notes, and JSON with `delay` (seconds) and `faults`, which names what it answers to rows whose
id is divisible by a number: a status such as "429", which may be followed by a blank and seconds to wait, or "close".
Faults of a service itself come once for each row, those of rows (400 and such) always.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Service:
    """Starts such a service, and reads its notes."""

    def __init__(self, folder: Path, delay: float = 0.0, **faults: int) -> None:
        self._notes = folder / "requests.jsonl"
        given = {"delay": delay, "faults": {name.lstrip("_").replace("_", " "): n for name, n in faults.items()}}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._notes), json.dumps(given)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/rows"

    def requests(self) -> list[dict[str, Any]]:
        """Return all requests, in the order in which they came."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        return sorted((json.loads(line) for line in lines), key=lambda one: one["at"])

    def rows(self) -> list[int]:
        """Return the ids of the rows that were taken, sorted."""
        return sorted(row["id"] for one in self.requests() if one["answer"] == "200" for row in one["rows"])

    def most_in_a_second(self, seconds: float = 1.0) -> int:
        """Return the most requests in any second."""
        times = [one["at"] for one in self.requests()]
        most = start = 0
        for end, at in enumerate(times):
            while at - times[start] >= seconds:
                start += 1
            most = max(most, end - start + 1)
        return most

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def main(path: str, given: str) -> None:
    told = json.loads(given)
    notes = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    lock, met = threading.Lock(), set[Any]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            at = time.time()
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            rows = body if isinstance(body, list) else [body]
            with lock:
                fault = next((name for name, n in told["faults"].items() if self.has(name, rows, n)), "200")
            status, _, wait = fault.partition(" ")
            note = {"at": at, "method": self.command, "key": self.headers["Idempotency-Key"], "rows": rows}
            note |= {"answer": status, "is_array": isinstance(body, list), "token": self.headers["Authorization"]}
            os.write(notes, json.dumps(note).encode() + b"\n")
            time.sleep(told["delay"])
            if status == "close":
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(int(status))
            if wait:
                self.send_header("Retry-After", wait)
            text = b"this row is not for us" if status == "400" else b""
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_PUT = do_POST

        def has(self, name: str, rows: Any, number: int) -> bool:
            ids = {row["id"] for row in rows if row["id"] % number == 0}
            if not name.startswith(("close", "429", "5")):
                return bool(ids)
            fresh = {(name, one) for one in ids} - met
            met.update(fresh)
            return bool(fresh)

        def log_message(self, *_: Any) -> None:
            pass

        def finish(self) -> None:
            with suppress(OSError):
                super().finish()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: Any) -> None:
            pass

    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
