"""Calls of a commit to the file system: one listing of its own folder, and one per check of the target's folders."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.files.sink_job import _FolderListing
from tests.commit.local import LocalFolder, without_a_jvm
from tests.commit.targets import FILES, Files, Template


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    return without_a_jvm(monkeypatch, tmp_path)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """Return the number of calls by method and path."""
    counts: Counter[tuple[str, str]] = Counter()
    for name in ("entries", "exists", "sync"):
        original = getattr(LocalFolder, name)

        def counted(self: Any, name: str = name, original: Any = original) -> Any:
            counts[name, str(self).removeprefix("file:")] += 1
            return original(self)

        monkeypatch.setattr(LocalFolder, name, counted)
    return counts


@pytest.mark.parametrize("case", ["append", "append by partition", "dynamic"])
def test_a_second_prepare_does_not_list_the_new_files_again(
    local: Any, tmp_path: Path, calls: Counter[tuple[str, str]], case: str
) -> None:
    mode, layout, exists = FILES[case]
    target = Files(Template(None, tmp_path / "template"), tmp_path / "f", mode, layout, exists=exists, token=None)
    job = target.sink().open(local)
    target.write(job)
    staging = job._staging.local_path
    first = job.prepare()
    calls.clear()
    assert job.prepare() == first
    assert not [path for (name, path) in calls if name in {"entries", "sync"} and path == staging]
    assert {count for (name, _), count in calls.items() if name == "entries"} <= {1}
    assert not [path for (name, path) in calls if name == "exists" and "part-" in path]


def test_a_folder_that_disappears_during_a_listing_is_empty(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t" / "p=0").mkdir(parents=True)
    listing = _FolderListing(LocalFolder(None, str(tmp_path / "t")))  # type: ignore[arg-type]
    assert listing.has("p=0")
    (tmp_path / "t" / "p=0").rmdir()
    assert not listing.has("p=0/part-0")
    assert not listing.has("p=1/part-0")


def test_a_folder_without_permission_to_list_raises(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any) -> Any:
        raise PermissionError(str(self))

    monkeypatch.setattr(LocalFolder, "entries", refuse)
    with pytest.raises(PermissionError):
        _FolderListing(LocalFolder(None, str(tmp_path))).has("p=0")  # type: ignore[arg-type]
