"""Claims: one at a time has it, and what the dead have left is taken over."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from penstock.commit import Access
from penstock.commit.claims import claimed, holder_of
from penstock.commit.owner import Owner
from tests.commit.local import LocalFolder

if TYPE_CHECKING:
    from pathlib import Path

ACCESS = Access(None)  # type: ignore[arg-type]
ELSEWHERE = {"host": "elsewhere/1", "pid": 1, "started": "1"}


@pytest.fixture
def claim(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for module in ("claims", "lease"):
        monkeypatch.setattr(f"penstock.commit.{module}.Folder", LocalFolder)
    return tmp_path / "claim"


def is_free(claim: Path) -> bool:
    with claimed(ACCESS, str(claim)) as is_mine:
        return is_mine


def test_one_of_many_threads_has_it(claim: Path) -> None:
    with claimed(ACCESS, str(claim)) as is_mine:
        assert is_mine
        assert holder_of(ACCESS, str(claim)) == Owner.me()
        with ThreadPoolExecutor(8) as threads:
            assert not any(threads.map(is_free, [claim] * 8))
    assert is_free(claim)
    assert holder_of(ACCESS, str(claim)) is None
    assert os.listdir(claim.parent) == []


def test_a_claim_that_could_not_be_removed_is_nobodys(
    claim: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(_: Any) -> None:
        raise OSError("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "delete", away)
        assert is_free(claim)
    assert "could not be removed" in caplog.text
    assert claim.exists()
    assert is_free(claim)
    assert not claim.exists()


@pytest.mark.parametrize("content", [json.dumps(ELSEWHERE), "{"], ids=["another machine", "torn"])
@pytest.mark.parametrize("rename", ["keeps times", "copies"])
def test_what_cannot_be_looked_for_is_dead_once_it_is_silent(
    claim: Path, monkeypatch: pytest.MonkeyPatch, content: str, rename: str
) -> None:
    """Object stores copy a file to rename it: it is young again."""
    move = LocalFolder.move_to

    def copies(self: Any, target: Any) -> Any:
        moved = move(self, target)
        os.utime(target.local_path)
        return moved

    if rename == "copies":
        monkeypatch.setattr(LocalFolder, "move_to", copies)
    claim.write_text(content)
    assert not is_free(claim)
    os.utime(claim, (time.time() - 61,) * 2)
    lease = claim.with_name("claim.lease")
    lease.touch()
    assert not is_free(claim), "it was renewed"
    os.utime(lease, (time.time() - 61,) * 2)
    assert is_free(claim)
    assert os.listdir(claim.parent) == []
