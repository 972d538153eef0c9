"""Measure the overhead of the web interface: a job with readers, the response times, and large graphs.

* The same job alone, with event log and API, and with event log, API and readers, in alternation.
* Readers: asynchronous clients in a separate process; each pauses between a response and its next request.
* Drawing a graph of 10 000 nodes, returning the graph as JSON, and logging it; listing 5 000 logs.

Medians are written to bench/results/web.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import DATE_AND_COMMIT, versions

os.environ["PYSPARK_PYTHON"] = sys.executable
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

PATHS = (
    "/jobs/{id}",
    "/jobs/overview",
    "/jobs/{id}/plan",
    "/jobs/{id}/decisions",
    "/jobs/{id}/vertices/v1",
    "/overview",
)


async def request(connection: Any, path: str) -> tuple[int, bytes]:
    """Send a request over an open connection; return status and body."""
    reader, writer = connection
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(head.split(b" ", 2)[1]), await reader.readexactly(length)


async def read_for(url: str, seconds: float, readers: int, pause: float) -> dict:
    """Run concurrent readers; return the number of responses and errors, and percentiles of the seconds."""
    latencies, errors = [], 0
    host, _, port = url.removeprefix("http://").strip("/").partition(":")
    deadline = time.monotonic() + seconds
    jobs = json.loads((await request(await asyncio.open_connection(host, int(port)), "/jobs/overview"))[1])["jobs"]
    paths = [path.format(id=jobs[0]["jid"]) for path in PATHS]

    async def reader(number: int) -> None:
        nonlocal errors
        await asyncio.sleep(pause * number / readers)
        connection = await asyncio.open_connection(host, int(port))
        while time.monotonic() < deadline:
            began = time.monotonic()
            status, _ = await request(connection, random.choice(paths))
            errors += status != 200
            latencies.append(time.monotonic() - began)
            await asyncio.sleep(pause)

    await asyncio.gather(*(reader(number) for number in range(readers)))
    ordered = sorted(latencies)
    return {
        "answers": len(latencies),
        "errors": errors,
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[int(len(ordered) * 0.99)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument(
        "--pause", type=float, default=2.0, help="seconds between a response and the reader's next request"
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(asyncio.run(read_for(arguments.read, arguments.seconds, arguments.readers, arguments.pause))))
        return
    lines = ["| measurement | figure |", "|---|--:|", *large_graphs(), *jobs(arguments)]
    title = f"Web, {DATE_AND_COMMIT}: medians of {arguments.rounds} rounds, {versions()}, local[{arguments.cores}] on 2 cores, which the readers use, too."
    (HERE / "results" / "web.md").write_text("\n".join([title, "", *lines, ""]))
    print("\n".join([title, "", *lines]))


def large_graphs() -> list[str]:
    from penstock.history.event_log import EventLog, LocalFolder
    from penstock.history.logs import History
    from penstock.history.record import JobRecord
    from penstock.web import views
    from penstock.web.charts.graph import draw_graph
    from penstock.web.steps import steps_of
    from tests.history.records import edge, events, node

    random.seed(1)
    log_events = events(ended=False)[:1]
    nodes = [node(n, f"operator {n}", description="x" * 200) for n in range(10_000)]
    edges = [edge(random.randrange(max(0, n - 400), n), n) for n in range(1, 10_000)]
    log_events += [{"type": "nodes", "at": 1.0, "nodes": nodes}, {"type": "edges", "at": 1.0, "edges": edges}]
    record = JobRecord()
    for event in log_events:
        record.apply(event)
    lines = []
    began = time.monotonic()
    draw_graph(record, steps_of(record, 1.0), pending=True)
    lines.append(f"| a graph of 10 000 nodes drawn | {time.monotonic() - began:.2f} s |")
    began = time.monotonic()
    json.dumps(views.job_details(record, 1.0))
    lines.append(f"| the same returned as JSON | {time.monotonic() - began:.2f} s |")
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(LocalFolder(folder).create("x.jsonl"))
        log.write(log_events)
        size = next(Path(folder).iterdir()).stat().st_size
        lines.append(f"| the same in an event log | {size / (1 << 20):.1f} MiB |")
    with tempfile.TemporaryDirectory() as folder:
        for number in range(5000):
            log = EventLog(LocalFolder(folder).create(f"20261122T120000-{number:012x}.jsonl"))
            log.write(events(job_id=f"{number:012x}"))
        history = History(LocalFolder(folder))
        for outcome in ("listed for the first time", "listed again"):
            began = time.monotonic()
            assert len(history.summaries()) == 5000
            lines.append(f"| 5 000 event logs {outcome} | {time.monotonic() - began:.2f} s |")
    return lines


def jobs(arguments: argparse.Namespace) -> list[str]:
    from pyspark.sql import SparkSession

    from penstock import Environment

    builder = SparkSession.builder.master(f"local[{arguments.cores}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "4g")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    spark.range(0, 60_000_000, 1, 8).selectExpr("id % 1000003 as k", "id as v").createOrReplaceTempView("facts")
    spark.range(0, 1_000_003, 1, 2).selectExpr("id as k", "id % 97 as team").where(
        "hash(team) > 0"
    ).createOrReplaceTempView("teams")
    query = "SELECT team, count(*) n, sum(v) s FROM facts JOIN teams USING (k) GROUP BY team"
    options = {"execution.batch.adaptive.whole-query-threshold": 0, "rest.port": 0}
    seconds: dict[str, list[float]] = {"alone": [], "with API": [], "with readers": []}
    reader_results = []
    with tempfile.TemporaryDirectory() as folder:
        alone = Environment(spark, config=options, progress=False)
        watched = Environment(spark, config=options | {"jobmanager.archive.fs.dir": folder}, progress=False, ui=True)
        expected = sorted(alone.collect(alone.sql(query)))
        for turn in range(arguments.rounds + 1):
            for variant in (list(seconds), list(seconds)[::-1])[turn % 2]:
                env = alone if variant == "alone" else watched
                readers = None
                if variant == "with readers":
                    address = watched.ui_url.partition("?")[0]
                    command = [sys.executable, __file__, "--read", address, "--readers", str(arguments.readers)]
                    command += ["--seconds", str(arguments.seconds), "--pause", str(arguments.pause)]
                    readers = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                    time.sleep(3)
                began = time.monotonic()
                assert sorted(env.collect(env.sql(query))) == expected
                if turn:
                    seconds[variant].append(time.monotonic() - began)
                if readers is not None:
                    reader_results.append(json.loads(readers.communicate()[0]))
                last_results = reader_results[-1:] if readers else ()
                print(f"{variant}: {time.monotonic() - began:.2f} s", *last_results, flush=True)
    base = statistics.median(seconds["alone"])
    lines = [
        f"| a job, {variant} | {statistics.median(times):.2f} s ({statistics.median(times) / base - 1:+.1%}) |"
        for variant, times in seconds.items()
    ]
    lines.append(
        f"| {arguments.readers} readers, a request every {arguments.pause:g} s each: errors | {sum(result['errors'] for result in reader_results)} |"
    )
    lines += [
        f"| the same, {name} | {1000 * statistics.median(result[name] for result in reader_results):.0f} ms |"
        for name in ("p50", "p99")
    ]
    lines.append(
        f"| the same, answers a second | {statistics.median(result['answers'] for result in reader_results) / arguments.seconds:.0f} |"
    )
    return lines


if __name__ == "__main__":
    main()
