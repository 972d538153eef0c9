"""Notebooks in a real Jupyter kernel: the extension reports what it does, and cells show their decisions once."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = {
    "load": "%load_ext penstock",
    "session": """\
from pyspark.sql import SparkSession, functions as F
from penstock import Environment
spark = SparkSession.getActiveSession()
spark.conf.set("spark.penstock.execution.batch.adaptive.whole-query-threshold", "0")
counts = spark.range(1000).groupBy((F.col("id") % 7).alias("k")).count()""",
    "magic": "%%penstock\nlen(counts.collect())",
    "failure": "%%penstock\n1 / 0",
    "no query": "%%penstock\nvalue = 1",
    "by Spark": "%%penstock\nspark.range(3).collect()",
    "job": "env = Environment(spark, config={'execution.batch.adaptive.whole-query-threshold': 0})\nenv.count(counts)\nenv.last_job",
    "jobs": "[env.last_job], repr(env.last_job)",
    "decisions": "env.last_job.decisions",
    "plan": "env.explain(counts)",
    "analysis": "env.explain(counts, analyze=True)",
    "unload": "%unload_ext penstock",
    "again": "%load_ext penstock\ncounts.count()",
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[dict[str, Any]]]:
    """Return the outputs of each cell of a notebook that a kernel of its own has run."""
    cells = [nbformat.v4.new_code_cell(code) for code in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=300, allow_errors=True, kernel_name="python3").execute()
    return {
        name: [output for output in cell.outputs if output.get("name") != "stderr"]
        for name, cell in zip(CELLS, notebook.cells, strict=True)
    }


def texts(outputs: list[dict[str, Any]]) -> str:
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


@pytest.mark.thorough
class TestNotebook:
    @pytest.mark.parametrize(
        ("cell", "pattern"),
        [
            ("load", r"Penstock runs the queries of this Spark \d\.\d\.\d session.*\nStart a cell with %%penstock"),
            ("magic", r"\A7\nJob .*: finished\n\d tasks?, [\d.]+ s"),
            ("no query", r"\ANo query ran\.\Z"),
            ("by Spark", r"Spark ran queries itself: 1 "),
            ("job", r"\AJob count at .*: finished\n"),
            ("jobs", r"<Job count at .* \(\w+\): finished>'\)\Z"),
            ("decisions", r"\A- .*"),
            ("plan", r"\APlan before it runs"),
            ("analysis", r"\A\d tasks?, "),
            ("unload", r"\ASpark runs all queries of this session itself\.\n\Z"),
            ("again", r"Penstock runs the queries.*\n.*\n7\Z"),
        ],
    )
    def test_the_text_of_a_cell(self, outputs: dict[str, list[dict[str, Any]]], cell: str, pattern: str) -> None:
        shown = texts(outputs[cell])
        assert re.search(pattern, shown, re.DOTALL if cell == "again" else 0), shown
        assert " object at 0x" not in shown
        assert "\x1b" not in shown

    @pytest.mark.parametrize("cell", ["magic", "job", "decisions", "plan", "analysis"])
    def test_a_result_appears_once_and_has_html(self, outputs: dict[str, list[dict[str, Any]]], cell: str) -> None:
        rich = [output["data"] for output in outputs[cell] if "text/html" in output.get("data", {})]
        assert len(rich) == 1
        assert all("┃" not in output.get("text", "") for output in outputs[cell])

    def test_a_cell_that_fails_shows_its_error_once_and_stops_the_notebook(
        self, outputs: dict[str, list[dict[str, Any]]]
    ) -> None:
        errors = [output for output in outputs["failure"] if output["output_type"] == "error"]
        assert [error["ename"] for error in errors] == ["ZeroDivisionError"] * 2
        assert [bool(error["traceback"]) for error in errors] == [True, False]  # the second is the status of the cell
