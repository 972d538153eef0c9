"""The folders of spark.local.dir, as users write them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.local_dirs import local_dirs

if TYPE_CHECKING:
    from pathlib import Path


def bridge(setting: str, master: str = "local[2]") -> Any:
    """Return a bridge to a session with a setting; nothing else of it is asked."""
    conf = SimpleNamespace(get=lambda _: setting)
    return SimpleNamespace(spark=SimpleNamespace(sparkContext=SimpleNamespace(master=master, getConf=lambda: conf)))


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
    dirs = local_dirs(bridge(written.format(**places)))
    assert [one.path for one in dirs] == [places[name] for name in found]
    assert all(one.free > 0 for one in dirs)
    assert local_dirs(bridge(written.format(**places), master="spark://host:7077")) == []
