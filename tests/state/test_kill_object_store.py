"""The driver is killed during a rescale on an object store, where a rename is a copy and a deletion."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.support.paths import TESTS
from tests.support.services import SeaweedFs

pytestmark = pytest.mark.slow

JARS = Path(pyspark.__file__).parent / "jars"
QUERY = "changelog"
"""The query for which leftover files of an undone rescale would be read instead of its own changes."""
SHARES = (0.1, 0.45, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.97)
"""Kill points, as fractions of the changes to objects, which stage and publish the new state and clean up."""


@pytest.fixture(scope="module")
def store() -> Iterator[SeaweedFs]:
    server = SeaweedFs(allows_anonymous=True)
    server.filesystem().create_dir("bucket")
    yield server
    server.close()


@pytest.fixture(scope="module")
def job(store: SeaweedFs, tmp_path_factory: pytest.TempPathFactory) -> Any:
    classes = tmp_path_factory.mktemp("classes")
    subprocess.run(
        ["javac", "-cp", f"{JARS}/*", "-d", str(classes), str(TESTS / "java" / "ObjectStore.java")], check=True
    )
    program = [sys.executable, str(TESTS / "jobs" / "state_object_store.py"), str(classes)]
    endpoint = f"http://127.0.0.1:{store.port}"

    def run(*arguments: object) -> subprocess.CompletedProcess:
        command = [*program, endpoint, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)

    return run


def test_killed_driver(stopped: Any, job: Any) -> None:
    query = stopped(QUERY)
    alive = job("kill", query.checkpoint, "weed://bucket/alive", 0)
    assert alive.returncode == 0, alive.stderr
    changes = int(alive.stdout.split()[-1])
    killed = {}
    for change in (int(share * changes) for share in SHARES):
        checkpoint = f"weed://bucket/killed-{change}"
        done = job("kill", query.checkpoint, checkpoint, change)
        assert done.returncode != 0, f"no process was killed at change {change} of {changes}"
        killed[checkpoint] = change
    done = job("go-on", QUERY, query.input, *killed)
    assert done.returncode == 0, done.stderr
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(outcomes) == 3 * len(killed)
    for outcome in outcomes:
        assert outcome["batches"] == str(query.later), outcome
        assert not outcome["left"], outcome
        expected = {"resume": {8}, "abort": {8 if outcome["committed"] else 4}, "restart": {4, 8}}[outcome["what"]]
        assert outcome["after"] in expected, outcome
    phases = {(outcome["phase"], outcome["committed"]) for outcome in outcomes}
    assert {("staging", False), ("publishing", False), ("publishing", True)} <= phases, "every phase was met"
