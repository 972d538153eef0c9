"""Concurrent jobs at the same target do not destroy each other's committed rows."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import pyarrow.parquet as pq
import pytest

from penstock.base.local_files import exchange
from penstock.commit import Access, Commit, Outcome, recover
from penstock.commit.folders import PreparedFolders
from penstock.commit.owner import Owner
from penstock.commit.prepared import Prepared
from penstock.errors import CommitError, SinkError
from tests.commit.checks import journals, run
from tests.commit.harness import in_child
from tests.commit.local import LocalFolder, as_a_volume, as_an_object_store, without_a_jvm
from tests.commit.targets import FILES, NEW, Files, Template

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.forks


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    return without_a_jvm(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return Template(None, tmp_path_factory.mktemp("template"))


@pytest.fixture
def make_target(template: Any, tmp_path: Path) -> Any:
    def make(case: Any, name: str = "t", token: Any = None) -> Any:
        mode, layout, exists = FILES[case]
        return Files(template, tmp_path / name, mode, layout, exists=exists, token=token)

    return make


class Other(Prepared):
    """A sink of another kind in the same job, so that the job needs a journal."""

    kind = "other of a test"
    is_reversible = False
    target = "other"

    def __init__(self, problem: Any = None) -> None:
        object.__setattr__(self, "problem", problem)

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def commit(self, access: Any) -> None:
        if self.problem is not None:
            raise self.problem

    def is_committed(self, access: Any) -> bool:
        return False

    def undo(self, access: Any) -> None:
        pass


class OtherJob:
    secrets: dict[Any, Any] = {}

    def __init__(self, problem: Any = None) -> None:
        self.part = Other(problem)

    def prepare(self) -> Any:
        return self.part

    def refresh(self) -> None:
        pass


def new_commit(spark: SparkSession, target: Any, *others: Any, mode: Any = None) -> Any:
    """Return the commit of a job that has written its rows."""
    sink = target.sink()
    if mode is not None:
        object.__setattr__(sink, "mode", mode)
    job = sink.open(spark)
    target.write(job)
    return Commit(Access(None), f"j{os.urandom(3).hex()}", "j", [job, *others])


def run_commit(commit: Any) -> Any:
    """Run a commit to its end, and return its error; None if it succeeds."""
    try:
        commit.run()
        commit.finish()
    except Exception as error:
        commit.fail(error)
        return error
    return None


@pytest.mark.sample(8)
@pytest.mark.parametrize("first", ["overwrite", "dynamic", "append by partition"])
@pytest.mark.parametrize("second", ["overwrite", "dynamic", "append by partition", "append"])
@pytest.mark.parametrize("outcome", ["undone", "completed"])
@pytest.mark.parametrize(
    "has_other_sink", [True, False], ids=["with another sink", "single sink, with stages after the commit"]
)
def test_a_commit_waits_for_another_whose_undo_could_remove_its_rows(
    local: Any, make_target: Any, first: str, second: str, outcome: Any, has_other_sink: bool
) -> None:
    layout = "parts" if "partition" in first or first == "dynamic" else "plain"
    if ("partition" in second or second == "dynamic") != (layout == "parts"):
        return
    target = make_target(first)
    copy = make_target(second, "copy")
    shutil.rmtree(copy.path)
    copy.path = target.path
    before = new_commit(local, target, OtherJob()) if has_other_sink else new_commit(local, target)
    after = new_commit(local, copy)
    before.run()
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(run_commit(after)))
    thread.start()
    replaces = "append" not in first or "append" not in second
    thread.join(0.6 if replaces else 20)
    assert thread.is_alive() == replaces
    if outcome == "undone":
        before._is_irreversible = False
        before.fail(SinkError("the other sink failed"))
    else:
        before.finish()
    thread.join(20)
    assert ended == [None]
    rows = target.old if outcome == "undone" else target.new
    if "append" in second:
        expected = sorted([*rows, *NEW])
    elif second == "dynamic":
        expected = sorted([*(row for row in rows if row[1] not in {p for _, p in NEW}), *NEW])
    else:
        expected = sorted(NEW)
    assert target.rows() == expected
    assert not journals(target)


def test_the_later_of_two_simultaneous_commits_waits(
    local: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make_target("overwrite")
    jobs = [new_commit(local, target, OtherJob()) for _ in range(2)]
    barrier = threading.Barrier(2)
    original = LocalFolder.write
    seen = threading.local()

    def write(self: Any, content: Any, **options: bool) -> Any:
        result = original(self, content, **options)
        if self.name.endswith(".json") and not getattr(seen, "it", False):
            seen.it = True
            barrier.wait(10)
        return result

    monkeypatch.setattr(LocalFolder, "write", write)
    ended: list[Any] = []
    threads = [threading.Thread(target=lambda job=job: ended.append(run_commit(job))) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert ended == [None, None]
    assert target.rows() == sorted(NEW)
    assert not journals(target)
    assert [path.name for path in target.journal_folder.iterdir()] == ["out"]


def test_a_commit_fails_after_the_wait_timeout(local: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.commit.recovery.WAIT_TIMEOUT", 0.3)
    target = make_target("overwrite")
    before, after = new_commit(local, target, OtherJob()), new_commit(local, target)
    before.run()
    error = run_commit(after)
    assert isinstance(error, CommitError)
    assert "is still committing" in str(error)
    before.finish()
    assert target.rows() == target.new
    assert [path.name for path in target.journal_folder.iterdir()] == ["out"]


def test_a_job_that_waits_can_be_cancelled(local: Any, make_target: Any) -> None:
    target = make_target("overwrite")
    before, after = new_commit(local, target, OtherJob()), new_commit(local, target)
    before.run()

    def cancelled() -> Never:
        raise KeyError("cancelled")

    after._on_wait = cancelled
    assert isinstance(run_commit(after), KeyError)
    before.finish()
    assert target.rows() == target.new
    assert [path.name for path in target.journal_folder.iterdir()] == ["out"]


def test_commits_to_different_partitions_do_not_wait(local: Any, template: Any, make_target: Any) -> None:
    target = make_target("dynamic")
    before, after = new_commit(local, target, OtherJob()), new_commit(local, target)
    staging = after._sinks[0]._staging._path
    for name in ("p=0", "p=1"):
        (staging / name).rename(staging / name.replace("=", "=7"))
    before.run()
    assert run_commit(after) is None
    before.finish()
    assert target.rows() == sorted([*target.new, *((i, p + 70) for i, p in NEW)])


@pytest.mark.parametrize("mode", ["error", "append", "ignore"])
@pytest.mark.parametrize(
    "checks", [1, 2, 3, 4], ids=["after prepare", "once more", "in commit", "just before the rename"]
)
def test_a_folder_that_appears_during_the_job_is_not_replaced(
    local: Any, template: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch, mode: str, checks: int
) -> None:
    target = make_target("create")
    job, exists = new_commit(local, target, mode=mode), LocalFolder.exists

    def check(self: Any) -> Any:  # another program writes after this number of unsuccessful checks
        does_exist = exists(self)
        if not does_exist and self.name == "out":
            check.left -= 1
            if not check.left:
                shutil.copytree(template("new", "plain"), target.path)
        return does_exist

    check.left = checks
    monkeypatch.setattr(LocalFolder, "exists", check)
    error = run_commit(job)
    if mode == "append" and checks == 1:
        assert error is None
        assert target.rows() == sorted(NEW + NEW)
    else:
        assert isinstance(error, SinkError)
        assert target.rows() == sorted(NEW)
    assert check.left <= 0
    assert [path.name for path in target.journal_folder.iterdir()] == ["out"]
    assert not [path for path in target.path.iterdir() if path.name.startswith(".penstock-")]


@pytest.mark.parametrize("case", ["append", "overwrite", "dynamic"])
def test_two_runs_with_the_same_token_write_once(local: Any, make_target: Any, case: str) -> None:
    target = make_target(case, token="t")
    jobs = [new_commit(local, target), new_commit(local, target)]
    parts = [job._sinks[0].prepare() for job in jobs]  # neither sees the other's token
    for job, part in zip(jobs, parts, strict=True):
        job._sinks[0].prepare = lambda part=part: part
    assert run_commit(jobs[0]) is None
    error = run_commit(jobs[1])
    assert target.rows() == target.new
    if case != "overwrite":  # which writes the same rows
        assert isinstance(error, SinkError)
    run(local, [target])
    assert target.rows() == target.new
    assert len(list((target.path / ".penstock-tokens").glob("*.json"))) == 1


def test_a_run_waits_for_a_commit_of_its_token_that_may_be_undone(local: Any, make_target: Any) -> None:
    target = make_target("append", token="t")
    before = new_commit(local, target, OtherJob())
    before.run()
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(run(local, [target])))
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive()
    before._is_irreversible = False
    before.fail(SinkError("the other sink failed"))
    thread.join(20)
    assert ended == [None]
    assert target.rows() == target.new


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("step", ["undo", "commit"])
def test_rows_that_another_job_has_written_since_stay(
    local: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch, exchanges: bool, step: str
) -> None:
    monkeypatch.setattr("tests.commit.local.exchange", exchange if exchanges else lambda *_: False)
    target = make_target("overwrite")
    first, second = (new_commit(local, target)._sinks[0].prepare() for _ in range(2))
    access = Access(None)
    first.make_ready(access)
    first.commit(access)
    for path in target.path.glob("*.parquet"):
        path.unlink()  # to distinguish its rows from those of the second
    second.make_ready(access)
    second.commit(access)
    second.finish(access)
    assert first.is_committed(access)
    if (step, exchanges) == ("undo", False):  # the old rows were moved aside, and cannot be restored
        with pytest.raises(SinkError, match="the old rows cannot be restored"):
            first.undo(access)
    else:
        getattr(first, step)(access)
    first.finish(access)
    assert target.rows() == sorted(NEW)
    assert [path.name for path in target.journal_folder.iterdir()] == ["out"]


def test_rows_at_the_path_of_replaced_rows_stay(local: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.commit.local.exchange", lambda *_: False)
    target = make_target("overwrite")
    first, second = (new_commit(local, target)._sinks[0].prepare() for _ in range(2))
    assert isinstance(first, PreparedFolders)
    access = Access(None)
    first.make_ready(access)
    target.path.rename(LocalFolder(None, first.hidden_folders[1])._path)  # the state in which it was killed
    second.make_ready(access)
    second.commit(access)
    second.finish(access)
    old = LocalFolder(None, first.hidden_folders[1])
    entries = old.entries()
    for _ in range(2):
        with pytest.raises(SinkError, match="the old rows cannot be restored"):
            first.undo(access)
        assert old.entries() == entries
        assert target.rows() == sorted(NEW)
    old.delete()  # as the error says
    first.undo(access)
    assert target.rows() == sorted(NEW)
    assert [path.name for path in target.journal_folder.iterdir()] == ["out"]


@pytest.mark.parametrize("journal_state", ["claim", "gone"])
def test_a_process_that_counted_as_dead_does_not_commit(
    local: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch, journal_state: str
) -> None:
    target = make_target("overwrite")
    committed = []
    other = OtherJob()

    class Slow(OtherJob):
        def prepare(self) -> Any:
            return None

        def commit(self) -> None:
            (path,) = [path for path in journals(target) if path.suffix == ".json"]
            content = json.loads(path.read_text())
            if journal_state == "claim":
                path.with_suffix(".claim").write_text("{}")
                return
            path.write_text(json.dumps({**content, "owner": None}))
            assert recover(Access(None), str(path)).outcome is Outcome.UNDONE

    monkeypatch.setattr(Other, "commit", lambda self, access: committed.append(1))
    error = run_commit(new_commit(local, target, Slow(), other))
    assert isinstance(error, CommitError)
    assert "another process recovered this commit" in str(error)
    assert not committed
    assert target.rows() == (
        target.old if journal_state == "gone" else target.new
    )  # the other process continues the commit


def test_machines_of_the_same_name_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    me = Owner.current()
    monkeypatch.setattr("penstock.commit.owner._boot_id", lambda: "another")
    assert me.is_alive() is None


def leave_single_file(target: Any, job: Any) -> Any:
    """Remove all files of a job's rows except the first; return its number of rows."""
    staging = job._sinks[0]._staging._path
    first, *rest = sorted(staging.glob("part-*"))
    for path in (*rest, staging / "_SUCCESS"):
        path.unlink()
    return pq.read_metadata(first).num_rows


def test_a_single_file_is_not_added_to_a_folder_that_may_be_undone(local: Any, make_target: Any) -> None:
    """Another job begins between the check of a job that only adds a file, and its rename."""
    target = make_target("overwrite")
    other, slow = new_commit(local, target, OtherJob()), new_commit(local, target, mode="append")
    added = leave_single_file(target, slow)
    ended, has_ended = [], threading.Event()
    thread = threading.Thread(target=lambda: ended.append(run_and_undo(other, has_ended)))

    def begin() -> None:
        thread.start()
        thread.join(0.5)

    slow._before_commit = begin
    assert run_commit(slow) is None
    has_ended.set()
    thread.join(20)
    assert ended == [None]
    assert len(target.rows()) == len(target.old) + added


def run_and_undo(commit: Any, after: Any = None) -> Any:
    """Run a commit and undo it, after an event if there is `after`; return its error."""
    try:
        commit.run()
    except Exception as error:
        return error
    if after is not None:
        after.wait(20)
    commit._is_irreversible = False
    commit.fail(SinkError("the other sink failed"))
    return None


def call_after_first_prepare(commit: Any, by: Any) -> Any:
    """Call a function right after the sink of a commit was prepared for the first time."""
    sink = commit._sinks[0]
    prepare = sink.prepare

    def first() -> Any:
        sink.prepare = prepare
        part = prepare()
        by()
        return part

    sink.prepare = first
    return commit


CONFLICTS = {  # case of the target, modes of both jobs, final rows, whether the slower job fails
    "overwrite twice": ("overwrite", "overwrite", "overwrite", NEW, False),
    "overwrite after append": ("overwrite", "append", "overwrite", NEW, False),
    "append after overwrite": ("overwrite", "overwrite", "append", NEW + NEW, False),
    "a partition twice": ("dynamic", "overwrite", "overwrite", NEW, False),
    "create twice": ("create", "error", "error", NEW, True),
    "create by overwrite twice": ("create", "overwrite", "overwrite", NEW, False),
    "create by append twice": ("create", "append", "append", NEW + NEW, False),
    "create by append and overwrite": ("create", "append", "overwrite", NEW, False),
    "create unless it is there": ("create", "overwrite", "ignore", NEW, True),
}


@pytest.mark.parametrize("kind", ["folders", "objects", "volume"])
@pytest.mark.parametrize("marks", [True, False], ids=["_SUCCESS", "no _SUCCESS"])
@pytest.mark.parametrize("case", CONFLICTS)
def test_a_job_prepares_again_after_commits_of_other_jobs(
    local: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch, kind: str, marks: bool, case: str
) -> None:
    target_case, other_mode, mode, rows, fails = CONFLICTS[case]
    if kind == "volume" and target_case == "create":  # a mounted target exists
        return
    {"folders": lambda _: None, "objects": as_an_object_store, "volume": as_a_volume}[kind](monkeypatch)
    target = make_target(target_case)
    if target_case == "dynamic":
        shutil.rmtree(target.path)
        target.path.mkdir()
    jobs = [new_commit(local, target, mode=job_mode) for job_mode in (other_mode, mode)]
    if not marks:
        for job in jobs:
            (job._sinks[0]._staging._path / "_SUCCESS").unlink()
    error = run_commit(call_after_first_prepare(jobs[1], lambda: run_commit(jobs[0])))
    assert isinstance(error, SinkError) if fails else error is None
    assert target.rows() == sorted(rows)
    assert not journals(target)
    assert (target.path / "_SUCCESS").exists() or not marks


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["folders", "objects"])
@pytest.mark.parametrize("case", ["overwrite", "create", "dynamic"])
def test_a_later_job_waits_for_a_prepared_commit(
    local: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch, kind: str, case: str
) -> None:
    if kind == "objects":
        as_an_object_store(monkeypatch)
    target = make_target(case)
    if case == "dynamic":
        shutil.rmtree(target.path)
        target.path.mkdir()
    first, second = (new_commit(local, target, mode="overwrite") for _ in range(2))
    ended, thread = [], threading.Thread(target=lambda: ended.append(run_commit(second)))

    def begin() -> None:
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()

    first._before_commit = begin
    assert run_commit(first) is None
    thread.join(20)
    assert ended == [None]
    assert target.rows() == sorted(NEW)
    assert not journals(target)


@pytest.mark.parametrize("kind", ["folders", "objects"])
@pytest.mark.parametrize("undone", [False, True], ids=["both commit", "the second is undone"])
@pytest.mark.parametrize("case", ["append", "dynamic", "create"])
def test_undo_does_not_remove_the_marker_of_another_job(
    local: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch, kind: str, undone: bool, case: str
) -> None:
    """Two jobs that do not wait for each other see no marker, and each adds a marker."""
    if case == "create" and kind == "folders":
        return
    if kind == "objects":
        as_an_object_store(monkeypatch)
    target = make_target(case)
    (target.path / "_SUCCESS").unlink(missing_ok=True)
    jobs = [new_commit(local, target, mode="append" if case == "create" else None) for _ in range(2)]
    if case == "dynamic":
        staging = jobs[1]._sinks[0]._staging._path
        for name in ("p=0", "p=1"):
            (staging / name).rename(staging / name.replace("=", "=7"))
    jobs[1]._before_commit = lambda: run_commit(jobs[0])
    if undone:
        assert run_and_undo(jobs[1]) is None
    else:
        assert run_commit(jobs[1]) is None
    moved = NEW if case != "dynamic" else [(i, p + 70) for i, p in NEW]
    assert target.rows() == sorted([*target.new, *(() if undone else moved)])
    assert (target.path / "_SUCCESS").exists()


@pytest.mark.parametrize("above", [True, False], ids=["link to a parent", "link to the target"])
@pytest.mark.parametrize("dead", [True, False])
def test_a_target_with_two_names(local: Any, make_target: Any, tmp_path: Path, above: bool, dead: bool) -> None:
    """A job that uses a symbolic link waits for a job that uses the path, and recovers its commit."""
    target = make_target("overwrite", "real/x")
    (tmp_path / "link").symlink_to(tmp_path / "real" if above else target.path)
    alias = make_target("append", "alias")
    alias.path = tmp_path / "link" / "x" / "out" if above else tmp_path / "link"
    if dead:

        def dies() -> None:
            assert new_commit(local, target, OtherJob()).run() is None

        assert in_child(local, dies).error is None
    else:
        before = new_commit(local, target, OtherJob())
        before.run()
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(run(local, [alias])))
    thread.start()
    thread.join(20 if dead else 0.5)
    assert thread.is_alive() != dead
    if not dead:
        before._is_irreversible = False
        before.fail(SinkError("the other sink failed"))
        thread.join(20)
    assert ended == [None]
    assert target.rows() == sorted(target.old + NEW)
    assert not journals(target)
    assert (tmp_path / "link").is_symlink()
