"""Tasks of an adaptive exchange run on executors without the package `penstock`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pyspark import cloudpickle

from penstock.rebalance.operator import _pickled_by_value
from penstock.rebalance.pull_task import PullTask
from penstock.rebalance.task import ExchangeSpec, ExchangeTask

NONE: Any = None
TASKS: dict[str, Any] = {
    "pushed rows": ExchangeTask(ExchangeSpec(2), iter, NONE, NONE),
    "chunks on request": PullTask(iter, NONE),
}
EXECUTOR = """
import pickle, sys
sys.modules["penstock"] = None
print(type(pickle.loads(sys.stdin.buffer.read())).__name__)
"""


@pytest.mark.parametrize("case", TASKS)
def test_executors_need_no_package(case: str) -> None:
    with _pickled_by_value():
        pickled = cloudpickle.dumps(TASKS[case])
    process = subprocess.run([sys.executable, "-c", EXECUTOR], input=pickled, capture_output=True, check=False)
    assert process.stdout.decode() == f"{type(TASKS[case]).__name__}\n", process.stderr.decode()[-2000:]
