"""Every benchmark still fits the code: it is loaded, and shows its help."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(path for path in (ROOT / "bench").glob("*.py") if "def main(" in path.read_text())


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_help(path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    module = loaded(path, monkeypatch)
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out.lower()


def loaded(path: Path, patch: pytest.MonkeyPatch) -> Any:
    """Return a benchmark as a module."""
    patch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


# Executors, stages as (begun, ended, core seconds, bytes fetched, tasks), growth, and the seconds; a network has 1 GB/s, all else is free.
GB = 1_000_000_000
MODELLED: dict[str, tuple[int, list[tuple[float, float, float, int, int]], float, float]] = {
    "one task has one core": (1, [(0, 1, 4, 0, 1)], 1, 4),
    "many tasks have all cores": (1, [(0, 1, 8, 0, 8)], 1, 2),
    "two stages share the cores": (1, [(0, 1, 8, 0, 8), (0, 1, 8, 0, 8)], 1, 4),
    "a stage waits for what had ended": (1, [(0, 1, 4, 0, 4), (1, 2, 4, 0, 4)], 1, 2),
    "a stage does not wait for what ran beside it": (2, [(0, 2, 4, 0, 4), (1, 2, 4, 0, 4)], 1, 1),
    "one executor has no network": (1, [(0, 1, 0, 4 * GB, 4)], 1, 0),
    "half of the bytes are on the other executor": (2, [(0, 1, 0, 4 * GB, 4)], 1, 1),
    "more data, more work": (1, [(0, 1, 4, 0, 4)], 3, 3),
}


@pytest.mark.parametrize("case", MODELLED)
def test_a_cluster_as_a_model(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executors, stages, growth, seconds = MODELLED[case]
    model = loaded(ROOT / "bench" / "cluster_model.py", monkeypatch)
    cluster = model.Cluster(executors, launch=0, start=0, fetch=0)
    made = [model.Stage(begun, ended, work, 0, fetched, tasks) for begun, ended, work, fetched, tasks in stages]
    assert model.seconds(made, cluster, growth) == pytest.approx(seconds)


def test_what_duckdb_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark does not count it; without it, a stage would have as few tasks on a cluster as here."""
    model = loaded(ROOT / "bench" / "cluster_model.py", monkeypatch)
    silent, other, told = (
        model.Stage(0, 1, 3.0, 0, 0, 2),
        model.Stage(0, 1, 1.0, 0, 0, 2),
        model.Stage(1, 2, 5.0, GB, 7, 2),
    )
    made = model.with_bytes_read([silent, other, told], 5 * GB)
    assert [one.read for one in made] == [3 * GB, GB, GB]
    assert model.tasks_of(made[0], 1000) > model.tasks_of(silent, 1000) == 2
    assert model.with_bytes_read([told], 5 * GB) == [told]
