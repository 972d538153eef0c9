"""Invalid calls: the exit code, and an error with message, cause and hint, without starting Spark."""

from __future__ import annotations

import json
import re
import socket
import sys
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.common import SharedOptions
from penstock.cli.main import main
from penstock.history.event_log import EventLog, LocalFolder
from tests.history.records import ID, events

USAGE, FAILED = 2, 1
CALLS = [
    # arguments, exit code, texts in the message
    ("nonsense", USAGE, "no such command 'nonsense'", "`penstock --help`"),
    ("--nonsense", USAGE, "no such option", "--nonsense"),
    ("sql", USAGE, "missing argument 'STATEMENT'", "`penstock sql --help`"),
    ("sql --mastr local[2] SELECT", USAGE, "--mastr", "--master"),
    ("sql --output-format yaml SELECT", USAGE, "'yaml' is not one of", "json"),
    ("sql --conf novalue SELECT", USAGE, "'novalue' is not KEY=VALUE", "spark.executor.memory=4g"),
    ("sql --conf =1 SELECT", USAGE, "is not KEY=VALUE"),
    ("sql --conf sink.parallelism=3 SELECT", FAILED, "not a Spark setting", "spark.penstock.sink.parallelism"),
    ("sql --conf memory=3 SELECT", FAILED, "--conf memory is not a Spark setting", "begin with spark."),
    (
        "sql --conf spark.penstock.sink.paralelism=3 SELECT",
        FAILED,
        "unknown option",
        "did you mean 'sink.parallelism'?",
    ),
    ("sql --conf spark.penstock.sink.parallelism=many SELECT", FAILED, "'many'", "a whole number of at least 1"),
    ("sql --config NOWHERE SELECT", USAGE, "does not exist"),
    ("sql --config BAD_TOML SELECT", FAILED, "is not a TOML file", "cause:"),
    ("sql --config UNKNOWN_KEY SELECT", FAILED, "unknown option 'sink.size'"),
    ("sql --master cluster SELECT", FAILED, "'cluster' is not a valid Spark master", "spark://HOST:PORT"),
    ("sql --master local[0] SELECT", FAILED, "not a valid Spark master"),
    ("sql --master spark://127.0.0.1:1 SELECT", FAILED, "no Spark master answers", "cause: 127.0.0.1:1", "hint:"),
    ("sql --master spark://127.0.0.1 SELECT", FAILED, "no Spark master answers"),
    ("sql --table orders SELECT", USAGE, "'orders' is not NAME=PATH", "orders=data/orders.parquet"),
    ("sql --table o=NOWHERE SELECT", FAILED, "table o: ", "does not exist", "check the path"),
    ("sql --table o=NOWHERE/*.csv SELECT", FAILED, "table o: "),
    ("sql --table my-orders=CSV SELECT", FAILED, "'my-orders' is not a valid table name", "underscores"),
    ("sql --limit 0 SELECT", USAGE, "0 is not in the range x>=1"),
    ("sql --limit all SELECT", USAGE, "'all' is not a valid integer"),
    ("sql --output FOLDER SELECT", FAILED, "exists already", "choose another path"),
    ("sql --output CSV/below SELECT", FAILED, "cannot be written", "is a file"),
    ("sql ;", FAILED, "the statement is empty"),
    ("sql SELECT 1", USAGE, "unexpected extra argument"),
    ("explain", USAGE, "missing argument 'STATEMENT'"),
    ("explain --table o=NOWHERE SELECT", FAILED, "does not exist"),
    ("explain --limit 3 SELECT", USAGE, "no such option '--limit'"),
    ("shell --table o=NOWHERE", FAILED, "does not exist"),
    ("shell --output-format json", USAGE, "no such option '--output-format'"),
    ("run", USAGE, "missing argument 'PROGRAM'"),
    ("run NOWHERE", USAGE, "does not exist"),
    ("run --nonsense JOB", USAGE, "no such option '--nonsense'", "`penstock run --help`"),
    ("verify --quiet JOB", USAGE, "no such option '--quiet'", "`penstock verify --help`"),
    ("run FOLDER", USAGE, "is a directory"),
    ("run --history CSV JOB", FAILED, "event logs cannot be written", "is a file"),
    (
        "run --history /proc/logs JOB",
        FAILED,
        "event logs cannot be written",
        "/proc accepts no files",
        "another folder",
    ),
    ("run --conf spark.penstock.nonsense=1 JOB", FAILED, "unknown option 'nonsense'"),
    ("run --master nonsense JOB", FAILED, "not a valid Spark master"),
    ("verify", USAGE, "missing argument 'PROGRAM'"),
    ("verify NOWHERE", USAGE, "does not exist"),
    ("verify --config BAD_TOML JOB", FAILED, "is not a TOML file"),
    ("demo --data CSV", USAGE, "is a file"),
    ("demo --data CSV/below", FAILED, "cannot be written", "is a file"),
    ("demo --speed 3", USAGE, "no such option '--speed'"),
    ("connect-server --port 65536", USAGE, "65536 is not in the range"),
    ("connect-server --port TAKEN", FAILED, "cannot listen on 127.0.0.1:", "cause: Address already in use", "--port"),
    ("connect-server --host 0.0.0.0", FAILED, "there is no token", "cause:", "hint:"),
    ("connect-server --host 0.0.0.0 --no-token", FAILED, "there is no token", "cause:", "hint:"),
    ("connect-server --no-token --token x", USAGE, "--no-token contradicts the token"),
    ("connect-server --history CSV", FAILED, "event logs cannot be written"),
    ("connect-server --output-format json", USAGE, "no such option '--output-format'"),
    ("doctor", USAGE, "missing argument 'EVENTLOG'"),
    ("doctor NOWHERE", FAILED, "does not exist", "spark.eventLog.dir"),
    ("doctor CSV", FAILED, "is not an event log of Spark", "cause:", "hint:"),
    ("doctor hdfs:///logs/app", FAILED, "is not on this machine", "hadoop fs -get"),
    ("doctor --min-seconds -1 CSV", USAGE, "is not in the range"),
    ("doctor --html FOLDER CSV", USAGE, "is a directory"),
    ("recover", USAGE, "missing argument 'PATH'"),
    ("recover NOWHERE/table", FAILED, "does not exist", "a commit journal"),
    ("recover --properties NOWHERE FOLDER", USAGE, "does not exist"),
    ("recover --properties BAD_TOML FOLDER", FAILED, "is not a TOML file"),
    ("recover --properties LOOSE FOLDER", FAILED, "'password' in", "belongs to no target"),
    ("recover --trust FOLDER", FAILED, "--trust with", "the path of the journal"),
    ("recover --master local[2] FOLDER", USAGE, "no such option '--master'"),
    ("state", USAGE, "Usage: penstock state"),
    ("state inspect", USAGE, "missing argument 'CHECKPOINT'"),
    (
        "state inspect NOWHERE",
        FAILED,
        "is not the checkpoint of a streaming query",
        "no such folder",
        "checkpointLocation",
    ),
    ("state inspect FOLDER", FAILED, "is not the checkpoint of a streaming query", "'metadata'"),
    ("state inspect CSV", FAILED, "is not the checkpoint of a streaming query"),
    ("state rescale FOLDER", USAGE, "pass either --max-parallelism or --abort"),
    ("state rescale --abort --dry-run FOLDER", USAGE, "--abort undoes a rescale"),
    ("state rescale --live FOLDER", USAGE, "pass either --max-parallelism or --abort"),
    ("state rescale --live --max-parallelism 4 --dry-run FOLDER", USAGE, "--live rescales in the process of the query"),
    ("state rescale --live --max-parallelism 4 FOLDER", FAILED, "is not the checkpoint of a streaming query"),
    ("state rescale --max-parallelism 0 FOLDER", FAILED, "max parallelism is 0", "between 1 and 32,768"),
    ("state rescale --max-parallelism few FOLDER", USAGE, "'few' is not a valid integer"),
    ("state rescale --max-parallelism 4 FOLDER", FAILED, "is not the checkpoint of a streaming query"),
    ("state rescale --max-parallelism 4 --method magic FOLDER", USAGE, "'magic' is not one of", "shuffle"),
    ("state prune FOLDER", FAILED, "is not the checkpoint of a streaming query"),
    ("stream advise", USAGE, "missing argument 'CHECKPOINT_OR_PROGRESS'"),
    ("stream advise NOWHERE", FAILED, "there is no progress of a streaming query at", "cause: the path does not exist"),
    ("stream advise FOLDER", FAILED, "there is no progress of a streaming query at", "penstock.state.start_query"),
    ("stream advise CSV", FAILED, "there is no progress of a streaming query at", "onQueryProgress"),
    ("stream advise --cores 0 CSV", USAGE, "0 is not in the range"),
    ("stream batches", USAGE, "missing argument 'CHECKPOINT'"),
    ("stream batches FOLDER", FAILED, "is not the checkpoint of a streaming query", "'metadata'"),
    ("state prune --config BAD_TOML FOLDER", USAGE, "no such option '--config'"),
    ("history", USAGE, "Usage: penstock history"),
    ("history list", USAGE, "missing option '--history'"),
    ("history list --history NOWHERE", FAILED, "there is no folder", "jobmanager.archive.fs.dir"),
    ("history list --master local[2] --history LOGS", USAGE, "no such option '--master'"),
    ("history show --history LOGS", USAGE, "missing argument 'ID'"),
    ("history show --history LOGS ffff", FAILED, "there is no job 'ffff'", "penstock history list"),
    ("history show --history TWO_LOGS aaaa", FAILED, "2 jobs have an id that begins with 'aaaa'", "aaaa00000001"),
    ("ui", USAGE, "pass --history, --stream or both"),
    ("ui --stream FOLDER", FAILED, "is not the checkpoint of a streaming query", "'metadata'"),
    ("ui --history NOWHERE", FAILED, "there is no folder"),
    ("ui --history LOGS --port 70000", USAGE, "70000 is not in the range"),
    (
        "ui --history LOGS --port TAKEN",
        FAILED,
        "cannot listen on 127.0.0.1:TAKEN",
        "Address already in use",
        "rest.port",
    ),
    ("ui --history LOGS --address 0.0.0.0", FAILED, "no token is set", "rest.token"),
    ("options no.such.key", FAILED, "unknown option 'no.such.key'", "hint:"),
    ("options broadcst-threshold", FAILED, "did you mean 'table.optimizer.join.broadcast-threshold'?"),
    ("options a b", USAGE, "unexpected extra argument"),
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The paths that replace the words in capitals."""
    home = tmp_path_factory.mktemp("wrong")
    texts = {
        "CSV": "a,b\n1,2\n",
        "JOB": "print('it runs')\n",
        "BAD_TOML": "sink = = 3\n",
        "UNKNOWN_KEY": "[sink]\nsize = 3\n",
        "LOOSE": 'password = "x"\n',
    }
    for name, text in texts.items():
        (home / name).write_text(text)
    for name in ("FOLDER", "LOGS", "TWO_LOGS"):
        (home / name).mkdir()
    EventLog(LocalFolder(home / "LOGS").create(f"20261122T120000-{ID}.jsonl")).write(events())
    for number in (1, 2):
        (home / "TWO_LOGS" / f"20261122T12000{number}-aaaa0000000{number}.jsonl").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        files = {name: str(home / name) for name in (*texts, "FOLDER", "TWO_LOGS", "LOGS", "NOWHERE")}
        yield files | {"TAKEN": str(taken.getsockname()[1])}


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def spark(self: SharedOptions) -> Any:
        self.check()
        raise AssertionError("Spark would start")
        yield

    monkeypatch.setattr(SharedOptions, "spark", spark)


def filled(call: str, paths: Any) -> list[str]:
    pattern = r"\b(" + "|".join(sorted(paths, key=len, reverse=True)) + r")\b"
    return [re.sub(pattern, lambda match: paths[match[1]], word) for word in call.split(" ")]


def test_all_commands_are_tested() -> None:
    called = {call.split(" ")[0] for call, *_ in CALLS}
    assert set(main.commands) <= called


@pytest.mark.parametrize(("call", "code", "texts"), [(call, code, texts) for call, code, *texts in CALLS])
@pytest.mark.usefixtures("no_spark")
def test_error_message(paths: Any, call: Any, code: Any, texts: Any) -> None:
    done = CliRunner().invoke(main, filled(call, paths))
    assert not isinstance(done.exception, AssertionError), done.exception
    assert done.exit_code == code, done.stderr
    for text in texts:
        assert text.replace("TAKEN", paths["TAKEN"]) in done.stderr
    assert done.stdout == ""
    if "Usage: " not in texts[0]:
        assert done.stderr.startswith("error: ")
        lines = done.stderr.splitlines()
        assert [line.split(":")[0] for line in lines if not line.startswith("    ")][1:] in (
            [],
            ["  cause"],
            ["  hint"],
            ["  cause", "  hint"],
        )
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("no_spark")
def test_error_as_json(paths: Any) -> None:
    done = CliRunner().invoke(main, filled("sql --output-format json --table o=NOWHERE SELECT", paths))
    assert done.exit_code == 1
    error = json.loads(done.stdout)["error"]
    assert error["message"].startswith("table o: ")
    assert error["hint"] == "check the path"
    assert "error: table o" in done.stderr


@pytest.mark.usefixtures("no_spark")
def test_nothing_to_recover_without_spark(paths: Any) -> None:
    done = CliRunner().invoke(main, ["recover", paths["FOLDER"]])
    assert (done.exit_code, done.stdout) == (0, f"there is nothing to recover at {paths['FOLDER']}\n")
    done = CliRunner().invoke(main, ["recover", f"{paths['FOLDER']}-of-others"])
    message = f"{paths['FOLDER']}-of-others does not exist, and there is nothing to recover\n"
    assert (done.exit_code, done.stdout) == (0, message)


WITHOUT_PYSPARK = [
    "--help",
    "--version",
    "sql --help",
    "shell --help",
    "options",
    "history list --history LOGS",
    "sql ;",
]


@pytest.mark.parametrize("call", WITHOUT_PYSPARK)
def test_commands_that_do_not_import_pyspark(paths: Any, call: Any) -> None:
    import subprocess

    code = "import sys\nfrom penstock.cli.main import main\ntry: main()\nfinally: print(sorted({'pyspark', 'pandas', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, *filled(call, paths)], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "[]", done.stderr
