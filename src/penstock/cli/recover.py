"""The command `penstock recover`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from penstock.cli.checks import as_local_path, may_have_commits, read_properties
from penstock.cli.flags import FILE_SYSTEM_OPTIONS, FORMAT, with_options
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.common import SharedOptions
    from penstock.cli.output import Output


@click.command(short_help="Complete or undo commits of jobs that died.")
@with_options(FORMAT, *FILE_SYSTEM_OPTIONS)
@click.option("--apply", "apply", is_flag=True, help="Recover. Without this option, only show what would be done.")
@click.option(
    "--properties",
    "properties_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="A TOML file with properties that journals do not store, such as passwords: a table for each database URL, "
    "Delta table path or Iceberg catalog URI.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Trust the journal PATH although another user may have written it, and recover it with your permissions.",
)
@click.argument("path")
def recover(
    shared: SharedOptions,
    apply: bool,  # noqa: FBT001
    properties_file: str | None,
    trust: bool,  # noqa: FBT001
    path: str,
) -> None:
    """Complete or undo the commit of a job whose driver died while it committed.

    PATH is a target, a folder with targets, or a commit journal (.penstock-commit-*.json). A job with several sinks or
    with file sinks writes a journal beside its first target before it commits. If a sink that cannot be rolled back
    (Delta, Iceberg, a database) has committed, the other sinks are committed too. Otherwise all sinks are rolled back.
    Running jobs are not changed. Hidden folders of jobs that died before their commit are removed.

    A journal that another user may have written is reported and ignored. If you trust its author and its contents,
    pass the path of the journal and --trust.

    The next job that writes to one of the targets also recovers it. Use this command to inspect or recover it earlier.

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
    with shared.output() as output:
        secrets = read_properties(properties_file)
        shared.check()
        name = path.rpartition("/")[2]
        if trust and not (name.startswith(".penstock-commit-") and name.endswith(".json")):
            raise PenstockError(
                f"--trust with {path}, which is not the path of a commit journal",
                hint="pass the path of the journal that you trust: .penstock-commit-*.json",
            )
        if not may_have_commits(path):
            output.note(_nothing_to_recover(path))
            return
        with shared.spark() as spark_thread:
            spark_thread.call(lambda: _recover(output, path, secrets, apply=apply, trust=trust))


def _recover(output: Output, path: str, secrets: dict[str, Mapping[str, str]], *, apply: bool, trust: bool) -> None:
    import penstock.connectors  # noqa: F401 - registers how targets commit
    from penstock.commit import Access, plan_recovery
    from penstock.commit import recover as recover_journal
    from penstock.commit.leftovers import find_journals, find_leftovers
    from penstock.entry.environment import Environment
    from penstock.spark.bridge.jvm import Bridge
    from penstock.spark.io.filesystem import HadoopPath

    bridge = Bridge(Environment().spark)
    access = Access(bridge, secrets, trusted_journal=str(HadoopPath(bridge, path).resolved) if trust else None)
    errors, rows = [], []
    for journal in find_journals(access, path):
        try:
            recovery = (recover_journal if apply else plan_recovery)(access, journal)
        except PenstockError as error:
            errors.append(error)
            rows.append((journal, "", "unknown", error.message))
            continue
        action = _APPLIED_ACTIONS[recovery.outcome] if apply else _PLANNED_ACTIONS[recovery.outcome]
        rows.append((journal, recovery.job_name, action, ", ".join(recovery.targets)))
    for leftover in find_leftovers(access, path):
        if leftover.is_used is False and apply:
            HadoopPath(access.bridge, leftover.path).delete()
        action = "removed" if apply else "would be removed"
        rows.append((leftover.path, "", _NOT_REMOVED.get(leftover.is_used, action), "files that never became visible"))
    if rows:
        output.rows(("found", "job", "action", "targets"), rows)
    else:
        output.note(_nothing_to_recover(path))
    if rows and not apply:
        output.note("nothing was changed; use --apply to recover")
    if errors:
        raise errors[0]


def _nothing_to_recover(path: str) -> str:
    local_path = as_local_path(path)
    if local_path is not None and not local_path.exists():
        return f"{path} does not exist, and there is nothing to recover"
    return f"there is nothing to recover at {path}"


_NOT_REMOVED: dict[bool | None, str] = {  # by `Leftover.is_used`; False is missing, as such a folder is removed
    None: "not touched: another user, a process on another machine, or the target itself may need it",
    True: "not touched: its job still runs",
}
_PLANNED_ACTIONS = {
    "undone": "would be undone",
    "completed": "would be completed",
    "running": "not touched: its job still runs",
    "gone": "no longer there",
}
_APPLIED_ACTIONS = _PLANNED_ACTIONS | {"undone": "undone", "completed": "completed"}
