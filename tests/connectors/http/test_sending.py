"""How tasks of the HTTP sink send rows to a service in a subprocess, without Spark."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from penstock.base import channel
from penstock.base.channel import NONCE_BYTES
from penstock.connectors import HttpSink
from penstock.connectors.http import sending
from penstock.connectors.http.driver_link import DriverAddress, MessageKind
from penstock.connectors.http.driver_side import DriverSide
from penstock.connectors.http.sending import Connection, seconds_to_wait
from penstock.errors import SinkError
from tests.support import services

TARGET = HttpSink("http://localhost/", timeout=5.0, attempts=4, backoff=0.02, longest_wait=2.0, dead_letters="dead")


def send_function(sink: HttpSink, address: DriverAddress, *args: Any, run: str = "r", **kwargs: Any) -> Any:
    return sending.send_function(sink, run, address, *args, **kwargs)


@pytest.fixture
def side() -> Iterator[Callable[..., DriverSide]]:
    """A function that starts a driver side with a limit of requests per second (None: no limit)."""
    sides = []

    def start_side(rate: float | None) -> DriverSide:
        sides.append(DriverSide("127.0.0.1", "127.0.0.1", rate))
        return sides[-1]

    yield start_side
    for started in sides:
        started.close()


def batches(ids: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in batches of 7."""
    texts = [json.dumps({"id": number}) for number in ids]
    for first in range(0, len(texts), 7):
        yield pa.RecordBatch.from_pydict({"row": texts[first : first + 7]})


def run_task(send: Any, ids: Any) -> list[dict[str, Any]]:
    """Send the rows of a task, and return its output (dead letters, and digests of first rows)."""
    return [row for batch in send(batches(ids)) for row in batch.to_pylist()]


def register_first_rows(driver: DriverSide, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Register the rows that the first task has sent, and return its dead letters."""
    driver.first_rows.add(row["digest"] for row in output)
    return [row for row in output if row["row"] is not None]


def run_tasks_concurrently(send: Any, tasks: Any) -> None:
    threads = [threading.Thread(target=run_task, args=(send, ids)) for ids in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_unauthenticated_connections_are_limited_and_do_not_block_tasks(
    start: Any, side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "MAX_UNAUTHENTICATED", 16)
    service, driver = start(), side(None)
    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", driver.address.port))) for _ in range(40)
        ]
        for stranger in strangers:
            stranger.settimeout(10)
            stranger.recv(NONCE_BYTES, socket.MSG_WAITALL)
        assert [is_closed(stranger) for stranger in strangers[:24]] == [True] * 24
        run_task(send_function(replace(TARGET, url=service.url), driver.address), range(10))
        assert [is_open(stranger) for stranger in strangers[-8:]] == [True] * 8
    assert service.rows() == list(range(10))


def is_closed(connection: socket.socket) -> bool:
    """Return whether the peer closes a connection within its timeout."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def is_open(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    return not is_closed(connection)


@pytest.mark.thorough
def test_the_rate_limit_applies_to_concurrent_and_sequential_tasks(start: Any, side: Any) -> None:
    service, driver = start(delay=0.03), side(40)
    send = send_function(replace(TARGET, url=service.url), driver.address)
    run_tasks_concurrently(send, [range(n, 80, 8) for n in range(8)])
    for start_id in range(80, 120, 10):  # a task that begins after the end of another must not reset the limit
        run_task(send, range(start_id, start_id + 10))
    assert service.rows() == list(range(120))
    assert service.max_requests_in() <= 40
    assert driver.figures.requests == len(service.requests()) == 120
    first, *_, last = (request["at"] for request in service.requests())
    assert 80 / (service.requests()[79]["at"] - first) > 20, "concurrent tasks come close to the limit"
    assert driver.figures.rate == pytest.approx(119 / (last - first), rel=0.05)


def test_a_task_has_several_requests_in_flight(start: Any, side: Any) -> None:
    service, driver = start(delay=0.2, _500=9, _400=25), side(40)
    letters = run_task(
        send_function(replace(TARGET, url=service.url, requests_at_a_time=10), driver.address), range(1, 61)
    )
    assert service.rows() == [number for number in range(1, 61) if number % 25]
    assert sorted(json.loads(letter["row"])["id"] for letter in letters) == [25, 50]
    assert service.max_requests_in() <= 40
    first, *_, last = (request["at"] for request in service.requests())
    assert 66 / (last - first) > 15, "sequential requests would reach five per second"


def test_without_a_limit_all_rows_are_sent(start: Any, side: Any) -> None:
    service, driver = start(), side(None)
    run_tasks_concurrently(
        send_function(replace(TARGET, url=service.url), driver.address), [range(n, 200, 4) for n in range(4)]
    )
    assert service.rows() == list(range(200))


def test_temporary_failures_are_retried_with_the_same_key_and_others_become_dead_letters(start: Any, side: Any) -> None:
    service, driver = start(_500=10, _429=14, close=15, _400=21), side(None)
    letters = run_task(send_function(replace(TARGET, url=service.url), driver.address), range(1, 100))
    refused = {21, 42, 63, 84}
    assert service.rows() == sorted(set(range(1, 100)) - refused)
    assert {
        json.loads(letter["row"])["id"]: (letter["status"], letter["error"]) for letter in letters
    } == dict.fromkeys(refused, (400, "this row is not for us"))
    assert {json.loads(letter["row"])["id"]: letter["attempts"] for letter in letters} == {21: 1, 42: 2, 63: 1, 84: 2}
    keys: dict[Any, set[Any]] = {}
    for request in service.requests():
        keys.setdefault(request["rows"][0]["id"], set()).add(request["key"])
    assert {len(keys_of_row) for keys_of_row in keys.values()} == {1}
    assert len(set.union(*keys.values())) == 99
    figures = driver.figures
    assert (figures.rows, figures.dead) == (95, 4)
    assert figures.requests == len(service.requests()) == 99 + figures.retried
    assert figures.retried == sum(n % 10 == 0 for n in range(1, 100)) + sum(n % 14 == 0 for n in range(1, 100)) + sum(
        n % 15 == 0 for n in range(1, 100)
    )


def test_the_number_of_attempts_is_limited(side: Any) -> None:
    unused_address = "http://127.0.0.1:9/rows"
    driver = side(None)
    (letter,) = run_task(send_function(replace(TARGET, url=unused_address, attempts=3), driver.address), [5])
    assert (letter["status"], letter["attempts"]) == (None, 3)
    assert "refused" in letter["error"].lower()
    assert abs((datetime.now(UTC) - letter["time"]).total_seconds()) < 60
    assert (driver.figures.requests, driver.figures.retried, driver.figures.dead) == (3, 2, 1)


def test_a_request_without_a_response_times_out(start: Any, side: Any) -> None:
    service = start(delay=1.0)
    (letter,) = run_task(
        send_function(replace(TARGET, url=service.url, timeout=0.2, attempts=2), side(None).address), [5]
    )
    assert (letter["status"], letter["attempts"]) == (None, 2)
    assert len(service.requests()) == 2


def test_retry_after_applies_to_all_tasks(start: Any, side: Any) -> None:
    service, driver = start(_429_1=5), side(100)
    send = send_function(replace(TARGET, url=service.url), driver.address)
    threads = [threading.Thread(target=run_task, args=(send, ids)) for ids in ([5], range(10_001, 10_005))]
    threads[0].start()
    while not driver._paused_until:  # tasks that send before the driver knows of the pause need not wait
        time.sleep(0.001)
    threads[1].start()
    for thread in threads:
        thread.join()
    refused, *others = (request["at"] for request in service.requests())
    assert len(others) == 5
    assert min(others) - refused > 0.9


@pytest.mark.parametrize("rate", [None, 100])
def test_a_shorter_pause_does_not_shorten_a_longer_pause(side: Any, rate: float | None) -> None:
    address = side(rate).address
    with address.connect() as first, address.connect() as second:
        begun = time.monotonic()
        first.notify(MessageKind.PAUSE, 0.5)
        first.notify(MessageKind.PAUSE, 0.1)
        first.request(MessageKind.BEGIN, 0)  # its reply shows that the driver has read the retry_pauses
        assert second.request(MessageKind.PERMIT, 1)
        assert 0.5 <= time.monotonic() - begun < 5


@pytest.mark.thorough
def test_a_failed_job_ends_a_pause(side: Any) -> None:
    address = side(None).address
    with address.connect() as first, address.connect() as second:
        begun = time.monotonic()
        first.notify(MessageKind.PAUSE, 60)
        first.request(MessageKind.BEGIN, 0)
        second.notify(MessageKind.PERMIT, 1)
        first.request(MessageKind.REJECTED, 0, "no")
        assert not second.read_reply()
        assert time.monotonic() - begun < 5


def test_a_very_long_retry_after_makes_a_dead_letter(start: Any, side: Any) -> None:
    service = start(_503_3600=5)
    (letter,) = run_task(send_function(replace(TARGET, url=service.url), side(10).address), [5])
    assert (letter["status"], letter["attempts"]) == (503, 1)


def test_rows_are_sent_in_batches_and_a_refused_batch_becomes_dead_letters(start: Any, side: Any) -> None:
    service, driver = start(_400=9), side(None)
    letters = run_task(
        send_function(replace(TARGET, url=service.url, batch_size=4, method="PUT"), driver.address), range(1, 11)
    )
    requests = service.requests()
    assert [[row["id"] for row in request["rows"]] for request in requests] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert {(request["is_array"], request["method"]) for request in requests} == {(True, "PUT")}
    assert [json.loads(letter["row"])["id"] for letter in letters] == [9, 10]
    assert driver.figures.requests == 3


def test_equal_rows_have_different_keys_that_are_stable_across_task_attempts(start: Any, side: Any) -> None:
    service = start()
    send = send_function(replace(TARGET, url=service.url), side(None).address)
    run_task(send, [7, 7, 8])
    run_task(send, [8, 7, 7])
    keys = [request["key"] for request in service.requests()]
    assert len(set(keys[:3])) == 3
    assert set(keys[:3]) == set(keys[3:])


def test_keys_of_user_columns_are_the_same_in_every_run(start: Any, side: Any) -> None:
    service, address = start(), side(None).address
    for run, text in (("a", '{"id": 1, "n": 1}'), ("b", '{"id": 1, "n": 2}')):
        send = send_function(replace(TARGET, url=service.url), address, run=run)
        list(send(iter([pa.RecordBatch.from_pydict({"row": [text], "key": ['{"id": 1}']})])))
    first, second = service.requests()
    assert first["key"] == second["key"]


@pytest.mark.thorough
def test_the_first_rows_are_timed_and_not_sent_again(start: Any, side: Any) -> None:
    service, driver = start(delay=0.03, _400=8), side(None)
    target = replace(TARGET, url=service.url)
    ids = [number // 2 for number in range(100)]  # each id twice
    letters = register_first_rows(driver, run_task(send_function(target, driver.address, only_first=True), ids))
    assert len(service.requests()) == 20
    assert 0.03 <= driver.median_seconds < 0.3
    send = send_function(target, driver.address, driver.first_rows.digests)
    letters += [row for part in (ids[50:], ids[:50]) for row in run_task(send, part)]
    refused = [number for number in ids if number % 8 == 0]
    assert service.rows() == sorted(number for number in ids if number % 8)
    assert sorted(json.loads(letter["row"])["id"] for letter in letters) == refused
    assert len(service.requests()) == 100


@pytest.mark.thorough
def test_the_first_rows_of_a_big_request_are_not_sent_again(start: Any, side: Any) -> None:
    service, driver = start(_400=4_999), side(None)
    target = replace(TARGET, url=service.url, batch_size=2_500)
    output = run_task(send_function(target, driver.address, only_first=True), range(1, 5_001))
    assert len(register_first_rows(driver, output)) == 2_500
    assert (len(output), len(driver.first_rows.digests)) == (5_000, 5_000)
    assert run_task(send_function(target, driver.address, driver.first_rows.digests), range(1, 5_001)) == []
    assert service.rows() == list(range(1, 2_501))
    assert len(service.requests()) == 2


def test_rows_of_a_single_attempt_of_the_first_task_are_not_sent_again(start: Any, side: Any) -> None:
    service, driver = start(), side(None)
    target, ids = replace(TARGET, url=service.url), [7] * 30
    run_task(send_function(target, driver.address, only_first=True), ids)
    register_first_rows(driver, run_task(send_function(target, driver.address, only_first=True), ids))
    run_task(send_function(target, driver.address, driver.first_rows.digests), ids)
    assert service.rows() == [7] * 50, "20 rows by each attempt, and the other 10"


def test_a_retried_tasks_text_task_skips_the_same_first_rows(
    start: Any, side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, driver = start(), side(None)
    target = replace(TARGET, url=service.url)
    register_first_rows(driver, run_task(send_function(target, driver.address, only_first=True), range(20)))
    send = send_function(target, driver.address, driver.first_rows.digests)
    for ids in (range(15), range(25)):  # the first attempt dies after 15 rows
        monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 3))
        run_task(send, ids)
    assert service.rows() == list(range(25))
    assert driver.figures.retried_tasks == 1


@pytest.mark.thorough
@pytest.mark.parametrize("keeps_dead", [True, False])
def test_the_driver_has_the_counts_before_the_task_ends(
    start: Any, side: Any, monkeypatch: pytest.MonkeyPatch, keeps_dead: bool
) -> None:
    service, driver = start(_400=2), side(None)
    count = driver._count

    def count_late(message: Any) -> None:
        time.sleep(0.2)
        count(message)

    monkeypatch.setattr(driver, "_count", count_late)
    run_task(
        send_function(replace(TARGET, url=service.url, dead_letters="dead" if keeps_dead else None), driver.address),
        [1, 2],
    )
    assert (driver.figures.rows, driver.figures.dead) == (1, int(keeps_dead))
    assert bool(driver.rejection) is not keeps_dead


def test_a_message_that_cannot_be_read_is_logged(side: Any, caplog: pytest.LogCaptureFixture) -> None:
    with side(None).address.connect() as link, pytest.raises((SinkError, OSError)):
        link.request(MessageKind.DONE, 1, "x" * 100_000)
    assert "a message of a task cannot be read" in caplog.text


def test_without_dead_letters_all_tasks_stop_at_a_refused_row(start: Any, side: Any) -> None:
    service, driver = start(delay=0.02, _400=50), side(None)
    send = send_function(replace(TARGET, url=service.url, dead_letters=None), driver.address)
    run_tasks_concurrently(send, [range(41, 1000), range(10_001, 11_000)])
    assert driver.rejection == "status 400: this row is not for us (attempt 1)"
    assert len(service.requests()) < 100


def test_a_wrong_or_unreachable_driver_is_an_error(side: Any) -> None:
    address = side(None).address
    with pytest.raises(SinkError, match="another process responds"):
        run_task(send_function(TARGET, replace(address, secret=b"wrong")), [1])
    with pytest.raises(SinkError, match=r"does not reach the driver at 127\.0\.0\.1:9"):
        run_task(send_function(TARGET, DriverAddress("127.0.0.1", 9, b"")), [1])


def test_tasks_stop_when_the_sink_ends(start: Any, side: Any) -> None:
    service, driver = start(delay=0.01), side(5)
    threading.Timer(0.5, driver.close).start()
    with pytest.raises((SinkError, OSError)):
        run_task(send_function(replace(TARGET, url=service.url), driver.address), range(1000))
    assert len(service.requests()) < 20


NOW = datetime(2026, 1, 1, tzinfo=UTC)
WAITS: dict[str | None, float | None] = {
    None: None,
    "7": 7.0,
    "0.5": 0.5,
    "-3": 0.0,
    "Thu, 01 Jan 2026 00:01:30 GMT": 90.0,
    "Wed, 31 Dec 2025 00:00:00 GMT": 0.0,
    "soon": None,
}


@pytest.mark.parametrize("header", WAITS)
def test_retry_after_is_parsed(header: str | None) -> None:
    assert seconds_to_wait(header, NOW) == WAITS[header]


STATUS = b"HTTP/1.1 400 Bad Request\r\n"
ENDLESS = {
    # First bytes of the response, bytes that are repeated, seconds between them, and the status that is read.
    "body": (STATUS + b"\r\n", b"x", 0.05, 400),
    "compressed body": (
        STATUS + b"Content-Encoding: gzip\r\n\r\n",
        gzip.compress(b"\0" * 1_000_000),
        0,
        400,
    ),
    "size of a chunk": (STATUS + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n1;", b"x", 0.05, 400),
    "trailers": (STATUS + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"x: x\r\n", 0.05, 400),
    "silent body": (STATUS + b"Content-Length: 9\r\n\r\n", b"", 0.05, 400),
    "status": (b"HTTP/1.1 400 ", b"x", 0.05, None),
    "headers": (STATUS, b"x: x\r\n", 0.05, None),
    "a header": (STATUS + b"x: ", b"x", 0.05, None),
    "informational answers": (b"", b"HTTP/1.1 102 Processing\r\n\r\n", 0.05, None),
}


class _Endless(BaseHTTPRequestHandler):
    """Begins a response and never ends it."""

    begin, repeated, pause = b"", b"", 0.0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with suppress(OSError):
            self.wfile.write(self.begin)
            for _ in range(3_000):
                self.wfile.write(self.repeated)
                time.sleep(self.pause)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", ENDLESS)
def test_an_endless_response_ends_at_the_timeout(side: Any, case: str) -> None:
    begin, repeated, pause, status = ENDLESS[case]
    with serving(type("Handler", (_Endless,), {"begin": begin, "repeated": repeated, "pause": pause})) as port:
        begun = time.monotonic()
        target = replace(TARGET, url=f"http://127.0.0.1:{port}/rows", timeout=0.5, attempts=1)
        (letter,) = run_task(send_function(target, side(None).address), [1])
    assert time.monotonic() - begun < 3
    assert letter["status"] == status
    assert len(letter["error"]) <= 1000
    assert status is not None or letter["error"] == "no complete response in 0.5 s"


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["body", "headers"])
def test_an_endless_encrypted_response_ends_at_the_timeout(
    side: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    services.require_component("OpenSSL", shutil.which("openssl"))
    pair = ("-keyout", tmp_path / "key", "-out", tmp_path / "certificate")
    names = ("-subj", "/CN=service", "-addext", "subjectAltName=IP:127.0.0.1")
    services.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *pair)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    begin, repeated, pause, status = ENDLESS[case]
    with serving(type("Handler", (_Endless,), {"begin": begin, "repeated": repeated, "pause": pause}), tls) as port:
        begun = time.monotonic()
        target = replace(TARGET, url=f"https://127.0.0.1:{port}/rows", timeout=0.5, attempts=1)
        (letter,) = run_task(send_function(target, side(None).address), [1])
    assert time.monotonic() - begun < 3
    assert letter["status"] == status, letter["error"]
    assert status is not None or letter["error"] == "no complete response in 0.5 s"


@pytest.mark.thorough
def test_a_request_that_the_service_reads_slowly_times_out(side: Any) -> None:
    class Slow(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            with suppress(OSError):
                while self.rfile.read(1):
                    time.sleep(0.02)

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Slow) as port:
        begun = time.monotonic()
        target = replace(TARGET, url=f"http://127.0.0.1:{port}/rows", timeout=0.5, attempts=1)
        rows = pa.RecordBatch.from_pydict({"row": [json.dumps({"text": "x" * 20_000_000})]})
        (letter,) = (
            row for batch in send_function(target, side(None).address)(iter([rows])) for row in batch.to_pylist()
        )
    assert time.monotonic() - begun < 5
    assert (letter["status"], letter["error"]) == (None, "no complete response in 0.5 s")


@pytest.mark.thorough
def test_a_new_connection_is_opened_after_a_timeout(side: Any) -> None:
    connections = []

    class SlowForSecondRow(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            connections.append(self.client_address)
            if body["id"] == 2:
                time.sleep(0.8)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with serving(SlowForSecondRow) as port:
        target = replace(TARGET, url=f"http://127.0.0.1:{port}/rows", timeout=0.4, attempts=1)
        (letter,) = run_task(send_function(target, side(None).address), [1, 2, 3, 4])
    assert json.loads(letter["row"]) == {"id": 2}
    first, second, third, fourth = connections
    assert first == second != third == fourth


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve requests in this process, and yield the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_the_timer_of_a_request_does_not_affect_the_next() -> None:
    class Accepting(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Accepting) as port, Connection({}, 60, ssl.create_default_context()) as connection:
        for request in (1, 2):
            with connection.send("POST", f"http://127.0.0.1:{port}/", b"{}", {}) as answer:
                connection._shut_down(request - 1)
                assert answer.read() == b"ok"
            assert not connection.has_timed_out


@pytest.mark.thorough
@pytest.mark.parametrize("charset", ["base64", "idna", "undefined", "nothing", "latin-1"])
def test_error_texts_are_read_in_any_charset(side: Any, charset: str) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400)
            self.send_header("Content-Type", f"text/plain; charset={charset}")
            self.end_headers()
            self.wfile.write(b"no such column")

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Refusing) as port:
        target = replace(TARGET, url=f"http://127.0.0.1:{port}/rows", attempts=1)
        (letter,) = run_task(send_function(target, side(None).address), [1])
    assert (letter["status"], letter["error"]) == (400, "no such column")
