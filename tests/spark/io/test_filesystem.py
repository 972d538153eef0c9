"""Operations on folders that commits need, on the local file system."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.base.local_files import exchange
from penstock.base.ownership import Writer
from penstock.spark.bridge.jvm import Bridge
from penstock.spark.io.filesystem import HadoopPath
from penstock.spark.io.logs import HadoopLogs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Any:
    return lambda name: HadoopPath(Bridge(spark), str(tmp_path / name))


def test_names_that_match_a_pattern(folder: Any, tmp_path: Path) -> None:
    odd = tmp_path / "a{b,c}[d]*"
    odd.mkdir()
    for name in (".penstock-commit-1.json", ".penstock-commit-2.ref", "other"):
        (odd / name).touch()
    assert sorted(match.name for match in folder("a{b,c}[d]*").children_matching(".penstock-commit-*")) == [
        ".penstock-commit-1.json",
        ".penstock-commit-2.ref",
    ]
    assert folder("nothing").children_matching("*") == []


def test_two_folders_are_exchanged(folder: Any, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert folder("a").exchange(folder("b"))
    assert (tmp_path / "a" / "b").exists()
    assert (tmp_path / "b" / "a").exists()
    assert not folder("a").exchange(folder("nothing"))


def test_an_exchange_of_missing_paths_fails(tmp_path: Path) -> None:
    assert not exchange(str(tmp_path / "a"), str(tmp_path / "b"))


def test_only_empty_folders_are_removed(folder: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    for name in ("empty", "full", "nothing"):
        folder(name).remove_if_empty()
    assert not (tmp_path / "empty").exists()
    assert (tmp_path / "full" / "x").exists()


def test_a_file_is_written_atomically(folder: Any, tmp_path: Path) -> None:
    assert folder("deep/a").write(b"1")
    assert not folder("deep/a").write(b"2")
    assert folder("deep/a").write(b"3", overwrite=True)
    assert folder("deep/a").read() == b"3"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a"]
    assert abs(folder("deep/a").modification_time() - time.time()) < 60


CONTENT = bytes(range(256)) * 16_384
"""4 MiB of a repeating pattern."""
READ_AHEAD = 128 * 1024
"""More than the buffers of Hadoop's local file system."""


@pytest.mark.parametrize("scheme", ["file", "viewfs"])
@pytest.mark.parametrize(
    ("start", "length"),
    [(0, 0), (0, 1), (0, 4096), (2_000_001, 5000), (len(CONTENT) - 7, 7), (len(CONTENT) - 7, 100), (len(CONTENT), 10)],
)
def test_only_the_requested_part_of_a_log_is_read(
    spark: SparkSession, tmp_path: Path, scheme: str, start: int, length: int
) -> None:
    (tmp_path / "a.jsonl").write_bytes(CONTENT)
    spark.conf.set("fs.viewfs.mounttable.parts.link./p", f"file://{tmp_path}")
    try:
        bridge = Bridge(spark)
        logs = HadoopLogs(HadoopPath(bridge, {"file": f"file:{tmp_path}", "viewfs": "viewfs://parts/p"}[scheme]))
        before = bytes_read(bridge)
        assert logs.read("a.jsonl", start, length) == CONTENT[start : start + length]
        assert bytes_read(bridge) - before <= length + READ_AHEAD
        assert length == 0 or start == len(CONTENT) or bytes_read(bridge) > before
    finally:
        spark.conf.unset("fs.viewfs.mounttable.parts.link./p")


def test_a_part_after_the_end_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"short")
    assert HadoopLogs(HadoopPath(Bridge(spark), f"file:{tmp_path}")).read("a.jsonl", 10, 5) == b""


def bytes_read(bridge: Bridge) -> int:
    """Return the bytes that this JVM has read of local files through Hadoop."""
    statistics = bridge.find("org.apache.hadoop.fs.FileSystem").getAllStatistics()
    return sum(int(statistic.getBytesRead()) for statistic in statistics if statistic.getScheme() == "file")


def test_a_failed_deletion_is_an_error(folder: Any, tmp_path: Path) -> None:
    file = folder("a")
    file.delete()  # there is no file
    (tmp_path / "a").touch()

    class Refusing:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def delete(self, *_: Any) -> bool:
            return False

        def __getattr__(self, name: Any) -> Any:
            return getattr(self._inner, name)

    file._fs = Refusing(file._fs)
    with pytest.raises(OSError, match="cannot be deleted"):
        file.delete()


def test_a_file_is_renamed_with_its_checksum_and_overwrites_nothing(folder: Any, tmp_path: Path) -> None:
    folder("a").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.crc", "a"]
    assert folder("a").move_to(folder("b"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.crc", "b"]
    assert not folder("a").move_to(folder("c"))
    folder("d").make()
    assert not folder("b").move_to(folder("d"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.crc", "b", "d"]


def test_a_folder_with_two_names(folder: Any, tmp_path: Path) -> None:
    (tmp_path / "a b%20").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a b%20")
    assert str(folder("link").resolved) == str(folder("a b%20"))
    assert str(folder("link/x").resolved.parent) == str(folder("a b%20"))
    assert str(folder("nothing/x").resolved) == str(folder("nothing/x"))


def test_volumes(folder: Any) -> None:
    assert folder("../../../../../../../proc").resolved.is_volume
    assert not folder("a").is_volume
    assert folder("a").volumes_below() == []


@pytest.mark.parametrize("scheme", ["file", "viewfs", "other"])
def test_writer_of_a_file(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """A mount delegates to its file system; an object store reports the reader as the owner."""
    root = {"file": f"file:{tmp_path}", "viewfs": "viewfs://owners/o", "other": f"file:{tmp_path}"}[scheme]
    spark.conf.set("fs.viewfs.mounttable.owners.link./o", f"file://{tmp_path}")
    try:
        own, other, link, large = (
            HadoopPath(Bridge(spark), f"{root}/{name}") for name in ("own", "other", "link", "large")
        )
        if scheme == "other":
            for file in (own, other, large):
                monkeypatch.setattr(file, "_scheme", "s3a")
        (tmp_path / "own").write_bytes(b"own")
        (tmp_path / "other").write_bytes(b"other")
        (tmp_path / "other").chmod(0o666)
        (tmp_path / "link").symlink_to("own")
        (tmp_path / "large").write_bytes(b"x" * 101)
        expected = (Writer.UNKNOWN, Writer.UNKNOWN) if scheme == "other" else (Writer.USER, Writer.OTHER)
        checked = [file.read_checked(100) for file in (own, other)]
        assert [(file_content.content, file_content.writer) for file_content in checked if file_content] == list(
            zip((b"own", b"other"), expected, strict=True)
        )
        if scheme == "file":
            assert link.read_checked(100).writer is Writer.OTHER  # type: ignore[union-attr]
            assert not link.is_removable
            assert own.is_removable
        refused = large.read_checked(100)
        assert refused is not None
        assert (refused.content, refused.writer) == (b"", Writer.OTHER)
        assert HadoopPath(Bridge(spark), f"{root}/nothing").read_checked(100) is None
        if os.geteuid() == 0:
            os.chown(tmp_path / "own", 65534, 65534)
            foreign = own.read_checked(100)
            assert foreign is not None
            assert foreign.writer is (Writer.UNKNOWN if scheme == "other" else Writer.OTHER)
    finally:
        spark.conf.unset("fs.viewfs.mounttable.owners.link./o")


@pytest.mark.parametrize(("user", "mode", "writer"), [("", 0o644, "USER"), ("x", 0o644, "OTHER"), ("", 0o664, "OTHER")])
def test_owners_that_hadoop_reports(
    folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str, mode: int, writer: str
) -> None:
    """As with HDFS: the owner is compared with the user of Spark."""
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "a").chmod(mode)
    if user:
        if os.geteuid() != 0:
            pytest.skip("only root can give a file to another user")
        os.chown(tmp_path / "a", 65534, 65534)
    file = folder("a")
    monkeypatch.setattr(file, "_scheme", "hdfs")
    assert file.read_checked(10).writer is Writer[writer]
    assert file.is_removable is (not user)


@pytest.mark.parametrize("private", [True, False])
def test_private_files(folder: Any, tmp_path: Path, private: bool) -> None:
    before = os.umask(0o022)
    try:
        folder("a").write(b"1", private=private)
        folder("a").write(b"2", private=private, overwrite=True)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == (0o600 if private else 0o644)
