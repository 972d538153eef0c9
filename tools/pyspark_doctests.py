"""Run the examples of PySpark's documentation with plain Spark and with Penstock, and compare.

    python tools/pyspark_doctests.py sql.classic.dataframe sql.group        a table, and the examples that differ
    python tools/pyspark_doctests.py --out FOLDER pandas.frame              also write the examples' output to FOLDER

A module belongs to the installed PySpark and has a `_test` function. Each module runs in its own processes. Penstock
executes all queries, even small ones. The comparison covers whether an example passes, and its output.
"""

import argparse
import doctest
import importlib
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TextIO

SECONDS_PER_EXAMPLE = 120
"""Timeout of a single example; its process is then killed and reported."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "8",
    "spark.penstock.execution.batch.adaptive.whole-query-threshold": "0",
    "spark.penstock.execution.verify": "true",
}


class Recorder(doctest.DocTestRunner):
    """Writes a line of JSON for each finished example.

    Parameters
    ----------
    out
        The file for the lines.
    options
        The option flags of `doctest` for the comparison with the documentation.
    """

    def __init__(self, out: TextIO, options: int) -> None:
        super().__init__(verbose=False, optionflags=options)
        self._out = out

    def _write(self, passed: bool, test: doctest.DocTest, example: doctest.Example, got: str) -> None:  # noqa: FBT001
        where = f"{test.name}:{example.lineno}"
        line = {"where": where, "source": example.source, "want": example.want, "got": got, "passed": passed}
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    def report_start(self, out: object, test: doctest.DocTest, example: doctest.Example) -> None:
        """Print nothing, unlike the base class."""

    def report_success(self, out: object, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        """Write an example with the expected output."""
        self._write(True, test, example, got)

    def report_failure(self, out: object, test: doctest.DocTest, example: doctest.Example, got: str) -> None:
        """Write an example with unexpected output."""
        self._write(False, test, example, got)

    def report_unexpected_exception(
        self, out: object, test: doctest.DocTest, example: doctest.Example, exc_info: tuple
    ) -> None:
        """Write an example that raised an error."""
        self._write(False, test, example, f"{exc_info[0].__name__}: {exc_info[1]}")


def run_examples(module: str, file: Path, every: int, *, enabled: bool) -> None:
    """Run the examples of every nth docstring of a module in this process; write their output to a file."""
    with file.open("w") as out:

        def testmod(tested: object, globs: dict, optionflags: int = 0, **_: object) -> doctest.TestResults:
            runner = Recorder(out, optionflags)
            for test in doctest.DocTestFinder().find(tested, globs=globs)[::every]:
                runner.run(test)
            return doctest.TestResults(0, runner.tries)

        doctest.testmod = testmod  # type: ignore[assignment]
        run_module = vars(importlib.import_module(f"pyspark.{module}"))["_test"]
        if not enabled:
            run_module()
            return
        from penstock.extension.program import all_sessions_enabled

        logging.getLogger("penstock").addHandler(logging.StreamHandler())
        with all_sessions_enabled() as program:
            run_module()
        print("query counts", program.counts, file=sys.stderr)


def spark_home(folder: Path) -> Path:
    """Create a writable SPARK_HOME with links to the installed Spark.

    PySpark's own packages are not linked: workers that start in this folder would import its ``pandas``.
    """
    installed = Path(importlib.util.find_spec("pyspark").origin).parent
    home = folder / "spark"
    home.mkdir()
    for name in ("jars", "bin", "sbin", "data", "python"):
        if (installed / name).exists():
            (home / name).symlink_to(installed / name)
    return home


def run(module: str, out: Path, every: int, *, enabled: bool) -> list[dict]:
    """Run a module's examples in a new process; return a record for each example."""
    file = out / f"{module}.{'with' if enabled else 'without'}.jsonl"
    file.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder, file.with_suffix(".log").open("w") as log:
        settings = {**SETTINGS, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
        environ = {
            **os.environ,
            "SPARK_HOME": str(spark_home(Path(folder))),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join(f'--conf "{key}={value}"' for key, value in settings.items())
            + " pyspark-shell",
        }
        command = [sys.executable, __file__, "--child", module, "--file", str(file), "--every", str(every)]
        child = subprocess.Popen(
            [*command, "--enabled"] if enabled else command, cwd=folder, env=environ, stdout=log, stderr=log
        )
        size = -1
        while True:
            try:
                child.wait(SECONDS_PER_EXAMPLE)
                break
            except subprocess.TimeoutExpired:
                before, size = size, file.stat().st_size if file.exists() else 0
                if size == before:
                    child.kill()
                    child.wait()
                    print(
                        f"{module} {'with' if enabled else 'without'} Penstock: hangs after the last example of {file}"
                    )
                    break
    return [json.loads(line) for line in file.read_text().splitlines()]


def normalized_output(example: dict) -> str:
    """Return the output of an example without Spark's running numbers and without stack frames."""
    lines = [line for line in example["got"].splitlines() if not line.startswith("\tat ")]
    return re.sub(r"0x[0-9a-f]+|tmp\w{8}|#\d+|plan_id=\d+|calling o\d+", "#", "\n".join(lines))


def difference(without: dict, penstock: dict | None) -> str | None:
    """Return how the outcome of an example differs with Penstock, None if it does not."""
    if penstock is None:
        return "did not run"
    before, after = normalized_output(without), normalized_output(penstock)
    if without["passed"] == penstock["passed"] and before == after:
        return None
    if without["passed"] and not penstock["passed"]:
        kind = "fails only with Penstock"
    elif penstock["passed"] and not without["passed"]:
        kind = "passes only with Penstock"
    else:
        kind = "prints something else"
    if sorted(before.splitlines()) == sorted(after.splitlines()):
        kind += " (lines in another order)"
    elif "explain(" in without["source"]:
        kind += " (plan)"
    return kind


def compare(module: str, out: Path, every: int) -> tuple[str, list[str]]:
    """Run a module without and with Penstock; return its row of the table, and the examples that differ."""
    without, penstock = (run(module, out, every, enabled=enabled) for enabled in (False, True))
    by_position = {example["where"]: example for example in penstock}
    kinds: Counter[str] = Counter()
    lines = []
    for example in without:
        other = by_position.get(example["where"])
        kind = difference(example, other)
        if kind is not None:
            kinds[kind] += 1
            got = "" if other is None else normalized_output(other)
            expected = normalized_output(example)
            lines.append(f"--- {example['where']}: {kind}\n{example['source']}=== without\n{expected}\n=== with\n{got}")
    failed = [sum(not example["passed"] for example in examples) for examples in (without, penstock)]
    differences = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return f"| {module} | {len(without)} | {failed[0]} | {failed[1]} | {differences} |", lines


def main() -> None:
    """Compare the modules on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    parser.add_argument("--out", type=Path, help="folder for the output of each example")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth docstring of a module")
    for name in ("--child", "--file"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--enabled", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        run_examples(arguments.child, Path(arguments.file), arguments.every, enabled=arguments.enabled)
        return
    out = arguments.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for module in arguments.modules:
        row, lines = compare(module, out, arguments.every)
        rows.append(row)
        print(*lines, sep="\n", flush=True)
    print(
        "| module | examples | failed without | failed with | differences |", "|---|---|---|---|---|", *rows, sep="\n"
    )


if __name__ == "__main__":
    main()
