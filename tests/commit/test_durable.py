"""Durability: files are synced before the journal refers to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.base.local_files import sync_tree, write_atomically
from tests.commit.checks import run
from tests.commit.harness import in_child
from tests.commit.local import LocalFolder, without_a_jvm
from tests.commit.targets import FILES, Delta, Files, Iceberg, Template

pytestmark = pytest.mark.forks


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a list to which the paths of synced files are appended."""
    paths, fsync = [], os.fsync

    def recorded(descriptor: Any) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    return paths


@pytest.mark.parametrize("overwrite", [False, True])
def test_content_is_synced_before_the_name_appears(
    tmp_path: Path, synced: Any, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    (tmp_path / ".a.crc").touch()
    named = []
    for name, owner in (("link", os), ("rename", type(tmp_path))):
        original = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, original=original: (named.append(list(synced)), original(*args))[1]
        )
    assert write_atomically(str(tmp_path / "a"), b"1", overwrite=overwrite)
    (before,) = named
    assert len(before) == 1
    assert before[0].endswith(".tmp")
    assert synced[-1] == str(tmp_path)
    assert (tmp_path / "a").read_bytes() == b"1"
    assert (tmp_path / ".a.crc").exists() != overwrite


def test_an_existing_file_is_only_replaced_with_overwrite(tmp_path: Path) -> None:
    path = str(tmp_path / "deep" / "a")
    assert write_atomically(path, b"1", overwrite=False)
    assert not write_atomically(path, b"2", overwrite=False)
    assert write_atomically(path, b"3", overwrite=True)
    assert (tmp_path / "deep" / "a").read_bytes() == b"3"
    assert os.listdir(tmp_path / "deep") == ["a"]


def test_sync_tree_syncs_a_folder_and_its_content(tmp_path: Path, synced: Any) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").touch()
    sync_tree(str(tmp_path))
    assert {os.path.relpath(path, tmp_path) for path in synced} == {".", "a", "a/b", "a/b/c"}


@pytest.mark.parametrize("case", [*(name for name in FILES if name not in {"create", "overwrite"}), "delta", "iceberg"])
def test_rows_are_synced_before_the_journal_and_names_before_its_end(
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

    def record_calls() -> Any:
        calls = []
        for name in ("sync", "sync_entries", "write", "move_to", "exchange", "delete"):
            original = getattr(LocalFolder, name)

            def call(self: Any, *args: Any, original: Any = original, name: Any = name, **options: Any) -> Any:
                calls.append((name, str(self), *map(str, args[:1])))
                return original(self, *args, **options)

            setattr(LocalFolder, name, call)
        run(spark, targets)
        return calls

    end = in_child(spark, record_calls)
    assert end.error is None, end.error
    calls = end.result
    journal = [
        number
        for number, (name, path, *_) in enumerate(calls)
        if name == "write" and path.endswith(".json") and ".penstock-commit" in path
    ]
    begun, *requested, decided = journal
    assert len(requested) == (case in kinds)  # the journal records beforehand that the commit may land late
    staged = {path for name, path, *_ in calls[:begun] if name == "sync"}
    assert len(staged) == 2  # the rows of both sinks
    renamed = [number for number, (name, *_) in enumerate(calls) if name in {"move_to", "exchange"}]
    assert begun < min(renamed)
    last = max(number for number in renamed if number < decided)
    if case not in kinds:  # their clients write the log
        assert [path for name, path, *_ in calls[last:decided] if name == "sync_entries"]
    deleted = [
        number
        for number, (name, path, *_) in enumerate(calls)
        if name == "delete" and ("/.penstock-a" in path or "/.new-" in path)
    ]
    ended = min(
        number
        for number, (name, path, *_) in enumerate(calls)
        if name == "delete" and ".penstock-commit" in path and path.endswith(".json")
    )
    assert decided < min(deleted)
    assert max(deleted) < ended  # so that recovery can remove what is left
