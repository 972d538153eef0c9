"""Trust in journals: planted, foreign and damaged journals have no effect and stop no job."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.base import ownership
from penstock.base.ownership import CheckedContent, Writer
from penstock.commit import Access, Outcome, recover, recover_target
from penstock.commit.added_files import PreparedFiles
from penstock.commit.journal import journals_at, read_journal
from penstock.commit.leftovers import find_leftovers
from penstock.commit.names import check_relative_paths, check_staging, check_within
from penstock.commit.owner import Owner
from penstock.commit.trust import (
    LARGEST_JOURNAL,
    check_location,
    check_path_from_database,
    is_signed,
    key_file,
    signed_json,
    user_key,
)
from penstock.errors import CommitError, UntrustedJournalError
from tests.commit.checks import journals, leftovers, run
from tests.commit.harness import Stop, in_child
from tests.commit.local import LocalFolder, LocalSqlite, without_a_jvm
from tests.commit.targets import Files, Jdbc, Template

pytestmark = pytest.mark.forks

STRANGER = 65534
"""The user ``nobody``; only root can change the owner of files to it."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")
DEAD = Owner.current().tag.replace(str(os.getpid()), "4194300")
STAGING = f"0123456789ab-{DEAD}"


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr("penstock.commit.trust._WARNED", set())
    return without_a_jvm(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(None, tmp_path_factory.mktemp("template"))


@pytest.fixture
def target(template: Template, tmp_path: Path) -> Files:
    return Files(template, tmp_path / "t", "append", "plain", exists=True, token=None)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder that a planted journal tries to remove."""
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "file").write_text("precious")
    return folder


def journal_of(target: Files, **change: Any) -> dict[str, Any]:
    """Return the journal of a dead job whose recovery is a rollback, which removes its staging folder."""
    part = {
        "kind": "files",
        "path": f"file:{target.path}",
        "staging": f"file:{target.journal_folder}/.penstock-out-{STAGING}",
        "files": ["part-0.parquet"],
    }
    content = {"version": 1, "job": "j", "name": "j", "decided": False, "asked": False, "back": True, "owner": None}
    return content | {"parts": [part | change]}


def plant(target: Files, content: bytes | dict[str, Any], ending: str = "json", uid: int | None = None) -> Path:
    file = target.journal_folder / f".penstock-commit-x-{DEAD}.{ending}"
    file.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    file.chmod(0o600)
    if uid is not None:
        os.chown(file, uid, uid)
    return file


def make_staging(target: Files) -> Path:
    """Create and return the staging folder of `journal_of`."""
    staging = target.journal_folder / f".penstock-out-{STAGING}"
    staging.mkdir()
    return staging


def test_the_journal_of_this_user_is_recovered(local: Any, target: Files) -> None:
    staging, journal = make_staging(target), plant(target, journal_of(target))
    assert recover_target(Access(None), LocalFolder(None, str(target.path)))
    assert not staging.exists()
    assert not journal.exists()


def _change_owner(file: Path) -> None:
    os.chown(file, STRANGER, STRANGER)


def _replace_by_link(file: Path) -> None:
    shutil.move(file, file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


PLANTED: dict[str, Callable[[Path], object]] = {
    "belongs to user 65534": _change_owner,
    "mode 622": lambda file: file.chmod(0o622),
    "mode 620": lambda file: file.chmod(0o620),
    "symbolic link": _replace_by_link,
}


@needs_root
@pytest.mark.parametrize("reason", PLANTED)
def test_journals_that_others_may_have_written_are_ignored(
    local: Any, target: Files, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    staging, journal = make_staging(target), plant(target, journal_of(target))
    PLANTED[reason](journal)
    with caplog.at_level(logging.WARNING, "penstock.commit"):
        run(local, [target])
    assert target.rows() == target.new
    assert staging.exists()
    assert os.path.lexists(journal)
    assert str(journal) in caplog.text
    assert reason in caplog.text
    with pytest.raises(UntrustedJournalError, match=reason):
        recover(Access(None), str(journal))


BAD: dict[str, dict[str, Any]] = {
    "any folder": {"staging": "file:{precious}"},
    "upwards": {"staging": "file:{parent}/.penstock-out-0123456789ab/../../precious"},
    "relative": {"staging": "precious"},
    "of another file system": {"staging": f"s3a://bucket{{parent}}/.penstock-out-{STAGING}"},
    "beside another target": {"staging": f"file:{{precious}}/.penstock-out-{STAGING}"},
    "of another name": {"staging": f"file:{{parent}}/.penstock-other-{STAGING}"},
    "a file upwards": {"files": ["../../precious/file"]},
    "an absolute file": {"files": ["/etc/passwd"]},
    "the target as a file": {"files": [""]},
    "old files upwards": {"away": ["../../precious/file"]},
    "new folders upwards": {"made": ["../../precious"]},
    "no text": {"path": 5},
    "no list": {"files": "abc"},
}


@pytest.mark.parametrize("case", BAD)
def test_journals_with_invalid_names_are_ignored(
    local: Any, target: Files, precious: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    """Even the user's own journal cannot affect paths outside its target."""
    folders = {"parent": target.journal_folder, "precious": precious}
    change = {key: value.format(**folders) if isinstance(value, str) else value for key, value in BAD[case].items()}
    journal = plant(target, journal_of(target, **change))
    before = target.rows()
    with pytest.raises(UntrustedJournalError, match="cannot be read"):
        recover(Access(None), str(journal))
    assert target.rows() == before
    with caplog.at_level(logging.WARNING, "penstock.commit"):
        run(local, [target])
    assert target.rows() == target.new
    assert (precious / "file").read_text() == "precious"
    assert str(journal) in caplog.text


GARBAGE: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"\xff\xfe{",
    "a list": b"[]",
    "nested too deep": b"[" * 100_000,
    "no parts": b'{"version": 1}',
    "parts of texts": b'{"version": 1, "job": "j", "name": "j", "decided": true, "owner": null, "parts": ["x"]}',
    "a flag of text": b'{"version": 1, "job": "j", "name": "j", "decided": "x", "owner": null, "parts": []}',
    "no owner": b'{"version": 1, "job": "j", "name": "j", "decided": true, "owner": {"pid": 1e999}, "parts": []}',
}


@pytest.mark.parametrize("case", GARBAGE)
@pytest.mark.parametrize("ending", ["json", "ref", "claim", "json.lease"])
def test_garbage_stops_no_job(local: Any, target: Files, case: str, ending: str) -> None:
    plant(target, GARBAGE[case], ending)
    run(local, [target])
    assert target.rows() == target.new


def test_a_job_writes_no_journal_that_recovery_would_reject(
    monkeypatch: pytest.MonkeyPatch, local: Any, target: Files
) -> None:
    def refuse(self: PreparedFiles) -> None:
        raise ValueError("'..' leads out of the folder")

    monkeypatch.setattr(PreparedFiles, "check_names", refuse)
    with pytest.raises(CommitError, match=r"is not written[^\n]*\n  cause: .* leads out of the folder"):
        run(local, [target])
    assert target.rows() == target.old
    assert not journals(target)
    assert not leftovers(target)


def test_a_huge_file_is_not_read(local: Any, target: Files, caplog: pytest.LogCaptureFixture) -> None:
    journal = plant(target, b"")
    os.truncate(journal, LARGEST_JOURNAL * 1000)  # sparse
    run(local, [target])
    assert target.rows() == target.new
    assert "bytes, more than" in caplog.text


@needs_root
def test_an_unknown_version_by_another_user_stops_no_job(local: Any, target: Files) -> None:
    content = journal_of(target) | {"version": 99}
    journal = plant(target, content, uid=STRANGER)
    run(local, [target])
    assert target.rows() == target.new
    os.chown(journal, 0, 0)
    with pytest.raises(CommitError, match="cannot be recovered"):
        run(local, [target])


def test_a_journal_with_an_unsupported_record_is_not_undone(local: Any, target: Files) -> None:
    staging, content = make_staging(target), journal_of(target)
    content["parts"].insert(0, {"kind": "later", "path": f"file:{target.path}"})
    plant(target, content)
    with pytest.raises(CommitError, match="cannot be recovered"):
        recover_target(Access(None), LocalFolder(None, str(target.path)))
    assert staging.exists()


REFERENCES: dict[str, str] = {
    "another name": "file:{parent}/.penstock-commit-y.json",
    "upwards": f"file:{{parent}}/../t/.penstock-commit-x-{DEAD}.json",
    "relative": f".penstock-commit-x-{DEAD}.json",
    "any file": "file:/etc/passwd",
    "a web server": f"http://127.0.0.1:1/.penstock-commit-x-{DEAD}.json",
    "unsupported file system": f"nosuch://x/.penstock-commit-x-{DEAD}.json",
}


@pytest.mark.parametrize("case", REFERENCES)
def test_pointers_to_invalid_journals_are_ignored(
    local: Any, target: Files, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    path = REFERENCES[case].format(parent=target.journal_folder)
    pointer = plant(target, {"version": 1, "journal": path}, "ref")
    assert journals_at(Access(None), LocalFolder(None, str(target.journal_folder))) == []
    assert str(pointer) in caplog.text or path in caplog.text
    run(local, [target])
    assert target.rows() == target.new


@needs_root
def test_pointers_of_other_users_are_not_followed(local: Any, target: Files, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / f".penstock-commit-x-{DEAD}.json"
    elsewhere.parent.mkdir()
    elsewhere.write_text(json.dumps(journal_of(target)))
    staging = make_staging(target)
    pointer = plant(target, {"version": 1, "journal": f"file:{elsewhere}"}, "ref", uid=STRANGER)
    run(local, [target])
    assert staging.exists()
    assert pointer.exists()
    os.chown(pointer, 0, 0)
    assert recover_target(Access(None), LocalFolder(None, str(target.path)))
    assert not staging.exists()


@needs_root
def test_claims_and_leases_of_other_users_do_not_count(
    local: Any, target: Files, caplog: pytest.LogCaptureFixture
) -> None:
    staging, content = make_staging(target), journal_of(target)
    content["owner"] = {"host": "elsewhere/1", "pid": 1, "started": "1"}
    journal = plant(target, content)
    os.utime(journal, (1, 1))
    lease = plant(target, b"", "json.lease", uid=STRANGER)
    claim = plant(target, json.dumps(content["owner"]).encode(), "claim", uid=STRANGER)
    run(local, [target])  # the foreign claim prevents a recovery, but no job waits
    assert target.rows() == target.new
    assert staging.exists()
    assert str(claim) in caplog.text
    claim.unlink()
    assert recover(Access(None), str(journal)).outcome is Outcome.UNDONE
    assert not staging.exists()
    lease.unlink(missing_ok=True)


@needs_root
def test_a_claim_of_another_user_does_not_take_over_a_commit(local: Any, target: Files) -> None:
    """The claim appears during the commit."""

    def work() -> list[Any]:
        write = LocalFolder.write

        def write_then_claim(self: Any, content: bytes, **options: bool) -> bool:
            is_written = write(self, content, **options)
            if self.name.startswith(".penstock-commit-") and self.name.endswith(".json"):
                claim = self.local_path.removesuffix(".json") + ".claim"
                shutil.copy(self.local_path, claim)
                os.chown(claim, STRANGER, STRANGER)
            return is_written

        LocalFolder.write = write_then_claim  # type: ignore[method-assign]
        run(local, [target])
        return target.rows()

    end = in_child(local, work)
    assert end.error is None, end.error
    assert end.result == target.new


@needs_root
def test_a_trusted_journal_of_another_user_is_recovered(local: Any, target: Files, precious: Path) -> None:
    staging, journal = make_staging(target), plant(target, journal_of(target), uid=STRANGER)
    assert recover(Access(None, trusted_journal=f"file:{journal}"), str(journal)).outcome is Outcome.UNDONE
    assert not staging.exists()
    journal = plant(target, journal_of(target, staging=f"file:{precious}"), uid=STRANGER)
    with pytest.raises(UntrustedJournalError, match="not a staging folder"):
        recover(Access(None, trusted_journal=f"file:{journal}"), str(journal))
    assert precious.exists()


@pytest.mark.parametrize("content", [b"garbage", None])
def test_folders_that_an_ignored_journal_may_need_are_not_removed(
    local: Any, target: Files, content: bytes | None
) -> None:
    """They may contain the only copy of old rows."""
    staging, path = make_staging(target), f"file:{target.path}"
    assert [leftover.is_used for leftover in find_leftovers(Access(None), path)] == [False]
    journal = plant(target, content or journal_of(target))
    if content is None:
        journal.chmod(0o666)
    assert [leftover.is_used for leftover in find_leftovers(Access(None), path)] == [None]
    assert staging.exists()


def test_files_of_commits_are_private(local: Any, template: Template, tmp_path: Path) -> None:
    """Journals, pointers and leases are private; the mode of files with rows depends on the umask."""
    targets = [Files(template, tmp_path / name, "append", "plain", exists=True, token=None) for name in ("a", "b")]
    before = os.umask(0)
    try:
        assert in_child(local, lambda: run(local, targets, Stop(6))).killed
    finally:
        os.umask(before)
    files = [file for target in targets for file in journals(target)]
    assert {file.suffix for file in files} == {".json", ".ref"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    run(local, targets)
    assert not [name for target in targets for name in leftovers(target)]


def _without_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report no owners of files, as on an object store."""

    def read(path: str, limit: int) -> CheckedContent | None:
        checked = original(path, limit)
        return checked and CheckedContent(checked.content, Writer.UNKNOWN, "no owners are recorded")

    original = ownership.read_checked
    monkeypatch.setattr("tests.commit.local.read_checked", read)


@pytest.mark.parametrize("has_key", [True, False])
def test_a_digest_decides_if_no_owners_are_recorded(
    local: Any, target: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_key: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    _without_owners(monkeypatch)
    assert in_child(local, lambda: run(local, [target], Stop(3))).killed
    (journal,) = [path for path in journals(target) if path.suffix == ".json"]
    if not has_key:
        key_file().unlink()
        with pytest.raises(UntrustedJournalError, match="no owners"):
            recover(Access(None), str(journal))
        return
    rows = target.rows()
    content = journal.read_bytes()
    journal.write_bytes(content.replace(b'"back": false', b'"back": true'))
    with pytest.raises(UntrustedJournalError, match="no owners"):
        recover(Access(None), str(journal))
    assert target.rows() == rows
    journal.write_bytes(content)
    assert recover(Access(None), str(journal)).outcome is Outcome.UNDONE


def test_a_digest_covers_name_and_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    content = signed_json("a.json", {"parts": [1]})
    assert json.loads(content)["parts"] == [1]
    assert is_signed("a.json", content)
    assert not is_signed("b.json", content)
    assert not is_signed("a.json", content.replace(b"1", b"2"))
    assert not is_signed("a.json", b'{"parts": [1]}')
    assert stat.S_IMODE(key_file().stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620])
def test_a_key_that_others_can_access_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    content = signed_json("a.json", {})
    key_file().chmod(mode)
    assert user_key() is None
    assert not is_signed("a.json", content)


def test_without_a_home_there_is_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert user_key() is None
    assert json.loads(signed_json("a.json", {"a": 1})) == {"a": 1}


@pytest.mark.parametrize(
    ("path", "is_accepted"),
    [
        ("file:/w/.penstock-commit-a-1.json", True),
        ("/w/.penstock-commit-a-1.json", True),
        ("hdfs://here/x/.penstock-commit-a-1.json", True),
        ("s3a://bucket/.penstock-commit-a-1.json", True),
        ("hdfs://elsewhere/x/.penstock-commit-a-1.json", False),
        ("hdfs://here/x/../.penstock-commit-a-1.json", False),
        ("http://here/.penstock-commit-a-1.json", False),
        ("/w/journal.json", False),
    ],
)
def test_journal_paths_in_rows_of_databases(path: str, is_accepted: bool) -> None:
    if is_accepted:
        check_path_from_database(path, "hdfs://here/warehouse")
    else:
        with pytest.raises(UntrustedJournalError):
            check_path_from_database(path, "hdfs://here/warehouse")


@pytest.mark.parametrize("pointed_from", ["own:/y", "file:/y"])
def test_journals_are_on_the_file_system_of_the_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pointed_from: str
) -> None:
    """Also on a file system with an implementation by the user."""
    path = "own:/x/.penstock-commit-a.json"
    if pointed_from == "file:/y":
        with pytest.raises(UntrustedJournalError):
            check_location(path, pointed_from)
        return
    check_location(path, pointed_from)

    class OwnFolder(LocalFolder):
        def __init__(self, bridge: object, path: str) -> None:
            super().__init__(bridge, f"{tmp_path}{path.removeprefix('own:')}")

    (tmp_path / "x").mkdir()
    content = {"version": 1, "job": "j", "name": "j", "decided": False, "asked": False, "back": True, "owner": None}
    (tmp_path / "x" / ".penstock-commit-a.json").write_text(json.dumps(content | {"parts": []}))
    monkeypatch.setattr("penstock.commit.journal.HadoopPath", OwnFolder)
    assert read_journal(Access(None), path) is not None


@pytest.mark.parametrize(
    ("staging", "target", "is_accepted"),
    [
        ("file:/a/.penstock-t-0123456789ab", "file:///a/t", True),
        ("/a/.penstock-t-0123456789ab-00000000-1-00000000", "file:/a/t", True),
        ("file:/a/t/.penstock-rows-0123456789ab", "file:/a/t", True),
        ("s3a://b/.penstock-t-0123456789ab", "s3a://b/t", True),
        ("hdfs://NN:8020/a/.penstock-t-0123456789ab", "hdfs://nn:8020/a/t", True),
        ("file:/a\n/.penstock-t-0123456789ab", "file:/a\n/t", True),
        ("s3a://c/.penstock-t-0123456789ab", "s3a://b/t", False),
        ("hdfs://n/a/.penstock-t-0123456789ab", "file:/a/t", False),
        ("/a/.penstock-t-0123456789ab-old", "/a/t", False),
        ("/a/t", "/a/t", False),
        ("/a/./.penstock-t-0123456789ab", "/a/t", False),
    ],
)
def test_staging_folders(staging: str, target: str, is_accepted: bool) -> None:
    if is_accepted:
        check_staging(staging, target)
    else:
        with pytest.raises(ValueError, match=r"staging|contains"):
            check_staging(staging, target)


def test_paths_within_a_folder() -> None:
    for path, folder in (("file:/t/data/penstock-0", "/t"), ("hdfs://n:8020/t/x", "hdfs:///t"), ("hdfs://n/t/x", "/t")):
        check_within(path, folder)
    for path, folder in (("hdfs://n/t/x", "hdfs://m/t"), ("hdfs:///t/x", "hdfs://m/t"), ("hdfs://n/t/x", "s3a:///t")):
        with pytest.raises(ValueError, match="within"):
            check_within(path, folder)
    check_relative_paths(["", "a=1/b", ".hidden"])
    for path in ("/tt/x", "/t", "s3a://b/t/x"):
        with pytest.raises(ValueError, match="within"):
            check_within(path, "file:/t")
    for name in ("/a", "a//b", "..", "a/../b", "a\0"):
        with pytest.raises(ValueError, match="contains an empty name"):
            check_relative_paths([name])


STATEMENTS: dict[str, dict[str, Any]] = {
    "a staging table": {"staging": "x; DROP TABLE precious; --"},
    "a table of others": {"staging": "precious"},
    "another schema": {"staging": "other.penstock_t_0123456789ab"},
    "a table": {"table": "t; DROP TABLE precious"},
    "a quoted table": {"table": '"x\\"."; DROP TABLE precious; --"'},
    "a column": {"columns": ["id) SELECT 1; DROP TABLE precious; --"]},
    "a key": {"key": ["id) DO NOTHING; DROP TABLE precious; --"]},
    "the tables of a token": {"of_token": "p"},
    "a mode": {"mode": "drop"},
    "another database": {"database": "jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'http://127.0.0.1:1/x'"},
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_names_that_contain_statements_are_rejected(local: Any, tmp_path: Path, case: str) -> None:
    server = LocalSqlite(tmp_path / "db")
    target = Jdbc(None, server, "append", exists=True, token=None)
    server.sql("create table precious (id bigint); create table penstock_journals (target text, journal text)")
    part = {
        "kind": "jdbc",
        "database": server.url,
        "table": target.table,
        "mode": "append",
        "columns": ['"id"'],
        "key": [],
        "staging": "penstock_t_0123456789ab",
        "token": None,
        "receipt": "job 1",
        "of_token": None,
        "properties": [],
    }
    content = {"version": 1, "job": "j", "name": "j", "decided": False, "asked": False, "back": True, "owner": None}
    (tmp_path / "warehouse").mkdir(exist_ok=True)
    journal = tmp_path / "warehouse" / ".penstock-commit-x.json"
    journal.write_text(json.dumps(content | {"parts": [part]}))
    assert read_journal(Access(None), str(journal)) is not None
    journal.write_text(json.dumps(content | {"parts": [part | STATEMENTS[case]]}))
    server.sql(f"insert into penstock_journals values ('{target.table}', '{journal}')")
    with pytest.raises(UntrustedJournalError, match="cannot be read"):
        recover(Access(None), str(journal))
    run(local, [target])
    assert target.rows() == target.new
    assert server.sql("select count(*) from precious") == "0"
    assert journal.exists()


def test_a_table_whose_name_is_a_statement_is_not_dropped(local: Any, tmp_path: Path) -> None:
    """Staging tables of runs with the same token share a prefix, which other tables may have, too."""
    server = LocalSqlite(tmp_path / "db")
    target = Jdbc(None, server, "append", exists=True, token="t")
    stem = target.sink().open(local)._token_prefix
    names = [f"{stem}0123456789ab", f"{stem}backup", f"{stem}x; DROP TABLE precious"]
    for name in ("precious", *names):
        server.sql(f'create table "{name}" (id bigint)'.replace(";", "\0")) if ";" not in name else _create(
            server, name
        )
    run(local, [target])
    assert target.rows() == target.new
    tables = server.sql("select name from sqlite_master where type = 'table'").split("\n")
    assert "precious" in tables
    assert names[0] not in tables
    assert set(names[1:]) <= set(tables)


def _create(server: LocalSqlite, name: str) -> None:
    import sqlite3

    with sqlite3.connect(server.file) as connection:
        connection.execute(f'create table "{name}" (id bigint)')
