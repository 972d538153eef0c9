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


@click.command(short_help="List all options, or those that match.")
@takes(Flag.FORMAT)
@click.argument("key", required=False)
def options(common: Common, key: str | None) -> None:
    """List all options, or those whose key contains KEY.

    \b
    Example:
      penstock options broadcast
    """
    with common.output() as output:
        matches = [option for option in OPTIONS if key is None or _contains(option, key)]
        if not matches:
            raise ConfigError.unknown_key(str(key), [option.key for option in OPTIONS], "the list of options")
        if common.output_format == "json":
            rows = [(option.key, option.expected, option.format(option.default), option.doc) for option in matches]
            output.rows(("key", "type", "default", "meaning"), rows)
            return
        for option in matches:
            output.note(_entry(option))


def _contains(option: Option, text: str) -> bool:
    fragment = text.lower().removeprefix("spark.penstock.")
    return any(fragment in key for key in (option.key, *option.aliases))


def _entry(option: Option) -> str:
    """Format an option; its key has a line of its own, so that it is not wrapped."""
    lines = [option.key, f"  {option.expected}; default: {option.format(option.default)}"]
    if option.aliases:
        lines.append(f"  also: {', '.join(option.aliases)}")
    wrapped = click.wrap_text(option.doc, width=100, initial_indent="  ", subsequent_indent="  ")
    return "\n".join([*lines, wrapped, ""])
