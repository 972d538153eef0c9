"""What a task does with the rows of an HTTP sink: sends them, again if need be, and gives back those that were refused.

At least once: a task that Spark repeats sends all its rows again, and the same requests with the same keys.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING

from penstock.connectors.http.attempts import Attempts, StoppedError
from penstock.connectors.http.connection import Connection
from penstock.connectors.http.driver_link import Kind
from penstock.connectors.http.rows import Letter, Row, batches_of, requests_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from penstock.connectors.http.attempts import Target
    from penstock.connectors.http.driver_link import DriverLink, DriverPlace

_FIRST_REQUESTS, _FIRST_SECONDS = 20, 2.0
"""What is sent at most to learn what a request takes."""


def sender(
    target: Target, place: DriverPlace, sent: frozenset[str] = frozenset(), *, only_first: bool = False
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what tasks do with their rows; it gives the rows that were refused, with the columns `LETTERS`.

    Parameters
    ----------
    target, place
        Where rows go, and where the driver is.
    sent
        The digests of rows that were sent before; the driver knows how many of each are left.
    only_first
        Whether only some rows are sent, to learn what a request takes. All of them are given then, with the columns
        `FIRST`: Spark keeps what one attempt gives, so the rows of another are not taken for sent.
    """

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import httpx
        from pyspark import TaskContext

        task = TaskContext.get()
        number = -1 if only_first or task is None else task.partitionId()
        with ExitStack() as opened:
            driver = opened.enter_context(place.connect())
            driver.ask(Kind.BEGIN, number)
            tls = httpx.create_ssl_context()
            connections = [Connection(target.headers, target.timeout, tls) for _ in range(target.at_a_time)]
            senders = [
                Attempts(target, opened.enter_context(connection), opened.enter_context(place.connect()))
                for connection in connections
            ]
            rows = (row for row in rows_of(batches) if not (sent and _was_sent(row.digest, sent, driver, number)))
            requests = requests_of(rows, target.batch_size)
            if only_first:
                requests = _for_a_while(requests)
            sending = _Sending(target, senders, number, gives_all=only_first)
            with suppress(StoppedError):
                yield from batches_of(sending.send_all(requests), with_digests=only_first)

    return send


def _was_sent(digest: str, sent: frozenset[str], driver: DriverLink, number: int) -> bool:
    return digest in sent and driver.ask(Kind.WAS_SENT, number, digest)


class _Sending:
    """Sends the requests of one task."""

    def __init__(self, target: Target, senders: Iterable[Attempts], number: int, *, gives_all: bool) -> None:
        self._target = target
        self._senders: SimpleQueue[Attempts] = SimpleQueue()
        for free in senders:
            self._senders.put(free)
        self._number = number
        self._gives_all = gives_all
        self._seen: Counter[str] = Counter()

    def send_all(self, requests: Iterable[list[Row]]) -> Iterator[Letter]:
        """Send requests, as many at a time as there are senders; give what was refused for good, or all rows.

        Raises
        ------
        StoppedError
            If the job fails.
        """
        most = self._senders.qsize()
        under_way: set[Future[list[Letter]]] = set()
        with ThreadPoolExecutor(most, "requests") as threads:
            for rows in requests:
                under_way.add(threads.submit(self._send, rows, self._key(rows)))
                if len(under_way) == most:
                    done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                    yield from (letter for one in done for letter in one.result())
            yield from (letter for one in under_way for letter in one.result())

    def _body(self, rows: list[Row]) -> bytes:
        if self._target.batch_size == 1:
            return rows[0].text.encode()
        return f"[{','.join(row.text for row in rows)}]".encode()

    def _send(self, rows: list[Row], key: str) -> list[Letter]:
        """Send a request, as often as need be; return what is to be given of it."""
        free = self._senders.get()
        try:
            return self._sent(free, rows, key)
        finally:
            self._senders.put(free)

    def _sent(self, free: Attempts, rows: list[Row], key: str) -> list[Letter]:
        driver = free.driver
        problem, attempts = free.send(self._body(rows), key)
        if problem is None:
            driver.ask(Kind.DONE, len(rows))
            return [Letter(row.digest) for row in rows] if self._gives_all else []
        if not self._target.keeps_dead:
            status = "" if problem.status is None else f"status {problem.status}: "
            driver.ask(Kind.REFUSED, 0, f"{status}{problem.text} (attempt {attempts})")
            raise StoppedError
        driver.ask(Kind.DEAD, len(rows))
        now = datetime.now(UTC)
        return [Letter(row.digest, row.text, problem.status, problem.text, attempts, now) for row in rows]

    def _key(self, rows: list[Row]) -> str:
        """Return the key of a request, which is the same when the task is repeated with the same rows.

        The user's key columns tell rows apart in any run of the job. Without them, equal rows have keys by their number
        among those of the task.
        """
        told = hashlib.sha256()
        for row in rows:
            if row.key is None:
                digest = row.digest
                self._seen[digest] += 1
                told.update(f"{self._target.run} {self._number} {digest} {self._seen[digest]}\n".encode())
            else:
                told.update(f"{row.key}\n".encode())
        return told.hexdigest()[:32]


def _for_a_while(requests: Iterator[list[Row]]) -> Iterator[list[Row]]:
    until = time.monotonic() + _FIRST_SECONDS
    for number, request in enumerate(requests, 1):
        yield request
        if number >= _FIRST_REQUESTS or time.monotonic() >= until:
            return
