"""The folders of spark.local.dir, as users write them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark import local_dirs as module
from penstock.spark.local_dirs import local_dirs

if TYPE_CHECKING:
    from pathlib import Path


def bridge(master: str = "local[2]") -> Any:
    """Return a bridge to a session; nothing but its master is asked of it."""
    return SimpleNamespace(session=None, spark=SimpleNamespace(sparkContext=SimpleNamespace(master=master)))


@pytest.mark.parametrize(
    ("written", "found"),
    [("{a}", "a"), ("{a},{b}", "ab"), ("{a},", "a"), (" {a} , ,{b}", "ab"), ("{a}/nothing,{b}", "b"), ("", "")],
)
def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, found: str) -> None:
    for name in ("SPARK_EXECUTOR_DIRS", "SPARK_LOCAL_DIRS"):
        monkeypatch.delenv(name, raising=False)
    places = {name: str(tmp_path / name) for name in "ab"}
    for place in places.values():
        (tmp_path / place).mkdir()
    monkeypatch.setattr(module, "read_settings", lambda *_: {"spark.local.dir": written.format(**places)})
    dirs = local_dirs(bridge())
    assert [one.path for one in dirs] == [places[name] for name in found]
    assert all(one.free > 0 for one in dirs)
    assert local_dirs(bridge(master="spark://host:7077")) == []
