"""What must hold wherever a commit was stopped."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.commit import Access, Direction, recover
from penstock.commit.journal import journals_at
from penstock.spark.filesystem import Folder
from penstock.spark.jvm import Bridge
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
    """The steps of a commit that is not stopped; it is checked, too."""
    targets = make()

    def work() -> Any:
        stop = Stop()
        run(spark, targets, stop)
        new = [target.new for target in targets]
        assert settled(targets, new) == new
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
        str(path.relative_to(target.place))
        for path in target.place.rglob("*")
        if path.name.startswith((".penstock-", ".new-", "..penstock", "..new")) and ".penstock-tokens" not in path.parts
    )


def journals(target: Any) -> list[Path]:
    """Return the files of commits beside a target, or in it."""
    return sorted([*target.place.glob(".penstock-commit-*"), *target.place.glob("out/.penstock-commit-*")])


def stopped(spark: SparkSession, make: Any, step: int, *, after: bool, how: str, by: str) -> str:
    """Stop a commit at a step, and check what it leaves; return where recovery went.

    All in a child, as a process that has used the clients of table formats can fork no more.
    """
    targets = make()
    end = in_child(spark, lambda: _stopped(spark, targets, step, after=after, how=how, by=by))
    assert end.error is None, end.error
    return end.result


def settled(targets: Any, *expected: list[Any]) -> list[Any]:
    """Return the rows of targets at last: brokers answer a commit before readers see all of its records."""
    until = time.monotonic() + _VISIBLE
    while (found := [target.rows() for target in targets]) not in expected and time.monotonic() < until:
        time.sleep(0.1)
    return found


def _stopped(spark: SparkSession, targets: Any, step: int, *, after: bool, how: str, by: str) -> str:
    where = f"{how} {'after' if after else 'before'} step {step}, recovered by {by}"

    def work() -> None:
        run(spark, targets, Stop(step, after, how))

    end = in_child(spark, work)
    assert end.killed == (how == "kill"), f"{where}: {end.error}"
    assert end.killed or end.error is None or "Injected" in end.error, f"{where}: {end.error}"
    left = [target.rows() for target in targets]
    for target, rows in zip(targets, left, strict=True):
        assert target.is_readable(rows), f"{where}: {rows} is neither {target.old} nor {target.new}"
    went = set()
    if by == "recover":
        bridge = Bridge(spark)
        for target in targets:
            for secrets in [{a: s for one in targets for a, s in one.sink().secrets.items()}]:
                places = [Folder(bridge, str(place)) for place in (target.place, target.place / "out")]
                for path in (path for place in places for path in journals_at(Access(bridge, secrets), place)):
                    went.add(recover(Access(bridge, dict(secrets)), path).direction)
        assert Direction.ALIVE not in went, where
        found = settled(targets, [target.old for target in targets], [target.new for target in targets])
        is_new = found == [target.new for target in targets]
        is_old = found == [target.old for target in targets]
        assert is_old or is_new, f"{where}: {found}; journals {[p.read_text() for p in journals(targets[0])]}"
        for target in targets:
            assert not [path for path in journals(target) if path.suffix in {".json", ".ref", ".claim"}], (
                where,
                journals(target),
            )
        if is_new and not all(target.token or target.repeats for target in targets):
            return "forward"
    try:
        run(spark, targets)
    except Exception as error:
        raise AssertionError(f"{where}: the rerun fails") from error
    new = [target.new for target in targets]
    found = settled(targets, new)
    assert found == new, f"{where}: {found} after the rerun instead of {new}"
    return str(*went) if len(went) == 1 else json.dumps(sorted(went))
