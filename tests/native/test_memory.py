"""How much memory this machine has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.native import memory

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

ALL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_limit_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_LIMIT", tmp_path / "memory.max")
    assert memory.machine_memory() == ALL
    for text, found in {"max\n": ALL, "1000\n": 1000, f"{2 * ALL}\n": ALL}.items():
        (tmp_path / "memory.max").write_text(text)
        assert memory.machine_memory() == found
