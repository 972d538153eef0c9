"""`import penstock` provides all public names without importing PySpark."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

PROGRAMS = {
    "nothing is imported before it is needed": """
import sys, penstock
assert not {'pyspark', 'pandas', 'numpy', 'penstock.entry.environment'} & set(sys.modules)
""",
    "all names exist": """
import penstock
for name in penstock.__all__:
    assert getattr(penstock, name) is getattr(penstock, name), name
    assert callable(getattr(penstock, name)) or name == "__version__"
""",
    "a function has the name of a package": """
import penstock, penstock.rebalance.task
from penstock.entry.environment import Environment
from penstock import rebalance, rescale
assert rebalance is penstock.rebalance and rebalance.__module__ == "penstock.rebalance.operator"
assert penstock.Environment is Environment
assert rescale.__name__ == "rescale"
""",
    "a star import": """
from penstock import *
assert Environment.__name__ == "Environment" and rebalance.__name__ == "rebalance"
""",
    "subpackages": """
import penstock
assert penstock.connectors.FileSink.__name__ == "FileSink"
assert not hasattr(penstock, "nothing_of_that_name")
""",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_public_names_are_imported_on_demand(name: Any) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAMS[name]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
