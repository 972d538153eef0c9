"""The folders of spark.local.dir in all formats that users write."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.spark.run import local_dirs as module
from penstock.spark.run.local_dirs import local_dirs


def bridge(master: str = "local[2]") -> Any:
    """Return a fake bridge with a master."""
    return SimpleNamespace(session=None, spark=SimpleNamespace(sparkContext=SimpleNamespace(master=master)))


@pytest.mark.parametrize(
    ("written", "expected"),
    [("{a}", "a"), ("{a},{b}", "ab"), ("{a},", "a"), (" {a} , ,{b}", "ab"), ("{a}/nothing,{b}", "b"), ("", "")],
)
def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, expected: str) -> None:
    for name in ("SPARK_EXECUTOR_DIRS", "SPARK_LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    paths = {name: str(tmp_path / name) for name in "ab"}
    for path in paths.values():
        (tmp_path / path).mkdir()
    monkeypatch.setattr(module, "read_settings", lambda *_: {"spark.local.dir": written.format(**paths)})
    dirs = local_dirs(bridge())
    assert [local_dir.path for local_dir in dirs] == [paths[name] for name in expected]
    assert all(local_dir.free_bytes > 0 for local_dir in dirs)
    assert local_dirs(bridge(master="spark://host:7077")) == []
