"""Invariants that must hold wherever a commit is stopped."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.commit import Access, Outcome, recover
from penstock.commit.journal import journals_at
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath
from tests.commit.harness import Stop, commit, in_child

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VISIBLE = 10.0
"""Seconds within which readers see what was committed."""


def run(spark: SparkSession, targets: Any, stop: Any = None) -> None:
    sinks = [target.sink() for target in targets]
    by_sink = dict(zip(map(id, sinks), targets, strict=True))
    commit(spark, sinks, stop, write=lambda sink, job: by_sink[id(sink)].write(job))


def steps_of(spark: SparkSession, make: Any) -> list[str]:
    """Return the steps of an uninterrupted commit, after checking its outcome."""
    targets = make()

    def work() -> Any:
        stop = Stop()
        run(spark, targets, stop)
        new = [target.new for target in targets]
        assert wait_for_rows(targets, new) == new
        for target in targets:
            assert not leftovers(target), leftovers(target)
        return stop.seen

    end = in_child(spark, work)
    assert end.error is None, end.error
    return list(end.result)


def leftovers(target: Any) -> list[str]:
    if not hasattr(target, "path"):
        return []
    return sorted(
        str(path.relative_to(target.journal_folder))
        for path in target.journal_folder.rglob("*")
        if path.name.startswith((".penstock-", ".new-", "..penstock", "..new")) and ".penstock-tokens" not in path.parts
    )


def journals(target: Any) -> list[Path]:
    """Return the files of commits beside a target, or in it."""
    return sorted(
        [*target.journal_folder.glob(".penstock-commit-*"), *target.journal_folder.glob("out/.penstock-commit-*")]
    )


def stopped(spark: SparkSession, make: Any, step: int, *, after: bool, how: str, by: str) -> str:
    """Stop a commit at a step, check the state of the targets, and return the outcome of the recovery.

    Runs in a child process, because a process that has used the clients of table formats can no longer fork.
    """
    targets = make()
    end = in_child(spark, lambda: _stopped(spark, targets, step, after=after, how=how, by=by))
    assert end.error is None, end.error
    return end.result


def wait_for_rows(targets: Any, *expected: list[Any]) -> list[Any]:
    """Return the rows of targets; wait for expected ones, as brokers answer a commit before all records are visible."""
    deadline = time.monotonic() + _VISIBLE
    while (rows := [target.rows() for target in targets]) not in expected and time.monotonic() < deadline:
        time.sleep(0.1)
    return rows


def _stopped(spark: SparkSession, targets: Any, step: int, *, after: bool, how: str, by: str) -> str:
    step_name = f"{how} {'after' if after else 'before'} step {step}, recovered by {by}"

    def work() -> None:
        run(spark, targets, Stop(step, after, how))

    end = in_child(spark, work)
    assert end.killed == (how == "kill"), f"{step_name}: {end.error}"
    assert end.killed or end.error is None or "Injected" in end.error, f"{step_name}: {end.error}"
    rows_after_stop = [target.rows() for target in targets]
    for target, rows in zip(targets, rows_after_stop, strict=True):
        assert target.is_readable(rows), f"{step_name}: {rows} is neither {target.old} nor {target.new}"
    outcomes = set()
    if by == "recover":
        bridge = Bridge(spark)
        for target in targets:
            secrets = {address: values for each in targets for address, values in each.sink().secrets.items()}
            folders = [HadoopPath(bridge, str(path)) for path in (target.journal_folder, target.journal_folder / "out")]
            for folder in folders:
                for path in journals_at(Access(bridge, secrets), folder):
                    outcomes.add(recover(Access(bridge, dict(secrets)), path).outcome)
        assert Outcome.RUNNING not in outcomes, step_name
        final_rows = wait_for_rows(targets, [target.old for target in targets], [target.new for target in targets])
        is_new = final_rows == [target.new for target in targets]
        is_old = final_rows == [target.old for target in targets]
        assert is_old or is_new, f"{step_name}: {final_rows}; journals {[p.read_text() for p in journals(targets[0])]}"
        for target in targets:
            assert not [path for path in journals(target) if path.suffix in {".json", ".ref", ".claim"}], (
                step_name,
                journals(target),
            )
        if is_new and not all(target.token or target.repeats for target in targets):
            return "completed"
    try:
        run(spark, targets)
    except Exception as error:
        raise AssertionError(f"{step_name}: the rerun fails") from error
    new = [target.new for target in targets]
    final_rows = wait_for_rows(targets, new)
    assert final_rows == new, f"{step_name}: {final_rows} after the rerun instead of {new}"
    return str(*outcomes) if len(outcomes) == 1 else json.dumps(sorted(outcomes))
