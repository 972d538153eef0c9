"""Targets that are or contain mounted volumes, and folders that cannot be exchanged: no copies, no lost rows."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base import local_files
from penstock.commit import Access, Outcome, recover
from penstock.commit.folders import PreparedFolders
from penstock.commit.leftovers import find_leftovers
from penstock.connectors import FileSink
from penstock.errors import SinkError
from tests.commit.checks import journals, leftovers, run
from tests.commit.harness import in_child
from tests.commit.local import LocalFolder, as_a_volume, without_a_jvm
from tests.commit.targets import FILES, NEW, Files, Template
from tests.commit.test_several_jobs import OtherJob, new_commit, run_commit

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


@pytest.fixture
def mounted() -> Iterator[Any]:
    """Return a function that mounts a small file system on a folder, with the content of the folder."""
    mounts = []

    def mount(path: Any) -> None:
        copy = path.with_name("copy")
        shutil.copytree(path, copy)
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=False).returncode:
            if os.environ.get("ALL_TEST_SERVICES") == "1":
                pytest.fail("nothing can be mounted here")
            pytest.skip("nothing can be mounted here: that needs root")
        mounts.append(path)
        shutil.copytree(copy, path, dirs_exist_ok=True)
        shutil.rmtree(copy)

    yield mount
    for path in reversed(mounts):
        subprocess.run(["umount", "-l", path], check=True)


IN_VOLUMES = [name for name in FILES if "create" not in name]


@pytest.mark.parametrize("fails", [False, True], ids=["commits", "fails"])
@pytest.mark.parametrize("case", IN_VOLUMES)
def test_a_target_that_is_a_volume(local: Any, make_target: Any, mounted: Any, case: Any, fails: bool) -> None:
    target = make_target(case)
    mounted(target.path)
    error = run_commit(new_commit(local, target, *([OtherJob(SinkError("the other sink failed"))] if fails else [])))
    assert (error is not None) == fails
    assert target.rows() == (target.old if fails else target.new)
    assert not leftovers(target)
    assert os.path.ismount(target.path)


@pytest.mark.parametrize(
    ("case", "refused"),
    [("overwrite", True), ("append by partition", True), ("dynamic", True), ("append", False)],
)
def test_a_target_that_contains_a_volume(local: Any, make_target: Any, mounted: Any, case: str, refused: bool) -> None:
    target = make_target(case)
    (target.path / "p=0").mkdir(exist_ok=True)
    mounted(target.path / "p=0")
    if refused:
        with pytest.raises(SinkError, match=r"contains mounted volumes: .*p=0"):
            run(local, [target])
    else:
        run(local, [target])
    assert target.rows() == (target.old if refused else target.new)
    assert not leftovers(target)


def test_a_whole_file_system_is_rejected_as_target(local: Any) -> None:
    with pytest.raises(SinkError, match="whole file system"):
        FileSink("/", mode="overwrite").open(local)


@pytest.mark.parametrize("case", ["overwrite", "dynamic", "append by partition"])
def test_a_volume_that_is_not_recognized(
    local: Any, make_target: Any, mounted: Any, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """The system does not report the volume: the job fails instead of copying, and the old rows stay."""
    target = make_target(case)
    mounted(target.path)
    monkeypatch.setattr(LocalFolder, "is_volume", False)
    error = run_commit(new_commit(local, target))
    assert isinstance(error, SinkError)
    assert target.rows() == target.old
    assert not leftovers(target)
    assert "volume" in str(error)


@pytest.mark.parametrize("is_blocked", [False, True])
def test_an_empty_folder_in_the_way_of_old_rows_is_removed(
    local: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch, is_blocked: bool
) -> None:
    """A file system may empty a folder that it cannot rename, as a copy does."""
    target = make_target("overwrite")
    commit = new_commit(local, target)
    part = commit._sinks[0].prepare()
    access = Access(None)
    part.make_ready(access)
    shutil.copytree(target.path, LocalFolder(None, part.hidden_folders[1])._path)
    for path in target.path.iterdir():
        path.unlink()
    if is_blocked:
        monkeypatch.setattr(LocalFolder, "remove_if_empty", lambda self: None)
        with pytest.raises(SinkError, match="are in"):
            part.undo(access)
        monkeypatch.undo()
        assert LocalFolder(None, part.hidden_folders[1]).exists()
    else:
        part.undo(access)
        assert target.rows() == target.old


@pytest.mark.parametrize("how", ["recover", "rerun"])
def test_an_exchange_of_folders_that_the_file_system_refuses(local: Any, make_target: Any, how: str) -> None:
    """The system can exchange folders, but not on this file system; the job is killed between its two local_files."""
    target = make_target("overwrite")

    def dies() -> None:
        LocalFolder.exchange = lambda self, other: False
        move = LocalFolder.move_to

        def move_then_die(self: Any, to: Any) -> None:
            move(self, to)
            os.kill(os.getpid(), 9)

        LocalFolder.move_to = move_then_die  # type: ignore[method-assign,assignment]
        run(local, [target])

    assert in_child(local, dies).killed
    assert not target.path.exists()
    access = Access(None)
    assert find_leftovers(access, str(target.path)) == []  # the journal needs them
    if how == "recover":
        (journal,) = journals(target)
        assert recover(access, str(journal)).outcome is Outcome.UNDONE
        assert target.rows() == target.old
    else:
        run(local, [target])
        assert target.rows() == target.new
    assert not leftovers(target)


def test_the_old_rows_of_a_missing_target_are_not_removable(local: Any, make_target: Any) -> None:
    target = make_target("overwrite")
    tag = "00000000-1-00000000"
    from penstock.commit import leftovers as leftovers_module

    folder = target.path.with_name(f".penstock-out-0123456789ab-{tag}-old")
    target.path.rename(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leftovers_module, "tag_is_alive", lambda name: False)
        assert [left.is_used for left in find_leftovers(Access(None), str(target.path))] == [None]
        target.path.mkdir()
        assert [left.is_used for left in find_leftovers(Access(None), str(target.path))] == [False]


def test_a_symbolic_link_to_the_target_stays(local: Any, make_target: Any, tmp_path: Path) -> None:
    target = make_target("overwrite", "real")
    alias = make_target("create", "alias")
    alias.path.symlink_to(target.path)
    alias.mode = "overwrite"
    for _ in range(2):
        run(local, [alias])
        assert alias.path.is_symlink()
        assert target.rows() == alias.rows() == sorted(NEW)
    assert sorted(os.listdir(tmp_path / "alias")) == ["out"]
    assert os.listdir(target.journal_folder) == ["out"]


def test_replaced_folders_need_a_journal(local: Any, make_target: Any) -> None:
    part = new_commit(local, make_target("overwrite"))._sinks[0].prepare()
    assert isinstance(part, PreparedFolders)
    assert not part.is_atomic


RENAMES = {  # existing names, outcome of renaming a to b, names afterwards
    "a file": (["a"], True, ["b"]),
    "a file and its checksum": (["a", ".a.crc"], True, [".b.crc", "b"]),
    "a file, and the checksum of a missing file": (["a", ".b.crc"], True, ["b"]),
    "nothing": ([], False, []),
    "an existing name": (["a", ".a.crc", "b"], False, [".a.crc", "a", "b"]),
    "an existing name with a checksum": (["a", "b", ".b.crc"], False, [".b.crc", "a", "b"]),
    "the name of a folder": (["a", "b/"], False, ["a", "b"]),
    "a folder": (["a/"], True, ["b"]),
    "a folder to the name of an empty folder": (["a/", "b/"], False, ["a", "b"]),
}


@pytest.mark.parametrize("newest", [True, False], ids=["renameat2", "rename"])
@pytest.mark.parametrize("case", RENAMES)
def test_a_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: bool, case: str) -> None:
    existing, is_renamed, names_after = RENAMES[case]
    if not newest:
        monkeypatch.setattr(local_files, "_load_renameat2", lambda: None)
    for name in existing:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    assert local_files.rename(str(tmp_path / "a"), str(tmp_path / "b")) == is_renamed
    assert sorted(os.listdir(tmp_path)) == names_after


def test_a_rename_into_another_volume_fails(tmp_path: Path, mounted: Any) -> None:
    (tmp_path / "m").mkdir()
    mounted(tmp_path / "m")
    (tmp_path / "a").write_text("x")
    with pytest.raises(OSError, match="cross-device") as raised:
        local_files.rename(str(tmp_path / "a"), str(tmp_path / "m" / "a"))
    assert raised.value.errno == errno.EXDEV
    assert os.listdir(tmp_path / "m") == []
    assert local_files.is_volume(str(tmp_path / "m"))
    assert not local_files.is_volume(str(tmp_path))
    assert not local_files.is_volume(str(tmp_path / "nothing"))
    assert local_files.volumes_below(str(tmp_path)) == [str(tmp_path / "m")]
    assert local_files.volumes_below(str(tmp_path / "m")) == []


def test_a_volume_whose_name_has_escapes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(f"36 35 98:0 / {tmp_path}/a\\040b rw,noatime - ext3 /dev/root rw\n")
    read = type(mountinfo).read_text
    monkeypatch.setattr(type(mountinfo), "read_text", lambda self, **options: read(mountinfo, **options))
    assert local_files.volumes_below(str(tmp_path)) == [f"{tmp_path}/a b"]
    assert local_files.is_volume(f"{tmp_path}/a b")


@pytest.mark.parametrize("case", IN_VOLUMES)
def test_a_simulated_volume_behaves_like_a_mounted_volume(
    local: Any, make_target: Any, monkeypatch: pytest.MonkeyPatch, case: Any
) -> None:
    """The tests of kill points use it, as mounts need root."""
    as_a_volume(monkeypatch)
    target = make_target(case)
    run(local, [target])
    assert target.rows() == target.new
    assert not leftovers(target)
