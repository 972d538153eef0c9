"""Whether an error of a catalog or of a Delta log client leaves the outcome of a commit unknown."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.support.services import SeaweedFs, require_module

require_module("pyiceberg", "iceberg")
require_module("deltalake", "delta")

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError
from pyiceberg.catalog.rest import RestCatalog

from penstock.commit import Access
from penstock.connectors.delta.commit import PreparedDelta, reporting_unknown_outcome
from penstock.connectors.iceberg.commit import PreparedIceberg
from penstock.errors import CommitUnknownError


class Answer(BaseHTTPRequestHandler):
    """A catalog that answers every commit with `status`; 0 closes the connection without a response."""

    status = 0

    def do_GET(self) -> None:
        self._answer(200, {"defaults": {}, "overrides": {}})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.status:
            self._answer(self.status, {"error": {"message": "m", "type": "t", "code": self.status}})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def catalog() -> Iterator[RestCatalog]:
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield RestCatalog("c", uri=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


RECORD = PreparedIceberg("n.t", "/r", "/r", "append", "{}", "/r/s", (), "receipt", "c")


@pytest.mark.parametrize(
    ("status", "is_definite"),
    [(code, True) for code in (400, 401, 403, 409, 429)] + [(code, False) for code in (0, 200, 500, 502, 503, 504)],
)
def test_the_http_status_of_a_catalog_decides_if_the_outcome_is_definite(
    catalog: RestCatalog, monkeypatch: pytest.MonkeyPatch, status: int, is_definite: bool
) -> None:
    monkeypatch.setattr(Answer, "status", status)
    table: Any = SimpleNamespace(name=lambda: ("n", "t"), config={})
    transaction: Any = SimpleNamespace(commit_transaction=lambda: catalog.commit_table(table, (), ()))
    with pytest.raises(Exception) as failed:  # noqa: PT011 - its type is checked below
        RECORD._commit_transaction(transaction)
    assert isinstance(failed.value, CommitUnknownError) is not is_definite


@pytest.mark.parametrize(
    ("error", "is_definite"),
    [
        (CommitFailedError("another came first"), True),
        (DeltaProtocolError("a feature is lacking"), True),
        (SchemaMismatchError("other columns"), True),
        (DeltaError("Generic error: A Delta Lake table already exists at that location."), True),
        (OSError("Generic LocalFileSystem error\n No space left on device"), True),
        (OSError("Generic S3 error: operation timed out"), False),
        (DeltaError("Kernel error"), False),
        (RuntimeError("anything"), False),
    ],
    ids=lambda error: str(error)[:40],
)
def test_the_error_of_a_log_client_decides_if_the_outcome_is_definite(error: Exception, is_definite: bool) -> None:
    with pytest.raises(Exception) as failed, reporting_unknown_outcome("t"):  # noqa: PT011 - its type is checked below
        raise error
    assert isinstance(failed.value, CommitUnknownError) is not is_definite


class Gateway(BaseHTTPRequestHandler):
    """A proxy of an object store that can delay writes of Delta log entries, and answers them with status 504.

    It runs in its own process, because some calls of deltalake hold the GIL.
    """

    protocol_version = "HTTP/1.1"
    port = 0
    delays = False
    delayed: ClassVar[list[Callable[[], int]]] = []

    def _forward(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def send() -> tuple[int, list[tuple[str, str]], bytes]:
            store = HTTPConnection("127.0.0.1", self.port)
            store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                store.putheader(name, value)
            store.endheaders(content)
            with store.getresponse() as answer:
                return answer.status, answer.getheaders(), answer.read()

        if self.path.startswith("/gateway/"):
            reply = self._control(self.path.removeprefix("/gateway/")).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)
            return
        if self.delays and self.command == "PUT" and "/_delta_log/" in self.path:
            self.delayed.append(lambda: send()[0])
            self.send_response(504)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        status, headers, body = send()
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                self.send_header(name, value)
        sizes = [value for name, value in headers if name.lower() == "content-length"]
        self.send_header("Content-Length", sizes[0] if sizes else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @classmethod
    def _control(cls, command: str) -> str:
        if command == "deliver":
            return str(cls.delayed.pop(0)())
        cls.delays = command == "delay"
        return command

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward

    def log_message(self, *_: Any) -> None:
        pass


def serve(port: int, port_sender: Connection) -> None:
    Gateway.port = port
    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as gateway:
        port_sender.send(gateway.server_port)
        gateway.serve_forever()


def control(port: int, command: str) -> str:
    """Make the gateway `delay` log entries, `forward` them, or `deliver` the first delayed entry to the store."""
    with closing(HTTPConnection("127.0.0.1", port)) as gateway:
        gateway.request("GET", f"/gateway/{command}")
        return gateway.getresponse().read().decode()


@pytest.fixture
def gateway(store: SeaweedFs) -> Iterator[int]:
    receiver, sender = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(store.port, sender))
    process.start()
    yield receiver.recv()
    process.kill()
    process.join()


@pytest.fixture(scope="module")
def store() -> Iterator[SeaweedFs]:
    server = SeaweedFs()
    server.filesystem().create_dir("late-entries")
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize("delivery", ["before the retry", "after the retry"])
def test_a_delayed_log_entry_is_committed_once(
    store: SeaweedFs, gateway: int, monkeypatch: pytest.MonkeyPatch, delivery: str
) -> None:
    options = {
        "AWS_ACCESS_KEY_ID": store.key,
        "AWS_SECRET_ACCESS_KEY": store.secret,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "max_retries": "0",
    }
    path = f"s3://late-entries/{delivery.replace(' ', '-')}"
    direct = options | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.port}"}
    deltalake.write_deltalake(path, pa.table({"id": [1]}), storage_options=direct)
    schema = deltalake.DeltaTable(path, storage_options=direct).schema().to_json()
    monkeypatch.setattr(PreparedDelta, "move_staged_files", lambda *_: None)  # there are no files
    access: Any = Access(None)
    delayed = options | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{gateway}"}
    files = (("x.parquet", 1, 1, ()),)
    record = PreparedDelta(
        path, path, "append", schema, (), files, f"{path}/s", 0, "receipt", options=tuple(delayed.items())
    )
    control(gateway, "delay")
    with pytest.raises(CommitUnknownError, match="504"):
        record.commit(access)
    control(gateway, "forward")
    assert not record.is_committed(access)
    if delivery == "after the retry":
        record.complete(access)
        assert control(gateway, "deliver") == "412"  # the version exists
    else:
        assert control(gateway, "deliver") == "200"
        record.complete(access)
    assert record.is_committed(access)
    table = deltalake.DeltaTable(path, storage_options=direct)
    assert table.version() == 1
    assert len(pa.table(table.get_add_actions())) == 2
