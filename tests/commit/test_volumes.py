"""Targets that are volumes, or hold some, and folders that do not change places: nothing is copied, nothing gets lost."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from penstock.commit import Access, Direction, recover
from penstock.commit.folders import PreparedFolders
from penstock.commit.places import leftovers_at
from penstock.connectors import FileSink
from penstock.errors import SinkError
from penstock.spark import rename as renames
from tests.commit.checks import journals, leftovers, run
from tests.commit.harness import in_child
from tests.commit.local import LocalFolder, as_a_volume, without_a_jvm
from tests.commit.targets import FILES, NEW, Files, Template
from tests.commit.test_several_jobs import OtherJob, ends, job_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


pytestmark = pytest.mark.forks


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


@pytest.fixture
def mounted() -> Iterator[Any]:
    """Mount a small file system of its own on a folder, with what the folder holds."""
    done = []

    def mount(path: Any) -> None:
        kept = path.with_name("kept")
        shutil.copytree(path, kept)
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=False).returncode:
            if os.environ.get("ALL_TEST_SERVICES") == "1":
                pytest.fail("nothing can be mounted here")
            pytest.skip("nothing can be mounted here: that wants root")
        done.append(path)
        shutil.copytree(kept, path, dirs_exist_ok=True)
        shutil.rmtree(kept)

    yield mount
    for path in reversed(done):
        subprocess.run(["umount", "-l", path], check=True)


IN_VOLUMES = [name for name in FILES if "create" not in name]


@pytest.mark.parametrize("fails", [False, True], ids=["commits", "fails"])
@pytest.mark.parametrize("case", IN_VOLUMES)
def test_a_target_that_is_a_volume(local: Any, target: Any, mounted: Any, case: Any, fails: bool) -> None:
    one = target(case)
    mounted(one.path)
    error = ends(job_at(local, one, *([OtherJob(SinkError("the other sink failed"))] if fails else [])))
    assert (error is not None) == fails
    assert one.rows() == (one.old if fails else one.new)
    assert not leftovers(one)
    assert os.path.ismount(one.path)


@pytest.mark.parametrize(
    ("case", "refused"),
    [("overwrite", True), ("append by partition", True), ("dynamic", True), ("append", False)],
)
def test_a_target_that_holds_a_volume(local: Any, target: Any, mounted: Any, case: str, refused: bool) -> None:
    one = target(case)
    (one.path / "p=0").mkdir(exist_ok=True)
    mounted(one.path / "p=0")
    if refused:
        with pytest.raises(SinkError, match=r"holds volumes of their own: .*p=0"):
            run(local, [one])
    else:
        run(local, [one])
    assert one.rows() == (one.old if refused else one.new)
    assert not leftovers(one)


def test_a_whole_file_system_is_no_target(local: Any) -> None:
    with pytest.raises(SinkError, match="whole file system"):
        FileSink("/", mode="overwrite").open(local)


@pytest.mark.parametrize("case", ["overwrite", "dynamic", "append by partition"])
def test_a_volume_that_is_not_known_as_one(
    local: Any, target: Any, mounted: Any, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """The system does not tell of it: the job fails, as nothing is copied instead of renamed, and the old rows stay."""
    one = target(case)
    mounted(one.path)
    monkeypatch.setattr(LocalFolder, "is_volume", False)
    error = ends(job_at(local, one))
    assert isinstance(error, SinkError)
    assert one.rows() == one.old
    assert not leftovers(one)
    assert "volume" in str(error)


@pytest.mark.parametrize("died", [False, True])
def test_an_old_folder_is_only_removed_if_it_is_not_needed(
    local: Any, target: Any, monkeypatch: pytest.MonkeyPatch, died: bool
) -> None:
    """A file system of which it was not known empties the folder that it cannot rename, as a copy of it would."""
    one = target("overwrite")
    job = job_at(local, one)
    part = job._sinks[0].prepare()
    access = Access(None)
    part.ready(access)
    shutil.copytree(one.path, LocalFolder(None, part._old)._path)
    for path in one.path.iterdir():
        path.unlink()
    if died:
        monkeypatch.setattr(LocalFolder, "remove_if_empty", lambda self: None)
        with pytest.raises(SinkError, match="are in"):
            part.undo(access)
        monkeypatch.undo()
        assert LocalFolder(None, part._old).exists()
    else:
        part.undo(access)
        assert one.rows() == one.old


@pytest.mark.parametrize("how", ["recover", "rerun"])
def test_folders_that_do_not_change_places_after_all(local: Any, target: Any, how: str) -> None:
    """A folder system can exchange folders in general, but not this one; the job is killed between its two renames."""
    one = target("overwrite")

    def dies() -> None:
        LocalFolder.exchange = lambda self, other: False
        move = LocalFolder.move_to

        def last(self: Any, to: Any) -> None:
            move(self, to)
            os.kill(os.getpid(), 9)

        LocalFolder.move_to = last  # type: ignore[method-assign,assignment]
        run(local, [one])

    assert in_child(local, dies).killed
    assert not one.path.exists()
    access = Access(None)
    assert leftovers_at(access, str(one.path)) == []  # the journal needs them
    if how == "recover":
        (journal,) = journals(one)
        assert recover(access, str(journal)).direction is Direction.BACK
        assert one.rows() == one.old
    else:
        run(local, [one])
        assert one.rows() == one.new
    assert not leftovers(one)


def test_old_rows_of_a_target_that_is_gone_are_not_left_over(local: Any, target: Any) -> None:
    one = target("overwrite")
    tag = "00000000-1-00000000"
    from penstock.commit import places

    folder = one.path.with_name(f".penstock-out-0123456789ab-{tag}-old")
    one.path.rename(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(places, "tag_is_alive", lambda name: False)
        assert [left.is_used for left in leftovers_at(Access(None), str(one.path))] == [None]
        one.path.mkdir()
        assert [left.is_used for left in leftovers_at(Access(None), str(one.path))] == [False]


def test_a_symbolic_link_stays(local: Any, target: Any, tmp_path: Path) -> None:
    one = target("overwrite", "real")
    alias = target("create", "alias")
    alias.path.symlink_to(one.path)
    alias.mode = "overwrite"
    for _ in range(2):
        run(local, [alias])
        assert alias.path.is_symlink()
        assert one.rows() == alias.rows() == sorted(NEW)
    assert sorted(os.listdir(tmp_path / "alias")) == ["out"]
    assert os.listdir(one.place) == ["out"]


def test_folders_that_are_replaced_have_a_journal(local: Any, target: Any) -> None:
    part = job_at(local, target("overwrite"))._sinks[0].prepare()
    assert isinstance(part, PreparedFolders)
    assert not part.is_atomic


RENAMES = {  # what is there, and what comes of a rename of a to b
    "a file": (["a"], True, ["b"]),
    "a file and its checksum": (["a", ".a.crc"], True, [".b.crc", "b"]),
    "a file, and the checksum of one that is gone": (["a", ".b.crc"], True, ["b"]),
    "nothing": ([], False, []),
    "a name that is taken": (["a", ".a.crc", "b"], False, [".a.crc", "a", "b"]),
    "a name that is taken, with its checksum": (["a", "b", ".b.crc"], False, [".b.crc", "a", "b"]),
    "a name that a folder has": (["a", "b/"], False, ["a", "b"]),
    "a folder": (["a/"], True, ["b"]),
    "a folder onto an empty one": (["a/", "b/"], False, ["a", "b"]),
}


@pytest.mark.parametrize("newest", [True, False], ids=["renameat2", "rename"])
@pytest.mark.parametrize("case", RENAMES)
def test_a_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: bool, case: str) -> None:
    there, done, left = RENAMES[case]
    if not newest:
        monkeypatch.setattr(renames, "_found", lambda: None)
    for name in there:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    assert renames.rename(str(tmp_path / "a"), str(tmp_path / "b")) == done
    assert sorted(os.listdir(tmp_path)) == left


def test_a_rename_into_another_volume_is_no_copy(tmp_path: Path, mounted: Any) -> None:
    (tmp_path / "m").mkdir()
    mounted(tmp_path / "m")
    (tmp_path / "a").write_text("x")
    with pytest.raises(OSError, match="cross-device") as found:
        renames.rename(str(tmp_path / "a"), str(tmp_path / "m" / "a"))
    assert found.value.errno == errno.EXDEV
    assert os.listdir(tmp_path / "m") == []
    assert renames.is_volume(str(tmp_path / "m"))
    assert not renames.is_volume(str(tmp_path))
    assert not renames.is_volume(str(tmp_path / "nothing"))
    assert renames.volumes_below(str(tmp_path)) == [str(tmp_path / "m")]
    assert renames.volumes_below(str(tmp_path / "m")) == []


def test_a_volume_whose_name_is_written_with_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "mountinfo"
    told.write_text(f"36 35 98:0 / {tmp_path}/a\\040b rw,noatime - ext3 /dev/root rw\n")
    read = type(told).read_text
    monkeypatch.setattr(type(told), "read_text", lambda self, **given: read(told, **given))
    assert renames.volumes_below(str(tmp_path)) == [f"{tmp_path}/a b"]
    assert renames.is_volume(f"{tmp_path}/a b")


@pytest.mark.parametrize("case", IN_VOLUMES)
def test_a_simulated_volume_is_as_a_real_one(
    local: Any, target: Any, monkeypatch: pytest.MonkeyPatch, case: Any
) -> None:
    """For the kill points, which want no root."""
    as_a_volume(monkeypatch)
    one = target(case)
    run(local, [one])
    assert one.rows() == one.new
    assert not leftovers(one)
