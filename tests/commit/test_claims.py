"""Claims: one at a time has it, and what the dead have left is taken over."""

from __future__ import annotations

import hashlib
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from penstock.commit import Access, claims
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


def dead_claim() -> str:
    """What a process of this machine has left that has ended: no process has this number."""
    return json.dumps({"host": Owner.me().host, "pid": 2**22 + 1, "started": "1"})


def test_one_of_many_has_what_a_dead_process_has_left(claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round is a contest for one dead claim; who has lost tries again, while the winner ends."""
    read = LocalFolder.read

    def slow(self: Any) -> bytes:
        found = read(self)
        time.sleep(random.random() / 500)  # the store answers late, and the claim may be another by then
        return found

    monkeypatch.setattr(LocalFolder, "read", slow)
    contestants, holders, most = 12, [0], [0]
    lock = threading.Lock()
    barrier = threading.Barrier(contestants, action=lambda: claim.write_text(dead_claim()) and None, timeout=60)

    def contest(_: int) -> int:
        won = 0
        for _ in range(30):
            barrier.wait()
            for _ in range(3):
                with claimed(ACCESS, str(claim)) as is_mine:
                    if is_mine:
                        with lock:
                            holders[0] += 1
                            most[0] = max(most[0], holders[0])
                        time.sleep(0.002)
                        with lock:
                            holders[0] -= 1
                        won += 1
            barrier.wait()
        return won

    with ThreadPoolExecutor(contestants) as threads:
        won = list(threads.map(contest, range(contestants)))
    assert most == [1]
    assert sum(won) >= 30
    claim.unlink()  # the last barrier has left one
    assert os.listdir(claim.parent) == []


def test_a_living_claim_stays_where_it_is(claim: Path) -> None:
    """One that has found a dead claim goes on when another has taken it over: a third must find it taken."""
    claim.write_text(dead_claim())
    with claimed(ACCESS, str(claim)) as is_mine:
        assert is_mine
        held = claim.read_bytes()
        assert not claims._replace(ACCESS, LocalFolder(None, str(claim)), dead_claim().encode(), b"late")  # type: ignore[arg-type]
        assert claim.read_bytes() == held
        assert not is_free(claim)
    assert os.listdir(claim.parent) == []


def test_who_dies_while_it_takes_over_is_taken_over(claim: Path) -> None:
    dead = dead_claim()
    claim.write_text(dead)
    right = claim.with_name(f"claim-{hashlib.sha256(dead.encode()).hexdigest()[:16]}")
    right.write_text(dead)
    assert is_free(claim)
    assert os.listdir(claim.parent) == []


def test_a_store_that_lets_two_make_a_claim_gives_it_to_the_later(claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = LocalFolder.write

    def overtaken(self: Any, content: bytes, **options: bool) -> bool:
        write(self, content, **options)
        claim.write_text(json.dumps(ELSEWHERE))
        return True

    monkeypatch.setattr(LocalFolder, "write", overtaken)
    assert not is_free(claim)
    assert json.loads(claim.read_text()) == ELSEWHERE


def test_a_claim_that_others_have_replaced_is_theirs(claim: Path) -> None:
    with claimed(ACCESS, str(claim)) as is_mine:
        assert is_mine
        claim.write_text(json.dumps(ELSEWHERE))  # it was held up for longer than its lease
    assert json.loads(claim.read_text()) == ELSEWHERE
