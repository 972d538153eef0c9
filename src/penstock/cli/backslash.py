"""The input of the shell: SQL statements, the commands that begin with a backslash, and completions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.base.units import show_count
from penstock.cli.statements import DEFAULT_ROW_LIMIT, SqlSession, StatementResult
from penstock.errors import PenstockError, first_line

if TYPE_CHECKING:
    from penstock.cli.output import Output
    from penstock.scheduler.job import Job

_WORDS = """
    ALL ALTER ANALYZE AND ANTI ARRAY AS ASC BETWEEN BY CACHE CASE CAST COLUMN COLUMNS CREATE CROSS CUBE CURRENT
    DATABASE DATE DELETE DESC DESCRIBE DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN EXTENDED FALSE FIRST FROM
    FULL FUNCTIONS GROUP GROUPING HAVING IF IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN LAST LATERAL LEFT
    LIKE LIMIT LOCATION MERGE NOT NULL NULLS OFFSET ON OPTIONS OR ORDER OUTER OVER OVERWRITE PARTITION
    PARTITIONED PIVOT QUALIFY REFRESH REPLACE RIGHT ROLLUP ROW ROWS SCHEMA SELECT SEMI SET SETS SHOW SORT STRUCT
    TABLE TABLES TABLESAMPLE TBLPROPERTIES TEMPORARY THEN TIMESTAMP TO TRUE TRUNCATE UNCACHE UNION UNPIVOT
    UPDATE USE USING VALUES VIEW WHEN WHERE WINDOW WITH
"""
KEYWORDS = tuple(_WORDS.split())
"""The keywords of Spark SQL that the shell completes."""
_TABLE_KEYWORD_AT_END = re.compile(r"\b(from|join|into|table|overwrite|describe|refresh|update)\s+$", re.IGNORECASE)
_NAMED_TABLE = re.compile(r"\b(?:from|join|into|update)\s+([\w.`]+)", re.IGNORECASE)

_MAX_COMPLETED_TABLES = 20
"""The maximum number of tables whose columns are completed if the statement does not name a table yet."""


class ShellInput:
    """Runs the SQL statements and the commands that users type into the shell, and completes their words."""

    def __init__(self, session: SqlSession, output: Output) -> None:
        self._session = session
        self._output = output
        self._limit = DEFAULT_ROW_LIMIT
        self._shows_time = True
        self._last_statement = ""
        self._jobs: list[tuple[Job, str]] = []  # with their statements
        self._columns: dict[str, tuple[str, ...]] = {}  # cache by table; cleared with `_tables`
        self._tables: tuple[str, ...] | None = None
        # By name: the argument, the meaning, and the method that runs the command with its argument.
        self._commands: dict[str, tuple[str, str, Callable[[str], None]]] = {
            "\\explain": ("[QUERY]", "show how a query, or the last one, would run; reads no data", self._explain),
            "\\jobs": ("", "list the jobs of this session", self._list_jobs),
            "\\job": ("[ID]", "show the steps of a job, or of the last job, with their tasks", self._show_job),
            "\\decisions": ("[ID]", "show the decisions of a job, or of the last job", self._show_decisions),
            "\\tables": ("", "list the tables and views", self._list_tables),
            "\\columns": ("TABLE", "list the columns of a table", self._list_columns),
            "\\limit": ("[N]", f"show at most N rows of a result; default {DEFAULT_ROW_LIMIT}", self._set_limit),
            "\\timing": ("[on|off]", "show or hide the run time of statements", self._set_timing),
            "\\help": ("", "list these commands", self._show_help),
            "\\quit": ("", "leave the shell, like Ctrl-D", self._show_help),  # listed only: `Shell` runs it
        }

    def run(self, text: str) -> None:
        """Run a statement or a command; raise `PenstockError` if it fails, or if the command does not exist."""
        if not text.startswith("\\"):
            self._run_statement(text)
            return
        name, _, argument = text.partition(" ")
        command = self._commands.get(name)
        if command is None:
            similar = get_close_matches(name, list(self._commands), n=1, cutoff=0.4)
            hint = f"did you mean {similar[0]}?" if similar else "\\help lists all"
            raise PenstockError(f"there is no command {name}", hint=hint)
        command[2](argument.strip())

    def completions(self, before: str, word: str, after: str) -> list[str]:
        """Return the completions of a word; `before` and `after` are the texts around the word in the input."""
        return completions(before, word, after, self, self._commands)

    def tables(self) -> Sequence[str]:
        """Return the names of tables and views."""
        if self._tables is None:
            self._tables = tuple(name for name, _ in self._session.tables())
        return self._tables

    def columns(self, table: str) -> Sequence[str]:
        """Return the columns of a table; empty if there is no such table."""
        if table not in self._columns:
            self._columns[table] = tuple(name for name, _ in self._session.columns(table) or ())
        return self._columns[table]

    def _run_statement(self, text: str) -> None:
        result = self._session.run(text, self._limit)
        self._last_statement = text
        self._jobs += [(job, " ".join(text.split())) for job in result.jobs]
        self._columns, self._tables = {}, None  # the statement may have changed them
        if result.columns:
            self._output.rows(result.columns, result.rows)
        if self._shows_time:
            self._output.note(_summary(result))

    def _explain(self, query: str) -> None:
        if not (query or self._last_statement):
            raise PenstockError("there is no earlier query", hint="pass a query: \\explain SELECT ...")
        self._output.explanation(self._session.explain(query or self._last_statement))

    def _list_jobs(self, argument: str) -> None:
        _reject_argument("\\jobs", argument)
        if not self._jobs:
            self._output.note("no job yet: Spark itself runs small queries and queries without a shuffle")
            return
        rows = [
            (
                job.id,
                job.state.value.lower(),
                "-" if job.ended is None else f"{job.ended - job.started:.1f}",
                len(job.vertices),
                text if len(text) <= 60 else f"{text[:57]}...",
            )
            for job, text in self._jobs
        ]
        self._output.rows(("job", "state", "seconds", "steps", "statement"), rows)

    def _show_job(self, job_id: str) -> None:
        self._output.job(self._job(job_id))

    def _show_decisions(self, job_id: str) -> None:
        self._output.note(str(self._job(job_id).decisions))

    def _job(self, prefix: str) -> Job:
        """Return the only job whose id begins with a prefix; the last job if the prefix is empty."""
        jobs = [job for job, _ in self._jobs if job.id.startswith(prefix)]
        if not jobs:
            message = f"there is no job {prefix!r}" if prefix else "there is no job yet"
            raise PenstockError(message, hint="\\jobs lists all")
        if prefix and len(jobs) > 1:
            raise PenstockError(f"{len(jobs)} jobs have an id that begins with {prefix!r}", hint="\\jobs lists all")
        return jobs[-1]

    def _list_tables(self, argument: str) -> None:
        _reject_argument("\\tables", argument)
        self._output.rows(("table", "type"), self._session.tables())

    def _list_columns(self, table: str) -> None:
        if not table:
            raise PenstockError("\\columns needs a table", hint="write \\columns TABLE")
        columns = self._session.columns(table)
        if columns is None:
            similar = get_close_matches(table, self.tables(), n=1)
            hint = f"did you mean {similar[0]}?" if similar else "\\tables lists all"
            raise PenstockError(f"there is no table {table!r}", hint=hint)
        self._output.rows(("column", "type"), columns)

    def _set_limit(self, number: str) -> None:
        if number and (not number.isdecimal() or not int(number)):
            raise PenstockError(
                f"\\limit {number}: not a valid number of rows", hint="use a whole number of at least 1"
            )
        self._limit = int(number) if number else self._limit
        self._output.note(f"{show_count(self._limit, 'row')} of a result are shown")

    def _set_timing(self, word: str) -> None:
        if word not in {"", "on", "off"}:
            raise PenstockError(f"\\timing {word}: expected on or off")
        self._shows_time = word == "on" if word else not self._shows_time
        self._output.note(f"timing is {'on' if self._shows_time else 'off'}")

    def _show_help(self, argument: str) -> None:
        _reject_argument("\\help", argument)
        for name, (usage, meaning, _) in self._commands.items():
            self._output.note(f"  {f'{name} {usage}':20} {meaning}")
        self._output.note("Any other input is Spark SQL and ends with a semicolon.")


def _reject_argument(command: str, argument: str) -> None:
    if argument:
        raise PenstockError(f"{command} takes no argument, got {argument!r}")


def _summary(result: StatementResult) -> str:
    """Return the outcome of a statement, its run time, the number of its jobs, and the first error of a job."""
    outcome = show_count(len(result.rows), "row") if result.columns else "done"
    if result.has_more:
        outcome = f"the first {show_count(len(result.rows), 'row')}, and there are more (\\limit N shows N)"
    job_error = next((job.error for job in result.jobs if job.error is not None), None)
    jobs = f", {show_count(len(result.jobs), 'job')} (\\decisions explains how it ran)" if result.jobs else ""
    return f"{outcome}, {result.seconds:.2f} s{jobs}" + (f"; {first_line(job_error)}" if job_error else "")


def completions(before: str, word: str, after: str, catalog: ShellInput, commands: Iterable[str]) -> list[str]:
    """Return the completions of a word; `before` and `after` are the texts around the word in a statement.

    The text after the word matters, because a query names its tables after its columns. `catalog` returns tables and
    columns, `commands` are the names of the shell's commands.
    """
    if word.startswith("\\"):
        return [command for command in commands if command.startswith(word)]
    if _TABLE_KEYWORD_AT_END.search(before):
        return _matching(catalog.tables(), word)
    if "." in word:
        table, _, start = word.rpartition(".")
        return [f"{table}.{column}" for column in _matching(catalog.columns(table), start)]
    named_tables = _NAMED_TABLE.findall(f"{before} {after}")
    tables = dict.fromkeys(table.replace("`", "") for table in named_tables) or catalog.tables()[:_MAX_COMPLETED_TABLES]
    columns = [column for table in tables for column in _matching(catalog.columns(table), word)]
    keywords = _matching(KEYWORDS, word)
    if word and word == word.lower():
        keywords = [keyword.lower() for keyword in keywords]
    return list(dict.fromkeys([*columns, *_matching(catalog.tables(), word), *keywords]))


def _matching(candidates: Iterable[str], start: str) -> list[str]:
    return sorted(candidate for candidate in candidates if candidate.lower().startswith(start.lower()))
