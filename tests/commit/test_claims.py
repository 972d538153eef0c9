"""Claims: a single holder at a time, and takeover of the claims of dead processes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.commit import Access, claims
from penstock.commit.claims import hold_claim, holder_of
from penstock.commit.owner import Owner
from tests.commit.local import LocalFolder

ACCESS = Access(None)  # type: ignore[arg-type]
ELSEWHERE = {"host": "elsewhere/1", "pid": 1, "started": "1"}


@pytest.fixture
def claim(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("penstock.commit.claims.HadoopPath", LocalFolder)
    return tmp_path / "claim"


def is_free(claim: Path) -> bool:
    with hold_claim(ACCESS, str(claim)) as is_mine:
        return is_mine


def test_a_claim_has_a_single_holder_among_threads(claim: Path) -> None:
    with hold_claim(ACCESS, str(claim)) as is_mine:
        assert is_mine
        assert holder_of(ACCESS, str(claim)) == Owner.current()
        with ThreadPoolExecutor(8) as threads:
            assert not any(threads.map(is_free, [claim] * 8))
    assert is_free(claim)
    assert holder_of(ACCESS, str(claim)) is None
    assert os.listdir(claim.parent) == []


def test_a_claim_file_that_could_not_be_removed_is_free(
    claim: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Any) -> None:
        raise OSError("the disk is away")

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "delete", fail)
        assert is_free(claim)
    assert "could not be removed" in caplog.text
    assert claim.exists()
    assert is_free(claim)
    assert not claim.exists()


@pytest.mark.parametrize("content", [json.dumps(ELSEWHERE), "{"], ids=["another machine", "torn"])
@pytest.mark.parametrize("rename", ["keeps times", "copies"])
def test_a_holder_that_cannot_be_checked_counts_as_dead_without_a_renewal(
    claim: Path, monkeypatch: pytest.MonkeyPatch, content: str, rename: str
) -> None:
    """On object stores a rename copies the file, which resets its age."""
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
    """Return the claim of a dead process of this machine; no process has this id."""
    return json.dumps({"host": Owner.current().host, "pid": 2**22 + 1, "started": "1"})


def test_a_single_contestant_takes_over_the_claim_of_a_dead_process(
    claim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each round all threads contend for a dead claim; losers retry while the winner releases it."""
    read = LocalFolder.read

    def slow(self: Any) -> bytes:
        content = read(self)
        time.sleep(random.random() / 500)  # a slow store: the claim may have changed in the meantime
        return content

    monkeypatch.setattr(LocalFolder, "read", slow)
    contestants, holders, most = 12, [0], [0]
    lock = threading.Lock()
    barrier = threading.Barrier(contestants, action=lambda: claim.write_text(dead_claim()) and None, timeout=60)

    def contest(_: int) -> int:
        won = 0
        for _ in range(30):
            barrier.wait()
            for _ in range(3):
                with hold_claim(ACCESS, str(claim)) as is_mine:
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
    claim.unlink()  # written by the action of the last barrier
    assert os.listdir(claim.parent) == []


def test_the_claim_of_a_live_process_is_not_replaced(claim: Path) -> None:
    """A contestant that has read a dead claim continues after another has taken it over."""
    claim.write_text(dead_claim())
    with hold_claim(ACCESS, str(claim)) as is_mine:
        assert is_mine
        held = claim.read_bytes()
        assert not claims._replace(ACCESS, LocalFolder(None, str(claim)), dead_claim().encode(), b"late")  # type: ignore[arg-type]
        assert claim.read_bytes() == held
        assert not is_free(claim)
    assert os.listdir(claim.parent) == []


def test_a_process_that_dies_during_a_takeover_is_itself_taken_over(claim: Path) -> None:
    dead = dead_claim()
    claim.write_text(dead)
    replacement = claim.with_name(f"claim-{hashlib.sha256(dead.encode()).hexdigest()[:16]}")
    replacement.write_text(dead)
    assert is_free(claim)
    assert os.listdir(claim.parent) == []


def test_if_a_store_lets_two_create_a_claim_the_later_write_wins(claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = LocalFolder.write

    def overtaken(self: Any, content: bytes, **options: bool) -> bool:
        write(self, content, **options)
        claim.write_text(json.dumps(ELSEWHERE))
        return True

    monkeypatch.setattr(LocalFolder, "write", overtaken)
    assert not is_free(claim)
    assert json.loads(claim.read_text()) == ELSEWHERE


def test_a_claim_that_another_process_has_replaced_is_not_removed(claim: Path) -> None:
    with hold_claim(ACCESS, str(claim)) as is_mine:
        assert is_mine
        claim.write_text(json.dumps(ELSEWHERE))  # this process was delayed for longer than its lease
    assert json.loads(claim.read_text()) == ELSEWHERE
