"""What a commit of files asks the file system for: its own folder once, the target's folders once each time it looks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from penstock.connectors.file_job import _Listing
from tests.commit.local import LocalFolder, without_a_jvm
from tests.commit.targets import FILES, Files, Template

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    return without_a_jvm(monkeypatch, tmp_path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """How often each question was asked of each path."""
    found: Counter[tuple[str, str]] = Counter()
    for name in ("entries", "exists", "sync"):
        original = getattr(LocalFolder, name)

        def counted(self: Any, name: str = name, original: Any = original) -> Any:
            found[name, str(self).removeprefix("file:")] += 1
            return original(self)

        monkeypatch.setattr(LocalFolder, name, counted)
    return found


@pytest.mark.parametrize("case", ["append", "append by partition", "dynamic"])
def test_the_second_look_does_not_list_the_new_files_again(
    local: Any, tmp_path: Path, asked: Counter[tuple[str, str]], case: str
) -> None:
    mode, layout, exists = FILES[case]
    target = Files(Template(None, tmp_path / "template"), tmp_path / "f", mode, layout, exists=exists, token=None)
    job = target.sink().open(local)
    target.write(job)
    staging = job._staging.local_path
    first = job.prepare()
    asked.clear()
    assert job.prepare() == first
    assert not [path for (name, path) in asked if name in {"entries", "sync"} and path == staging]
    assert {count for (name, _), count in asked.items() if name == "entries"} <= {1}
    assert not [path for (name, path) in asked if name == "exists" and "part-" in path]


def test_folders_that_go_away_while_they_are_looked_at_hold_nothing(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t" / "p=0").mkdir(parents=True)
    there = _Listing(LocalFolder(None, str(tmp_path / "t")))  # type: ignore[arg-type]
    assert there.has("p=0")
    (tmp_path / "t" / "p=0").rmdir()
    assert not there.has("p=0/part-0")
    assert not there.has("p=1/part-0")


def test_a_folder_that_may_not_be_listed_is_an_error(
    local: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Any) -> Any:
        raise PermissionError(str(self))

    monkeypatch.setattr(LocalFolder, "entries", refused)
    with pytest.raises(PermissionError):
        _Listing(LocalFolder(None, str(tmp_path))).has("p=0")  # type: ignore[arg-type]
