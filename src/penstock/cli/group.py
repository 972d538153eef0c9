"""The command group, which reports all errors in the same form: message, cause, hint."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import NoArgsIsHelpError

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130
"""The exit code after Ctrl-C, by the convention of shells."""


def print_error(error: PenstockError) -> None:
    """Print an error to standard error."""
    click.echo(f"error: {error}", err=True)


class Commands(click.Group):
    """The group of all commands. The exit code is 2 for wrong arguments and 1 for other errors."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's interface
        **extra: Any,
    ) -> Any:
        """Run a command and exit."""
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
            code = INTERRUPTED
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            code = 1  # the reader has closed the pipe
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def as_penstock_error(error: click.ClickException) -> PenstockError:
    """Convert an error of click, so that all errors have the same form."""
    message = error.format_message().rstrip(".")
    hint = None
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"`{error.ctx.command_path} --help` shows the usage"
    return PenstockError(message[:1].lower() + message[1:], hint=hint)
