"""What the tasks of a rescale read: each runs while the files of all other key groups are missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import penstock.state as st
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.state.state_store import StateRewrite, move_files_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Task(NamedTuple):
    """The old key groups that a task has read, with their rows, and the new groups that it has written."""

    read: dict[int, int]
    written: dict[int, int]


@contextmanager
def without_other_groups(folder: Path, read: set[int]) -> Iterator[None]:
    """Move the folders of all groups away, except for those that are read."""
    hidden = folder.with_name("hidden")
    hidden.mkdir()
    others = [group for group in folder.iterdir() if group.name.isdigit() and int(group.name) not in read]
    for group in others:
        group.rename(hidden / group.name)
    yield
    for group in others:
        (hidden / group.name).rename(group)
    hidden.rmdir()


@pytest.fixture(scope="module")
def rescale_tasks(spark: SparkSession, stopped: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that rescales a query from 4 key groups, one task after the other, and returns the tasks."""
    if move_files_problem(Bridge(spark)) is not None:
        pytest.skip("this Spark has the method rows only")
    run_tasks = StateRewrite._run

    @cache
    def rescale(cores: int, new: int) -> list[Task]:
        checkpoint = tmp_path_factory.mktemp("rescaled") / "checkpoint"
        tasks: list[Task] = []
        shutil.copytree(stopped("counts updated").checkpoint, checkpoint)

        def run_alone(self: Any, mover: Any, texts: list[str]) -> list[list[str]]:
            lines: list[list[str]] = []
            for text in texts:
                reads = set(map(int, text.partition("|")[0].split(",")))
                with without_other_groups(checkpoint / "state" / "0", reads):
                    reported = run_tasks(self, mover, [text])
                rows = {
                    kind: {int(group): int(n) for what, group, n, *_ in reported if what == kind}
                    for kind in ("read", "written")
                }
                tasks.append(Task(rows["read"], rows["written"]))
                lines += reported
            return lines

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StateRewrite, "_run", run_alone)
            patch.setattr(import_module("penstock.state.rescale"), "cluster_cores", lambda bridge: cores)
            assert st.rescale(str(checkpoint), new, spark=spark) is not None
        return tasks

    return rescale


NEEDED: dict[tuple[int, int], dict[tuple[int, ...], set[int]]] = {
    # cores and new groups: the new groups that each task writes, and the old groups that it reads
    (8, 8): {(group,): {group % 4} for group in range(8)},
    (2, 2): {(0,): {0, 2}, (1,): {1, 3}},
    (2, 6): {(0, 2, 4): {0, 2}, (1, 3, 5): {1, 3}},
    (2, 8): {(0, 4): {0}, (1, 5): {1}, (2, 6): {2}, (3, 7): {3}},
}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("cores", "new"), NEEDED)
def test_a_task_opens_only_the_groups_that_it_needs(rescale_tasks: Any, cores: int, new: int) -> None:
    tasks = rescale_tasks(cores, new)
    assert {tuple(sorted(task.written)): set(task.read) for task in tasks} == NEEDED[cores, new]
    assert sum(sum(task.written.values()) for task in tasks) == 200


@pytest.mark.parametrize(("new", "factor"), [(8, 2), (12, 3)])
def test_tasks_of_a_new_group_retain_a_half_or_a_third_of_the_rows(
    rescale_tasks: Any, new: int, factor: int, stopped: Any, spark: SparkSession
) -> None:
    """With a core for each new group. A task that writes all parts of an old group would retain all rows."""
    tasks = rescale_tasks(new, new)
    assert len(tasks) == new
    read, written = (sum(sum(rows.values()) for rows in groups) for groups in zip(*tasks, strict=True))
    assert (read, written) == (factor * 200, 200)
    plan = st.plan(str(stopped("counts updated").checkpoint), new, spark=spark)
    assert plan.assignment.retained_fraction == pytest.approx(written / read)
