"""The total and free memory of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.duckdb.worker import memory

ALL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_limit_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.machine_memory() == ALL
    for text, expected in {"max\n": ALL, "1000\n": 1000, f"{2 * ALL}\n": ALL}.items():
        (tmp_path / "memory.max").write_text(text)
        assert memory.machine_memory() == expected


# Contents of the files of the machine and its container, and the free memory.
FREE: dict[str, tuple[dict[str, str], int]] = {
    "no files": ({}, ALL),
    "a machine": ({"meminfo": "MemTotal: 9 kB\nMemAvailable:   3 kB\n"}, 3072),
    "a container without a limit": (
        {"meminfo": "MemAvailable: 3 kB", "memory.max": "max", "memory.current": "99"},
        3072,
    ),
    "a container": (
        {"memory.max": "5000", "memory.current": "2500", "memory.stat": "anon 1\ninactive_file 500\n"},
        3000,
    ),
    "a container that is full": ({"memory.max": "5000", "memory.current": "6000"}, 0),
    "a machine with less than its container": (
        {"meminfo": "MemAvailable: 1 kB", "memory.max": "5000", "memory.current": "0"},
        1024,
    ),
}


@pytest.mark.parametrize("case", FREE)
def test_free_memory(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, free = FREE[case]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    assert memory.free_memory() == free
