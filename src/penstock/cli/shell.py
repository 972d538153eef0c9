"""The command `penstock shell`: an interactive session for SQL statements."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_table
from penstock.cli.flags import QUERY_OPTIONS, TABLE, UI, enable_page, with_options
from penstock.cli.output import print_error
from penstock.errors import PenstockError, first_line

if TYPE_CHECKING:
    from penstock.cli.backslash import ShellInput
    from penstock.cli.common import SharedOptions
    from penstock.cli.keyboard import Lines

PROMPT, CONTINUATION_PROMPT = "penstock> ", "      ... "
EXIT_COMMANDS = {"exit", "quit", "\\q", "\\quit"}
_TOKEN = re.compile(
    r"""
      '(?:[^'\\]|\\.)*'        # texts and names in quotes
    | "(?:[^"\\]|\\.)*"
    | `[^`]*`
    | --[^\n]*                 # comments
    | /\*.*?\*/
    | ;
    | /\*|['"`]                # an unclosed quote or comment
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


@click.command(short_help="Run SQL statements interactively.")
@with_options(*QUERY_OPTIONS)
@TABLE
@UI
def shell(shared: SharedOptions, tables: tuple[tuple[str, str], ...], ui: bool) -> None:  # noqa: FBT001
    """Run SQL statements in one session, from the keyboard or from standard input.

    A statement ends with a semicolon. Tab completes keywords, tables and columns; the arrow keys recall earlier
    statements. Ctrl-C cancels a statement, Ctrl-D leaves the shell. Commands of the shell begin with a backslash:
    \\help lists them, \\explain shows how a query would run, \\jobs lists the jobs, and \\decisions explains a job.

    \b
    Examples:
      penstock shell --table orders=data/orders.parquet
      penstock shell --table orders=data/orders.parquet < report.sql
    """
    with shared.output() as output:
        for name, path in tables:
            check_table(name, path)
        shared.check()
        if ui:
            enable_page()
        from penstock.cli.backslash import ShellInput
        from penstock.cli.keyboard import Keyboard, StandardInputLines, history_file
        from penstock.cli.statements import SqlSession

        with shared.spark() as spark_thread:
            session = SqlSession(spark_thread, tables)
            shell_input = ShellInput(session, output)
            if not sys.stdin.isatty():
                Shell(shell_input, StandardInputLines()).run()
                return
            click.echo(f"Spark {session.version}. End a statement with a semicolon; \\help lists commands.")
            Shell(shell_input, Keyboard(shell_input.completions, history_file())).run()


class Shell:
    """The loop that reads and runs statements and commands.

    An error ends the loop if the input is a file, but not if it is a keyboard.
    """

    def __init__(self, shell_input: ShellInput, lines: Lines) -> None:
        self._input = shell_input
        self._lines = lines
        self._buffer = InputBuffer()

    def run(self) -> None:
        """Read and run statements until the end of the input; raise `PenstockError` if a statement of a file fails."""
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Read a line and run the statements that it completes; return False for an exit command, or without a line."""
        try:
            line = self._lines.next(CONTINUATION_PROMPT if self._buffer.is_open else PROMPT)
            if not self._buffer.is_open and line.strip().rstrip(";").lower() in EXIT_COMMANDS:
                return False
            is_command = not self._buffer.is_open and line.lstrip().startswith("\\")
            for text in [line.strip().rstrip(";")] if is_command else self._buffer.add(line):
                self._run(text)
        except EOFError:
            remainder = self._buffer.flush()
            if self._lines.is_keyboard:
                click.echo()
            elif remainder:  # the last statement of a file may lack its semicolon
                self._run(remainder)
            return False
        except KeyboardInterrupt:  # while a line is typed, or between two statements
            if not self._lines.is_keyboard:
                raise
            self._buffer.flush()
            click.echo()
        return True

    def _run(self, text: str) -> None:
        """Run a statement or a command; if the input is a keyboard, print its error instead of raising it."""
        self._lines.remember(text if text.startswith("\\") else f"{text};")
        try:
            self._input.run(text)
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            if not self._lines.is_keyboard:
                raise
        except Exception as error:
            if not self._lines.is_keyboard:
                raise
            # The session continues after any error, with its tables, settings and history.
            print_error(
                error
                if isinstance(error, PenstockError)
                else PenstockError("the statement failed", cause=first_line(error))
            )


class InputBuffer:
    """The text of an incomplete statement."""

    def __init__(self) -> None:
        self._text = ""

    @property
    def is_open(self) -> bool:
        """Whether a statement has begun."""
        return bool(self._text.strip())

    def add(self, line: str) -> list[str]:
        """Add a line; return the statements that are complete now, without their semicolons."""
        self._text += line + "\n"
        statements, self._text = split_statements(self._text)
        return statements

    def flush(self) -> str:
        """Return and clear the incomplete statement; empty if it is only white space and comments."""
        text, self._text = self._text.strip(), ""
        return "" if is_blank(text) else text


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the nonempty statements in a text, and the text after the last semicolon that ends a statement."""
    statements, start = [], 0
    for token in _TOKEN.finditer(text):
        if token[0] == ";":
            statements.append(text[start : token.start()].strip())
            start = token.end()
        elif token[0] in {"'", '"', "`", "/*"}:
            break  # the quotes or the comment continue in the next line
    return [statement for statement in statements if not is_blank(statement)], text[start:]


def is_blank(text: str) -> bool:
    """Whether a text is only white space and comments."""
    return not re.sub(r"--[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL).strip()
