"""Several jobs at one target at a time: none harms what another has committed."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from typing import TYPE_CHECKING, Any, Never

import pytest

from penstock.commit import Access, Commit, Direction, recover
from penstock.commit.folders import PreparedFolders
from penstock.commit.owner import Owner
from penstock.commit.prepared import Prepared
from penstock.errors import CommitError, SinkError
from penstock.spark.rename import exchange
from tests.commit.checks import journals, run
from tests.commit.local import LocalFolder, without_a_jvm
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


@pytest.mark.parametrize("first", ["overwrite", "dynamic", "append by partition"])
@pytest.mark.parametrize("second", ["overwrite", "dynamic", "append by partition", "append"])
@pytest.mark.parametrize("goes", [BACK, FORWARD])
def test_a_commit_waits_for_another_that_could_take_its_rows_back(
    local: Any, target: Any, first: str, second: str, goes: Any
) -> None:
    layout = "parts" if "partition" in first or first == "dynamic" else "plain"
    if ("partition" in second or second == "dynamic") != (layout == "parts"):
        return
    one = target(first)
    two = target(second, "copy")
    shutil.rmtree(two.path)
    two.path = one.path
    before = job_at(local, one, OtherJob())
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

    def write(self: Any, content: Any, *, overwrite: bool = False) -> Any:
        result = original(self, content, overwrite=overwrite)
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
@pytest.mark.parametrize("looks", [1, 2, 3], ids=["after prepare", "in commit", "just before the rename"])
def test_a_folder_that_has_appeared_is_not_replaced(
    local: Any, target: Any, monkeypatch: pytest.MonkeyPatch, mode: str, looks: int
) -> None:
    one = target("create")
    jobs = [job_at(local, one, mode=mode) for _ in range(2)]
    first, exists = jobs[0], LocalFolder.exists

    def look(self: Any) -> Any:  # the other job commits after so many looks that saw nothing
        found = exists(self)
        if not found and self.name == "out":
            look.left -= 1
            if not look.left:
                monkeypatch.setattr(LocalFolder, "exists", exists)
                assert ends(first) is None
        return found

    look.left = looks
    monkeypatch.setattr(LocalFolder, "exists", look)
    error = ends(jobs[1])
    assert isinstance(error, SinkError)
    assert one.rows() == sorted(NEW)
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
    first.undo(access)
    assert one.rows() == sorted(NEW)
    assert [path.name for path in one.place.iterdir()] == ["out"]


@pytest.mark.parametrize("taken", ["claim", "gone"])
def test_a_process_that_was_taken_for_dead_commits_no_more(local: Any, target: Any, taken: str) -> None:
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

    type(other.part).commit = lambda self, access: committed.append(1)
    error = ends(job_at(local, one, Slow(), other))
    assert isinstance(error, CommitError)
    assert "another process recovered this commit" in str(error)
    assert not committed
    assert one.rows() == (one.old if taken == "gone" else one.new)  # the other process goes on with it


def test_machines_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    me = Owner.me()
    monkeypatch.setattr("penstock.commit.owner._boot", lambda: "another")
    assert me.is_alive() is None
