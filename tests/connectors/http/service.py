"""HTTP service for rows, run as a subprocess: it logs every request and injects faults.

Arguments: the file of the log, and JSON with `delay` (seconds) and `faults`. A fault maps the response for rows whose id is
divisible by a number: a status such as "429", optionally with a blank and the seconds of Retry-After, or "close" to drop
the connection. Faults of the service ("close", 429, 5xx) occur once for each row, those of rows (400 and such) always.
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
    """The service of this module in a subprocess, and its log."""

    def __init__(self, folder: Path, delay: float = 0.0, **faults: int) -> None:
        self._log = folder / "requests.jsonl"
        options = {"delay": delay, "faults": {name.lstrip("_").replace("_", " "): n for name, n in faults.items()}}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self._log), json.dumps(options)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/rows"

    def requests(self) -> list[dict[str, Any]]:
        """Return all requests in the order of their arrival."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return sorted((json.loads(line) for line in lines), key=lambda request: request["at"])

    def rows(self) -> list[int]:
        """Return the sorted ids of the accepted rows."""
        return sorted(row["id"] for request in self.requests() if request["answer"] == "200" for row in request["rows"])

    def max_requests_in(self, seconds: float = 1.0) -> int:
        """Return the maximum number of requests in any interval of this length."""
        times = [request["at"] for request in self.requests()]
        maximum = start = 0
        for end, at in enumerate(times):
            while at - times[start] >= seconds:
                start += 1
            maximum = max(maximum, end - start + 1)
        return maximum

    def close(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def main(path: str, options_json: str) -> None:
    options = json.loads(options_json)
    log = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    lock, injected = threading.Lock(), set[Any]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            at = time.time()
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            rows = body if isinstance(body, list) else [body]
            with lock:
                fault = next((name for name, n in options["faults"].items() if self.injects(name, rows, n)), "200")
            status, _, wait = fault.partition(" ")
            entry = {"at": at, "method": self.command, "key": self.headers["Idempotency-Key"], "rows": rows}
            entry |= {"answer": status, "is_array": isinstance(body, list), "token": self.headers["Authorization"]}
            os.write(log, json.dumps(entry).encode() + b"\n")
            time.sleep(options["delay"])
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

        def injects(self, name: str, rows: Any, number: int) -> bool:
            ids = {row["id"] for row in rows if row["id"] % number == 0}
            if not name.startswith(("close", "429", "5")):
                return bool(ids)
            new = {(name, row_id) for row_id in ids} - injected
            injected.update(new)
            return bool(new)

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
