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

from provenance import STATE, versions
from tests.support.services import KafkaBroker

HERE = Path(__file__).parent
PARTITIONS = 6
HOT = 0.8
"""Fraction of the records in a single partition."""
TICK = 0.05
JUMP = 10
STEADY_PART, JUMP_PART = 0.1, 0.1
"""Fractions of a variant's time: the steady load before the jump, and the jump."""
GONE = 2
"""After the jump, the lag is gone when it is below the steady load of this number of trigger intervals."""


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
        while not self._ended.wait(TICK):
            now = time.monotonic()
            due += self.rate * (now - before)
            before = now
            for _ in range(int(due)):
                number = self.total
                partition = 0 if number % 100 < 100 * HOT else 1 + number % (PARTITIONS - 1)
                self._put(partition, str(number).zfill(100).encode())
                self.written[partition] += 1
            due -= int(due)
            self._producer.poll(0)

    def _put(self, partition: int, value: bytes) -> None:
        while True:
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._receipt)
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def _receipt(self, error: object, _message: object) -> None:
        if error:
            self._errors.append(str(error))

    def end(self) -> None:
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
        self._killed = -1
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log, start_new_session=True)

    def _last(self, log: str) -> int:
        names = [path.name for path in (self._checkpoint / log).glob("*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    @property
    def committed(self) -> int:
        """The number of records in all committed batches."""
        batch = self._last("commits")
        if batch < 0:
            return 0
        text = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1]
        return sum(value for name, value in json.loads(text).items() if name != "penstock")

    def batches(self) -> list[tuple[float, int]]:
        """Return the seconds and records of each batch except the killed one, from the times of its two log files."""
        batches, before = [], 0
        for number in range(self._last("commits") + 1):
            offsets, commit = self._checkpoint / "offsets" / str(number), self._checkpoint / "commits" / str(number)
            text = offsets.read_text().splitlines()[-1]
            total = sum(value for name, value in json.loads(text).items() if name != "penstock")
            if number != self._killed:
                batches.append((commit.stat().st_mtime - offsets.stat().st_mtime, total - before))
            before = total
        return batches

    def kill_within_a_batch(self) -> None:
        while self._last("offsets") <= self._last("commits"):
            self.check()
            time.sleep(0.01)
        self._killed = self._last("offsets")
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
    doubled: int
    gone: float | None
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
            jumped, load.rate = time.monotonic(), JUMP * arguments.rate
            time.sleep(JUMP_PART * seconds / 2)
            query.kill_within_a_batch()
            time.sleep(max(0.0, jumped + JUMP_PART * seconds - time.monotonic()))
            load.rate = arguments.rate
            enough = GONE * arguments.rate * float(arguments.trigger.split()[0])
            gone = None
            while time.monotonic() - jumped < 3 * seconds:
                if load.total - query.committed < enough:
                    gone = time.monotonic() - jumped
                    break
                query.check()
                time.sleep(0.1)
            load.end()
            while gone is not None and query.committed < load.total:
                query.check()
                time.sleep(0.1)
            lost, doubled = count_lost_and_doubled(folder / "out", load.written) if gone is not None else (-1, -1)
            return Outcome(variant, load.total, lost, doubled, gone, query.batches())
        finally:
            query.kill()


def count_lost_and_doubled(out: Path, written: list[int]) -> tuple[int, int]:
    """Return the number of records that are missing in the sink, and of those that are duplicates or unexpected."""
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
    parser.add_argument("--minutes", type=float, default=10, help="approximate time of all variants together")
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
            print(f"{variant}: lag gone after {last.gone}, {last.lost} lost, {last.doubled} doubled", flush=True)
    finally:
        broker.close()
    text = table(outcomes, seconds, arguments)
    arguments.output.write_text(text)
    print(text)


def table(outcomes: list[Outcome], seconds: float, arguments: argparse.Namespace) -> str:
    best = min(
        (outcome.gone for outcome in outcomes if outcome.variant != "Penstock" and outcome.gone is not None),
        default=None,
    )
    lines = [
        (
            f"Streams, {STATE}: {arguments.rate:,} records a second, {JUMP} times as many for "
            f"{JUMP_PART * seconds:.0f} s, {HOT:.0%} of them in one of {PARTITIONS} partitions; a trigger of "
            f"{arguments.trigger}; the process is killed in the middle of the jump and started again. "
            f"{versions()}, "
            f"local[{arguments.cores}] on {os.cpu_count()} cores."
        ),
        "",
        "| a batch has at most | records | lost | doubled | lag gone after, s | best fixed = 1 | longest batch, s | median batch, s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for outcome in outcomes:
        gone = "not gone" if outcome.gone is None else f"{outcome.gone:.1f}"
        relative = "" if outcome.gone is None or best is None else f"{outcome.gone / best:.2f}"
        checked = ("?", "?") if outcome.gone is None else (outcome.lost, outcome.doubled)
        lengths = [length for length, _ in outcome.batches]
        lines.append(
            f"| {outcome.variant} | {outcome.records:,} | {checked[0]} | {checked[1]} | {gone} | {relative} "
            f"| {max(lengths, default=0):.1f} | {statistics.median(lengths or [0]):.1f} |"
        )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
