"""Recovery: who may recover what, several at once, what stays when a part cannot follow, and what journals tell."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Never

import pytest

from penstock.commit import Access, Commit, Direction, look, recover
from penstock.commit.held import HeldJournal
from penstock.commit.journal import journals_at
from penstock.commit.lease import Lease, is_young
from penstock.commit.owner import Owner, tag_is_alive
from penstock.commit.prepared import prepared_of
from penstock.connectors.extras import with_secrets, without_secrets
from penstock.connectors.kafka import parts
from penstock.errors import CommitError, SinkError
from penstock.masking import MASK
from tests.commit.checks import journals, leftovers, run
from tests.commit.harness import Stop, in_child
from tests.commit.local import LocalFolder, LocalSqlite, without_a_jvm
from tests.commit.targets import FILES, Delta, Files, Iceberg, Jdbc, KafkaParts, Template

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.services import KafkaBroker


pytestmark = pytest.mark.forks


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    return without_a_jvm(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return Template(None, tmp_path_factory.mktemp("template"))


def files(template: Any, folder: Path, case: Any, token: Any = None) -> Any:
    mode, layout, exists = FILES[case]
    return Files(template, folder, mode, layout, exists=exists, token=token)


def killed(spark: SparkSession, targets: Any, name: str) -> str:
    """Kill a commit after the first step of a name."""

    class Here(Stop):
        def around(self, place: Any, step: Any) -> Any:
            original, counted = super().around(place, step)

            def killing(*args: Any, **kwargs: Any) -> Any:
                result = counted(*args, **kwargs)
                if step == name and not self.depth:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return original, killing

    assert in_child(spark, lambda: run(spark, targets, Here())).killed
    (journal,) = [path for target in targets for path in journals(target) if path.suffix == ".json"]
    return str(journal)


def test_a_process_and_a_later_one_of_the_same_number() -> None:
    me = Owner.me()
    assert me.is_alive()
    assert tag_is_alive(me.tag)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    other = Owner(me.host, child.pid, me.started)
    assert other.is_alive() is False  # another process of that number, begun at another time
    child.kill()
    time.sleep(0.2)
    zombie = Owner(me.host, child.pid, me.started)
    assert zombie.is_alive() is False
    child.wait()
    assert Owner("elsewhere/1", me.pid, me.started).is_alive() is None
    assert tag_is_alive(Owner("elsewhere/1", me.pid, me.started).tag) is None


def test_a_job_that_still_commits_is_left_alone(local: Any, template: Any, tmp_path: Path) -> None:
    targets = [files(template, tmp_path / "a", "append by partition")]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:

        class Sleepy(Stop):
            def around(self, place: Any, step: Any) -> Any:
                original, counted = super().around(place, step)

                def slow(*args: Any, **kwargs: Any) -> Any:
                    if step == "move_to":
                        os.write(write, b"x")
                        time.sleep(60)
                    return counted(*args, **kwargs)

                return original, slow

        try:
            run(local, targets, Sleepy())
        finally:
            os._exit(0)
    os.read(read, 1)
    journal = str(next(path for path in journals(targets[0]) if path.suffix == ".json"))
    assert look(Access(None), journal).direction is Direction.ALIVE
    assert recover(Access(None), journal).direction is Direction.ALIVE
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert look(Access(None), journal).direction is Direction.BACK
    assert recover(Access(None), journal).direction is Direction.BACK
    assert targets[0].rows() == targets[0].old
    assert recover(Access(None), journal).direction is Direction.GONE


def test_another_machine_is_dead_once_it_no_longer_renews_its_journal(
    local: Any, template: Any, tmp_path: Path
) -> None:
    journal = killed(local, [files(template, tmp_path / "a", "append")], "move_to")
    told = json.loads(open(journal).read())
    told["owner"]["host"] = "elsewhere/1"
    open(journal, "w").write(json.dumps(told))
    assert look(Access(None), journal).direction is Direction.ALIVE
    os.utime(journal, (time.time() - 61,) * 2)
    assert look(Access(None), journal).direction is Direction.BACK


@pytest.mark.sample(1)
@pytest.mark.parametrize("step", ["exchange", "move_to"])
def test_many_recover_at_once(local: Any, template: Any, tmp_path: Path, step: str) -> None:
    for number in range(5):
        targets = [files(template, tmp_path / f"{number}{case}", case) for case in ("append by partition", "overwrite")]
        journal = killed(local, targets, step)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: in_child(local, lambda: recover(Access(None), journal).direction), range(8)))  # noqa: B023
        recover(Access(None), journal)
        assert [target.rows() for target in targets] == [target.old for target in targets]
        assert not journals(targets[0])


def test_the_claim_of_a_dead_process_is_taken_over(local: Any, template: Any, tmp_path: Path) -> None:
    target = files(template, tmp_path / "a", "append")
    journal = killed(local, [target], "move_to")
    dead = json.loads(open(journal).read())["owner"]
    claim = journal.replace(".json", ".claim")
    open(claim, "w").write(json.dumps(dead))
    assert recover(Access(None), journal).direction is Direction.BACK
    assert not os.path.exists(claim)


@pytest.mark.thorough
def test_parts_of_a_topic_that_cannot_follow_wait_in_the_journal(
    local: Any, broker: KafkaBroker, template: Any, tmp_path: Path
) -> None:
    """Some parts are there for good: nothing is undone, not even what could be, and the next job completes it."""
    targets = [files(template, tmp_path / "f", "overwrite", "t"), KafkaParts(None, broker, token="t")]

    def refused() -> Any:
        write = parts.write_part

        def some(place: Any, number: int, records: Any) -> int:
            if number == 2:
                raise OSError("a broker is down")
            return write(place, number, records)

        parts.write_part = some
        try:
            run(local, targets)
        except CommitError as error:
            return str(error), [len(target.rows()) for target in targets]
        return "nothing was raised", []

    text, rows = in_child(local, refused).result
    assert "not committed: topic" in text
    assert "a broker is down" in text
    assert rows[0] == len(targets[0].new)
    assert 0 < rows[1] < len(targets[1].new)

    def rest() -> Any:
        run(local, targets)
        return [target.rows() == target.new for target in targets]

    end = in_child(local, rest)
    assert end.error is None, end.error
    assert end.result == [True, True]
    assert not journals(targets[0])


@pytest.mark.thorough
def test_what_cannot_follow_waits_in_the_journal(
    local: Any, template: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta has committed, Iceberg's catalogue refuses: nothing is undone, the error tells, the next job completes it."""
    targets = [
        files(template, tmp_path / "f", "overwrite", "t"),
        Delta(template, tmp_path / "d", "append", exists=True, token="t"),
        Iceberg(template, tmp_path / "i", "append", exists=True, token="t"),
    ]

    def refused() -> str:
        from pyiceberg.catalog import sql

        def refuse(*_: Any, **__: Any) -> Never:
            raise OSError("the catalogue is down")

        sql.SqlCatalog.commit_table = refuse  # type: ignore[assignment]
        try:
            run(local, targets)
        except CommitError as error:
            return str(error)
        return "nothing was raised"

    text = in_child(local, refused).result
    assert "committed to n.t is unknown" in text
    assert "the catalogue is down" in text
    assert "penstock recover" in text
    assert str(targets[1].path) in text
    (journal,) = [path for path in journals(targets[0]) if path.suffix == ".json"]
    assert json.loads(journal.read_text())["owner"] is None

    def rest() -> Any:
        states = [[target.rows() == target.new for target in targets]]
        run(local, targets)
        return [*states, [target.rows() == target.new for target in targets]]

    end = in_child(local, rest)
    assert end.error is None, end.error
    assert end.result == [[True, True, False], [True, True, True]]
    assert not journals(targets[0])


def test_an_error_before_that_undoes_everything(local: Any, template: Any, tmp_path: Path) -> None:
    """The log of a Delta table cannot be written: files that were moved, or have changed places, are as before."""
    targets = [
        files(template, tmp_path / "a", "append by partition"),
        files(template, tmp_path / "b", "overwrite"),
        Delta(template, tmp_path / "d", "append", exists=True, token=None),
    ]

    def refused() -> Any:
        import deltalake
        from deltalake.exceptions import DeltaProtocolError

        def refuse(*_: Any, **__: Any) -> Never:
            raise DeltaProtocolError("the log is read-only")

        deltalake.DeltaTable.create_write_transaction = refuse
        try:
            run(local, targets)
        except DeltaProtocolError as error:
            return str(error), [target.rows() == target.old for target in targets]

    end = in_child(local, refused)
    assert end.result == ("the log is read-only", [True, True, True])
    assert not journals(targets[0])
    assert not list((tmp_path / "d").rglob("part-*new*"))


def test_a_file_system_that_cannot_exchange_renames_twice(
    local: Any, template: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.commit.local.exchange", lambda one, other: False)
    for step in range(14):
        target = files(template, tmp_path / str(step), "overwrite")
        end = in_child(local, lambda: run(local, [target], Stop(step)))  # noqa: B023
        if end.killed:
            for path in journals(target):
                if path.suffix == ".json":
                    recover(Access(None), str(path))
        assert target.rows() in (target.old, target.new)
        run(local, [target])
        assert target.rows() == target.new


def test_the_old_rows_of_a_target_named_commit_are_no_journal(local: Any, tmp_path: Path) -> None:
    """Their hidden folder begins as journals do, and its process is dead."""
    dead = Owner.me().tag.replace(str(os.getpid()), "4194300")
    assert tag_is_alive(f"x-{dead}") is False
    rows = tmp_path / f".penstock-commit-0123456789ab-{dead}-old"
    rows.mkdir()
    (rows / "part-0").write_text("old rows")
    assert journals_at(Access(local), LocalFolder(local, str(tmp_path))) == []
    assert (rows / "part-0").read_text() == "old rows"


def test_journals_keep_no_secrets() -> None:
    given = {"user": "u", "password": "p", "uri": "postgresql://u:secret@host/db", "batchsize": "10"}
    kept = without_secrets(given)
    assert dict(kept) == {"user": "u", "password": MASK, "uri": MASK, "batchsize": "10"}
    assert with_secrets(kept, given) == given


def test_a_record_of_another_release() -> None:
    with pytest.raises(CommitError, match="newer"):
        prepared_of({"kind": "newer"})


def test_a_journal_that_cannot_be_read(local: Any, tmp_path: Path) -> None:
    (tmp_path / ".penstock-commit-x.json").write_text("{")
    with pytest.raises(CommitError, match="cannot be read"):
        look(Access(None), str(tmp_path / ".penstock-commit-x.json"))


def test_a_journal_that_cannot_be_decided_keeps_what_recovery_needs(local: Any, template: Any, tmp_path: Path) -> None:
    """The disk fills up after Delta has committed: nothing is removed that tells so, and the next job completes it."""
    targets = [
        files(template, tmp_path / "f", "overwrite", "t"),
        Delta(template, tmp_path / "d", "append", exists=True, token=None),
    ]

    def full() -> Any:
        write = LocalFolder.write

        def refuse(folder: Path, content: Any, **options: bool) -> Any:
            if b'"decided": true' in content:
                raise OSError("No space left on device")
            return write(folder, content, **options)

        LocalFolder.write = refuse  # type: ignore[assignment]
        run(local, targets)
        LocalFolder.write = write
        (journal,) = [path for path in journals(targets[0]) if path.suffix == ".json"]
        told = json.loads(journal.read_text())
        staging = told["parts"][0]["staging"].removeprefix("file:")
        return (
            told["decided"],
            os.path.exists(staging),
            recover(Access(None), str(journal)).direction,
            [target.rows() == target.new for target in targets],
        )

    end = in_child(local, full)
    assert end.error is None, end.error
    assert end.result == (False, True, Direction.FORWARD, [True, True])


def test_a_claim_of_another_machine_ends_with_its_lease(local: Any, template: Any, tmp_path: Path) -> None:
    journal = killed(local, [files(template, tmp_path / "a", "append")], "move_to")
    claim = journal.replace(".json", ".claim")
    open(claim, "w").write(json.dumps({"host": "elsewhere/1", "pid": 1, "started": "1"}))
    assert recover(Access(None), journal).direction is Direction.ALIVE
    os.utime(claim, (time.time() - 61,) * 2)
    assert recover(Access(None), journal).direction is Direction.BACK
    assert not journals_left(journal)


def journals_left(journal: Any) -> Any:
    """What is left once somebody has looked for journals."""
    journals_at(Access(None), LocalFolder(None, os.path.dirname(journal)))
    return [
        name
        for name in os.listdir(os.path.dirname(journal.removeprefix("file:")))
        if name.startswith(".penstock-commit")
    ]


def test_a_lease_is_renewed_until_it_ends(local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.commit.lease.LEASE", 0.6)
    file = tmp_path / "journal"
    file.touch()
    lease = Lease(Access(None), str(file))
    time.sleep(1.5)
    assert time.time() - file.stat().st_mtime > 1.4
    assert is_young(Access(None), str(file))
    lease.end()
    assert not is_young(Access(None), str(file))
    assert os.listdir(tmp_path) == ["journal"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("other", [None, "delta", "local"])
@pytest.mark.parametrize("case", ["append by partition", "dynamic", "overwrite"])
def test_a_recovery_that_dies_is_done_again(
    local: Any, template: Any, tmp_path: Path, case: str, other: str | None
) -> None:
    """Recovery is killed at each of its steps, or some; then the rest follows."""
    dies = {
        None: "move_to" if case == "append by partition" else "exchange",
        "delta": "create_write_transaction",
        "local": "commit",
    }[other]
    every = os.environ.get("KILL_POINTS") == "all" or (case, other) == ("append by partition", "local")
    for step in range(0, 60, 1 if every else 9):
        targets = [files(template, tmp_path / f"{step}", case), files(template, tmp_path / f"{step}b", case)]
        if other == "delta":
            targets.append(Delta(template, tmp_path / f"{step}d", "append", exists=True, token=None))
        if other == "local":
            targets.append(Jdbc(None, LocalSqlite(tmp_path / f"{step}.db"), "append", exists=True, token=None))
        journal = killed(local, targets, dies)

        def stopped(path: Any = journal, step: Any = step) -> None:
            with Stop(step).armed():
                recover(Access(None), path)

        ended = in_child(local, stopped)
        assert ended.error is None, ended.error
        again = in_child(local, lambda path=journal: recover(Access(None), path).direction)
        assert again.error is None, again.error
        assert again.result is not Direction.ALIVE
        rows = in_child(local, lambda targets=targets: [target.rows() for target in targets]).result
        assert rows == [target.old if other is None else target.new for target in targets], step
        assert not in_child(local, lambda journal=journal: journals_left(journal)).result
        if not ended.killed:
            break
    assert not ended.killed


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["append by partition", "overwrite"])
def test_a_recovery_that_the_user_interrupts_is_done_again_by_the_same_process(
    local: Any, template: Any, tmp_path: Path, case: str
) -> None:
    """At each of its steps: the process lives on, and must not take its own claim or lease for somebody else's."""
    step, was_interrupted = 0, True
    while was_interrupted:
        targets = [files(template, tmp_path / f"{step}", case), files(template, tmp_path / f"{step}b", case)]
        journal = killed(local, targets, "move_to" if case == "append by partition" else "exchange")

        def interrupted_and_again(path: Any = journal, step: Any = step) -> Any:
            was_interrupted = False
            try:
                with Stop(step, how="interrupt").armed():
                    recover(Access(None), path)
            except KeyboardInterrupt:
                was_interrupted = True
            return was_interrupted, recover(Access(None), path).direction

        ended = in_child(local, interrupted_and_again)
        assert ended.error is None, ended.error
        was_interrupted, direction = ended.result
        assert direction is not Direction.ALIVE, step
        assert in_child(local, lambda targets=targets: [one.rows() for one in targets]).result == [
            target.old for target in targets
        ], step
        assert not in_child(local, lambda journal=journal: journals_left(journal)).result
        step += 1
    assert step > 5


@pytest.mark.parametrize("for_good", [False, True])
def test_a_stage_after_the_commit_that_fails(local: Any, template: Any, tmp_path: Path, for_good: bool) -> None:
    """What can be undone is, if all can; what has committed for good stays, and all that came with it."""
    targets = [files(template, tmp_path / "a", "append by partition"), files(template, tmp_path / "b", "overwrite")]
    if for_good:
        targets.append(Delta(template, tmp_path / "d", "append", exists=True, token=None))

    def fails() -> Any:
        opened = [target.sink().open(local) for target in targets]
        for target, job in zip(targets, opened, strict=True):
            target.write(job)
        commit = Commit(Access(None), "j", "j", opened)
        commit.run()
        error = SinkError("the policy failed")
        commit.fail(error)
        return [target.rows() for target in targets], getattr(error, "__notes__", [])

    end = in_child(local, fails)
    assert end.error is None, end.error
    rows, notes = end.result
    assert rows == [target.new if for_good else target.old for target in targets]
    assert bool(notes) == for_good
    assert not journals(targets[0])
    assert not journals(targets[1])


def as_seen_from_elsewhere(journal: Any) -> None:
    """Let a journal look as if its process, on another machine, had not renewed it for a minute."""
    told = json.loads(journal.read_text())
    told["owner"]["host"] = "elsewhere/1"
    journal.write_text(json.dumps(told))
    os.utime(journal, (time.time() - 61,) * 2)


@pytest.mark.parametrize("for_good", [False, True])
def test_a_job_that_was_taken_for_dead_does_not_finish(
    local: Any, template: Any, tmp_path: Path, for_good: bool
) -> None:
    """It was held up between its commit and its end: what can be undone has been."""
    targets = [files(template, tmp_path / "a", "overwrite"), files(template, tmp_path / "b", "append")]
    if for_good:
        targets.append(Jdbc(None, LocalSqlite(tmp_path / "db"), "append", exists=True, token=None))
    opened = [target.sink().open(local) for target in targets]
    for target, job in zip(targets, opened, strict=True):
        target.write(job)
    commit = Commit(Access(None), "j", "j", opened)
    commit.run()
    (journal,) = [path for path in journals(targets[0]) if path.suffix == ".json"]
    as_seen_from_elsewhere(journal)
    went = recover(Access(None), str(journal)).direction
    if for_good:
        assert went is Direction.FORWARD
        commit.finish()
    else:
        assert went is Direction.BACK
        with pytest.raises(CommitError, match="another process recovered") as error:
            commit.finish()
        commit.fail(error.value)
    assert [target.rows() for target in targets] == [target.new if for_good else target.old for target in targets]
    assert not journals(targets[0])


@pytest.mark.parametrize(
    ("told", "killed_by", "alive"),
    [
        ("the status", None, True),
        (None, PermissionError, None),  # another user's, hidden (hidepid): it may run
        (None, None, None),  # seen, but the system does not tell when it began
        (None, ProcessLookupError, False),
    ],
)
def test_a_process_that_is_hidden_may_run(
    monkeypatch: pytest.MonkeyPatch, told: str | None, killed_by: Any, alive: bool | None
) -> None:
    me = Owner.me()

    def status(pid: Any) -> Any:
        if told is None:
            raise FileNotFoundError(pid)
        return original(pid)

    def kill(pid: Any, signal: Any) -> None:
        if killed_by is not None:
            raise killed_by(pid)

    from penstock.commit import owner

    original = owner._status
    monkeypatch.setattr(owner, "_status", status)
    monkeypatch.setattr(os, "kill", kill)
    assert me.is_alive() is alive
    assert tag_is_alive(me.tag) is alive


def test_the_journal_of_a_hidden_process_lives_by_its_lease(
    local: Any, template: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = files(template, tmp_path / "a", "append")
    journal = killed(local, [one], "move_to")
    monkeypatch.setattr("penstock.commit.owner._started", lambda pid: "")
    assert recover(Access(None), journal).direction is Direction.ALIVE
    os.utime(journal, (time.time() - 61,) * 2)
    assert recover(Access(None), journal).direction is Direction.BACK
    assert one.rows() == one.old


@pytest.mark.parametrize(
    "folder", ["insurance.claims", "a.json", "a.ref", "a.lease", ".penstock-commit-x", "00000000-1-00000000", "a b%20"]
)
def test_folders_of_any_name_on_the_way(local: Any, template: Any, tmp_path: Path, folder: str) -> None:
    one = files(template, tmp_path / folder / "x", "append")
    journal = killed(local, [one], "move_to")
    assert [os.path.basename(path) for path in journals_at(Access(None), LocalFolder(None, str(one.place)))] == [
        os.path.basename(journal)
    ]
    run(local, [one])
    assert one.rows() == one.new
    assert not journals(one)


def test_a_journal_is_let_go_once_it_is_written(
    local: Any, template: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for a moment; another job of this process looks as soon as the journal is nobody's."""
    one = files(template, tmp_path / "a", "append by partition")
    table = Jdbc(None, LocalSqlite(tmp_path / "db"), "append", exists=True, token=None)
    opened = [target.sink().open(local) for target in (one, table)]
    for target, job in zip((one, table), opened, strict=True):
        target.write(job)
    commit = Commit(Access(None), "j", "j", opened)
    commit.run()
    (journal,) = [path for path in journals(one) if path.suffix == ".json"]
    write, went = LocalFolder.write, []
    refused: list[Any] = []

    def refuse(self: Any, content: Any, **options: bool) -> Any:
        if b'"decided": true' in content and not refused:
            refused.append(self)
            raise OSError("No space left on device")
        return write(self, content, **options)

    leave = HeldJournal.leave
    monkeypatch.setattr(LocalFolder, "write", refuse)
    monkeypatch.setattr(
        HeldJournal, "leave", lambda self: (leave(self), went.append(recover(Access(None), str(journal)).direction))
    )
    commit.finish()
    assert refused
    assert went == [Direction.FORWARD]
    assert recover(Access(None), str(journal)).direction is Direction.GONE
    assert not journals(one)
    assert (one.rows(), table.rows()) == (one.new, table.new)


@pytest.mark.parametrize("change", ["version", "field", "kind"])
def test_a_journal_of_a_later_release(local: Any, template: Any, tmp_path: Path, change: str) -> None:
    """It is not guessed what it means: its own target waits for the release that knows, others do not."""
    one, other = files(template, tmp_path / "a", "append"), files(template, tmp_path / "b", "create")
    other.path = one.path.with_name("other")
    journal = killed(local, [one], "move_to")
    told = json.loads(open(journal).read())
    if change == "version":
        told["version"] = 99
    else:
        told["parts"][0] |= {"field": {"of_later": 1}, "kind": {"kind": "later"}}[change]
    open(journal, "w").write(json.dumps(told))
    rows = one.rows()
    for does in (
        lambda: look(Access(None), journal),
        lambda: recover(Access(None), journal),
        lambda: run(local, [one]),
    ):
        with pytest.raises(CommitError, match="cannot be recovered"):
            does()
    assert one.rows() == rows
    assert json.loads(open(journal).read()) == told
    run(local, [other])
    assert other.rows() == other.new


@pytest.mark.parametrize("case", ["append", "overwrite", "dynamic"])
def test_a_target_that_somebody_has_replaced_since(local: Any, template: Any, tmp_path: Path, case: str) -> None:
    """Delta has committed, then plain Spark replaces the folder of files: the rest is completed, and nothing is stuck."""
    one = files(template, tmp_path / "f", case)
    layout = "plain" if case != "dynamic" else "parts"
    table = Delta(template, tmp_path / "d", "append", exists=True, token=None)

    def work() -> Any:
        journal = killed(local, [one, table], "create_write_transaction")
        shutil.rmtree(one.path)
        shutil.copytree(template("old", layout), one.path)
        told = one.rows()
        direction = recover(Access(None), journal).direction
        return direction, one.rows() == told, table.rows() == table.new, journals(one)

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result == (Direction.FORWARD, True, True, [])


@pytest.mark.parametrize("case", ["overwrite", "dynamic"])
def test_old_rows_stay_where_they_are_if_others_are_in_their_place(
    local: Any, template: Any, tmp_path: Path, case: str
) -> None:
    """Killed with the old folder moved aside, and plain Spark makes one of its name before the recovery."""
    one = files(template, tmp_path / "f", case)

    def work() -> Any:
        LocalFolder.exchange = lambda self, other: False  # type: ignore[method-assign]
        journal = killed(local, [one], "move_to")
        told = json.loads(open(journal).read())["parts"][0]
        name = next(name for name in told["folders"] if not (one.path / name).exists())
        old = tmp_path / "f" / f"{os.path.basename(told['staging'])}-old" / name
        shutil.copytree(template("new", "plain"), one.path / name)
        before = [sorted(os.listdir(folder)) for folder in (one.path / name, old)]
        raised = ""
        for _ in range(2):
            try:
                recover(Access(None), journal)
            except SinkError as error:
                raised = str(error)
        kept = [sorted(os.listdir(folder)) for folder in (one.path / name, old)] == before
        shutil.rmtree(one.path / name)
        direction = recover(Access(None), journal).direction
        return str(old) in raised, kept, direction, one.rows() == one.old, leftovers(one)

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result == (True, True, Direction.BACK, True, [])


def test_a_recovery_that_fails_tells_what_to_do(
    local: Any, template: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = killed(local, [files(template, tmp_path / "a", "overwrite")], "exchange")
    for step in ("exchange", "move_to"):
        monkeypatch.setattr(LocalFolder, step, lambda self, other: False)
    with pytest.raises(SinkError, match="cannot move") as error:
        recover(Access(None), journal)
    assert f"remove file:{journal}" in error.value.__notes__[0]


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["overwrite", "dynamic"])
def test_folders_that_changed_places_elsewhere(local: Any, template: Any, tmp_path: Path, case: str) -> None:
    """The machine that recovers cannot exchange folders; it is killed at each of its steps, then the rest follows."""
    for step in range(40):
        one = files(template, tmp_path / str(step), case)
        journal = killed(local, [one], "exchange")

        def stopped(path: Any = journal, step: Any = step) -> None:
            LocalFolder.exchange = lambda self, other: False
            with Stop(step).armed():
                recover(Access(None), path)

        ended = in_child(local, stopped)
        assert ended.error is None, ended.error
        in_child(local, lambda path=journal: (stopped(path, None), path))
        assert not journals_at(Access(None), LocalFolder(None, str(one.place)))
        assert one.rows() == one.old, step
        assert not leftovers(one)
        if not ended.killed:
            return
    raise AssertionError("it did not come to an end")
