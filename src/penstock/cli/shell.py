"""The command `penstock shell`: statements one after the other, in one session."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_table
from penstock.cli.flags import SPARK, takes
from penstock.cli.group import say_error
from penstock.cli.page import UI, serve_page
from penstock.cli.tables import TABLE
from penstock.errors import PenstockError, first_line

if TYPE_CHECKING:
    from penstock.cli.backslash import Backslash
    from penstock.cli.common import Common
    from penstock.cli.keyboard import Lines

PROMPT, CONTINUED = "penstock> ", "      ... "
LEAVING = {"exit", "quit", "\\q", "\\quit"}


@click.command(short_help="Run SQL statements one after the other.")
@takes(*SPARK)
@TABLE
@UI
def shell(common: Common, tables: tuple[tuple[str, str], ...], ui: bool) -> None:  # noqa: FBT001
    """Run SQL statements one after the other in one session, from the keyboard or from standard input.

    A statement ends with a semicolon. Tab completes keywords, tables and columns; the arrow keys bring back earlier
    statements. Ctrl-C stops a statement, Ctrl-D leaves. Commands of the shell begin with a backslash, and \\help lists
    them: \\explain shows how a query would run, \\jobs what ran, \\decisions why it ran like that.

    \b
    Examples:
      penstock shell --table orders=data/orders.parquet
      penstock shell --table orders=data/orders.parquet < report.sql
    """
    with common.output() as output:
        for name, path in tables:
            check_table(name, path)
        common.check()
        if ui:
            serve_page()
        from penstock.cli.backslash import Backslash
        from penstock.cli.keyboard import FileLines, Keyboard, history_file
        from penstock.cli.statements import Statements

        with common.spark() as thread:
            session = Statements(thread, common, tables)
            commands = Backslash(session, output)
            if not sys.stdin.isatty():
                Shell(commands, FileLines()).run()
                return
            click.echo(f"Spark {session.version}. End a statement with a semicolon; \\help lists commands.")
            Shell(commands, Keyboard(commands.completions, history_file())).run()


class Shell:
    """Reads statements and commands, and runs them.

    Parameters
    ----------
    commands
        Runs them.
    lines
        Where they come from. An error ends a file, but not what comes from a keyboard.
    """

    def __init__(self, commands: Backslash, lines: Lines) -> None:
        from penstock.cli.splitting import Typed

        self._commands = commands
        self._lines = lines
        self._typed = Typed()

    def run(self) -> None:
        """Read and run until the end.

        Raises
        ------
        PenstockError
            If a statement of a file fails.
        """
        while self._goes_on():
            pass

    def _goes_on(self) -> bool:
        """Read a line, and run what it ends; return whether there is more to read."""
        try:
            line = self._lines.next(CONTINUED if self._typed.is_open else PROMPT)
            if not self._typed.is_open and line.strip().rstrip(";").lower() in LEAVING:
                return False
            for text in self._whole(line):
                self._run(text)
        except EOFError:
            self._leave()
            return False
        except KeyboardInterrupt:  # while a line is typed, or between two statements
            if not self._lines.is_keyboard:
                raise
            self._typed.rest()
            click.echo()
        return True

    def _whole(self, line: str) -> list[str]:
        """Return the commands and statements that a line ends."""
        if not self._typed.is_open and line.lstrip().startswith("\\"):
            return [line.strip().rstrip(";")]
        return self._typed.add(line)

    def _run(self, text: str) -> None:
        self._lines.remember(text if text.startswith("\\") else f"{text};")
        try:
            self._commands.run(text)
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            if not self._lines.is_keyboard:
                raise
        except Exception as error:
            if not self._lines.is_keyboard:
                raise
            # Whatever it is, what was typed before stays: tables, settings, the history.
            say_error(
                error if isinstance(error, PenstockError) else PenstockError("it failed", cause=first_line(error))
            )

    def _leave(self) -> None:
        rest = self._typed.rest()
        if self._lines.is_keyboard:
            click.echo()
        elif rest:  # the last statement of a file may do without its semicolon
            self._run(rest)
