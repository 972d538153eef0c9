"""Recovery of commits: ownership, concurrent recoveries, irreversible sinks, and errors."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

import pytest

from penstock.base.masking import MASK
from penstock.commit import Access, Commit, Outcome, plan_recovery, recover
from penstock.commit.claims import Lease, is_recent
from penstock.commit.journal import journals_at
from penstock.commit.owner import Owner, tag_is_alive
from penstock.commit.prepared import prepared_from_dict
from penstock.commit.protocol import JournalFile
from penstock.connectors.core.extras import with_secrets, without_secrets
from penstock.connectors.kafka import commit as topics
from penstock.errors import CommitError, SinkError
from tests.commit.checks import journals, leftovers, run
from tests.commit.harness import Stop, in_child
from tests.commit.local import LocalFolder, LocalSqlite, without_a_jvm
from tests.commit.targets import FILES, Delta, Files, Iceberg, Jdbc, KafkaParts, Template

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.services import KafkaBroker


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
    """Kill a commit after the first step of a name, and return the path of its journal."""

    class KillAfterStep(Stop):
        def around(self, owner: Any, step: Any) -> Any:
            original, counted = super().around(owner, step)

            def killing(*args: Any, **kwargs: Any) -> Any:
                result = counted(*args, **kwargs)
                if step == name and not self.depth:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return original, killing

    assert in_child(spark, lambda: run(spark, targets, KillAfterStep())).killed
    (journal,) = [path for target in targets for path in journals(target) if path.suffix == ".json"]
    return str(journal)


def test_a_process_differs_from_a_later_process_with_the_same_id() -> None:
    me = Owner.current()
    assert me.is_alive()
    assert tag_is_alive(me.tag)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    other = Owner(me.host, child.pid, me.started)
    assert other.is_alive() is False  # another process with that id, with another start time
    child.kill()
    time.sleep(0.2)
    zombie = Owner(me.host, child.pid, me.started)
    assert zombie.is_alive() is False
    child.wait()
    assert Owner("elsewhere/1", me.pid, me.started).is_alive() is None
    assert tag_is_alive(Owner("elsewhere/1", me.pid, me.started).tag) is None


def test_a_running_commit_is_not_recovered(local: Any, template: Any, tmp_path: Path) -> None:
    targets = [files(template, tmp_path / "a", "append by partition")]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:

        class Sleepy(Stop):
            def around(self, owner: Any, step: Any) -> Any:
                original, counted = super().around(owner, step)

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
    assert plan_recovery(Access(None), journal).outcome is Outcome.RUNNING
    assert recover(Access(None), journal).outcome is Outcome.RUNNING
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert plan_recovery(Access(None), journal).outcome is Outcome.UNDONE
    assert recover(Access(None), journal).outcome is Outcome.UNDONE
    assert targets[0].rows() == targets[0].old
    assert recover(Access(None), journal).outcome is Outcome.GONE


def test_a_process_of_another_machine_counts_as_dead_without_a_renewal(
    local: Any, template: Any, tmp_path: Path
) -> None:
    journal = killed(local, [files(template, tmp_path / "a", "append")], "move_to")
    content = json.loads(open(journal).read())
    content["owner"]["host"] = "elsewhere/1"
    open(journal, "w").write(json.dumps(content))
    assert plan_recovery(Access(None), journal).outcome is Outcome.RUNNING
    os.utime(journal, (time.time() - 61,) * 2)
    assert plan_recovery(Access(None), journal).outcome is Outcome.UNDONE


@pytest.mark.sample(1)
@pytest.mark.parametrize("step", ["exchange", "move_to"])
def test_concurrent_recoveries(local: Any, template: Any, tmp_path: Path, step: str) -> None:
    for number in range(5):
        targets = [files(template, tmp_path / f"{number}{case}", case) for case in ("append by partition", "overwrite")]
        journal = killed(local, targets, step)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: in_child(local, lambda: recover(Access(None), journal).outcome), range(8)))  # noqa: B023
        recover(Access(None), journal)
        assert [target.rows() for target in targets] == [target.old for target in targets]
        assert not journals(targets[0])


def test_the_claim_of_a_dead_process_is_taken_over(local: Any, template: Any, tmp_path: Path) -> None:
    target = files(template, tmp_path / "a", "append")
    journal = killed(local, [target], "move_to")
    dead = json.loads(open(journal).read())["owner"]
    claim = journal.replace(".json", ".claim")
    open(claim, "w").write(json.dumps(dead))
    assert recover(Access(None), journal).outcome is Outcome.UNDONE
    assert not os.path.exists(claim)


@pytest.mark.thorough
def test_remaining_parts_of_a_topic_are_completed_later(
    local: Any, broker: KafkaBroker, template: Any, tmp_path: Path
) -> None:
    """Some parts are irreversibly committed: nothing is undone, and the next job completes the commit."""
    targets = [files(template, tmp_path / "f", "overwrite", "t"), KafkaParts(None, broker, token="t")]

    def refused() -> Any:
        write = topics.write_part

        def fail_second(*args: Any, **kwargs: Any) -> int:
            if args[1] == 2:
                raise OSError("a broker is down")
            return write(*args, **kwargs)

        topics.write_part = fail_second
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

    def complete() -> Any:
        run(local, targets)
        return [target.rows() == target.new for target in targets]

    end = in_child(local, complete)
    assert end.error is None, end.error
    assert end.result == [True, True]
    assert not journals(targets[0])


@pytest.mark.thorough
def test_a_sink_with_an_unknown_outcome_is_completed_later(
    local: Any, template: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta has committed, Iceberg's catalog fails: nothing is undone, and the next job completes the commit."""
    targets = [
        files(template, tmp_path / "f", "overwrite", "t"),
        Delta(template, tmp_path / "d", "append", exists=True, token="t"),
        Iceberg(template, tmp_path / "i", "append", exists=True, token="t"),
    ]

    def refused() -> str:
        from pyiceberg.catalog import sql

        def refuse(*_: Any, **__: Any) -> Never:
            raise OSError("the catalog is down")

        sql.SqlCatalog.commit_table = refuse  # type: ignore[assignment]
        try:
            run(local, targets)
        except CommitError as error:
            return str(error)
        return "nothing was raised"

    text = in_child(local, refused).result
    assert "committed to n.t is unknown" in text
    assert "the catalog is down" in text
    assert "penstock recover" in text
    assert str(targets[1].path) in text
    (journal,) = [path for path in journals(targets[0]) if path.suffix == ".json"]
    assert json.loads(journal.read_text())["owner"] is None

    def complete() -> Any:
        states = [[target.rows() == target.new for target in targets]]
        run(local, targets)
        return [*states, [target.rows() == target.new for target in targets]]

    end = in_child(local, complete)
    assert end.error is None, end.error
    assert end.result == [[True, True, False], [True, True, True]]
    assert not journals(targets[0])


def test_an_error_before_an_irreversible_commit_undoes_everything(local: Any, template: Any, tmp_path: Path) -> None:
    """The log of a Delta table cannot be written: moved files and exchanged folders are restored."""
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
    monkeypatch.setattr("tests.commit.local.exchange", lambda path, other: False)
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


def test_the_old_rows_of_a_target_named_commit_are_not_a_journal(local: Any, tmp_path: Path) -> None:
    """The name of their hidden folder begins like that of journals, and its process is dead."""
    dead = Owner.current().tag.replace(str(os.getpid()), "4194300")
    assert tag_is_alive(f"x-{dead}") is False
    rows = tmp_path / f".penstock-commit-0123456789ab-{dead}-old"
    rows.mkdir()
    (rows / "part-0").write_text("old rows")
    assert journals_at(Access(local), LocalFolder(local, str(tmp_path))) == []
    assert (rows / "part-0").read_text() == "old rows"


def test_journals_contain_no_secrets() -> None:
    properties = {"user": "u", "password": "p", "uri": "postgresql://u:secret@host/db", "batchsize": "10"}
    masked = without_secrets(properties)
    assert dict(masked) == {"user": "u", "password": MASK, "uri": MASK, "batchsize": "10"}
    assert with_secrets(masked, properties) == properties


def test_a_record_of_an_unsupported_kind() -> None:
    with pytest.raises(CommitError, match="newer"):
        prepared_from_dict({"kind": "newer"})


def test_a_journal_that_cannot_be_read(local: Any, tmp_path: Path) -> None:
    (tmp_path / ".penstock-commit-x.json").write_text("{")
    with pytest.raises(CommitError, match="cannot be read"):
        plan_recovery(Access(None), str(tmp_path / ".penstock-commit-x.json"))


def test_if_the_decision_cannot_be_recorded_nothing_is_removed(local: Any, template: Any, tmp_path: Path) -> None:
    """The disk fills up after Delta has committed; recovery completes the commit."""
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
        content = json.loads(journal.read_text())
        staging = content["parts"][0]["staging"].removeprefix("file:")
        return (
            content["decided"],
            os.path.exists(staging),
            recover(Access(None), str(journal)).outcome,
            [target.rows() == target.new for target in targets],
        )

    end = in_child(local, full)
    assert end.error is None, end.error
    assert end.result == (False, True, Outcome.COMPLETED, [True, True])


def test_a_claim_of_another_machine_expires_with_its_lease(local: Any, template: Any, tmp_path: Path) -> None:
    journal = killed(local, [files(template, tmp_path / "a", "append")], "move_to")
    claim = journal.replace(".json", ".claim")
    open(claim, "w").write(json.dumps({"host": "elsewhere/1", "pid": 1, "started": "1"}))
    assert recover(Access(None), journal).outcome is Outcome.RUNNING
    os.utime(claim, (time.time() - 61,) * 2)
    assert recover(Access(None), journal).outcome is Outcome.UNDONE
    assert not journals_left(journal)


def journals_left(journal: Any) -> Any:
    """Return the files of journals that are left after a search for journals."""
    journals_at(Access(None), LocalFolder(None, os.path.dirname(journal)))
    return [
        name
        for name in os.listdir(os.path.dirname(journal.removeprefix("file:")))
        if name.startswith(".penstock-commit")
    ]


def test_a_lease_is_renewed_until_it_ends(local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.commit.claims.LEASE_SECONDS", 0.6)
    file = tmp_path / "journal"
    file.touch()
    lease = Lease(Access(None), str(file))
    time.sleep(1.5)
    assert time.time() - file.stat().st_mtime > 1.4
    assert is_recent(Access(None), str(file))
    lease.end()
    assert not is_recent(Access(None), str(file))
    assert os.listdir(tmp_path) == ["journal"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("other", [None, "delta", "local"])
@pytest.mark.parametrize("case", ["append by partition", "dynamic", "overwrite"])
def test_a_recovery_that_dies_is_repeated(
    local: Any, template: Any, tmp_path: Path, case: str, other: str | None
) -> None:
    """Recovery is killed at each of its steps, or at a sample; another recovery completes it."""
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

        end = in_child(local, stopped)
        assert end.error is None, end.error
        retry = in_child(local, lambda path=journal: recover(Access(None), path).outcome)
        assert retry.error is None, retry.error
        assert retry.result is not Outcome.RUNNING
        rows = in_child(local, lambda targets=targets: [target.rows() for target in targets]).result
        assert rows == [target.old if other is None else target.new for target in targets], step
        assert not in_child(local, lambda journal=journal: journals_left(journal)).result
        if not end.killed:
            break
    assert not end.killed


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["append by partition", "overwrite"])
def test_an_interrupted_recovery_is_repeated_by_the_same_process(
    local: Any, template: Any, tmp_path: Path, case: str
) -> None:
    """At each step: the process survives, and must not mistake its own claim or lease for another's."""
    step, was_interrupted = 0, True
    while was_interrupted:
        targets = [files(template, tmp_path / f"{step}", case), files(template, tmp_path / f"{step}b", case)]
        journal = killed(local, targets, "move_to" if case == "append by partition" else "exchange")

        def interrupt_then_recover(path: Any = journal, step: Any = step) -> Any:
            was_interrupted = False
            try:
                with Stop(step, how="interrupt").armed():
                    recover(Access(None), path)
            except KeyboardInterrupt:
                was_interrupted = True
            return was_interrupted, recover(Access(None), path).outcome

        end = in_child(local, interrupt_then_recover)
        assert end.error is None, end.error
        was_interrupted, outcome = end.result
        assert outcome is not Outcome.RUNNING, step
        assert in_child(local, lambda targets=targets: [each.rows() for each in targets]).result == [
            target.old for target in targets
        ], step
        assert not in_child(local, lambda journal=journal: journals_left(journal)).result
        step += 1
    assert step > 5


@pytest.mark.parametrize("is_irreversible", [False, True])
def test_a_stage_after_the_commit_that_fails(local: Any, template: Any, tmp_path: Path, is_irreversible: bool) -> None:
    """All sinks are undone if all are reversible; otherwise the rows of all sinks stay."""
    targets = [files(template, tmp_path / "a", "append by partition"), files(template, tmp_path / "b", "overwrite")]
    if is_irreversible:
        targets.append(Delta(template, tmp_path / "d", "append", exists=True, token=None))

    def fail_after_commit() -> Any:
        jobs = [target.sink().open(local) for target in targets]
        for target, job in zip(targets, jobs, strict=True):
            target.write(job)
        commit = Commit(Access(None), "j", "j", jobs)
        commit.run()
        error = SinkError("the policy failed")
        commit.fail(error)
        return [target.rows() for target in targets], getattr(error, "__notes__", [])

    end = in_child(local, fail_after_commit)
    assert end.error is None, end.error
    rows, notes = end.result
    assert rows == [target.new if is_irreversible else target.old for target in targets]
    assert bool(notes) == is_irreversible
    assert not journals(targets[0])
    assert not journals(targets[1])


def expire_on_another_machine(journal: Any) -> None:
    """Change a journal to that of a process on another machine that has not renewed it for a minute."""
    content = json.loads(journal.read_text())
    content["owner"]["host"] = "elsewhere/1"
    journal.write_text(json.dumps(content))
    os.utime(journal, (time.time() - 61,) * 2)


@pytest.mark.parametrize("is_irreversible", [False, True])
def test_a_job_that_counted_as_dead_does_not_finish(
    local: Any, template: Any, tmp_path: Path, is_irreversible: bool
) -> None:
    """It was delayed between `run` and `finish`: reversible sinks have been undone."""
    targets = [files(template, tmp_path / "a", "overwrite"), files(template, tmp_path / "b", "append")]
    if is_irreversible:
        targets.append(Jdbc(None, LocalSqlite(tmp_path / "db"), "append", exists=True, token=None))
    jobs = [target.sink().open(local) for target in targets]
    for target, job in zip(targets, jobs, strict=True):
        target.write(job)
    commit = Commit(Access(None), "j", "j", jobs)
    commit.run()
    (journal,) = [path for path in journals(targets[0]) if path.suffix == ".json"]
    expire_on_another_machine(journal)
    outcome = recover(Access(None), str(journal)).outcome
    if is_irreversible:
        assert outcome is Outcome.COMPLETED
        commit.finish()
    else:
        assert outcome is Outcome.UNDONE
        with pytest.raises(CommitError, match="another process recovered") as error:
            commit.finish()
        commit.fail(error.value)
    assert [target.rows() for target in targets] == [
        target.new if is_irreversible else target.old for target in targets
    ]
    assert not journals(targets[0])


@pytest.mark.parametrize(
    ("status_text", "kill_error", "alive"),
    [
        ("the status", None, True),
        (None, PermissionError, None),  # a hidden process of another user (hidepid): it may run
        (None, None, None),  # visible, but the system does not report its start time
        (None, ProcessLookupError, False),
    ],
)
def test_a_process_that_is_hidden_may_run(
    monkeypatch: pytest.MonkeyPatch, status_text: str | None, kill_error: Any, alive: bool | None
) -> None:
    me = Owner.current()

    def status(pid: Any) -> Any:
        if status_text is None:
            raise FileNotFoundError(pid)
        return original(pid)

    def kill(pid: Any, signal: Any) -> None:
        if kill_error is not None:
            raise kill_error(pid)

    from penstock.commit import owner

    original = owner._read_stat
    monkeypatch.setattr(owner, "_read_stat", status)
    monkeypatch.setattr(os, "kill", kill)
    assert me.is_alive() is alive
    assert tag_is_alive(me.tag) is alive


def test_a_hidden_process_counts_as_alive_while_it_renews_its_journal(
    local: Any, template: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = files(template, tmp_path / "a", "append")
    journal = killed(local, [target], "move_to")
    monkeypatch.setattr("penstock.commit.owner._start_time", lambda pid: "")
    assert recover(Access(None), journal).outcome is Outcome.RUNNING
    os.utime(journal, (time.time() - 61,) * 2)
    assert recover(Access(None), journal).outcome is Outcome.UNDONE
    assert target.rows() == target.old


@pytest.mark.parametrize(
    "folder", ["insurance.claims", "a.json", "a.ref", "a.lease", ".penstock-commit-x", "00000000-1-00000000", "a b%20"]
)
def test_parent_folders_with_unusual_names(local: Any, template: Any, tmp_path: Path, folder: str) -> None:
    target = files(template, tmp_path / folder / "x", "append")
    journal = killed(local, [target], "move_to")
    assert [
        os.path.basename(path) for path in journals_at(Access(None), LocalFolder(None, str(target.journal_folder)))
    ] == [os.path.basename(journal)]
    run(local, [target])
    assert target.rows() == target.new
    assert not journals(target)


def test_a_journal_is_released_after_its_last_write(
    local: Any, template: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full for a moment; another job of this process recovers the commit once it is released."""
    target = files(template, tmp_path / "a", "append by partition")
    table = Jdbc(None, LocalSqlite(tmp_path / "db"), "append", exists=True, token=None)
    jobs = [each.sink().open(local) for each in (target, table)]
    for each, job in zip((target, table), jobs, strict=True):
        each.write(job)
    commit = Commit(Access(None), "j", "j", jobs)
    commit.run()
    (journal,) = [path for path in journals(target) if path.suffix == ".json"]
    write, outcomes = LocalFolder.write, []
    refused: list[Any] = []

    def refuse(self: Any, content: Any, **options: bool) -> Any:
        if b'"decided": true' in content and not refused:
            refused.append(self)
            raise OSError("No space left on device")
        return write(self, content, **options)

    abandon = JournalFile.abandon
    monkeypatch.setattr(LocalFolder, "write", refuse)
    monkeypatch.setattr(
        JournalFile,
        "abandon",
        lambda self: (abandon(self), outcomes.append(recover(Access(None), str(journal)).outcome)),
    )
    commit.finish()
    assert refused
    assert outcomes == [Outcome.COMPLETED]
    assert recover(Access(None), str(journal)).outcome is Outcome.GONE
    assert not journals(target)
    assert (target.rows(), table.rows()) == (target.new, table.new)


@pytest.mark.parametrize("change", ["version", "field", "kind"])
def test_a_journal_of_a_later_release(local: Any, template: Any, tmp_path: Path, change: str) -> None:
    """Jobs at its target fail until the later release recovers it; jobs at other targets run."""
    target, other = files(template, tmp_path / "a", "append"), files(template, tmp_path / "b", "create")
    other.path = target.path.with_name("other")
    journal = killed(local, [target], "move_to")
    content = json.loads(open(journal).read())
    if change == "version":
        content["version"] = 99
    else:
        content["parts"][0] |= {"field": {"of_later": 1}, "kind": {"kind": "later"}}[change]
    open(journal, "w").write(json.dumps(content))
    rows = target.rows()
    for access in (
        lambda: plan_recovery(Access(None), journal),
        lambda: recover(Access(None), journal),
        lambda: run(local, [target]),
    ):
        with pytest.raises(CommitError, match="cannot be recovered"):
            access()
    assert target.rows() == rows
    assert json.loads(open(journal).read()) == content
    run(local, [other])
    assert other.rows() == other.new


@pytest.mark.parametrize("case", ["append", "overwrite", "dynamic"])
def test_a_target_that_another_program_has_replaced_since(local: Any, template: Any, tmp_path: Path, case: str) -> None:
    """Delta has committed, then plain Spark replaces the folder of files: recovery completes without changing it."""
    target = files(template, tmp_path / "f", case)
    layout = "plain" if case != "dynamic" else "parts"
    table = Delta(template, tmp_path / "d", "append", exists=True, token=None)

    def work() -> Any:
        journal = killed(local, [target, table], "create_write_transaction")
        shutil.rmtree(target.path)
        shutil.copytree(template("old", layout), target.path)
        rows = target.rows()
        outcome = recover(Access(None), journal).outcome
        return outcome, target.rows() == rows, table.rows() == table.new, journals(target)

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result == (Outcome.COMPLETED, True, True, [])


@pytest.mark.parametrize("case", ["overwrite", "dynamic"])
def test_old_rows_are_not_restored_over_rows_of_another_program(
    local: Any, template: Any, tmp_path: Path, case: str
) -> None:
    """The job is killed after the old folder was moved aside, and plain Spark creates a folder of its name."""
    target = files(template, tmp_path / "f", case)

    def work() -> Any:
        LocalFolder.exchange = lambda self, other: False  # type: ignore[method-assign]
        journal = killed(local, [target], "move_to")
        record = json.loads(open(journal).read())["parts"][0]
        name = next(name for name in record["folders"] if not (target.path / name).exists())
        old = tmp_path / "f" / f"{os.path.basename(record['staging'])}-old" / name
        shutil.copytree(template("new", "plain"), target.path / name)
        before = [sorted(os.listdir(folder)) for folder in (target.path / name, old)]
        message = ""
        for _ in range(2):
            try:
                recover(Access(None), journal)
            except SinkError as error:
                message = str(error)
        is_unchanged = [sorted(os.listdir(folder)) for folder in (target.path / name, old)] == before
        shutil.rmtree(target.path / name)
        outcome = recover(Access(None), journal).outcome
        return str(old) in message, is_unchanged, outcome, target.rows() == target.old, leftovers(target)

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result == (True, True, Outcome.UNDONE, True, [])


def test_the_error_of_a_failed_recovery_has_a_hint(
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
def test_undo_of_an_exchange_on_a_machine_that_cannot_exchange(
    local: Any, template: Any, tmp_path: Path, case: str
) -> None:
    """The recovery is killed at each of its steps; another recovery completes it."""
    for step in range(40):
        target = files(template, tmp_path / str(step), case)
        journal = killed(local, [target], "exchange")

        def stopped(path: Any = journal, step: Any = step) -> None:
            LocalFolder.exchange = lambda self, other: False
            with Stop(step).armed():
                recover(Access(None), path)

        end = in_child(local, stopped)
        assert end.error is None, end.error
        in_child(local, lambda path=journal: (stopped(path, None), path))
        assert not journals_at(Access(None), LocalFolder(None, str(target.journal_folder)))
        assert target.rows() == target.old, step
        assert not leftovers(target)
        if not end.killed:
            return
    raise AssertionError("the recovery did not end")
