"""The command group, which says whatever goes wrong in one way: what, cause, hint."""

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
"""The exit code after Ctrl-C, as of every program of a shell."""


def say_error(error: PenstockError) -> None:
    """Say an error on standard error."""
    click.echo(f"error: {error}", err=True)


class Commands(click.Group):
    """All commands. The exit code is 2 where the call is wrong, 1 where what it asks for cannot be done."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's interface
        **extra: Any,
    ) -> Any:
        """Run a command, and end the process."""
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except NoArgsIsHelpError as error:
            error.show()
            code = error.exit_code
        except click.ClickException as error:
            say_error(in_words(error))
            code = error.exit_code
        except PenstockError as error:
            say_error(error)
            code = 1
        except (click.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            code = 1  # whoever read the output has seen enough
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


def in_words(error: click.ClickException) -> PenstockError:
    """Return what click finds wrong with a call, as all errors are said."""
    message = error.format_message().rstrip(".")
    hint = None
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"`{error.ctx.command_path} --help` shows what it takes"
    return PenstockError(message[:1].lower() + message[1:], hint=hint)
