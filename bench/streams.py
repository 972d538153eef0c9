"""Compare fixed batch sizes with Penstock's on a topic with a hot partition whose load jumps tenfold.

Every variant has its own topic and a query in its own process. The load is the same for all: steady, ten times as high for
a while, and steady again until there is no lag. In the middle of the jump, SIGKILL ends the process within a batch, and
the process is restarted. The benchmark reads the records that the checkpoint has committed and those in the sink. Each
record must be in the sink exactly once. Figures are written to bench/results/streams.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path.insert(0, str(Path(__file__).parent.parent))

import pyarrow.parquet as pq

from provenance import DATE_AND_COMMIT, versions
from tests.support.services import KafkaBroker

HERE = Path(__file__).parent
PARTITIONS = 6
HOT_FRACTION = 0.8
"""Fraction of the records in a single partition."""
TICK_SECONDS = 0.05
JUMP_FACTOR = 10
STEADY_PART, JUMP_PART = 0.1, 0.1
"""Fractions of a variant's time: the steady load before the jump, and the jump."""
MAX_LAG_INTERVALS = 2
"""The query has caught up when its lag is below the steady load of this number of trigger intervals."""


class Load:
    """Thread that writes numbered records at an adjustable rate."""

    def __init__(self, servers: str, topic: str, rate: int) -> None:
        from confluent_kafka import Producer

        self.rate = rate
        self.written = [0] * PARTITIONS
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
        self._topic = topic
        self._ended = threading.Event()
        self._errors: list[str] = []
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    @property
    def total(self) -> int:
        return sum(self.written)

    def _write(self) -> None:
        due, before = 0.0, time.monotonic()
        while not self._ended.wait(TICK_SECONDS):
            now = time.monotonic()
            due += self.rate * (now - before)
            before = now
            for _ in range(int(due)):
                number = self.total
                partition = 0 if number % 100 < 100 * HOT_FRACTION else 1 + number % (PARTITIONS - 1)
                self._put(partition, str(number).zfill(100).encode())
                self.written[partition] += 1
            due -= int(due)
            self._producer.poll(0)

    def _put(self, partition: int, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def _on_delivery(self, error: object, _message: object) -> None:
        if error:
            self._errors.append(str(error))

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        if self._producer.flush(60) or self._errors:
            raise SystemExit(f"the load could not be written: {self._errors[:1]}")


class Query:
    """The process of a query, and the progress in its checkpoint."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._checkpoint = folder / "checkpoint"
        self._log = (folder / "log").open("a")
        self._killed_batch = -1
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log, start_new_session=True)

    def _last_batch(self, log: str) -> int:
        """Return the newest batch in a log of the checkpoint, -1 if there is none."""
        names = [path.name for path in (self._checkpoint / log).glob("*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    @property
    def committed(self) -> int:
        """The number of records in all committed batches."""
        batch = self._last_batch("commits")
        if batch < 0:
            return 0
        text = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
        return sum(value for name, value in json.loads(text).items() if name != "penstock")

    def batches(self) -> list[tuple[float, int]]:
        """Return the seconds and records of each batch except the killed one, from the times of its two log files."""
        batches, before = [], 0
        for number in range(self._last_batch("commits") + 1):
            offsets, commit = self._checkpoint / "offsets" / str(number), self._checkpoint / "commits" / str(number)
            text = offsets.read_text().splitlines()[-1]
            total = sum(value for name, value in json.loads(text).items() if name != "penstock")
            if number != self._killed_batch:
                batches.append((commit.stat().st_mtime - offsets.stat().st_mtime, total - before))
            before = total
        return batches

    def kill_within_a_batch(self) -> None:
        while self._last_batch("offsets") <= self._last_batch("commits"):
            self.check()
            time.sleep(0.01)
        self._killed_batch = self._last_batch("offsets")
        self.kill()
        self._start()

    def check(self) -> None:
        if self._process.poll() is not None:
            raise SystemExit(f"the query ended: {Path(self._log.name).read_text()[-3000:]}")

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@dataclass
class Outcome:
    variant: str
    records: int
    lost: int
    duplicates: int
    catch_up_seconds: float | None
    batches: list[tuple[float, int]]


def run(
    variant: str, options: list[str], broker: KafkaBroker, seconds: float, arguments: argparse.Namespace
) -> Outcome:
    topic = broker.topic(f"load-{time.monotonic_ns()}", PARTITIONS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [sys.executable, str(HERE / "streams_query.py"), broker.servers, topic, name, *options]
        command += ["--cores", str(arguments.cores), "--trigger", arguments.trigger, "--work", str(arguments.work)]
        load = Load(broker.servers, topic, arguments.rate)
        query = Query(command, folder)
        try:
            while not query.committed:
                query.check()
                time.sleep(0.1)
            time.sleep(STEADY_PART * seconds)
            jumped, load.rate = time.monotonic(), JUMP_FACTOR * arguments.rate
            time.sleep(JUMP_PART * seconds / 2)
            query.kill_within_a_batch()
            time.sleep(max(0.0, jumped + JUMP_PART * seconds - time.monotonic()))
            load.rate = arguments.rate
            max_lag = MAX_LAG_INTERVALS * arguments.rate * float(arguments.trigger.split()[0])
            catch_up_seconds = None
            while time.monotonic() - jumped < 3 * seconds:
                if load.total - query.committed < max_lag:
                    catch_up_seconds = time.monotonic() - jumped
                    break
                query.check()
                time.sleep(0.1)
            load.stop()
            while catch_up_seconds is not None and query.committed < load.total:
                query.check()
                time.sleep(0.1)
            is_complete = catch_up_seconds is not None
            lost, duplicates = count_errors(folder / "out", load.written) if is_complete else (-1, -1)
            return Outcome(variant, load.total, lost, duplicates, catch_up_seconds, query.batches())
        finally:
            query.kill()


def count_errors(out: Path, written: list[int]) -> tuple[int, int]:
    """Return the number of records that are missing in the sink, and of duplicate or unexpected records."""
    records: Counter[tuple[int, int]] = Counter()
    for file in committed_files(out):
        table = pq.read_table(file, columns=["partition", "offset"])
        records.update(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    expected = {(partition, offset) for partition, count in enumerate(written) for offset in range(count)}
    return len(expected - records.keys()), sum(records.values()) - len(expected & records.keys())


def committed_files(out: Path) -> list[Path]:
    """Return the files in the log of Spark's file sink; a killed task leaves other files behind."""
    logs = {int(path.name.split(".")[0]): path for path in (out / "_spark_metadata").glob("[0-9]*")}
    compacted = max((number for number, path in logs.items() if path.suffix == ".compact"), default=0)
    files = []
    for number in sorted(logs):
        if number >= compacted:
            entries = [json.loads(line) for line in logs[number].read_text().splitlines()[1:]]
            files += [Path(unquote(urlsplit(entry["path"]).path)) for entry in entries if entry["action"] == "add"]
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="approximate minutes of all variants together")
    parser.add_argument("--rate", type=int, default=1000, help="records per second; ten times as many in the jump")
    parser.add_argument("--limits", nargs="+", default=["5000", "20000", "100000"], help="fixed maxOffsetsPerTrigger")
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--work", type=int, default=20, help="number of hashes per record")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--output", type=Path, default=HERE / "results" / "streams.md")
    arguments = parser.parse_args()
    variants = {f"{int(limit):,} records": ["--limit", limit] for limit in arguments.limits}
    largest = arguments.limits[-1]
    variants[f"{int(largest):,} records, a task for each partition"] = ["--limit", largest, "--per-partition"]
    variants["Penstock"] = []
    seconds = 60 * arguments.minutes / len(variants)
    outcomes = []
    broker = KafkaBroker()
    try:
        for variant, options in variants.items():
            outcomes.append(run(variant, options, broker, seconds, arguments))
            last = outcomes[-1]
            figures = f"{last.catch_up_seconds} s, {last.lost} lost, {last.duplicates} duplicates"
            print(f"{variant}: caught up after {figures}", flush=True)
    finally:
        broker.close()
    text = table(outcomes, seconds, arguments)
    arguments.output.write_text(text)
    print(text)


def table(outcomes: list[Outcome], seconds: float, arguments: argparse.Namespace) -> str:
    fixed = [outcome.catch_up_seconds for outcome in outcomes if outcome.variant != "Penstock"]
    best = min((seconds for seconds in fixed if seconds is not None), default=None)
    lines = [
        (
            f"Streams, {DATE_AND_COMMIT}: {arguments.rate:,} records a second, {JUMP_FACTOR} times as many for "
            f"{JUMP_PART * seconds:.0f} s, {HOT_FRACTION:.0%} of them in one of {PARTITIONS} partitions; a trigger of "
            f"{arguments.trigger}; the process is killed in the middle of the jump and started again. "
            f"{versions()}, "
            f"local[{arguments.cores}] on {os.cpu_count()} cores."
        ),
        "",
        "| a batch has at most | records | lost | doubled | lag gone after, s | best fixed = 1 | longest batch, s | median batch, s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for outcome in outcomes:
        seconds_text, relative, errors = "not gone", "", ("?", "?")
        if outcome.catch_up_seconds is not None:
            seconds_text, errors = f"{outcome.catch_up_seconds:.1f}", (outcome.lost, outcome.duplicates)
            relative = "" if best is None else f"{outcome.catch_up_seconds / best:.2f}"
        lengths = [length for length, _ in outcome.batches]
        lines.append(
            f"| {outcome.variant} | {outcome.records:,} | {errors[0]} | {errors[1]} | {seconds_text} | {relative} "
            f"| {max(lengths, default=0):.1f} | {statistics.median(lengths or [0]):.1f} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
