"""The commands `penstock` and `penstock options`; all errors have the same form: message, cause, hint."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import NoArgsIsHelpError

from penstock.cli.connect_server import connect_server
from penstock.cli.demo import demo
from penstock.cli.doctor import doctor
from penstock.cli.flags import FORMAT, with_options
from penstock.cli.history import history, ui
from penstock.cli.output import print_error
from penstock.cli.recover import recover
from penstock.cli.run import run
from penstock.cli.shell import shell
from penstock.cli.sql import explain, sql
from penstock.cli.state import state
from penstock.cli.stream import stream
from penstock.cli.verify import verify
from penstock.config import OPTIONS, Option
from penstock.errors import ConfigError, PenstockError

if TYPE_CHECKING:
    from penstock.cli.common import SharedOptions


INTERRUPTED_EXIT_CODE = 130
"""The exit code after Ctrl-C, by the convention of shells."""


class Commands(click.Group):
    """The group of all commands. Exit codes for errors: 2 for wrong arguments, 130 after Ctrl-C, 1 for all others."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's interface
        **extra: Any,
    ) -> Any:
        """Run a command and, with `standalone_mode`, exit."""
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except NoArgsIsHelpError as error:
            error.show()
            code = error.exit_code
        except click.ClickException as error:
            print_error(as_penstock_error(error))
            code = error.exit_code
        except PenstockError as error:
            print_error(error)
            code = 1
        except (click.Abort, KeyboardInterrupt):
            click.echo("interrupted", err=True)
            code = INTERRUPTED_EXIT_CODE
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            code = 1  # the reader has closed the pipe
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def as_penstock_error(error: click.ClickException) -> PenstockError:
    """Convert an error of click, so that it is printed like the errors of Penstock."""
    message = error.format_message().rstrip(".")
    hint = None
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"`{error.ctx.command_path} --help` shows the usage"
    return PenstockError(message[:1].lower() + message[1:], hint=hint)


@click.group(
    "penstock", cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(package_name="penstock")
def main() -> None:
    """Run PySpark pipelines and choose their parallelism at run time from measured data.

    \b
    Examples:
      penstock demo                 compare Penstock with plain Spark
      penstock run job.py           run any PySpark program, and see what was decided
      penstock verify job.py        compare its rows and times with plain Spark

    \b
    Exit code: 0 success, 1 the command failed, 2 the arguments are wrong, 130 after Ctrl-C.
    """


@click.command(short_help="List all options, or those whose key contains a text.")
@with_options(FORMAT)
@click.argument("key", required=False)
def options(shared: SharedOptions, key: str | None) -> None:
    """List all options, or those whose key contains KEY.

    \b
    Example:
      penstock options broadcast
    """
    with shared.output() as output:
        key_part = (key or "").lower().removeprefix("spark.penstock.")
        matches = [option for option in OPTIONS if any(key_part in name for name in (option.key, *option.aliases))]
        if not matches:
            raise ConfigError.unknown_key(str(key), [option.key for option in OPTIONS], "the list of options")
        if shared.output_format == "json":
            rows = [(option.key, option.expected, option.format(option.default), option.doc) for option in matches]
            output.rows(("key", "type", "default", "meaning"), rows)
            return
        for option in matches:
            output.note(_option_text(option))


def _option_text(option: Option) -> str:
    """Format an option; its key is on a separate line, so that it is not wrapped."""
    lines = [option.key, f"  {option.expected}; default: {option.format(option.default)}"]
    if option.aliases:
        lines.append(f"  also: {', '.join(option.aliases)}")
    wrapped = click.wrap_text(option.doc, width=100, initial_indent="  ", subsequent_indent="  ")
    return "\n".join([*lines, wrapped, ""])


for command in (
    connect_server,
    demo,
    doctor,
    explain,
    history,
    options,
    recover,
    run,
    shell,
    sql,
    state,
    stream,
    ui,
    verify,
):
    main.add_command(command)


if __name__ == "__main__":
    main()
