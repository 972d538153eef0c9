"""The command `penstock recover`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_recoverable, check_secrets, is_journal, local
from penstock.cli.flags import FILE_SYSTEMS, Flag, takes
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cli.common import Common
    from penstock.cli.output import Output


@click.command(short_help="Complete or undo commits of jobs that died.")
@takes(Flag.FORMAT, *FILE_SYSTEMS)
@click.option("--apply", "apply", is_flag=True, help="Recover. Without it, only show what would be done.")
@click.option(
    "--properties",
    "properties_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A TOML file with properties that journals do not keep, such as passwords: a table for each database URL, "
    "Delta table path or Iceberg catalogue URI.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Vouch for the journal PATH, though another user may have written it: recover it with your rights.",
)
@click.argument("path")
def recover(
    common: Common,
    apply: bool,  # noqa: FBT001
    properties_file: str | None,
    trust: bool,  # noqa: FBT001
    path: str,
) -> None:
    """Complete or undo the commit of a job whose driver died while it committed.

    PATH is a target, a folder with targets, or a commit journal (.penstock-commit-*.json). A job that has several sinks
    or writes files writes such a journal beside its first target before it commits. If a sink that cannot be undone
    (Delta, Iceberg, a database) has committed, the other sinks commit too. Otherwise the old rows come back. A job that
    still runs is not touched. Hidden folders of jobs that died before they committed are removed.

    A journal that another user may have written is reported and not touched. If you know who wrote it, and what it
    names, give its own path and --trust.

    The next job that writes to one of the targets does the same. Use this command to see or do it earlier.

    \b
    Examples:
      penstock recover /data/orders
      penstock recover /data/orders --apply
      penstock recover /data --apply --properties secrets.toml
      penstock recover /data/.penstock-commit-3f2a-1b2c3d4e-77-5a6b7c8d.json --trust

    \b
    where secrets.toml has, for each database:
      ["jdbc:postgresql://host/db"]
      user = "loader"
      password = "..."
    """
    with common.output() as output:
        secrets = check_secrets(properties_file)
        common.check()
        if trust and not is_journal(path):
            raise PenstockError(
                f"--trust with {path}, which is not the path of a commit journal",
                hint="give the path of the journal that you vouch for: .penstock-commit-*.json",
            )
        if not check_recoverable(path):
            output.note(_nothing(path))
            return
        with common.spark() as thread:
            thread.call(lambda: _recover(common, output, path, secrets, apply=apply, trust=trust))


def _recover(
    common: Common, output: Output, path: str, secrets: dict[str, Mapping[str, str]], *, apply: bool, trust: bool
) -> None:
    import penstock.connectors  # noqa: F401 - they know how their targets commit
    from penstock.commit import Access, look
    from penstock.commit import recover as recover_journal
    from penstock.commit.places import commits_at, leftovers_at
    from penstock.spark.filesystem import Folder
    from penstock.spark.jvm import Bridge

    bridge = Bridge(common.environment().spark)
    access = Access(bridge, secrets, trusted=str(Folder(bridge, path).resolved) if trust else None)
    problems, rows = [], []
    for journal in commits_at(access, path):
        try:
            found = (recover_journal if apply else look)(access, journal)
        except PenstockError as error:
            problems.append(error)
            rows.append((journal, "", "unknown", error.message))
            continue
        words = _DONE[found.direction] if apply else _PLANNED[found.direction]
        rows.append((journal, found.job, words, ", ".join(found.targets)))
    for left in leftovers_at(access, path):
        if left.is_used is False and apply:
            Folder(access.bridge, left.path).delete()
        done = "removed" if apply else "would be removed"
        rows.append((left.path, "", _KEPT.get(left.is_used, done), "rows that were never visible"))
    if rows:
        output.rows(("found", "job", "action", "targets"), rows)
    else:
        output.note(_nothing(path))
    if rows and not apply:
        output.note("nothing was changed; use --apply to recover")
    if problems:
        raise problems[0]


def _nothing(path: str) -> str:
    found = local(path)
    if found is not None and not found.exists():
        return f"{path} is not there, and nothing of it is left to recover"
    return f"there is nothing to recover at {path}"


_KEPT: dict[bool | None, str] = {
    None: "not touched: another user, a process on another machine, or the target itself may need it",
    True: "not touched: its job still runs",
}
_PLANNED = {
    "back": "would be undone",
    "forward": "would be completed",
    "left alone": "not touched: its job still runs",
    "gone": "no longer there",
}
_DONE = {
    "back": "undone",
    "forward": "completed",
    "left alone": "not touched: its job still runs",
    "gone": "no longer there",
}
