"""Compare a Spark Connect server with Penstock and Spark's own, with 1 to 16 concurrent thin clients.

A run is FOLDER:CLIENTS:QUERIES, such as data/tpch-1:16:8: each client runs QUERIES of the folder's queries, in the same shuffled order but from
a different start. Both servers run, but are used alternately, after a warm-up with each query. The rows of both servers and
all clients must be equal. Then the server with Penstock runs thousands of small queries, and its memory, classes and threads are recorded.
A table is written to bench/results.
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

from clients import THIN_CLIENT, python_with
from processes import cpu_seconds, process_tree
from provenance import DATE_AND_COMMIT, versions

HERE = Path(__file__).parent
RESULTS = HERE / "results"
MIB = 1 << 20
MEMORY = "spark.driver.memory=5g"
SPARK_SERVER = """
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
    "Spark": [sys.executable, "-c", SPARK_SERVER, MEMORY, "spark.log.level=ERROR", "spark.ui.enabled=false"],
    "Penstock": [sys.executable, "-m", "penstock", "connect-server", "--port=0", "--master=local[2]", "--conf", MEMORY],
}


@dataclass(frozen=True)
class Server:
    """A running server."""

    address: str
    pid: int


@contextmanager
def server(command: Sequence[str]) -> Iterator[Server]:
    """Start a server, and stop it at the end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    address = next(match[0] for match in (re.search(r"sc://\S+", line) for line in process.stderr) if match)
    try:
        yield Server(address, process.pid)
    finally:
        process.terminate()
        process.wait()


@dataclass(frozen=True)
class Run:
    """Metrics of a run: wall seconds, CPU seconds of the server, and name, seconds and row hash of each finished query."""

    seconds: float
    cpu: float
    queries: Sequence[tuple[str, float, str]]


def run(python: Path, target: Server, clients: Sequence[Sequence[str]]) -> Run:
    """Run concurrent clients, each with its own arguments, and wait for all of them."""
    command = [str(python), "-W", "ignore", str(HERE / "connect_stream.py"), target.address]
    processes = [
        subprocess.Popen([*command, *client], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for client in clients
    ]
    for process in processes:
        if process.stdout.readline().strip() != '"ready"':
            raise SystemExit("a client did not start")
    before, started = cpu_seconds(target.pid), time.monotonic()
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate()[0] for process in processes]
    seconds = time.monotonic() - started
    if any(process.returncode for process in processes):
        raise SystemExit("a client failed")
    queries = [tuple(json.loads(line)) for output in outputs for line in output.splitlines()]
    return Run(seconds, cpu_seconds(target.pid) - before, queries)


def streams(data: Path, clients: int, length: int) -> list[list[str]]:
    """Return the arguments of each client: `length` queries of a shared shuffled order, from a different start."""
    texts = json.loads((data.parent / "queries" / f"{data.name.split('-')[0]}.json").read_text())
    order = sorted(texts, key=int)
    random.Random(clients).shuffle(order)
    client_arguments = []
    for client in range(clients):
        first = client * len(order) // clients
        names = [order[(first + offset) % len(order)] for offset in range(length)]
        client_arguments.append(["--data", str(data), "--names", ",".join(names)])
    return client_arguments


def compare(python: Path, servers: dict[str, Server], runs: Sequence[str]) -> list[str]:
    """Return a table with a line for each run."""
    lines = ["| queries | clients | server | queries a minute | CPU seconds | rows |", "|---|--:|---|--:|--:|---|"]
    warmed_up: set[str] = set()
    rows: dict[tuple[str, str], set[str]] = {}
    for number, text in enumerate(runs):
        folder, clients, length = text.split(":")
        data = Path(folder).resolve()
        if folder not in warmed_up:
            query_count = len(json.loads((data.parent / "queries" / f"{data.name.split('-')[0]}.json").read_text()))
            for name, target in servers.items():
                warm_up = run(python, target, streams(data, 1, query_count))
                print(f"{data.name}, warm-up, {name}: {warm_up.seconds:.1f} s", flush=True)
            warmed_up.add(folder)
        results = {}
        for name in sorted(servers, reverse=bool(number % 2)):
            results[name] = run(python, servers[name], streams(data, int(clients), int(length)))
            for query, _, digest in results[name].queries:
                rows.setdefault((folder, query), set()).add(digest)
        differing = sorted(query for (source, query), digests in rows.items() if source == folder and len(digests) > 1)
        for name in servers:
            result = results[name]
            queries_per_minute = 60 * len(result.queries) / result.seconds
            verdict = f"differ: {', '.join(differing)}" if differing else "equal"
            lines.append(
                f"| {data.name} | {clients} | {name} | {queries_per_minute:.1f} | {result.cpu:.1f} | {verdict} |"
            )
            print(lines[-1], flush=True)
        if clients == "1":
            seconds = {name: {query: took for query, took, _ in result.queries} for name, result in results.items()}
            ratios = [seconds["Spark"][query] / seconds["Penstock"][query] for query in seconds["Spark"]]
            mean = math.exp(statistics.mean(map(math.log, ratios)))
            lines.append(f"| {data.name} | 1 | | geometric mean of Spark's seconds by Penstock's: {mean:.2f} | | |")
            print(lines[-1], flush=True)
    return lines


def jvm_pid(target: Server) -> int:
    """Return the process id of a server's JVM."""
    return next(pid for pid in process_tree(target.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == "java")


def jcmd(java: str, command: str) -> str:
    """Return the output of jcmd; GC.class_histogram collects garbage first."""
    return subprocess.run([shutil.which("jcmd"), java, command], capture_output=True, text=True, check=True).stdout


def soak(python: Path, target: Server, queries: int, blocks: int) -> list[str]:
    """Run small queries that Penstock executes, in blocks; return a table of the server's resources after each block."""
    lines = [
        "| queries | ms per query | live heap MiB | classes | JVM threads | Python MiB |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    java = str(jvm_pid(target))
    for block in range(1, blocks + 1):
        result = run(python, target, [["--small", str(queries // blocks)]])
        heap = int(jcmd(java, "GC.class_histogram").splitlines()[-1].split()[2]) / MIB
        counters = jcmd(java, "PerfCounter.print")
        loaded, unloaded = (
            int(re.search(rf"java\.cls\.{kind}Classes=(\d+)", counters)[1]) for kind in ("loaded", "unloaded")
        )
        threads = re.search(r"Threads:\s+(\d+)", Path(f"/proc/{java}/status").read_text())[1]
        resident = int(Path(f"/proc/{target.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
        ms_per_query = 1000 * result.seconds / len(result.queries)
        lines.append(
            f"| {block * queries // blocks} | {ms_per_query:.1f} | {heap:.1f} | {loaded - unloaded} | {threads} | {resident:.1f} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default_runs = ["data/tpch-1:1:22", "data/tpch-1:4:22", "data/tpch-1:16:8", "data/tpcds-1:1:99"]
    parser.add_argument(
        "runs",
        nargs="*",
        default=default_runs,
        metavar="FOLDER:CLIENTS:QUERIES",
        help=f"default: {' '.join(default_runs)}",
    )
    parser.add_argument("--small", type=int, default=5000, help="number of small queries; 0 skips them")
    parser.add_argument(
        "--client", type=Path, default=Path("data/thin-client"), help="folder for the thin client's virtual environment"
    )
    arguments = parser.parse_args()
    python = python_with(arguments.client.resolve(), THIN_CLIENT)
    environment = f"{DATE_AND_COMMIT}, {versions()}, local[2], 5g driver, {platform.machine()} with {os.cpu_count()} cores, clients on the same machine"
    lines = ["# Spark Connect", "", f"`bench/connect.py`: {environment}. The clients are PyPI's pyspark-client.", ""]
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
