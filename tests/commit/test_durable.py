"""What survives a loss of power: it is on the disk before the journal says that it is there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.durable import sync_below, write_whole
from tests.commit.checks import run
from tests.commit.harness import in_child
from tests.commit.local import LocalFolder, without_a_jvm
from tests.commit.targets import FILES, Delta, Files, Iceberg, Template

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.forks


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The paths that were synced."""
    found, fsync = [], os.fsync

    def noted(opened: Any) -> None:
        found.append(os.readlink(f"/proc/self/fd/{opened}"))
        fsync(opened)

    monkeypatch.setattr(os, "fsync", noted)
    return found


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_on_the_disk_before_its_name_is(
    tmp_path: Path, synced: Any, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    (tmp_path / ".a.crc").touch()
    named = []
    for name, of in (("link", os), ("rename", type(tmp_path))):
        original = getattr(of, name)
        monkeypatch.setattr(
            of, name, lambda *given, original=original: (named.append(list(synced)), original(*given))[1]
        )
    assert write_whole(str(tmp_path / "a"), b"1", overwrite=overwrite)
    (before,) = named
    assert len(before) == 1
    assert before[0].endswith(".tmp")
    assert synced[-1] == str(tmp_path)
    assert (tmp_path / "a").read_bytes() == b"1"
    assert (tmp_path / ".a.crc").exists() != overwrite


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "a")
    assert write_whole(path, b"1", overwrite=False)
    assert not write_whole(path, b"2", overwrite=False)
    assert write_whole(path, b"3", overwrite=True)
    assert (tmp_path / "deep" / "a").read_bytes() == b"3"
    assert os.listdir(tmp_path / "deep") == ["a"]


def test_a_folder_with_all_it_holds(tmp_path: Path, synced: Any) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()
    sync_below(str(tmp_path))
    assert {os.path.relpath(path, tmp_path) for path in synced} == {".", "a", "a/b", "a/b/c"}


@pytest.mark.parametrize("case", [*(name for name in FILES if name not in {"create", "overwrite"}), "delta", "iceberg"])
def test_rows_are_on_the_disk_before_the_journal_and_names_before_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: Any
) -> None:
    spark = without_a_jvm(monkeypatch, tmp_path)
    template = Template(None, tmp_path / "template")
    kinds = {"delta": Delta, "iceberg": Iceberg}
    targets = [Files(template, tmp_path / "a", "overwrite", "plain", exists=True, token=None)]
    if case in kinds:
        targets.append(kinds[case](template, tmp_path / "b", "append", exists=True, token=None))
    else:
        mode, layout, exists = FILES[case]
        targets.append(Files(template, tmp_path / "b", mode, layout, exists=exists, token=None))

    def noted() -> Any:
        seen = []
        for name in ("sync", "sync_entries", "write", "move_to", "exchange", "delete"):
            original = getattr(LocalFolder, name)

            def call(self: Any, *given: Any, original: Any = original, name: Any = name, **options: Any) -> Any:
                seen.append((name, str(self), *map(str, given[:1])))
                return original(self, *given, **options)

            setattr(LocalFolder, name, call)
        run(spark, targets)
        return seen

    end = in_child(spark, noted)
    assert end.error is None, end.error
    seen = end.result
    journal = [
        number
        for number, (name, path, *_) in enumerate(seen)
        if name == "write" and path.endswith(".json") and ".penstock-commit" in path
    ]
    begun, *asked, decided = journal
    assert len(asked) == (case in kinds)  # the journal says before that it may land late
    staged = {path for name, path, *_ in seen[:begun] if name == "sync"}
    assert len(staged) == 2  # the rows of both sinks
    renamed = [number for number, (name, *_) in enumerate(seen) if name in {"move_to", "exchange"}]
    assert begun < min(renamed)
    last = max(number for number in renamed if number < decided)
    if case not in kinds:  # whose log is written by its client
        assert [path for name, path, *_ in seen[last:decided] if name == "sync_entries"]
    deleted = [
        number
        for number, (name, path, *_) in enumerate(seen)
        if name == "delete" and ("/.penstock-a" in path or "/.new-" in path)
    ]
    ended = min(
        number
        for number, (name, path, *_) in enumerate(seen)
        if name == "delete" and ".penstock-commit" in path and path.endswith(".json")
    )
    assert decided < min(deleted)
    assert max(deleted) < ended  # what is not removed when it dies is removed by recovery
