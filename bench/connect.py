"""Spark Connect: a server with Penstock beside Spark's own, and one or many thin clients that run streams of queries at once.

A run is FOLDER:CLIENTS:QUERIES, such as data/tpch-1:16:8: each client runs so many of the folder's queries, in one shuffled order in which it
begins at a place of its own. Both servers are up; one works at a time. They have run each query before, uncounted. Rows of both, of all clients,
have to be equal. Then the server with Penstock runs thousands of small queries, and what it holds is looked at. A table goes to bench/results.
"""

import argparse
import json
import math
import os
import platform
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from clients import THIN, python_with
from processes import cpu_seconds, family
from provenance import STATE, versions

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MIB = 1 << 20
MEMORY = "spark.driver.memory=5g"
PLAIN = """
import sys, threading
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
for pair in sys.argv[1:]:
    builder = builder.config(*pair.split("=", 1))
spark = builder.config("spark.connect.grpc.binding.port", "15999").config("spark.api.mode", "classic").getOrCreate()
print("sc://localhost:15999", file=sys.stderr, flush=True)
threading.Event().wait()
"""
COMMANDS = {
    "Spark": [sys.executable, "-c", PLAIN, MEMORY, "spark.log.level=ERROR", "spark.ui.enabled=false"],
    "Penstock": [
        sys.executable,
        "-m",
        "penstock",
        "connect-server",
        "--port",
        "0",
        "--master",
        "local[2]",
        "--conf",
        MEMORY,
    ],
}


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    address: str
    pid: int


@contextmanager
def server(command: Sequence[str]) -> Iterator[Server]:
    """Start a server, and stop it at the end."""
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    address = next(found[0] for found in (re.search(r"sc://\S+", line) for line in running.stderr) if found)
    try:
        yield Server(address, running.pid)
    finally:
        running.terminate()
        running.wait()


@dataclass(frozen=True)
class Run:
    """What a server did: wall seconds of all, CPU seconds of the server, and seconds and hashes of rows of each query, in the order of their ends."""

    seconds: float
    cpu: float
    queries: Sequence[tuple[str, float, str]]


def run(python: Path, where: Server, clients: Sequence[Sequence[str]]) -> Run:
    """Let clients run at once, each with arguments of its own, and wait for all."""
    command = [str(python), "-W", "ignore", str(HERE / "connect_stream.py"), where.address]
    all_of = [
        subprocess.Popen([*command, *each], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for each in clients
    ]
    for one in all_of:
        if one.stdout.readline().strip() != '"ready"':
            raise SystemExit("a client did not start")
    before, started = cpu_seconds(where.pid), time.monotonic()
    for one in all_of:
        one.stdin.write("\n")
        one.stdin.flush()
    answers = [one.communicate()[0] for one in all_of]
    seconds = time.monotonic() - started
    if any(one.returncode for one in all_of):
        raise SystemExit("a client failed")
    found = [tuple(json.loads(line)) for answer in answers for line in answer.splitlines()]
    return Run(seconds, cpu_seconds(where.pid) - before, found)


def streams(data: Path, clients: int, length: int) -> list[list[str]]:
    """Return the arguments of each client: so many queries of one shuffled order, each from another place on."""
    texts = json.loads((data.parent / "queries" / f"{data.name.split('-')[0]}.json").read_text())
    order = sorted(texts, key=int)
    random.Random(clients).shuffle(order)
    found = []
    for client in range(clients):
        first = client * len(order) // clients
        names = [order[(first + place) % len(order)] for place in range(length)]
        found.append(["--data", str(data), "--names", ",".join(names)])
    return found


def compare(python: Path, servers: dict[str, Server], runs: Sequence[str]) -> list[str]:
    """Return the lines of a table, one for each run."""
    lines = ["| queries | clients | server | queries a minute | CPU seconds | rows |", "|---|--:|---|--:|--:|---|"]
    warm: set[str] = set()
    rows: dict[tuple[str, str], set[str]] = {}
    for number, text in enumerate(runs):
        folder, clients, length = text.split(":")
        data = Path(folder).resolve()
        if folder not in warm:
            every = len(json.loads((data.parent / "queries" / f"{data.name.split('-')[0]}.json").read_text()))
            for name, where in servers.items():
                once = run(python, where, streams(data, 1, every))
                print(f"{data.name}, once, {name}: {once.seconds:.1f} s", flush=True)
            warm.add(folder)
        found = {}
        for name in sorted(servers, reverse=bool(number % 2)):
            found[name] = run(python, servers[name], streams(data, int(clients), int(length)))
            for query, _, digest in found[name].queries:
                rows.setdefault((folder, query), set()).add(digest)
        others = sorted(query for (of, query), kinds in rows.items() if of == folder and len(kinds) > 1)
        for name in servers:
            one = found[name]
            rate = 60 * len(one.queries) / one.seconds
            told = f"differ: {', '.join(others)}" if others else "equal"
            lines.append(f"| {data.name} | {clients} | {name} | {rate:.1f} | {one.cpu:.1f} | {told} |")
            print(lines[-1], flush=True)
        if clients == "1":
            seconds = {name: {query: took for query, took, _ in one.queries} for name, one in found.items()}
            ratios = [seconds["Spark"][query] / seconds["Penstock"][query] for query in seconds["Spark"]]
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            lines.append(f"| {data.name} | 1 | | geometric mean of Spark's seconds by Penstock's: {mean:.2f} | | |")
            print(lines[-1], flush=True)
    return lines


def jvm(where: Server) -> int:
    """Return the process of a server's JVM."""
    return next(pid for pid in family(where.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")


def jcmd(java: str, command: str) -> str:
    """Return what a JVM says of itself; the histogram counts what is left after a collection."""
    return subprocess.run([shutil.which("jcmd"), java, command], capture_output=True, text=True, check=True).stdout


def soak(python: Path, where: Server, queries: int, blocks: int) -> list[str]:
    """Run small queries that are taken, in blocks; return the lines of a table of what the server holds after each."""
    lines = [
        "| queries | ms per query | live heap MiB | classes | JVM threads | Python MiB |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    java = str(jvm(where))
    for block in range(1, blocks + 1):
        done = run(python, where, [["--small", str(queries // blocks)]])
        heap = int(jcmd(java, "GC.class_histogram").splitlines()[-1].split()[2]) / MIB
        counters = jcmd(java, "PerfCounter.print")
        loaded, unloaded = (
            int(re.search(rf"java\.cls\.{kind}Classes=(\d+)", counters)[1]) for kind in ("loaded", "unloaded")
        )
        threads = re.search(r"Threads:\s+(\d+)", Path(f"/proc/{java}/status").read_text())[1]
        resident = int(Path(f"/proc/{where.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
        each = 1000 * done.seconds / len(done.queries)
        lines.append(
            f"| {block * queries // blocks} | {each:.1f} | {heap:.1f} | {loaded - unloaded} | {threads} | {resident:.1f} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    standard = ["data/tpch-1:1:22", "data/tpch-1:4:22", "data/tpch-1:16:8", "data/tpcds-1:1:99"]
    parser.add_argument(
        "runs", nargs="*", default=standard, metavar="FOLDER:CLIENTS:QUERIES", help=f"default: {' '.join(standard)}"
    )
    parser.add_argument("--small", type=int, default=5000, help="how many small queries one server runs; 0: none")
    parser.add_argument(
        "--client", type=Path, default=Path("data/thin-client"), help="where the thin client is installed"
    )
    arguments = parser.parse_args()
    python = python_with(arguments.client.resolve(), THIN)
    where = (
        f"{STATE}, {versions()}, local[2], 5g driver, {platform.machine()} with {os.cpu_count()} cores, clients beside"
    )
    lines = ["# Spark Connect", "", f"`bench/connect.py`: {where}. The clients are PyPI's pyspark-client.", ""]
    with server(COMMANDS["Spark"]) as spark, server(COMMANDS["Penstock"]) as penstock:
        if arguments.runs:
            lines += [*compare(python, {"Spark": spark, "Penstock": penstock}, arguments.runs), ""]
        if arguments.small:
            lines += [
                f"## {arguments.small} queries in one server",
                "",
                *soak(python, penstock, arguments.small, 10),
                "",
            ]
    (RESULTS / "connect.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
