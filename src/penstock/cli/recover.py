"""The command `penstock recover`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.session import Common, common_options
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command()
@common_options
@click.option("--apply", "apply", is_flag=True, help="Do it. Without, only say what would be done.")
@click.option(
    "--properties",
    "properties_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A TOML file with what no journal keeps, such as passwords: a table for each database, by its URL, for each "
    "Delta table, by its path, and for each Iceberg catalogue, by its URI.",
)
@click.argument("path")
def recover(
    common: Common,
    apply: bool,  # noqa: FBT001
    properties_file: str | None,
    path: str,
) -> None:
    """Complete, or take back, what a job has left half-way when its driver died while it committed.

    PATH is a target, a folder with targets, or a commit journal (.penstock-commit-*.json). A job with several sinks, or
    that writes files, writes such a journal beside its first target before it shows anything.
    If a sink that cannot be undone (Delta, Iceberg, a database) had committed, the others follow; else the old rows
    come back. A job whose process still runs is left alone. Hidden folders of jobs that died before they committed are
    removed.

    The next job that writes to one of the targets does the same; this command is for those who want to know before.

    \b
    Examples:
      penstock recover /data/orders
      penstock recover /data/orders --apply
      penstock recover /data --apply --properties secrets.toml

    \b
    where secrets.toml has, for each database:
      ["jdbc:postgresql://host/db"]
      user = "loader"
      password = "..."
    """
    import penstock.connectors  # noqa: F401 - they know how their targets commit
    from penstock.commit import Access, look
    from penstock.commit import recover as recover_journal
    from penstock.commit.places import commits_at, leftovers_at
    from penstock.spark.filesystem import Folder
    from penstock.spark.jvm import Bridge

    with common.output() as output:
        access = Access(Bridge(common.environment().spark), _secrets(properties_file))
        problems, rows = [], []
        for journal in commits_at(access, path):
            try:
                found = (recover_journal if apply else look)(access, journal)
            except PenstockError as error:
                problems.append(error)
                rows.append((journal, "", "cannot be told", error.message))
                continue
            words = _DONE[found.direction] if apply else _PLANNED[found.direction]
            rows.append((journal, found.job, words, ", ".join(found.targets)))
        for left in leftovers_at(access, path):
            if left.is_used is False and apply:
                Folder(access.bridge, left.path).delete()
            done = "removed" if apply else "would be removed"
            rows.append((left.path, "", _KEPT.get(left.is_used, done), "rows that nobody sees"))
        if rows:
            output.rows(("found", "job", "what becomes of it", "targets"), rows)
        else:
            output.note(f"nothing is left half-way at {path}")
        if rows and not apply:
            output.note("nothing was changed; --apply does it")
        if problems:
            raise problems[0]


_KEPT: dict[bool | None, str] = {
    None: "left alone: a process of another machine, or the target itself, may need it",
    True: "left alone: its job runs",
}
_PLANNED = {
    "back": "would be taken back",
    "forward": "would be completed",
    "left alone": "left alone: its job runs",
    "gone": "gone meanwhile",
}
_DONE = {
    "back": "taken back",
    "forward": "completed",
    "left alone": "left alone: its job runs",
    "gone": "gone meanwhile",
}


def _secrets(file: str | None) -> dict[str, Mapping[str, str]]:
    """Return properties by target from a TOML file."""
    if file is None:
        return {}
    import tomllib
    from pathlib import Path

    found = tomllib.loads(Path(file).read_text())
    return {key: {name: str(value) for name, value in table.items()} for key, table in found.items()}
