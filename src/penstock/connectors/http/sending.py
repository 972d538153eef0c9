"""The tasks of an HTTP sink: they send rows with retries, and return dead letters.

Delivery is at least once: a repeated task sends all its rows again, and equal requests have equal keys.
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
from penstock.connectors.http.rows import Letter, Row, letter_batches, requests_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from penstock.connectors.http.attempts import Target
    from penstock.connectors.http.driver_link import DriverAddress, DriverLink

_FIRST_REQUESTS, _FIRST_SECONDS = 20, 2.0
"""The maximum requests and seconds for measuring the duration of a request."""


def sender(
    target: Target, address: DriverAddress, sent: frozenset[str] = frozenset(), *, only_first: bool = False
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that tasks apply to their rows; it returns dead letters with the columns `LETTERS`.

    Parameters
    ----------
    target, address
        The settings of the sink, and the address of the driver.
    sent
        The digests of rows that were sent before; the driver counts how many of each are still to be left out.
    only_first
        Whether only some rows are sent, to measure requests. The result then has all sent rows, with the columns
        `FIRST`. Spark keeps the result of a single attempt, so rows of other attempts do not count as sent.
    """

    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import httpx
        from pyspark import TaskContext

        task = TaskContext.get()
        number = -1 if only_first or task is None else task.partitionId()
        with ExitStack() as stack:
            driver = stack.enter_context(address.connect())
            driver.request(Kind.BEGIN, number)
            tls = httpx.create_ssl_context()
            connections = [Connection(target.headers, target.timeout, tls) for _ in range(target.at_a_time)]
            senders = [
                Attempts(target, stack.enter_context(connection), stack.enter_context(address.connect()))
                for connection in connections
            ]
            rows = (row for row in rows_of(batches) if not (sent and _was_sent(row.digest, sent, driver, number)))
            requests = requests_of(rows, target.batch_size)
            if only_first:
                requests = _limit_first(requests)
            sending = _Sending(target, senders, number, returns_all=only_first)
            with suppress(StoppedError):
                yield from letter_batches(sending.send_all(requests), with_digests=only_first)

    return send


def _was_sent(digest: str, sent: frozenset[str], driver: DriverLink, number: int) -> bool:
    return digest in sent and driver.request(Kind.WAS_SENT, number, digest)


class _Sending:
    """Concurrent sending of the requests of a task."""

    def __init__(self, target: Target, senders: Iterable[Attempts], number: int, *, returns_all: bool) -> None:
        self._target = target
        self._senders: SimpleQueue[Attempts] = SimpleQueue()
        for sender in senders:
            self._senders.put(sender)
        self._number = number
        self._returns_all = returns_all
        self._seen: Counter[str] = Counter()

    def send_all(self, requests: Iterable[list[Row]]) -> Iterator[Letter]:
        """Send requests concurrently, a request per sender at a time; yield the dead letters, or letters of all rows.

        Raises
        ------
        StoppedError
            If the job fails.
        """
        most = self._senders.qsize()
        running: set[Future[list[Letter]]] = set()
        with ThreadPoolExecutor(most, "requests") as threads:
            for rows in requests:
                running.add(threads.submit(self._send, rows, self._key(rows)))
                if len(running) == most:
                    finished, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (letter for future in finished for letter in future.result())
            yield from (letter for future in running for letter in future.result())

    def _body(self, rows: list[Row]) -> bytes:
        if self._target.batch_size == 1:
            return rows[0].text.encode()
        return f"[{','.join(row.text for row in rows)}]".encode()

    def _send(self, rows: list[Row], key: str) -> list[Letter]:
        """Send a request with a free sender, and return its letters."""
        sender = self._senders.get()
        try:
            return self._send_with(sender, rows, key)
        finally:
            self._senders.put(sender)

    def _send_with(self, sender: Attempts, rows: list[Row], key: str) -> list[Letter]:
        driver = sender.driver
        problem, attempts = sender.send(self._body(rows), key)
        if problem is None:
            driver.request(Kind.DONE, len(rows))
            return [Letter(row.digest) for row in rows] if self._returns_all else []
        if not self._target.keeps_dead:
            status = "" if problem.status is None else f"status {problem.status}: "
            driver.request(Kind.REFUSED, 0, f"{status}{problem.text} (attempt {attempts})")
            raise StoppedError
        driver.request(Kind.DEAD, len(rows))
        now = datetime.now(UTC)
        return [Letter(row.digest, row.text, problem.status, problem.text, attempts, now) for row in rows]

    def _key(self, rows: list[Row]) -> str:
        """Return the idempotency key of a request, which is the same when the task is repeated with the same rows.

        The user's key columns identify rows in any run of the job. Without them, duplicate rows are numbered within
        the task.
        """
        key_hash = hashlib.sha256()
        for row in rows:
            if row.key is None:
                digest = row.digest
                self._seen[digest] += 1
                key_hash.update(f"{self._target.run} {self._number} {digest} {self._seen[digest]}\n".encode())
            else:
                key_hash.update(f"{row.key}\n".encode())
        return key_hash.hexdigest()[:32]


def _limit_first(requests: Iterator[list[Row]]) -> Iterator[list[Row]]:
    """Yield the first requests, up to the limits for measuring."""
    deadline = time.monotonic() + _FIRST_SECONDS
    for number, request in enumerate(requests, 1):
        yield request
        if number >= _FIRST_REQUESTS or time.monotonic() >= deadline:
            return
