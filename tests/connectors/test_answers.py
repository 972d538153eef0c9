"""What an error of a catalogue, or of the client of a log, says of the commit that was asked for."""

from __future__ import annotations

import json
import multiprocessing
import threading
from contextlib import closing
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from tests.services import SeaweedFs, needed_module

needed_module("pyiceberg", "iceberg")
needed_module("deltalake", "delta")

import deltalake
import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, SchemaMismatchError
from pyiceberg.catalog.rest import RestCatalog

from penstock.commit import Access
from penstock.connectors.delta_commit import PreparedDelta, answered_clearly
from penstock.connectors.iceberg_commit import PreparedIceberg
from penstock.errors import CommitUnknownError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection


class Answer(BaseHTTPRequestHandler):
    """A catalogue that answers every commit by one status; 0 closes the connection."""

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
    ("status", "is_known"),
    [(code, True) for code in (400, 401, 403, 409, 429)] + [(code, False) for code in (0, 200, 500, 502, 503, 504)],
)
def test_answers_of_a_catalogue(
    catalog: RestCatalog, monkeypatch: pytest.MonkeyPatch, status: int, is_known: bool
) -> None:
    monkeypatch.setattr(Answer, "status", status)
    table: Any = SimpleNamespace(name=lambda: ("n", "t"), config={})
    asked: Any = SimpleNamespace(commit_transaction=lambda: catalog.commit_table(table, (), ()))
    with pytest.raises(Exception) as failed:  # noqa: PT011 - of which kind is looked at
        RECORD._send(asked)
    assert isinstance(failed.value, CommitUnknownError) is not is_known


@pytest.mark.parametrize(
    ("error", "is_known"),
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
    ids=lambda one: str(one)[:40],
)
def test_errors_of_a_log(error: Exception, is_known: bool) -> None:
    with pytest.raises(Exception) as failed, answered_clearly("t"):  # noqa: PT011 - of which kind is looked at
        raise error
    assert isinstance(failed.value, CommitUnknownError) is not is_known


class Gateway(BaseHTTPRequestHandler):
    """A way to a store on which the answers to entries of a log are lost, before the store has even been asked.

    It runs in a process of its own, as some calls of deltalake keep all threads of Python waiting.
    """

    protocol_version = "HTTP/1.1"
    port = 0
    loses = False
    late: ClassVar[list[Callable[[], int]]] = []

    def _hand_on(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def asked() -> tuple[int, list[tuple[str, str]], bytes]:
            store = HTTPConnection("127.0.0.1", self.port)
            store.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                store.putheader(name, value)
            store.endheaders(content)
            with store.getresponse() as answer:
                return answer.status, answer.getheaders(), answer.read()

        if self.path.startswith("/gateway/"):
            said = self._told(self.path.removeprefix("/gateway/")).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)
            return
        if self.loses and self.command == "PUT" and "/_delta_log/" in self.path:
            self.late.append(lambda: asked()[0])
            self.send_response(504)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        status, headers, body = asked()
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
    def _told(cls, what: str) -> str:
        if what == "land":
            return str(cls.late.pop(0)())
        cls.loses = what == "lose"
        return what

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _hand_on

    def log_message(self, *_: Any) -> None:
        pass


def serve(port: int, tell: Connection) -> None:
    Gateway.port = port
    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as gateway:
        tell.send(gateway.server_port)
        gateway.serve_forever()


def told(port: int, what: str) -> str:
    """Tell a gateway to lose answers, to hand on again, or to let the store take what was lost first."""
    with closing(HTTPConnection("127.0.0.1", port)) as gateway:
        gateway.request("GET", f"/gateway/{what}")
        return gateway.getresponse().read().decode()


@pytest.fixture
def gateway(store: SeaweedFs) -> Iterator[int]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(store.port, there))
    process.start()
    yield here.recv()
    process.kill()
    process.join()


@pytest.fixture(scope="module")
def store() -> Iterator[SeaweedFs]:
    made = SeaweedFs()
    made.filesystem().create_dir("late-entries")
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("lands", ["before it is asked for again", "after it"])
def test_an_entry_of_a_log_that_a_store_takes_late(
    store: SeaweedFs, gateway: int, monkeypatch: pytest.MonkeyPatch, lands: str
) -> None:
    options = {
        "AWS_ACCESS_KEY_ID": store.key,
        "AWS_SECRET_ACCESS_KEY": store.secret,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "max_retries": "0",
    }
    path = f"s3://late-entries/{lands.replace(' ', '-')}"
    direct = options | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{store.port}"}
    deltalake.write_deltalake(path, pa.table({"id": [1]}), storage_options=direct)
    schema = deltalake.DeltaTable(path, storage_options=direct).schema().to_json()
    monkeypatch.setattr(PreparedDelta, "put_in_place", lambda *_: None)  # it matters to nobody here
    access: Any = Access(None)
    given = options | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{gateway}"}
    files = (("x.parquet", 1, 1, ()),)
    record = PreparedDelta(
        path, path, "append", schema, (), files, f"{path}/s", 0, "receipt", options=tuple(given.items())
    )
    told(gateway, "lose")
    with pytest.raises(CommitUnknownError, match="504"):
        record.commit(access)
    told(gateway, "answer")
    assert not record.is_committed(access)
    if lands == "after it":
        record.complete(access)
        assert told(gateway, "land") == "412"  # the version is taken
    else:
        assert told(gateway, "land") == "200"
        record.complete(access)
    assert record.is_committed(access)
    table = deltalake.DeltaTable(path, storage_options=direct)
    assert table.version() == 1
    assert len(pa.table(table.get_add_actions())) == 2
