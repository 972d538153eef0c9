"""What tasks do with the rows of an HTTP sink, against a service in a process of its own; no Spark."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from penstock import handshakes
from penstock.connectors.http.attempts import Target, seconds_to_wait
from penstock.connectors.http.connection import Connection
from penstock.connectors.http.driver_link import NONCE_BYTES, DriverPlace, Kind
from penstock.connectors.http.driver_side import DriverSide
from penstock.connectors.http.sending import sender
from penstock.errors import SinkError
from tests import services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TARGET = Target("", "POST", {}, 1, 5.0, 1, 4, 0.02, 2.0, run="r", keeps_dead=True)


@pytest.fixture
def side() -> Iterator[Callable[..., DriverSide]]:
    made = []

    def make(rate: float | None) -> DriverSide:
        made.append(DriverSide("127.0.0.1", "127.0.0.1", rate))
        return made[-1]

    yield make
    for one in made:
        one.close()


def batches(ids: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in small batches."""
    texts = [json.dumps({"id": number}) for number in ids]
    for first in range(0, len(texts), 7):
        yield pa.RecordBatch.from_pydict({"row": texts[first : first + 7]})


def sent(send: Any, ids: Any) -> list[dict[str, Any]]:
    """Return what a task gives back."""
    return [row for batch in send(batches(ids)) for row in batch.to_pylist()]


def letters_of_first(driver: DriverSide, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Note what the first task has sent; return what was refused of it."""
    driver.first.add(row["digest"] for row in given)
    return [row for row in given if row["row"] is not None]


def at_once(send: Any, tasks: Any) -> None:
    threads = [threading.Thread(target=sent, args=(send, ids)) for ids in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_strangers_have_few_connections_and_keep_no_task_out(
    start: Any, side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "LIMIT", 16)
    service, driver = start(), side(None)
    with ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", driver.place.port))) for _ in range(40)]
        for stranger in strangers:
            stranger.settimeout(10)
            stranger.recv(NONCE_BYTES, socket.MSG_WAITALL)
        assert [is_closed(stranger) for stranger in strangers[:24]] == [True] * 24
        sent(sender(replace(TARGET, url=service.url), driver.place), range(10))
        assert [is_open(stranger) for stranger in strangers[-8:]] == [True] * 8
    assert service.rows() == list(range(10))


def is_closed(connection: socket.socket) -> bool:
    """Whether the other end has closed a connection, or does so within its time-out."""
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
def test_the_limit_holds_for_tasks_at_once_and_one_after_another(start: Any, side: Any) -> None:
    service, driver = start(delay=0.03), side(40)
    send = sender(replace(TARGET, url=service.url), driver.place)
    at_once(send, [range(n, 80, 8) for n in range(8)])
    for first in range(80, 120, 10):  # a task that begins when another has ended must not begin anew
        sent(send, range(first, first + 10))
    assert service.rows() == list(range(120))
    assert service.most_in_a_second() <= 40
    assert driver.figures.requests == len(service.requests()) == 120
    first, *_, last = (one["at"] for one in service.requests())
    assert 80 / (service.requests()[79]["at"] - first) > 20, "tasks at once come near the limit"
    assert driver.figures.rate == pytest.approx(119 / (last - first), rel=0.05)


def test_one_task_has_several_requests_under_way(start: Any, side: Any) -> None:
    service, driver = start(delay=0.2, _500=9, _400=25), side(40)
    letters = sent(sender(replace(TARGET, url=service.url, at_a_time=10), driver.place), range(1, 61))
    assert service.rows() == [number for number in range(1, 61) if number % 25]
    assert sorted(json.loads(letter["row"])["id"] for letter in letters) == [25, 50]
    assert service.most_in_a_second() <= 40
    first, *_, last = (one["at"] for one in service.requests())
    assert 66 / (last - first) > 15, "one after the other, it would be five a second"


def test_no_limit_is_none(start: Any, side: Any) -> None:
    service, driver = start(), side(None)
    at_once(sender(replace(TARGET, url=service.url), driver.place), [range(n, 200, 4) for n in range(4)])
    assert service.rows() == list(range(200))


def test_what_may_pass_is_sent_again_with_the_same_key_and_what_may_not_is_given_back(start: Any, side: Any) -> None:
    service, driver = start(_500=10, _429=14, close=15, _400=21), side(None)
    letters = sent(sender(replace(TARGET, url=service.url), driver.place), range(1, 100))
    refused = {21, 42, 63, 84}
    assert service.rows() == sorted(set(range(1, 100)) - refused)
    assert {
        json.loads(letter["row"])["id"]: (letter["status"], letter["error"]) for letter in letters
    } == dict.fromkeys(refused, (400, "this row is not for us"))
    assert {json.loads(one["row"])["id"]: one["attempts"] for one in letters} == {21: 1, 42: 2, 63: 1, 84: 2}
    keys: dict[Any, set[Any]] = {}
    for one in service.requests():
        keys.setdefault(one["rows"][0]["id"], set()).add(one["key"])
    assert {len(found) for found in keys.values()} == {1}
    assert len(set.union(*keys.values())) == 99
    figures = driver.figures
    assert (figures.rows, figures.dead) == (95, 4)
    assert figures.requests == len(service.requests()) == 99 + figures.retried
    assert figures.retried == sum(n % 10 == 0 for n in range(1, 100)) + sum(n % 14 == 0 for n in range(1, 100)) + sum(
        n % 15 == 0 for n in range(1, 100)
    )


def test_attempts_are_used_up(side: Any) -> None:
    nobody = "http://127.0.0.1:9/rows"
    driver = side(None)
    (letter,) = sent(sender(replace(TARGET, url=nobody, attempts=3), driver.place), [5])
    assert (letter["status"], letter["attempts"]) == (None, 3)
    assert "refused" in letter["error"].lower()
    assert abs((datetime.now(UTC) - letter["time"]).total_seconds()) < 60
    assert (driver.figures.requests, driver.figures.retried, driver.figures.dead) == (3, 2, 1)


def test_an_answer_that_does_not_come_in_time(start: Any, side: Any) -> None:
    service = start(delay=1.0)
    (letter,) = sent(sender(replace(TARGET, url=service.url, timeout=0.2, attempts=2), side(None).place), [5])
    assert (letter["status"], letter["attempts"]) == (None, 2)
    assert len(service.requests()) == 2


def test_the_service_says_how_long_all_tasks_wait(start: Any, side: Any) -> None:
    service, driver = start(_429_1=5), side(100)
    send = sender(replace(TARGET, url=service.url), driver.place)
    threads = [threading.Thread(target=sent, args=(send, ids)) for ids in ([5], range(10_001, 10_005))]
    threads[0].start()
    while not driver._paused_until:  # an answer takes its time to get there; who asks by then need not wait
        time.sleep(0.001)
    threads[1].start()
    for thread in threads:
        thread.join()
    asked, *others = (one["at"] for one in service.requests())
    assert len(others) == 5
    assert min(others) - asked > 0.9


@pytest.mark.parametrize("rate", [None, 100])
def test_a_pause_holds_for_all_tasks_and_none_cuts_it_short(side: Any, rate: float | None) -> None:
    place = side(rate).place
    with place.connect() as one, place.connect() as other:
        begun = time.monotonic()
        one.tell(Kind.PAUSE, 0.5)
        one.tell(Kind.PAUSE, 0.1)
        one.ask(Kind.BEGIN, 0)  # so the pauses are known
        assert other.ask(Kind.PERMIT, 1)
        assert 0.5 <= time.monotonic() - begun < 5


@pytest.mark.thorough
def test_a_job_that_fails_ends_a_pause(side: Any) -> None:
    place = side(None).place
    with place.connect() as one, place.connect() as other:
        begun = time.monotonic()
        one.tell(Kind.PAUSE, 60)
        one.ask(Kind.BEGIN, 0)
        other.tell(Kind.PERMIT, 1)
        one.ask(Kind.REFUSED, 0, "no")
        assert not other.answer()
        assert time.monotonic() - begun < 5


def test_too_long_a_wait_is_none(start: Any, side: Any) -> None:
    service = start(_503_3600=5)
    (letter,) = sent(sender(replace(TARGET, url=service.url), side(10).place), [5])
    assert (letter["status"], letter["attempts"]) == (503, 1)


def test_batches(start: Any, side: Any) -> None:
    service, driver = start(_400=9), side(None)
    letters = sent(sender(replace(TARGET, url=service.url, batch_size=4, method="PUT"), driver.place), range(1, 11))
    assert [[row["id"] for row in one["rows"]] for one in service.requests()] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert {(one["is_array"], one["method"]) for one in service.requests()} == {(True, "PUT")}
    assert [json.loads(letter["row"])["id"] for letter in letters] == [9, 10]
    assert driver.figures.requests == 3


def test_equal_rows_have_their_own_keys_which_a_repeated_task_has_again(start: Any, side: Any) -> None:
    service = start()
    send = sender(replace(TARGET, url=service.url), side(None).place)
    sent(send, [7, 7, 8])
    sent(send, [8, 7, 7])
    keys = [one["key"] for one in service.requests()]
    assert len(set(keys[:3])) == 3
    assert set(keys[:3]) == set(keys[3:])


def test_keys_of_the_users_columns_hold_in_any_run(start: Any, side: Any) -> None:
    service, place = start(), side(None).place
    for run, text in (("a", '{"id": 1, "n": 1}'), ("b", '{"id": 1, "n": 2}')):
        send = sender(replace(TARGET, url=service.url, run=run), place)
        list(send(iter([pa.RecordBatch.from_pydict({"row": [text], "key": ['{"id": 1}']})])))
    first, second = service.requests()
    assert first["key"] == second["key"]


@pytest.mark.thorough
def test_the_first_rows_are_measured_and_are_not_sent_again(start: Any, side: Any) -> None:
    service, driver = start(delay=0.03, _400=8), side(None)
    target = replace(TARGET, url=service.url)
    ids = [number // 2 for number in range(100)]  # each twice
    letters = letters_of_first(driver, sent(sender(target, driver.place, only_first=True), ids))
    assert len(service.requests()) == 20
    assert 0.03 <= driver.measured < 0.3
    place, rest = driver.place, driver.first.digests
    letters += [row for part in (ids[50:], ids[:50]) for row in sent(sender(target, place, rest), part)]
    refused = [number for number in ids if number % 8 == 0]
    assert service.rows() == sorted(number for number in ids if number % 8)
    assert sorted(json.loads(letter["row"])["id"] for letter in letters) == refused
    assert len(service.requests()) == 100


@pytest.mark.thorough
def test_the_first_rows_of_a_big_request_are_not_sent_again(start: Any, side: Any) -> None:
    service, driver = start(_400=4_999), side(None)
    target = replace(TARGET, url=service.url, batch_size=2_500)
    given = sent(sender(target, driver.place, only_first=True), range(1, 5_001))
    assert len(letters_of_first(driver, given)) == 2_500
    assert (len(given), len(driver.first.digests)) == (5_000, 5_000)
    assert sent(sender(target, driver.place, driver.first.digests), range(1, 5_001)) == []
    assert service.rows() == list(range(1, 2_501))
    assert len(service.requests()) == 2


def test_of_a_first_task_that_ran_twice_the_rows_of_one_attempt_are_not_sent_again(start: Any, side: Any) -> None:
    service, driver = start(), side(None)
    target, ids = replace(TARGET, url=service.url), [7] * 30
    sent(sender(target, driver.place, only_first=True), ids)
    letters_of_first(driver, sent(sender(target, driver.place, only_first=True), ids))
    sent(sender(target, driver.place, driver.first.digests), ids)
    assert service.rows() == [7] * 50, "20 by each attempt, and the other 10"


def test_a_repeated_task_leaves_out_the_rows_that_it_has_left_out_before(
    start: Any, side: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, driver = start(), side(None)
    target = replace(TARGET, url=service.url)
    letters_of_first(driver, sent(sender(target, driver.place, only_first=True), range(20)))
    send = sender(target, driver.place, driver.first.digests)
    for ids in (range(15), range(25)):  # the first attempt dies half-way
        monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 3))
        sent(send, ids)
    assert service.rows() == list(range(25))
    assert driver.figures.repeated_tasks == 1


@pytest.mark.thorough
@pytest.mark.parametrize("keeps_dead", [True, False])
def test_what_came_of_rows_is_noted_before_their_task_ends(
    start: Any, side: Any, monkeypatch: pytest.MonkeyPatch, keeps_dead: bool
) -> None:
    service, driver = start(_400=2), side(None)
    note = driver._note

    def late(message: Any) -> None:
        time.sleep(0.2)
        note(message)

    monkeypatch.setattr(driver, "_note", late)
    sent(sender(replace(TARGET, url=service.url, keeps_dead=keeps_dead), driver.place), [1, 2])
    assert (driver.figures.rows, driver.figures.dead) == (1, int(keeps_dead))
    assert bool(driver.refused) is not keeps_dead


def test_a_message_that_cannot_be_read_is_logged(side: Any, caplog: pytest.LogCaptureFixture) -> None:
    with side(None).place.connect() as link, pytest.raises((SinkError, OSError)):
        link.ask(Kind.DONE, 1, "x" * 100_000)
    assert "a message of a task cannot be read" in caplog.text


def test_where_nobody_keeps_rows_all_tasks_stop(start: Any, side: Any) -> None:
    service, driver = start(delay=0.02, _400=50), side(None)
    send = sender(replace(TARGET, url=service.url, keeps_dead=False), driver.place)
    at_once(send, [range(41, 1000), range(10_001, 11_000)])
    assert driver.refused == "status 400: this row is not for us (attempt 1)"
    assert len(service.requests()) < 100


def test_a_driver_that_is_gone_or_another_is_an_error(side: Any) -> None:
    place = side(None).place
    with pytest.raises(SinkError, match="somebody else answers"):
        sent(sender(TARGET, replace(place, secret=b"wrong")), [1])
    with pytest.raises(SinkError, match=r"does not reach the driver at 127\.0\.0\.1:9"):
        sent(sender(TARGET, DriverPlace("127.0.0.1", 9, b"")), [1])


def test_tasks_stop_when_the_sink_ends(start: Any, side: Any) -> None:
    service, driver = start(delay=0.01), side(5)
    threading.Timer(0.5, driver.close).start()
    with pytest.raises((SinkError, OSError)):
        sent(sender(replace(TARGET, url=service.url), driver.place), range(1000))
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


@pytest.mark.parametrize("told", WAITS)
def test_how_long_a_service_asks_to_wait(told: str | None) -> None:
    assert seconds_to_wait(told, NOW) == WAITS[told]


STATUS = b"HTTP/1.1 400 Bad Request\r\n"
ENDLESS = {
    # What a service sends first, what it sends again and again, after how many seconds; and the status that is read.
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
    """Begins an answer and never ends it."""

    begin, again, pause = b"", b"", 0.0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with suppress(OSError):
            self.wfile.write(self.begin)
            for _ in range(3_000):
                self.wfile.write(self.again)
                time.sleep(self.pause)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", ENDLESS)
def test_an_answer_without_an_end_is_read_until_the_timeout(side: Any, case: str) -> None:
    begin, again, pause, status = ENDLESS[case]
    with serving(type("Handler", (_Endless,), {"begin": begin, "again": again, "pause": pause})) as port:
        begun = time.monotonic()
        target = replace(TARGET, url=f"http://127.0.0.1:{port}/rows", timeout=0.5, attempts=1)
        (letter,) = sent(sender(target, side(None).place), [1])
    assert time.monotonic() - begun < 3
    assert letter["status"] == status
    assert len(letter["error"]) <= 1000
    assert status is not None or letter["error"] == "no whole answer in 0.5 s"


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["body", "headers"])
def test_an_encrypted_answer_without_an_end_is_read_until_the_timeout(
    side: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    services.needed("OpenSSL", shutil.which("openssl"))
    pair = ("-keyout", tmp_path / "key", "-out", tmp_path / "certificate")
    names = ("-subj", "/CN=service", "-addext", "subjectAltName=IP:127.0.0.1")
    services.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *pair)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    begin, again, pause, status = ENDLESS[case]
    with serving(type("Handler", (_Endless,), {"begin": begin, "again": again, "pause": pause}), tls) as port:
        begun = time.monotonic()
        target = replace(TARGET, url=f"https://127.0.0.1:{port}/rows", timeout=0.5, attempts=1)
        (letter,) = sent(sender(target, side(None).place), [1])
    assert time.monotonic() - begun < 3
    assert letter["status"] == status, letter["error"]
    assert status is not None or letter["error"] == "no whole answer in 0.5 s"


@pytest.mark.thorough
def test_a_request_that_is_hardly_read_is_over_after_the_timeout(side: Any) -> None:
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
        (letter,) = (row for batch in sender(target, side(None).place)(iter([rows])) for row in batch.to_pylist())
    assert time.monotonic() - begun < 5
    assert (letter["status"], letter["error"]) == (None, "no whole answer in 0.5 s")


@pytest.mark.thorough
def test_after_an_answer_that_was_cut_off_the_next_request_has_a_connection_of_its_own(side: Any) -> None:
    connections = []

    class Once(BaseHTTPRequestHandler):
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

    with serving(Once) as port:
        target = replace(TARGET, url=f"http://127.0.0.1:{port}/rows", timeout=0.4, attempts=1)
        (letter,) = sent(sender(target, side(None).place), [1, 2, 3, 4])
    assert json.loads(letter["row"]) == {"id": 2}
    first, second, third, fourth = connections
    assert first == second != third == fourth


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Give the port of a service in this process."""
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


def test_the_timer_of_a_request_leaves_the_next_alone() -> None:
    class Taker(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            pass

    with serving(Taker) as port, Connection({}, 60, ssl.create_default_context()) as connection:
        for request in (1, 2):
            with connection.send("POST", f"http://127.0.0.1:{port}/", b"{}", {}) as answer:
                connection._shut_down(request - 1)
                assert answer.read() == b"ok"
            assert not connection.is_late


@pytest.mark.thorough
@pytest.mark.parametrize("charset", ["base64", "idna", "undefined", "nothing", "latin-1"])
def test_answers_in_any_charset(side: Any, charset: str) -> None:
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
        (letter,) = sent(sender(target, side(None).place), [1])
    assert (letter["status"], letter["error"]) == (400, "no such column")
