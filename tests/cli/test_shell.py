"""The SQL shell: its commands, and its use on a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.backslash import ShellInput
from penstock.cli.output import Output
from penstock.cli.shell import Shell
from penstock.cli.statements import StatementResult
from penstock.errors import PenstockError
from penstock.scheduler.job import Job
from tests.support.terminal import Terminal


class Session:
    """A session without Spark that records its statements."""

    def __init__(self) -> None:
        self.statements: list[Any] = []

    def run(self, statement: str, limit: int) -> StatementResult:
        self.statements.append((statement, limit))
        if "wrong" in statement:
            raise PenstockError("the query could not be planned")
        if "broken" in statement:
            raise RuntimeError("no idea\nof it")
        if "stopped" in statement:
            raise KeyboardInterrupt
        if statement.startswith("insert"):
            return StatementResult((), (), has_more=False, jobs=(Job("write"),), seconds=1.0)
        return StatementResult(("n",), ((1,), (2,)), has_more="many" in statement, jobs=(), seconds=0.25)

    def explain(self, statement: str) -> str:
        return f"how {statement} runs"

    def tables(self) -> Any:
        return [("orders", "temporary"), ("customer", "temporary")]

    def columns(self, table: str) -> Any:
        return [(f"{table}_key", "bigint")] if table in {"orders", "customer"} else None


class Typist:
    """A keyboard that types lines."""

    def __init__(self, *lines: Any, is_keyboard: bool = True) -> None:
        self.is_keyboard = is_keyboard
        self._lines = list(lines)
        self.prompts: list[str] = []
        self.remembered: list[str] = []

    def next(self, prompt: str) -> str:
        self.prompts.append(prompt.strip())
        if not self._lines:
            raise EOFError
        line = self._lines.pop(0)
        if line is KeyboardInterrupt:
            raise KeyboardInterrupt
        return str(line)

    def remember(self, statement: str) -> None:
        self.remembered.append(statement)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def typed(session: Session, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*lines: Any, is_keyboard: bool = True) -> Any:
        typist = Typist(*lines, is_keyboard=is_keyboard)
        try:
            Shell(ShellInput(session, Output()), typist).run()
        finally:
            typist.output = capsys.readouterr()
        return typist

    return run


def test_statements_end_with_a_semicolon(session: Any, typed: Any) -> None:
    typist = typed("select 1", "from orders; select 2;", "", "select 3")
    assert [statement for statement, _ in session.statements] == ["select 1\nfrom orders", "select 2"]
    assert typist.prompts == ["penstock>", "...", "penstock>", "penstock>", "..."]
    assert typist.remembered == ["select 1\nfrom orders;", "select 2;"]
    assert "2 rows, 0.25 s" in typist.output.out


def test_last_statement_of_a_file_without_semicolon(session: Any, typed: Any) -> None:
    typed("select 1;", "select 3 -- the end", is_keyboard=False)
    assert [statement for statement, _ in session.statements] == ["select 1", "select 3 -- the end"]


def test_error_ends_a_file_but_not_a_session(session: Any, typed: Any) -> None:
    output = typed("select wrong;", "select 1;").output
    assert output.err == "error: the query could not be planned\n"
    assert len(session.statements) == 2
    with pytest.raises(PenstockError):
        typed("select wrong;", "select 1;", is_keyboard=False)
    assert len(session.statements) == 3


def test_unexpected_error_does_not_end_a_session(session: Any, typed: Any) -> None:
    output = typed("select broken;", "select 1;").output
    assert output.err == "error: the statement failed\n  cause: no idea\n"
    assert len(session.statements) == 2


def test_ctrl_c(session: Any, typed: Any) -> None:
    typist = typed("select", KeyboardInterrupt, "select stopped;", "select 1;")
    assert [statement for statement, _ in session.statements] == ["select stopped", "select 1"]
    assert typist.prompts == ["penstock>", "...", "penstock>", "penstock>", "penstock>"]
    assert "stopped" in typist.output.err


@pytest.mark.parametrize("word", ["exit", "quit;", "\\q", "\\quit", "EXIT"])
def test_leaving(session: Any, typed: Any, word: Any) -> None:
    typed(word, "select 1;")
    assert session.statements == []


def test_more_rows_and_the_limit(session: Any, typed: Any) -> None:
    output = typed("select many;", "\\limit 5", "select many;", "\\limit").output.out
    assert [limit for _, limit in session.statements] == [20, 5]
    assert "the first 2 rows, and there are more (\\limit N shows N)" in output
    assert output.count("5 rows of a result are shown") == 2


COMMANDS = [
    ("\\explain select 7;", "how select 7 runs"),
    ("\\tables", "orders"),
    ("\\columns orders", "bigint"),
    ("\\jobs", "no job yet"),
    ("\\timing off", "timing is off"),
    ("\\help", "\\decisions [ID]"),
]
REFUSED = [
    ("\\explan", "did you mean \\explain?"),
    ("\\nonsense", "there is no command"),
    ("\\explain", "there is no earlier query"),
    ("\\columns", "\\columns needs a table"),
    ("\\columns order", "did you mean orders?"),
    ("\\limit none", "not a valid number of rows"),
    ("\\limit 0", "not a valid number of rows"),
    ("\\timing never", "expected on or off"),
    ("\\tables x", "takes no argument"),
    ("\\job", "there is no job yet"),
    ("\\decisions ffff", "there is no job 'ffff'"),
]


@pytest.mark.parametrize(("line", "text"), COMMANDS)
def test_commands(typed: Any, line: Any, text: Any) -> None:
    output = typed(line).output
    assert text in output.out
    assert output.err == ""


@pytest.mark.parametrize(("line", "text"), REFUSED)
def test_rejected_commands(typed: Any, line: Any, text: Any) -> None:
    assert text in typed(line).output.err


def test_last_query_and_jobs(typed: Any) -> None:
    output = typed("select 1;", "\\explain", "insert into orders select 1;", "\\jobs", "\\job", "\\decisions").output
    assert output.err == ""
    assert "how select 1 runs" in output.out
    assert "done, 1.00 s, 1 job (\\decisions explains how it ran)" in output.out
    assert "insert into orders select 1" in output.out


def test_completion_uses_the_session(session: Any) -> None:
    commands = ShellInput(session, Output())
    assert commands.completions("select * from ", "o", "") == ["orders"]
    assert commands.completions("select ", "cust", " from customer") == ["customer_key", "customer"]
    assert commands.completions("", "\\ex", "") == ["\\explain"]
    assert commands.completions("select ", "x", " from nowhere") == []


@pytest.fixture
def orders(tmp_path: Path) -> str:
    path = tmp_path / "orders.csv"
    path.write_text("user_name,amount\n" + "\n".join(f"{i % 3},{i}" for i in range(100)))
    return str(path)


QUIET = {"SPARK_LOCAL_IP": "127.0.0.1", "PENSTOCK_EXECUTION_BATCH_ADAPTIVE_WHOLE_QUERY_THRESHOLD": "0"}


@pytest.mark.thorough
def test_on_a_terminal(orders: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "shell", "--table", f"orders={orders}"]
    with Terminal(command, 100, str(tmp_path), XDG_STATE_HOME=str(tmp_path), **QUIET) as shell:
        shell.wait_for("penstock> ")
        assert shell.lines[0].startswith("Spark ")  # no output of the JVM, Spark's log or progress bars before it
        shell.type("select user_name, sum(am\t) s fro\t ord\t group by 1 order by 1;\r")
        shell.wait_for("explains how it ran")
        assert "1650" in shell.text
        shell.wait_for("penstock> ")
        shell.type("\\dec\t\r")
        shell.wait_for("penstock> ")
        assert "decisions" in shell.text
        shell.type("select * from nothing;\r")
        shell.wait_for("TABLE_OR_VIEW_NOT_FOUND")
        shell.wait_for("penstock> ")
        shell.type("select count(*) from range(100000000000000);\r")
        shell.wait_for("000);")  # the echo
        shell.wait_for("select count(*) from range(1")  # its progress bar
        shell.wait_for("of ")
        shell.type("\x03")
        shell.wait_for("stopped")
        shell.wait_for("penstock> ")
        shell.type("create table stored as select 1 as a;\r")
        shell.wait_for("done")
        shell.wait_for("penstock> ")
        shell.type("\\tables\r")
        shell.wait_for("stored")
        shell.wait_for("penstock> ")
        shell.type("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A")
        shell.wait_for("order by 1;")
        time.sleep(0.5)  # while readline draws, Python handles Ctrl-C only with the next key
        shell.type("\x03")
        shell.wait_for("penstock> ")
        shell.type("\x04")
        assert shell.wait_for_exit() == 0
        assert "Traceback" not in shell.text
        assert "WARN" not in shell.text
    history = (tmp_path / "penstock" / "history").read_text()
    assert "\\decisions\n" in history
    assert (os.stat(tmp_path / "penstock" / "history").st_mode & 0o777) == 0o600


@pytest.mark.thorough
def test_ctrl_c_at_any_time(orders: Any, tmp_path: Path) -> None:
    """While a statement is read, planned, started or run: it is stopped, and the session continues."""
    command = [sys.executable, "-m", "penstock", "shell", "--table", f"orders={orders}"]
    with Terminal(command, 100, str(tmp_path), XDG_STATE_HOME=str(tmp_path), **QUIET) as shell:
        shell.wait_for("penstock> ")
        for step in range(20):
            shell.type(f"select count(*) from range({100000000000000 + step}) join orders on user_name = id;\r")
            shell.wait_for("= id;")
            time.sleep(step * 0.03)
            shell.type("\x03")
            shell.wait_for("penstock> ")
        shell.type("select sum(amount) from orders;\r")
        shell.wait_for("4950")
        shell.wait_for("penstock> ")
        shell.type("\x04")
        assert shell.wait_for_exit() == 0
        assert "Traceback" not in shell.text
        assert "ERROR" not in shell.text
        assert shell.text.count("stopped") > 10  # the first may arrive while the line is still being read


@pytest.mark.thorough
def test_statements_from_standard_input(orders: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "shell", "--table", f"o={orders}"]
    text = "select count(*) as rows_of_o from o;\nselect nothing from o;\nselect 'never'"
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ | QUIET
    )
    assert done.returncode == 1
    assert "rows_of_o" in done.stdout
    assert "100" in done.stdout
    assert "never" not in done.stdout
    assert done.stderr.startswith("error: the query could not be planned\n  cause: [UNRESOLVED_COLUMN")
    assert "Traceback" not in done.stderr
