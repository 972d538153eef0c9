"""`python -m tests.generated`: run random pipelines and compare them with plain Spark."""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.generated.code import program
from tests.generated.modes import MODES
from tests.generated.native_queries import QUERIES
from tests.generated.pipelines import random_native_spec, random_spec
from tests.generated.templates import TEMPLATES

SILENCE = 400
"""Seconds without an event after which a worker is killed."""
LEAST_NATIVE = 0.4
"""Minimum share of runs without an error that DuckDB must have computed. With thousands of runs it is about 2/3."""
FEW = 60
"""With fewer runs a single native run is enough, because 20 seeds share their tables and DuckDB cannot read some tables."""
CHUNK = 1500
"""Pipelines after which a worker is replaced, because the Spark driver retains some memory of each query."""


class Tally:
    """Counts of pipelines, and the differences so far."""

    def __init__(self, out: Path | None) -> None:
        self.out = out
        self.done = 0
        self.runs = 0
        self.errors = 0
        self.native = 0
        self.dropped: Counter[str] = Counter()
        self.used: Counter[str] = Counter()
        self.modes: Counter[str] = Counter()
        self.differences: list[dict] = []
        self.started = time.monotonic()

    def take(self, event: dict) -> None:
        """Count an event of a worker, and print differences immediately."""
        match event["event"]:
            case "done":
                self.done += 1
                if event["dropped"]:
                    self.dropped[event["dropped"].split(":")[0]] += 1
                    if event["text"]:
                        self.dropped[event["dropped"]] += 1
                    return
                self.runs += len(event["modes"])
                self.errors += bool(event["error"])
                self.native += event["native"]
                self.used.update([*event["used"], f"template: {event['template']}"])
                self.modes.update(map(str, event["modes"]))
            case "difference" | "shrunk":
                run = event["seed"], event["mode"]
                self.differences = [d for d in self.differences if (d["seed"], d["mode"]) != run]
                self.differences.append(event)
                title = "SHRUNK" if event["event"] == "shrunk" else "DIFFERENCE"
                print(f"\n{title} seed {event['seed']} ({event['template']}), mode {event['mode']}: {event['kind']}")
                print(event["figures"])
                if event["event"] == "shrunk":
                    print(json.dumps(event["spec"]))
                    print(program(event["spec"]), flush=True)
                if self.out is not None:
                    self.out.mkdir(parents=True, exist_ok=True)
                    name = f"{event['seed']}-{'-'.join(event['kind'].split()[:3])}.json".replace(":", "").replace(
                        "/", ""
                    )
                    record = {key: event[key] for key in ("kind", "figures", "spec")}
                    (self.out / name).write_text(json.dumps(record, indent=1) + "\n")

    def line(self) -> str:
        seconds = time.monotonic() - self.started
        dropped = sum(n for name, n in self.dropped.items() if ":" not in name)
        return (
            f"{self.done} pipelines ({self.runs} runs compared, {self.errors} with errors, {dropped} dropped) in {seconds:.0f} s, "
            f"{self.done / max(seconds, 1):.2f} a second, {self.native} runs by DuckDB: {len(self.differences)} differences"
        )

    def summary(self) -> str:
        lines = ["", "pipelines by operator, setting and template:"]
        lines += [f"  {count:6} {name}" for name, count in sorted(self.used.items(), key=lambda item: -item[1])]
        lines += ["runs by mode:", *(f"  {count:6} {name}" for name, count in self.modes.most_common())]
        lines += ["dropped:", *(f"  {count:6} {name}" for name, count in self.dropped.most_common(20))]
        lines += ["differences:"]
        lines += [f"  seed {f['seed']}, mode {f['mode']}, {f['template']}: {f['kind']}" for f in self.differences]
        return "\n".join([*lines, self.line()])


class WorkerProcess:
    """A worker process that puts its events in a queue, with the seed that it runs."""

    def __init__(self, request: dict, events: queue.Queue, number: int) -> None:
        self.request = request
        self.number = number
        self.seed = None
        self.last_event = time.monotonic()
        self.folder = tempfile.TemporaryDirectory(prefix="generated-", ignore_cleanup_errors=True)
        arguments = json.dumps({**request, "folder": self.folder.name})
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.generated.worker", arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(events,), daemon=True).start()

    def _listen(self, events: queue.Queue) -> None:
        for line in self.process.stdout:
            if line.startswith("{"):
                events.put((self, json.loads(line)))
        events.put((self, {"event": "gone"}))

    def close(self) -> None:
        import os
        import signal

        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # the process group includes the JVM and the Python workers
        self.process.wait()
        self.folder.cleanup()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return 1 if anything differs."""
    options = _options(arguments)
    seed = random.SystemRandom().randrange(1 << 40) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    if options.show:
        spec = (random_native_spec if options.native else random_spec)(seed, options.template, options.mode)
        print(json.dumps(spec), program(spec), sep="\n")
        return 0
    tally = Tally(options.out)
    events: queue.Queue = queue.Queue()
    seeds = list(range(seed, seed + options.count))
    request = {
        "template": options.template,
        "modes": options.mode,
        "native": options.native,
        "verify": options.verify,
        "limit": options.limit,
        "shrink": options.shrink,
        "shrink_each": options.shrink_each,
    }
    shares = [seeds[i :: options.workers] for i in range(options.workers)]
    workers = [WorkerProcess({**request, "seeds": share[:CHUNK]}, events, i) for i, share in enumerate(shares) if share]
    last_report = search_started = time.monotonic()
    try:
        while workers:
            if options.seconds and time.monotonic() - search_started > options.seconds:
                break
            if tally.done == 0:
                search_started = time.monotonic()  # exclude the start of Spark
            if time.monotonic() - last_report > 10:
                last_report = time.monotonic()
                print(tally.line(), flush=True)
            try:
                worker, event = events.get(timeout=1)
            except queue.Empty:
                for worker in [w for w in workers if time.monotonic() - w.last_event > SILENCE]:
                    if worker.seed is not None:
                        tally.take(_hang_event(worker, request))
                    worker.close()  # its listener then reports the end
                    worker.last_event = time.monotonic()
                continue
            worker.last_event = time.monotonic()
            if event["event"] == "start":
                worker.seed = event["seed"]
            elif event["event"] == "gone":
                workers.remove(worker)
                worker.close()
                share = shares[worker.number]
                rest = share[share.index(worker.seed) + 1 :] if worker.seed is not None else []
                if rest:
                    workers.append(WorkerProcess({**request, "seeds": rest[:CHUNK]}, events, worker.number))
                elif worker.seed is None:
                    print("a worker did not start", flush=True)
                    return 2
            else:
                tally.take(event)
    finally:
        for worker in workers:
            worker.close()
    print(tally.summary(), flush=True)
    compared = tally.runs - tally.errors
    if options.native and compared and tally.native <= (0 if compared < FEW else LEAST_NATIVE * compared):
        print("DuckDB has computed too few runs for a meaningful comparison", flush=True)
        return 1
    return 1 if tally.differences else 0


def _hang_event(worker: WorkerProcess, request: dict) -> dict:
    spec = (random_native_spec if request["native"] else random_spec)(
        worker.seed, request["template"], request["modes"]
    )
    return {
        "event": "difference",
        "seed": worker.seed,
        "template": spec["template"],
        "mode": "any",
        "kind": "hang",
        "spec": spec,
        "figures": f"the worker sent no event for {SILENCE} s",
    }


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.generated", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="how many pipelines (20000)")
    parser.add_argument("--seed", type=int, help="the first seed; drawn and printed if left out")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time since the first pipeline")
    parser.add_argument("--mode", action="append", choices=list(MODES), help="only this mode; may be repeated")
    parser.add_argument(
        "--template",
        action="append",
        choices=["uniform", *TEMPLATES, *QUERIES],
        help="only pipelines of this shape; may be repeated",
    )
    parser.add_argument("--native", action="store_true", help="queries of Parquet files that DuckDB computes")
    parser.add_argument("--verify", action="store_true", help="enable Penstock's own checks (execution.verify)")
    parser.add_argument(
        "--workers", "--processes", type=int, default=1, help="concurrent processes, each with two cores (1)"
    )
    parser.add_argument("--limit", type=float, default=25, help="seconds after which a run is a hang (25)")
    parser.add_argument(
        "--shrink", type=float, default=60, help="seconds to shrink a failing pipeline, 0 to disable (60)"
    )
    parser.add_argument("--shrink-each", type=int, default=3, help="how many differences of a kind to shrink (3)")
    parser.add_argument("--out", type=Path, help="a folder for failing specifications")
    parser.add_argument("--show", action="store_true", help="print the pipeline of the seed without running it")
    return parser.parse_args(arguments)
