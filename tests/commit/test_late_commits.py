"""Commits whose outcome is unknown: the client gets an error, or dies, and the commit succeeds later."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Never

import pytest

from penstock.commit import Access, Outcome, protocol, recover
from penstock.errors import CommitUnknownError, SinkError
from tests.commit.checks import journals, leftovers, run
from tests.commit.harness import in_child
from tests.commit.local import LocalConnection, LocalFolder, LocalSqlite, without_a_jvm
from tests.commit.targets import FILES, Delta, Files, Iceberg, Jdbc, Template

pytestmark = pytest.mark.forks
TABLES = [(kind, mode) for kind in (Delta, Iceberg) for mode in ("append", "overwrite", "upsert", "create")]
NAMES = [f"{kind.__name__} {mode}" for kind, mode in TABLES]


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(protocol, "_FIRST_PAUSE", 0.01)
    return without_a_jvm(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return Template(None, tmp_path_factory.mktemp("template"))


def make_target(kind: Any, template: Any, folder: Path, mode: str) -> Any:
    return kind(template, folder, mode.replace("create", "append"), exists=mode != "create", token="t")


def client_of(kind: Any, mode: str) -> tuple[Any, str, Any]:
    """Return owner and name of the client's commit method, and the error that it raises if the answer is lost."""
    if kind is Iceberg:
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.exceptions import CommitStateUnknownException

        return SqlCatalog, "commit_table", CommitStateUnknownException
    import deltalake
    from deltalake import transaction

    if mode == "create":
        return transaction, "create_table_with_add_actions", OSError
    return deltalake.DeltaTable, "create_write_transaction", OSError


class Unanswered:
    """A client whose commit requests get no answer; each may land later, as the server still processes it."""

    def __init__(self, kind: Any, mode: str) -> None:
        self._owner, self._name, error = client_of(kind, mode)
        self._original = getattr(self._owner, self._name)
        self._requests: list[Any] = []

        def lost(*args: Any, **kwargs: Any) -> Never:
            self._requests.append((args, kwargs))
            raise error("504: gateway timeout")

        setattr(self._owner, self._name, lost)

    def answers_again(self) -> None:
        setattr(self._owner, self._name, self._original)

    def land(self, number: int) -> None:
        args, kwargs = self._requests[number]
        self._original(*args, **kwargs)


def journal_of(target: Any) -> str:
    (journal,) = [path for path in journals(target) if path.suffix == ".json"]
    return str(journal)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kind", "mode"), TABLES, ids=NAMES)
@pytest.mark.parametrize("lands", ["before the recovery", "after it"])
def test_files_of_a_late_commit_are_not_removed(
    local: Any, template: Any, tmp_path: Path, kind: Any, mode: str, lands: str
) -> None:
    target = make_target(kind, template, tmp_path / "t", mode)

    def work() -> Any:
        client = Unanswered(kind, mode)
        with pytest.raises(CommitUnknownError, match="504: gateway timeout") as failed:
            run(local, [target])
        journal = journal_of(target)
        assert journal in str(failed.value)
        assert target.rows() == target.old
        if lands == "before the recovery":
            client.land(0)
            assert target.rows() == target.new
        client.answers_again()
        outcome = recover(Access(None), journal).outcome
        with suppress(Exception):  # the second request lands, or is refused
            client.land(1)
        assert target.rows() == target.new
        run(local, [target])  # the target has the token
        assert target.rows() == target.new
        return outcome

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result is Outcome.COMPLETED
    assert not journals(target)
    assert not leftovers(target)


@pytest.mark.parametrize(("kind", "mode"), TABLES, ids=NAMES)
def test_a_commit_that_lands_between_two_attempts_is_not_repeated(
    local: Any, template: Any, tmp_path: Path, kind: Any, mode: str
) -> None:
    """Without a token, so that only the job's own receipt shows the commit."""
    target = make_target(kind, template, tmp_path / "t", mode)
    target.token = None

    def work() -> None:
        client = Unanswered(kind, mode)
        pause = time.sleep

        def lands(seconds: float) -> None:
            client.land(0)
            client.answers_again()
            time.sleep = pause

        time.sleep = lands  # type: ignore[assignment]
        run(local, [target])
        assert target.rows() == target.new

    end = in_child(local, work)
    assert end.error is None, end.error
    assert not journals(target)


@pytest.mark.parametrize("again", ["by the job", "by a recovery"])
def test_an_append_that_lands_after_the_log_was_read_is_committed_once(
    local: Any, template: Any, tmp_path: Path, again: str
) -> None:
    """deltalake by itself would append to an intermediate version, and readers of changes would see rows twice."""
    target = make_target(Delta, template, tmp_path / "t", "append")
    target.token = None

    def work() -> int:
        import deltalake

        client = Unanswered(Delta, "append")
        write = client._original

        def lands(*args: Any, **kwargs: Any) -> None:
            client.land(0)
            client.answers_again()
            write(*args, **kwargs)

        if again == "by the job":
            pause = time.sleep

            def soon(seconds: float) -> None:
                deltalake.DeltaTable.create_write_transaction = lands
                time.sleep = pause

            time.sleep = soon  # type: ignore[assignment]
            run(local, [target])
        else:
            with pytest.raises(CommitUnknownError):
                run(local, [target])
            deltalake.DeltaTable.create_write_transaction = lands
            recover(Access(None), journal_of(target))
        assert target.rows() == target.new
        return deltalake.DeltaTable(str(target.path)).version()

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result == 1


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_other_sinks_are_not_undone_if_a_sink_may_have_committed(
    local: Any, template: Any, tmp_path: Path, kind: Any
) -> None:
    mode, layout, exists = FILES["overwrite"]
    files = Files(template, tmp_path / "f", mode, layout, exists=exists, token="t")
    targets = [files, make_target(kind, template, tmp_path / "t", "append")]

    def work() -> Any:
        client = Unanswered(kind, "append")
        with pytest.raises(CommitUnknownError, match="is unknown; committed: "):
            run(local, targets)
        assert files.rows() == files.new
        client.land(2)
        client.answers_again()
        outcome = recover(Access(None), journal_of(files)).outcome
        return outcome, [target.rows() == target.new for target in targets]

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result == (Outcome.COMPLETED, [True, True])
    assert not journals(files)


@pytest.mark.thorough
def test_a_driver_that_dies_after_the_request(local: Any, template: Any, tmp_path: Path) -> None:
    """The catalog commits after the recovery has begun: a separate process sends the request and survives."""
    mode, layout, exists = FILES["overwrite"]
    files = Files(template, tmp_path / "f", mode, layout, exists=exists, token="t")
    targets = [files, make_target(Iceberg, template, tmp_path / "t", "append")]
    landed = tmp_path / "landed"

    def dies() -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        commit_table = SqlCatalog.commit_table

        def request_then_die(*args: Any, **kwargs: Any) -> Never:
            if os.fork() == 0:
                for number in os.listdir("/proc/self/fd"):  # so that no reader waits for this process
                    with suppress(OSError):
                        if os.readlink(f"/proc/self/fd/{number}").startswith("pipe:") and int(number) > 2:
                            os.close(int(number))
                time.sleep(1.5)
                with suppress(Exception):
                    commit_table(*args, **kwargs)
                landed.touch()
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError

        SqlCatalog.commit_table = request_then_die  # type: ignore[method-assign]
        run(local, targets)

    assert in_child(local, dies).killed

    def after() -> Any:
        journal = journal_of(files)
        assert not landed.exists()
        outcome = recover(Access(None), journal).outcome
        while not landed.exists():
            time.sleep(0.05)
        return outcome, [target.rows() == target.new for target in targets]

    end = in_child(local, after)
    assert end.error is None, end.error
    assert end.result == (Outcome.COMPLETED, [True, True])
    assert not journals(files)


def test_an_undo_that_dies_is_not_completed(local: Any, template: Any, tmp_path: Path) -> None:
    """The catalog refuses the commit, and the driver dies after some files are removed: the rest is undone, too."""
    mode, layout, exists = FILES["overwrite"]
    files = Files(template, tmp_path / "f", mode, layout, exists=exists, token="t")
    targets = [files, make_target(Iceberg, template, tmp_path / "t", "append")]

    def dies() -> None:
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.exceptions import ValidationException

        delete = LocalFolder.delete

        def refuse(*_: Any, **__: Any) -> Never:
            raise ValidationException("never")

        def killed(self: Any) -> None:
            delete(self)
            if "/data/penstock-" in str(self):
                os.kill(os.getpid(), signal.SIGKILL)

        SqlCatalog.commit_table = refuse  # type: ignore[method-assign]
        LocalFolder.delete = killed  # type: ignore[method-assign]
        run(local, targets)

    assert in_child(local, dies).killed

    def after() -> Any:
        outcome = recover(Access(None), journal_of(files)).outcome
        return outcome, [target.rows() == target.old for target in targets]

    end = in_child(local, after)
    assert end.error is None, end.error
    assert end.result == (Outcome.UNDONE, [True, True])


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (target, token)"])
def test_a_ledger_without_a_key_cannot_show_a_running_commit(local: Any, tmp_path: Path, key: str) -> None:
    """With a key, a query of the ledger waits for transactions that have inserted an entry."""
    database = LocalSqlite(tmp_path / "d.db")
    target = Jdbc(None, database, "append", exists=True, token=None)
    database.sql(f"create table penstock_commits (target varchar(200) not null, token varchar(200) not null{key})")
    job = target.sink().open(local)
    target.write(job)
    record = job.prepare()
    if key:
        assert not record.is_committed(Access(None))
    else:
        with pytest.raises(SinkError, match="a running commit cannot be awaited"):
            record.is_committed(Access(None))


def test_an_interrupt_during_the_only_commit_writes_a_journal(local: Any, tmp_path: Path) -> None:
    """A later process finds out from the journal whether the rows were committed."""
    database = LocalSqlite(tmp_path / "d.db")
    target = Jdbc(None, database, "append", exists=True, token="t")

    def work() -> Any:
        commit = LocalConnection.commit

        def interrupted(_: Any) -> Never:
            raise KeyboardInterrupt

        LocalConnection.commit = interrupted  # type: ignore[assignment,method-assign]
        with pytest.raises(KeyboardInterrupt) as failed:
            run(local, [target])
        LocalConnection.commit = commit  # type: ignore[method-assign]
        (journal,) = (tmp_path / "warehouse").glob(".penstock-commit-*.json")
        (note,) = failed.value.__notes__
        assert str(journal) in note
        outcome = recover(Access(None, dict(target.sink().secrets)), str(journal)).outcome
        return outcome, target.rows() == target.old, database.sql("select name from sqlite_master")

    end = in_child(local, work)
    assert end.error is None, end.error
    outcome, is_old, tables = end.result
    assert (outcome, is_old) == (Outcome.UNDONE, True)
    assert f"penstock_{target.table[:2]}" not in tables


def test_a_database_that_goes_away_during_commit(local: Any, tmp_path: Path) -> None:
    """A journal is written, and the rows stay staged until a later process can query the database."""
    database = LocalSqlite(tmp_path / "d.db")
    target = Jdbc(None, database, "append", exists=True, token="t")

    def work() -> Any:
        commit, connect = LocalConnection.commit, LocalConnection.__init__

        def fail(*_: Any) -> Never:
            raise OSError("the database is away")

        def lost(self: Any) -> Never:
            LocalConnection.__init__ = fail  # type: ignore[assignment,method-assign]
            fail()

        LocalConnection.commit = lost  # type: ignore[method-assign]
        with pytest.raises(CommitUnknownError, match="the database is away") as failed:
            run(local, [target])
        LocalConnection.commit, LocalConnection.__init__ = commit, connect  # type: ignore[method-assign]
        (journal,) = (tmp_path / "warehouse").glob(".penstock-commit-*.json")
        assert str(journal) in str(failed.value)
        (staged,) = database.sql(
            f"select name from sqlite_master where name like 'penstock_{target.table[:2]}%'"
        ).split()
        assert database.sql(f"select count(*) from {staged}") == str(len(target.new) - len(target.old))
        outcome = recover(Access(None, dict(target.sink().secrets)), str(journal)).outcome
        assert staged not in database.sql("select name from sqlite_master")
        return outcome, target.rows() == target.old

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result == (Outcome.UNDONE, True)
