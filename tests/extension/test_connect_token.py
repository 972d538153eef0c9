"""The token of `penstock connect-server`: authentication, and that other users of the machine cannot read it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest

from penstock.cli.connect_server import without_token

SECRET = "hunter2-of-the-connect-server"
VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
SETTING = "spark.connect.authenticate.token"
CLIENT = """
import json, os, sys
from pyspark.sql import SparkSession

try:
    spark = SparkSession.builder.remote(sys.argv[1]).create()
    spark.conf.set("spark.penstock.execution.batch.adaptive.whole-query-threshold", "0")
    answer = len(spark.range(3).groupBy("id").count().collect())
except Exception as error:
    answer = "UNAUTHENTICATED" if "UNAUTHENTICATED" in str(error) else str(error)[:300]
print(json.dumps(answer), flush=True)
os._exit(0)  # closing the channel of a refused session may hang
"""


@dataclass
class Server:
    """A running server: its address without a token, the token that it prints, and the lines of its standard error."""

    address: str
    token: str
    lines: list[str]


@contextmanager
def server(arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[Server]:
    command = [sys.executable, "-m", "penstock", "connect-server", "--port", "0", "--master", "local[1]", *arguments]
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE} | dict(environment)
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environ)
    assert running.stderr is not None
    lines: list[str] = []
    printed = None
    try:
        for line in running.stderr:
            lines.append(line)
            printed = re.search(r"(sc://\w+:\d+)(?:/;token=(\S+))?", line)
            if printed:
                break
        assert printed, "".join(lines)[-3000:]
        reading = threading.Thread(target=lambda: lines.extend(running.stderr or ()), daemon=True)
        reading.start()
        yield Server(printed[1], printed[2] or "", lines)
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
        reading.join(10)
    finally:
        running.kill()


def answers(*addresses: str) -> list[object]:
    """Return the result of a separate client for each address: the number of rows, or the refusal."""
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-W", "ignore", "-c", CLIENT]
    clients = [
        subprocess.Popen([*command, address], stdout=subprocess.PIPE, text=True, env=environ) for address in addresses
    ]
    return [json.loads(client.communicate(timeout=120)[0]) for client in clients]


def page_of(running: Server) -> str:
    """Return the address of the web page, without its token."""
    return next(page[0] for page in (re.search(r"http://127.0.0.1:\d+/", line) for line in running.lines) if page)


def command_lines() -> list[str]:
    """Return the command lines of all processes, which any user of the machine can read."""
    texts = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            texts.append(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # the process has ended
            continue
    return texts


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc")
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        pytest.param(["--token", SECRET], {}, id="option"),
        pytest.param([], {VARIABLE: SECRET}, id="environment", marks=pytest.mark.slow),
        pytest.param(
            [f"--token={SECRET}", "--conf", f"{SETTING}={SECRET}"],
            {VARIABLE: "another"},
            id="setting",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_token_is_in_no_command_line_log_or_page(
    tmp_path: Path, arguments: list[str], environment: dict[str, str]
) -> None:
    with server([*arguments, "--verbose", "--ui", "--history", str(tmp_path)], environment) as running:
        assert [line for line in command_lines() if SECRET in line] == []
        assert any("SparkSubmit" in line and "spark.connect.grpc.binding.port" in line for line in command_lines())
        assert running.token == "..."
        assert answers(running.address, f"{running.address}/;token={SECRET}") == ["UNAUTHENTICATED", 3]
        assert [line for line in command_lines() if SECRET in line] == []
        shown = [urlopen(f"{page_of(running)}{path}", timeout=30).read().decode() for path in ("", "jobs/overview")]
        assert "FINISHED" in shown[1]
    logs = [log.read_text() for log in tmp_path.iterdir()]
    assert logs
    assert [text for text in [*shown, *logs, *running.lines] if SECRET in text] == []


@pytest.mark.thorough
def test_by_default_local_clients_need_the_random_token() -> None:
    with server([], {}) as running:
        assert len(running.token) >= 20
        wrong = f"{running.address}/;token={'x' * len(running.token)}"
        allowed = f"{running.address}/;token={running.token}"
        assert answers(running.address, wrong, allowed) == ["UNAUTHENTICATED", "UNAUTHENTICATED", 3]
        assert [line for line in command_lines() if running.token in line] == []


@pytest.mark.slow
def test_the_token_can_be_disabled_for_local_clients() -> None:
    with server(["--no-token"], {}) as running:
        assert running.token == ""
        assert answers(running.address) == [3]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m penstock connect-server --token x --ui", "python -m penstock connect-server --ui"),
        ("penstock connect-server --ui --token=x", "penstock connect-server --ui"),
        (f"penstock connect-server --conf {SETTING}=x --conf a=b", "penstock connect-server --conf a=b"),
        (f"penstock connect-server --conf={SETTING}=x --conf=a=b", "penstock connect-server --conf=a=b"),
        ("program --token x connect-server --port 1", "program --token x connect-server --port 1"),
    ],
)
def test_the_visible_command_line_has_no_token(command: str, expected: str) -> None:
    assert " ".join(without_token(command.split())) == expected
