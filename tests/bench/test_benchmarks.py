"""Every benchmark can be loaded and shows its help; tests of the cluster model."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

SCRIPTS = sorted(path for path in (ROOT / "bench").glob("*.py") if "def main(" in path.read_text())


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_shows_its_help(
    path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    module = load(path, monkeypatch)
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0
    assert "usage" in capsys.readouterr().out.lower()


def load(path: Path, patch: pytest.MonkeyPatch) -> Any:
    """Import a benchmark as a module."""
    patch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(f"script_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


# Executors, stages as (start, end, core seconds, bytes fetched, tasks), growth, and the seconds. The network has 1 GB/s; other costs are 0.
GB = 1_000_000_000
MODEL_CASES: dict[str, tuple[int, list[tuple[float, float, float, int, int]], float, float]] = {
    "a task has a core": (1, [(0, 1, 4, 0, 1)], 1, 4),
    "many tasks have all cores": (1, [(0, 1, 8, 0, 8)], 1, 2),
    "two stages share the cores": (1, [(0, 1, 8, 0, 8), (0, 1, 8, 0, 8)], 1, 4),
    "a stage waits for finished stages": (1, [(0, 1, 4, 0, 4), (1, 2, 4, 0, 4)], 1, 2),
    "a stage does not wait for concurrent stages": (2, [(0, 2, 4, 0, 4), (1, 2, 4, 0, 4)], 1, 1),
    "a single executor needs no network": (1, [(0, 1, 0, 4 * GB, 4)], 1, 0),
    "half of the bytes are on the other executor": (2, [(0, 1, 0, 4 * GB, 4)], 1, 1),
    "more data": (1, [(0, 1, 4, 0, 4)], 3, 3),
}


@pytest.mark.parametrize("case", MODEL_CASES)
def test_the_cluster_model_predicts_seconds(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    executors, stages, growth, seconds = MODEL_CASES[case]
    model = load(ROOT / "bench" / "cluster_model.py", monkeypatch)
    cluster = model.Cluster(executors, launch=0, start=0, fetch=0)
    model_stages = [model.Stage(start, end, work, 0, fetched, tasks) for start, end, work, fetched, tasks in stages]
    assert model.seconds(model_stages, cluster, growth) == pytest.approx(seconds)


def test_bytes_read_by_duckdb_are_divided_among_unmeasured_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark does not measure them; without them, a stage on a cluster would have as few tasks as locally."""
    model = load(ROOT / "bench" / "cluster_model.py", monkeypatch)
    unmeasured, other, measured = (
        model.Stage(0, 1, 3.0, 0, 0, 2),
        model.Stage(0, 1, 1.0, 0, 0, 2),
        model.Stage(1, 2, 5.0, GB, 7, 2),
    )
    stages = model.with_bytes_read([unmeasured, other, measured], 5 * GB)
    assert [stage.read for stage in stages] == [3 * GB, GB, GB]
    assert model.task_count(stages[0], 1000) > model.task_count(unmeasured, 1000) == 2
    assert model.with_bytes_read([measured], 5 * GB) == [measured]
