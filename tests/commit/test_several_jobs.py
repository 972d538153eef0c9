"""Several jobs at one target at a time: none harms what another has committed."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any, Never

import pyarrow.parquet as pq
import pytest

from penstock.commit import Access, Commit, Direction, recover
from penstock.commit.folders import PreparedFolders
from penstock.commit.owner import Owner
from penstock.commit.prepared import Prepared
from penstock.errors import CommitError, SinkError
from penstock.spark.rename import exchange
from tests.commit.checks import journals, run
from tests.commit.harness import in_child
from tests.commit.local import LocalFolder, as_a_volume, as_an_object_store, without_a_jvm
from tests.commit.targets import FILES, NEW, Files, Template

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.forks

BACK, FORWARD = "back", "forward"


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    return without_a_jvm(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return Template(None, tmp_path_factory.mktemp("template"))


@pytest.fixture
def target(template: Any, tmp_path: Path) -> Any:
    def make(case: Any, name: str = "t", token: Any = None) -> Any:
        mode, layout, exists = FILES[case]
        return Files(template, tmp_path / name, mode, layout, exists=exists, token=token)

    return make


class Other(Prepared):
    """A sink of another kind in the same job, so that the job wants a journal."""

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


def job_at(spark: SparkSession, target: Any, *others: Any, mode: Any = None) -> Any:
    """A job that has written its rows, as one that is about to commit."""
    sink = target.sink()
    if mode is not None:
        object.__setattr__(sink, "mode", mode)
    opened = sink.open(spark)
    target.write(opened)
    return Commit(Access(None), f"j{os.urandom(3).hex()}", "j", [opened, *others])


def ends(commit: Any) -> Any:
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
@pytest.mark.parametrize("goes", [BACK, FORWARD])
@pytest.mark.parametrize("beside", [True, False], ids=["with another sink", "one sink, and stages after the commit"])
def test_a_commit_waits_for_another_that_could_take_its_rows_back(
    local: Any, target: Any, first: str, second: str, goes: Any, beside: bool
) -> None:
    layout = "parts" if "partition" in first or first == "dynamic" else "plain"
    if ("partition" in second or second == "dynamic") != (layout == "parts"):
        return
    one = target(first)
    two = target(second, "copy")
    shutil.rmtree(two.path)
    two.path = one.path
    before = job_at(local, one, OtherJob()) if beside else job_at(local, one)
    after = job_at(local, two)
    before.run()
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(ends(after)))
    thread.start()
    replaces = "append" not in first or "append" not in second
    thread.join(0.6 if replaces else 20)
    assert thread.is_alive() == replaces
    if goes == BACK:
        before._irreversible = False
        before.fail(SinkError("the other sink failed"))
    else:
        before.finish()
    thread.join(20)
    assert ended == [None]
    rows = one.old if goes == BACK else one.new
    if "append" in second:
        wanted = sorted([*rows, *NEW])
    elif second == "dynamic":
        wanted = sorted([*(row for row in rows if row[1] not in {p for _, p in NEW}), *NEW])
    else:
        wanted = sorted(NEW)
    assert one.rows() == wanted
    assert not journals(one)


def test_of_two_that_begin_at_once_one_waits(local: Any, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = target("overwrite")
    jobs = [job_at(local, one, OtherJob()) for _ in range(2)]
    together = threading.Barrier(2)
    original = LocalFolder.write
    seen = threading.local()

    def write(self: Any, content: Any, **options: bool) -> Any:
        result = original(self, content, **options)
        if self.name.endswith(".json") and not getattr(seen, "it", False):
            seen.it = True
            together.wait(10)
        return result

    monkeypatch.setattr(LocalFolder, "write", write)
    ended: list[Any] = []
    threads = [threading.Thread(target=lambda job=job: ended.append(ends(job))) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert ended == [None, None]
    assert one.rows() == sorted(NEW)
    assert not journals(one)
    assert [path.name for path in one.place.iterdir()] == ["out"]


def test_a_commit_waits_no_longer_than_its_patience(local: Any, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.commit.turns.PATIENCE", 0.3)
    one = target("overwrite")
    before, after = job_at(local, one, OtherJob()), job_at(local, one)
    before.run()
    error = ends(after)
    assert isinstance(error, CommitError)
    assert "is still committing" in str(error)
    before.finish()
    assert one.rows() == one.new
    assert [path.name for path in one.place.iterdir()] == ["out"]


def test_a_job_that_waits_can_be_cancelled(local: Any, target: Any) -> None:
    one = target("overwrite")
    before, after = job_at(local, one, OtherJob()), job_at(local, one)
    before.run()

    def cancelled() -> Never:
        raise KeyError("cancelled")

    after._go_on = cancelled
    assert isinstance(ends(after), KeyError)
    before.finish()
    assert one.rows() == one.new
    assert [path.name for path in one.place.iterdir()] == ["out"]


def test_partitions_of_their_own_do_not_wait(local: Any, template: Any, target: Any) -> None:
    one = target("dynamic")
    before, after = job_at(local, one, OtherJob()), job_at(local, one)
    staging = after._sinks[0]._staging._path
    for name in ("p=0", "p=1"):
        (staging / name).rename(staging / name.replace("=", "=7"))
    before.run()
    assert ends(after) is None
    before.finish()
    assert one.rows() == sorted([*one.new, *((i, p + 70) for i, p in NEW)])


@pytest.mark.parametrize("mode", ["error", "append", "ignore"])
@pytest.mark.parametrize(
    "looks", [1, 2, 3, 4], ids=["after prepare", "once more", "in commit", "just before the rename"]
)
def test_a_folder_that_has_appeared_is_not_replaced(
    local: Any, template: Any, target: Any, monkeypatch: pytest.MonkeyPatch, mode: str, looks: int
) -> None:
    one = target("create")
    job, exists = job_at(local, one, mode=mode), LocalFolder.exists

    def look(self: Any) -> Any:  # somebody else, such as Spark alone, writes after so many looks that saw nothing
        found = exists(self)
        if not found and self.name == "out":
            look.left -= 1
            if not look.left:
                shutil.copytree(template("new", "plain"), one.path)
        return found

    look.left = looks
    monkeypatch.setattr(LocalFolder, "exists", look)
    error = ends(job)
    if mode == "append" and looks == 1:
        assert error is None
        assert one.rows() == sorted(NEW + NEW)
    else:
        assert isinstance(error, SinkError)
        assert one.rows() == sorted(NEW)
    assert look.left <= 0
    assert [path.name for path in one.place.iterdir()] == ["out"]
    assert not [path for path in one.path.iterdir() if path.name.startswith(".penstock-")]


@pytest.mark.parametrize("case", ["append", "overwrite", "dynamic"])
def test_two_runs_of_one_token_write_once(local: Any, target: Any, case: str) -> None:
    one = target(case, token="t")
    jobs = [job_at(local, one), job_at(local, one)]
    parts = [job._sinks[0].prepare() for job in jobs]  # neither sees the other's token
    for job, part in zip(jobs, parts, strict=True):
        job._sinks[0].prepare = lambda part=part: part
    assert ends(jobs[0]) is None
    error = ends(jobs[1])
    assert one.rows() == one.new
    if case != "overwrite":  # which gives the same rows
        assert isinstance(error, SinkError)
    run(local, [one])
    assert one.rows() == one.new
    assert len(list((one.path / ".penstock-tokens").glob("*.json"))) == 1


def test_a_token_that_may_be_undone_is_waited_for(local: Any, target: Any) -> None:
    one = target("append", token="t")
    before = job_at(local, one, OtherJob())
    before.run()
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(run(local, [one])))
    thread.start()
    time.sleep(0.5)
    assert thread.is_alive()
    before._irreversible = False
    before.fail(SinkError("the other sink failed"))
    thread.join(20)
    assert ended == [None]
    assert one.rows() == one.new


@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("what", ["undo", "commit"])
def test_what_somebody_has_put_there_since_stays(
    local: Any, target: Any, monkeypatch: pytest.MonkeyPatch, exchanges: bool, what: str
) -> None:
    monkeypatch.setattr("tests.commit.local.exchange", exchange if exchanges else lambda *_: False)
    one = target("overwrite")
    first, second = (job_at(local, one)._sinks[0].prepare() for _ in range(2))
    access = Access(None)
    first.ready(access)
    first.commit(access)
    for path in one.path.glob("*.parquet"):
        path.unlink()  # so that its rows can be told from those of the second
    second.ready(access)
    second.commit(access)
    second.finish(access)
    assert first.is_committed(access)
    if (what, exchanges) == ("undo", False):  # the old rows lie aside, and cannot go back
        with pytest.raises(SinkError, match="the old rows cannot be put back"):
            first.undo(access)
    else:
        getattr(first, what)(access)
    first.finish(access)
    assert one.rows() == sorted(NEW)
    assert [path.name for path in one.place.iterdir()] == ["out"]


def test_what_somebody_has_put_where_the_old_rows_were_stays(
    local: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.commit.local.exchange", lambda *_: False)
    one = target("overwrite")
    first, second = (job_at(local, one)._sinks[0].prepare() for _ in range(2))
    assert isinstance(first, PreparedFolders)
    access = Access(None)
    first.ready(access)
    one.path.rename(LocalFolder(None, first._old)._path)  # where it was killed
    second.ready(access)
    second.commit(access)
    second.finish(access)
    old = LocalFolder(None, first._old)
    kept = old.entries()
    for _ in range(2):
        with pytest.raises(SinkError, match="the old rows cannot be put back"):
            first.undo(access)
        assert old.entries() == kept
        assert one.rows() == sorted(NEW)
    old.delete()  # as the error says
    first.undo(access)
    assert one.rows() == sorted(NEW)
    assert [path.name for path in one.place.iterdir()] == ["out"]


@pytest.mark.parametrize("taken", ["claim", "gone"])
def test_a_process_that_was_taken_for_dead_commits_no_more(
    local: Any, target: Any, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    one = target("overwrite")
    committed = []
    other = OtherJob()

    class Slow(OtherJob):
        def prepare(self) -> Any:
            return None

        def commit(self) -> None:
            (path,) = [path for path in journals(one) if path.suffix == ".json"]
            told = json.loads(path.read_text())
            if taken == "claim":
                path.with_suffix(".claim").write_text("{}")
                return
            path.write_text(json.dumps({**told, "owner": None}))
            assert recover(Access(None), str(path)).direction is Direction.BACK

    monkeypatch.setattr(Other, "commit", lambda self, access: committed.append(1))
    error = ends(job_at(local, one, Slow(), other))
    assert isinstance(error, CommitError)
    assert "another process recovered this commit" in str(error)
    assert not committed
    assert one.rows() == (one.old if taken == "gone" else one.new)  # the other process goes on with it


def test_machines_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    me = Owner.me()
    monkeypatch.setattr("penstock.commit.owner._boot", lambda: "another")
    assert me.is_alive() is None


def of_one_file(target: Any, job: Any) -> Any:
    """Leave one file of a job's rows; return how many rows it has."""
    staging = job._sinks[0]._staging._path
    first, *rest = sorted(staging.glob("part-*"))
    for path in (*rest, staging / "_SUCCESS"):
        path.unlink()
    return pq.read_metadata(first).num_rows


def test_one_file_is_not_added_to_what_may_be_taken_back(local: Any, target: Any) -> None:
    """Another job begins between the look of a job that only adds one file, and its rename."""
    one = target("overwrite")
    other, slow = job_at(local, one, OtherJob()), job_at(local, one, mode="append")
    added = of_one_file(one, slow)
    ended, has_ended = [], threading.Event()
    thread = threading.Thread(target=lambda: ended.append(ends_undone(other, has_ended)))

    def begin() -> None:
        thread.start()
        thread.join(0.5)

    slow._begin_commit = begin
    assert ends(slow) is None
    has_ended.set()
    thread.join(20)
    assert ended == [None]
    assert len(one.rows()) == len(one.old) + added


def ends_undone(commit: Any, after: Any = None) -> Any:
    """Let a job commit, and be undone, after another has ended."""
    try:
        commit.run()
    except Exception as error:
        return error
    if after is not None:
        after.wait(20)
    commit._irreversible = False
    commit.fail(SinkError("the other sink failed"))
    return None


def overtaken(commit: Any, by: Any) -> Any:
    """Let something happen just after a job has looked at its target for the first time."""
    sink = commit._sinks[0]
    prepare = sink.prepare

    def first() -> Any:
        sink.prepare = prepare
        part = prepare()
        by()
        return part

    sink.prepare = first
    return commit


OVERTAKEN = {  # the case, the modes of both, the rows, and whether the job that is overtaken fails
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
@pytest.mark.parametrize("case", OVERTAKEN)
def test_a_job_looks_again_at_what_others_have_committed(
    local: Any, target: Any, monkeypatch: pytest.MonkeyPatch, kind: str, marks: bool, case: str
) -> None:
    what, mode_of_other, mode, rows, fails = OVERTAKEN[case]
    if kind == "volume" and what == "create":  # one that is mounted is there
        return
    {"folders": lambda _: None, "objects": as_an_object_store, "volume": as_a_volume}[kind](monkeypatch)
    one = target(what)
    if what == "dynamic":
        shutil.rmtree(one.path)
        one.path.mkdir()
    jobs = [job_at(local, one, mode=given) for given in (mode_of_other, mode)]
    if not marks:
        for job in jobs:
            (job._sinks[0]._staging._path / "_SUCCESS").unlink()
    error = ends(overtaken(jobs[1], lambda: ends(jobs[0])))
    assert isinstance(error, SinkError) if fails else error is None
    assert one.rows() == sorted(rows)
    assert not journals(one)
    assert (one.path / "_SUCCESS").exists() or not marks


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["folders", "objects"])
@pytest.mark.parametrize("case", ["overwrite", "create", "dynamic"])
def test_another_waits_for_a_job_that_has_looked(
    local: Any, target: Any, monkeypatch: pytest.MonkeyPatch, kind: str, case: str
) -> None:
    if kind == "objects":
        as_an_object_store(monkeypatch)
    one = target(case)
    if case == "dynamic":
        shutil.rmtree(one.path)
        one.path.mkdir()
    first, second = (job_at(local, one, mode="overwrite") for _ in range(2))
    ended, thread = [], threading.Thread(target=lambda: ended.append(ends(second)))

    def begin() -> None:
        thread.start()
        thread.join(0.5)
        assert thread.is_alive()

    first._begin_commit = begin
    assert ends(first) is None
    thread.join(20)
    assert ended == [None]
    assert one.rows() == sorted(NEW)
    assert not journals(one)


@pytest.mark.parametrize("kind", ["folders", "objects"])
@pytest.mark.parametrize("undone", [False, True], ids=["both commit", "the second is undone"])
@pytest.mark.parametrize("case", ["append", "dynamic", "create"])
def test_a_marker_is_whose_it_is(
    local: Any, target: Any, monkeypatch: pytest.MonkeyPatch, kind: str, undone: bool, case: str
) -> None:
    """Two jobs that do not wait for each other find no marker, and each brings one."""
    if case == "create" and kind == "folders":
        return
    if kind == "objects":
        as_an_object_store(monkeypatch)
    one = target(case)
    (one.path / "_SUCCESS").unlink(missing_ok=True)
    jobs = [job_at(local, one, mode="append" if case == "create" else None) for _ in range(2)]
    if case == "dynamic":
        staging = jobs[1]._sinks[0]._staging._path
        for name in ("p=0", "p=1"):
            (staging / name).rename(staging / name.replace("=", "=7"))
    jobs[1]._begin_commit = lambda: ends(jobs[0])
    if undone:
        assert ends_undone(jobs[1]) is None
    else:
        assert ends(jobs[1]) is None
    moved = NEW if case != "dynamic" else [(i, p + 70) for i, p in NEW]
    assert one.rows() == sorted([*one.new, *(() if undone else moved)])
    assert (one.path / "_SUCCESS").exists()


@pytest.mark.parametrize("above", [True, False], ids=["on the way", "itself"])
@pytest.mark.parametrize("dead", [True, False])
def test_a_target_of_two_names(local: Any, target: Any, tmp_path: Path, above: bool, dead: bool) -> None:
    """A job that names the target by a symbolic link waits for the one that does not, and recovers it."""
    one = target("overwrite", "real/x")
    (tmp_path / "link").symlink_to(tmp_path / "real" if above else one.path)
    alias = target("append", "alias")
    alias.path = tmp_path / "link" / "x" / "out" if above else tmp_path / "link"
    if dead:

        def dies() -> None:
            assert job_at(local, one, OtherJob()).run() is None

        assert in_child(local, dies).error is None
    else:
        before = job_at(local, one, OtherJob())
        before.run()
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(run(local, [alias])))
    thread.start()
    thread.join(20 if dead else 0.5)
    assert thread.is_alive() != dead
    if not dead:
        before._irreversible = False
        before.fail(SinkError("the other sink failed"))
        thread.join(20)
    assert ended == [None]
    assert one.rows() == sorted(one.old + NEW)
    assert not journals(one)
    assert (tmp_path / "link").is_symlink()
