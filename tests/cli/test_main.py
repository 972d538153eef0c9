"""The command line interface."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from penstock.cli.main import main
from penstock.config import OPTIONS
from penstock.extension import enabled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def penstock(*arguments: Any, **environ: Any) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | environ,
    )


@pytest.fixture
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that runs a command in this process, on the shared session, as starting a JVM is slow."""

    def run(*arguments: Any, **environ: Any) -> Any:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")  # restored for programs that later tests start
        return CliRunner().invoke(main, arguments, env=environ)

    with enabled(spark):  # `penstock sql` enables it
        yield run
    spark.catalog.dropTempView("o")


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cli") / "orders.csv"
    path.write_text("user,amount\n" + "\n".join(f"{i % 3},{i}" for i in range(100)))
    return str(path)


def paths() -> list[str]:
    """Return all commands; those of groups include the name of the group."""
    commands = []
    for name, command in main.commands.items():
        subcommands = command.commands if isinstance(command, click.Group) else None
        commands += [name] if subcommands is None else [f"{name} {subcommand}" for subcommand in subcommands]
    return sorted(commands)


@pytest.mark.parametrize("path", paths())
def test_help_has_examples(path: str) -> None:
    result = CliRunner().invoke(main, [*path.split(" "), "--help"])
    assert result.exit_code == 0
    assert "Example" in result.output
    assert len(result.output) > 300


SPARK = {"--master", "--conf", "--config", "--verbose"}
PAGE = {"--ui", "--keep-open"}
FLAGS = {
    "connect-server": SPARK | {"--host", "--port", "--token", "--no-token", "--ui", "--history"},
    "demo": SPARK | PAGE | {"--output-format", "--data"},
    "doctor": {"--output-format", "--html", "--min-seconds"},
    "explain": SPARK | {"--output-format", "--table"},
    "history clean": {
        "--output-format",
        "--conf",
        "--verbose",
        "--history",
        "--older-than",
        "--larger-than",
        "--dry-run",
    },
    "history list": {"--output-format", "--conf", "--verbose", "--history"},
    "history show": {"--output-format", "--conf", "--verbose", "--history"},
    "options": {"--output-format"},
    "recover": {"--output-format", "--conf", "--verbose", "--apply", "--trust", "--properties"},
    "run": SPARK | PAGE | {"--output-format", "--quiet", "--history"},
    "shell": SPARK | {"--table", "--ui"},
    "sql": SPARK | PAGE | {"--output-format", "--table", "--limit", "--output"},
    "state inspect": {"--output-format", "--master", "--conf", "--verbose", "--count"},
    "state prune": {"--output-format", "--conf", "--verbose"},
    "state rescale": {
        "--output-format",
        "--master",
        "--conf",
        "--verbose",
        "--max-parallelism",
        "--dry-run",
        "--abort",
        "--live",
        "--file-sink",
        "--method",
        "--way",
    },
    "stream advise": {"--output-format", "--conf", "--verbose", "--cores"},
    "stream batches": {"--output-format", "--conf", "--verbose"},
    "ui": {"--conf", "--config", "--verbose", "--history", "--port", "--address", "--stream"},
    "verify": SPARK | {"--output-format"},
}


@pytest.mark.parametrize("path", FLAGS)
def test_options_of_commands(path: Any) -> None:
    command: Any = main
    for name in path.split(" "):
        command = command.commands[name]
    options = {text for option in command.params for text in option.opts if text.startswith("--")}
    assert options == FLAGS[path]


def test_all_commands_are_tested() -> None:
    assert sorted(FLAGS) == paths()


@pytest.mark.thorough
def test_sql_to_json_and_to_files(here: Any, orders: Any, tmp_path: Path) -> None:
    table = ("--table", f"o={orders}")
    threshold = {"PENSTOCK_EXECUTION_BATCH_ADAPTIVE_WHOLE_QUERY_THRESHOLD": "0"}
    statement = "select user, sum(amount) as s from o group by user order by user"
    done = penstock("sql", *table, "--output-format", "json", statement, **threshold)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["results"][0]["rows"] == [{"user": u, "s": sum(range(u, 100, 3))} for u in range(3)]
    assert len(document["jobs"][0]["vertices"]) >= 2
    assert all(vertex["reason"] for vertex in document["jobs"][0]["vertices"])
    done = here("sql", *table, "--output", str(tmp_path / "out"), statement)
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "out" / "_SUCCESS").exists()
    assert "Spark runs this query unchanged" in " ".join(done.stdout.split())


def test_explain(here: Any, orders: Any) -> None:
    arguments = ("explain", "--table", f"o={orders}", "select user, count(*) from o group by user")
    done = here(*arguments)
    assert done.exit_code == 0, done.stderr
    assert "Spark runs this query unchanged" in done.stdout
    assert "HashAggregate" in done.stdout
    done = here(*arguments, PENSTOCK_EXECUTION_BATCH_ADAPTIVE_WHOLE_QUERY_THRESHOLD="0")
    assert done.exit_code == 0, done.stderr
    assert "shuffled by user: " in done.stdout
    assert "decided once the inputs of its step are measured" in done.stdout


ERRORS = [
    (("sql", "--table", "o=file:/nowhere/*.csv", "select 1"), "does not exist"),
    (("sql", "select 1 frm x y"), "PARSE_SYNTAX_ERROR"),
    (("explain", "show tables"), "this is a command"),
    (("sql", "--output", "/nowhere/never-written", "show tables"), "this is a command"),
    (("sql", "--table", "ORDERS", "select usr from o"), "suggest"),
    (("sql", "select * from nothing"), "TABLE_OR_VIEW_NOT_FOUND"),
]


@pytest.mark.parametrize(("arguments", "message"), ERRORS)
def test_errors_are_readable(here: Any, orders: Any, arguments: Any, message: str) -> None:
    done = here(*(f"o={orders}" if a == "ORDERS" else a for a in arguments))
    assert done.exit_code == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "\tat " not in done.stderr


@pytest.mark.thorough
def test_error_in_a_process_of_its_own() -> None:
    """Spark logs nothing, either."""
    done = penstock("sql", "select * from nothing")
    assert done.returncode == 1
    assert "TABLE_OR_VIEW_NOT_FOUND" in done.stderr
    assert "Traceback" not in done.stderr
    assert "\tat " not in done.stderr


def test_options() -> None:
    result = CliRunner().invoke(main, ["options", "--output-format", "json", "sink"])
    keys = [row["key"] for row in json.loads(result.output)["results"][0]["rows"]]
    assert "sink.parallelism" in keys
    assert all("sink" in key for key in keys)
    text = CliRunner().invoke(main, ["options"]).output
    keys = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert keys == [option.key for option in OPTIONS]  # each key has a line of its own
    assert 'a memory size such as "16 mb" of at least 1; default: 16 MiB' in text
    assert 'such as "30 s" of at least 0.1; default: 60 s' in text
    assert 'a memory size such as "16 mb" of at least 16 MiB' in text
    assert "10485760" not in text
    assert max(map(len, text.splitlines())) <= 110
