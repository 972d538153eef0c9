"""The command `penstock options`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.flags import Flag, takes
from penstock.config import OPTIONS
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.cli.common import Common
    from penstock.config import Option


@click.command(short_help="List all options, or some.")
@takes(Flag.FORMAT)
@click.argument("key", required=False)
def options(common: Common, key: str | None) -> None:
    """List all options, or those whose key contains KEY.

    \b
    Example:
      penstock options broadcast
    """
    with common.output() as output:
        found = [option for option in OPTIONS if key is None or _contains(option, key)]
        if not found:
            raise ConfigError.unknown_key(str(key), [option.key for option in OPTIONS], "the list of options")
        if common.output_format == "json":
            rows = [(option.key, option.expected, option.shown(option.default), option.doc) for option in found]
            output.rows(("key", "type", "default", "meaning"), rows)
            return
        for option in found:
            output.note(_entry(option))


def _contains(option: Option, text: str) -> bool:
    wanted = text.lower().removeprefix("spark.penstock.")
    return any(wanted in key for key in (option.key, *option.aliases))


def _entry(option: Option) -> str:
    """Return what people read of an option; its key stands alone in its line, so that it is whole."""
    lines = [option.key, f"  {option.expected}; default: {option.shown(option.default)}"]
    if option.aliases:
        lines.append(f"  also: {', '.join(option.aliases)}")
    wrapped = click.wrap_text(option.doc, width=100, initial_indent="  ", subsequent_indent="  ")
    return "\n".join([*lines, wrapped, ""])
