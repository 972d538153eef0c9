"""The command `penstock`."""

from __future__ import annotations

import click

from penstock.cli.connect_server import connect_server
from penstock.cli.demo import demo
from penstock.cli.group import Commands
from penstock.cli.history import history, ui
from penstock.cli.listing import options
from penstock.cli.recover import recover
from penstock.cli.run import run
from penstock.cli.shell import shell
from penstock.cli.sql import explain, sql
from penstock.cli.state import state
from penstock.cli.stream import stream
from penstock.cli.verify import verify


@click.group(
    "penstock", cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120}
)
@click.version_option(package_name="penstock")
def main() -> None:
    """Run PySpark pipelines and choose their parallelism at run time from measured data.

    \b
    Exit code: 0 success, 1 the command failed, 2 the arguments are wrong.
    """


for command in (connect_server, demo, explain, history, options, recover, run, shell, sql, state, stream, ui, verify):
    main.add_command(command)


if __name__ == "__main__":
    main()
