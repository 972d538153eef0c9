"""The command `penstock recover`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.checks import check_recoverable, check_secrets, local
from penstock.cli.flags import FILE_SYSTEMS, FORMAT, takes
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.cli.common import Common
    from penstock.cli.output import Output


@click.command(short_help="Complete or undo commits of jobs that died.")
@takes(FORMAT, *FILE_SYSTEMS)
@click.option("--apply", "apply", is_flag=True, help="Recover. Without it, only show what would be done.")
@click.option(
    "--properties",
    "properties_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A TOML file with properties that journals do not store, such as passwords: a table for each database URL, "
    "Delta table path or Iceberg catalogue URI.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Trust the journal PATH although another user may have written it, and recover it with your permissions.",
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

    PATH is a target, a folder with targets, or a commit journal (.penstock-commit-*.json). A job with several sinks or
    with file sinks writes a journal beside its first target before it commits. If a sink that cannot be rolled back
    (Delta, Iceberg, a database) has committed, the other sinks are committed too. Otherwise all sinks are rolled back.
    Running jobs are not touched. Hidden folders of jobs that died before their commit are removed.

    A journal that another user may have written is reported and not touched. If you know its author and its contents,
    pass its own path and --trust.

    The next job that writes to one of the targets does the same. Use this command to inspect or recover earlier.

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
        name = path.rpartition("/")[2]
        if trust and not (name.startswith(".penstock-commit-") and name.endswith(".json")):
            raise PenstockError(
                f"--trust with {path}, which is not the path of a commit journal",
                hint="pass the path of the journal that you trust: .penstock-commit-*.json",
            )
        if not check_recoverable(path):
            output.note(_nothing(path))
            return
        with common.spark() as thread:
            thread.call(lambda: _recover(output, path, secrets, apply=apply, trust=trust))


def _recover(output: Output, path: str, secrets: dict[str, Mapping[str, str]], *, apply: bool, trust: bool) -> None:
    import penstock.connectors  # noqa: F401 - registers how targets commit
    from penstock.commit import Access, plan_recovery
    from penstock.commit import recover as recover_journal
    from penstock.commit.locations import commits_at, leftovers_at
    from penstock.entry.environment import Environment
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.io.filesystem import Folder

    bridge = Bridge(Environment().spark)
    access = Access(bridge, secrets, trusted=str(Folder(bridge, path).resolved) if trust else None)
    problems, rows = [], []
    for journal in commits_at(access, path):
        try:
            commit = (recover_journal if apply else plan_recovery)(access, journal)
        except PenstockError as error:
            problems.append(error)
            rows.append((journal, "", "unknown", error.message))
            continue
        action = _DONE[commit.direction] if apply else _PLANNED[commit.direction]
        rows.append((journal, commit.job, action, ", ".join(commit.targets)))
    for leftover in leftovers_at(access, path):
        if leftover.is_used is False and apply:
            Folder(access.bridge, leftover.path).delete()
        action = "removed" if apply else "would be removed"
        rows.append((leftover.path, "", _UNTOUCHED.get(leftover.is_used, action), "rows that were never visible"))
    if rows:
        output.rows(("found", "job", "action", "targets"), rows)
    else:
        output.note(_nothing(path))
    if rows and not apply:
        output.note("nothing was changed; use --apply to recover")
    if problems:
        raise problems[0]


def _nothing(path: str) -> str:
    local_path = local(path)
    if local_path is not None and not local_path.exists():
        return f"{path} does not exist, and there is nothing to recover"
    return f"there is nothing to recover at {path}"


_UNTOUCHED: dict[bool | None, str] = {
    None: "not touched: another user, a process on another machine, or the target itself may need it",
    True: "not touched: its job still runs",
}
_PLANNED = {
    "back": "would be undone",
    "forward": "would be completed",
    "left alone": "not touched: its job still runs",
    "gone": "no longer there",
}
_DONE = _PLANNED | {"back": "undone", "forward": "completed"}
