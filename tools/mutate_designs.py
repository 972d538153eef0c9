"""Check that the tests cited in docs/reference/designs.md fail without the behavior of their rows.

    python -m tools.mutate_designs                     run all mutations that have no current result
    python -m tools.mutate_designs --design FLIP-469   only those of a design
    python -m tools.mutate_designs --only "dotted"     only rows whose requirement or mutated file contains a text
    python -m tools.mutate_designs --quick             only rows whose tests need no Spark session
    python -m tools.mutate_designs --again             also mutations that have a current result

A mutation (`design_rows.Mutation`) is applied to a copy of ``src``, never to the work tree. Its tests must pass without
it, before and afterwards, and must fail with it, through an assertion of the tests: a test that is skipped, cannot be
collected, raises another error or reports a crash proves nothing. A result is current while the mutation, the file that
it changes and the files of its tests are unchanged.
"""

from __future__ import annotations

import argparse
import compileall
import datetime as dt
import json
import os
import py_compile
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tools.design_rows import FAILS, RESULTS, ROOT, Mutation, cases_of, mutations_of, read_results, rows_by_design

_ASSERTION = re.compile(r"assert |AssertionError|Failed: DID NOT (RAISE|WARN)")
"""Messages of a failed assertion; pytest shortens the name of the error if its message begins with ``assert``."""
_LOCATION = re.compile(r"^(\S+):\d+: ", re.MULTILINE)
"""A frame in a traceback of pytest, as a path relative to the root of the project if it is below it."""
_CRASH = re.compile(
    r"(?:^|\\n)(?:E\s+)?((?:Name|UnboundLocal|Import|ModuleNotFound|Attribute|Type|Syntax|Indentation)Error): ",
    re.MULTILINE,
)
"""An error of mutated code that cannot run, in a traceback or in the output of a command that a test quotes."""
_GRACE_SECONDS = 30


@dataclass(frozen=True)
class Case:
    """A test case that ran: `outcome` is passed, skipped, error, failure (of an assertion of the tests) or raised.

    `crash` is the class of an error in the text of the failure that shows that the mutated code cannot run.
    """

    outcome: str
    message: str = ""
    crash: str = ""


@dataclass(frozen=True)
class Pending:
    """A mutation to run, with the test cases of each of its tests."""

    design: str
    mutation: Mutation
    cases: tuple[tuple[str, ...], ...]


class Copy:
    """A copy of ``src`` in which tests run; its compiled modules are validated by their contents, not by times."""

    def __init__(self, folder: Path) -> None:
        self._source = folder / "src"
        shutil.copytree(ROOT / "src", self._source, ignore=shutil.ignore_patterns("__pycache__"))
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(self._source, quiet=1, invalidation_mode=mode)

    def run(self, tests: Iterable[str], timeout: float) -> dict[str, Case]:
        """Run test cases in a process; return the outcomes of those that ended within `timeout` seconds."""
        environ = os.environ | {
            "PYTHONPATH": os.pathsep.join(map(str, (self._source, ROOT))),
            "PYSPARK_PYTHON": sys.executable,
        }
        with tempfile.TemporaryDirectory(prefix="penstock-report-") as folder:
            report = Path(folder) / "report.xml"
            options = ["-p", "no:cacheprovider", "--durations=0", f"--junitxml={report}", f"--basetemp={folder}/tests"]
            _run([*_PYTEST, *options, *tests], environ, timeout)
            return read_cases(report) if report.exists() else {}

    def run_mutated(self, mutation: Mutation, tests: Iterable[str], timeout: float) -> dict[str, Case]:
        """Run test cases with a mutation."""
        file = self._source.parent / mutation.path
        original = file.read_text()
        file.write_text(original.replace(mutation.before, mutation.after))
        try:
            return self.run(tests, timeout)
        finally:
            file.write_text(original)


_PYTEST = [sys.executable, "-m", "pytest"]


def _run(command: Sequence[str], environ: dict[str, str], timeout: float) -> str:
    """Run pytest and return its output; interrupt it after `timeout` seconds, so that it stops its services.

    Its process group is killed at the end, as the jobs that an interrupted test has started would go on.
    """
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):  # it is killed below
                process.wait(_GRACE_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return output.read()


def read_cases(report: Path) -> dict[str, Case]:
    """Return the outcomes in a report of pytest by the id of the case; a failure while cleaning up is an error."""
    cases: dict[str, Case] = {}
    for element in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest has written it
        name = f"{element.get('classname', '').replace('.', '/')}.py::{element.get('name')}"
        case = Case("passed")
        for child in element:
            message = child.get("message", "")
            if child.tag == "failure":
                case = _failed_case(message, child.text or "")
            elif child.tag in {"error", "skipped"} and case.outcome == "passed":
                case = Case(child.tag, message)
        cases[name] = case
    return cases


def _failed_case(message: str, text: str) -> Case:
    """Return a case that failed, with the text that pytest reports; its last frame is where the error was raised."""
    frames = _LOCATION.findall(text)
    is_assertion = _ASSERTION.match(message) and frames and frames[-1].startswith("tests/")
    crash = _CRASH.search(text)
    return Case("failure" if is_assertion else "raised", message, crash[1] if crash else "")


def collect(tests: Iterable[str], markers: str) -> list[str]:
    """Return the ids of all cases of tests that have certain markers."""
    functions = sorted({test.partition("[")[0] for test in tests})
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT)))}
    output = _run([*_PYTEST, "--collect-only", "-m", markers, *functions], environ, 600)
    collected = [line for line in output.splitlines() if line.startswith("tests/") and "::" in line]
    if not collected:
        raise SystemExit(f"no test was collected:\n{output}")
    return collected


def verdict(pending: Pending, outcomes: dict[str, Case]) -> tuple[str, str]:
    """Return whether a mutation makes each of its tests fail, and a message of a failure or the problem."""
    message = ""
    for test, cases in zip(pending.mutation.tests, pending.cases, strict=True):
        ran = [outcomes[name] for name in cases if name in outcomes]
        error = pending.mutation.error
        failures = [
            case
            for case in ran
            if (case.outcome == "failure" and case.crash in {"", error})
            or (error and case.outcome == "raised" and case.message.startswith(error))
        ]
        if not failures:
            counts = Counter(case.outcome for case in ran) or {"did not end": len(cases)}
            problem = next((f": {case.crash} {case.message}" for case in ran if case.outcome != "passed"), "")
            return "passes" if set(counts) == {"passed"} else "no failure", f"{test}: {dict(counts)}{problem}"
        message = message or failures[0].message
    return FAILS, message


class Run:
    """A run of mutations: writes the results file after each of them."""

    def __init__(self, file: Path, commit: str) -> None:
        self._file, self._commit = file, commit
        self._lock = threading.Lock()

    def is_current(self, design: str, mutation: Mutation) -> bool:
        """Whether the mutation has a result of this state of its files, possibly of another run at the same time."""
        result = read_results(self._file).get(design, {}).get(mutation.requirement, {})
        return result.get("outcome") == FAILS and result.get("sources") == mutation.digest_with_sources()

    def record(self, pending: Pending, outcome: str, detail: str) -> None:
        """Store a result, and print it."""
        mutation = pending.mutation
        first_line = detail.partition("\n")[0][:200].replace(tempfile.gettempdir(), "")
        with self._lock:
            results = read_results(self._file)
            results.setdefault(pending.design, {})[mutation.requirement] = {
                "outcome": outcome,
                "mutation": mutation.digest,
                "sources": mutation.digest_with_sources(),
                "date": str(dt.date.today()),  # noqa: DTZ011 - the date of this machine
                "commit": self._commit,
            }
            ordered = {design: dict(sorted(rows.items())) for design, rows in sorted(results.items())}
            partial = self._file.with_suffix(".partial")
            partial.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
            partial.replace(self._file)
            print(f"{outcome:10}  {pending.design:11}  {mutation.requirement}\n{'':25}{first_line}", flush=True)


def run_all(pending: list[Pending], run: Run, jobs: int, timeout: float, *, again: bool) -> None:
    """Run the tests without mutations in a process, and then each mutation whose tests have passed."""
    with tempfile.TemporaryDirectory(prefix="penstock-mutations-") as folder:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(jobs):
            copies.put(Copy(Path(folder) / str(number)))
        names = sorted({name for each in pending for cases in each.cases for name in cases})
        print(f"running {len(names)} test cases without mutations", flush=True)
        with borrowed(copies) as copy:
            baseline = copy.run(names, timeout * max(1, len(names) / 4))

        def check(each: Pending) -> None:
            cases = [name for cases in each.cases for name in cases]
            failed = not_passed(cases, baseline)
            if failed or not all(each.cases):
                problem = f"without the mutation: {failed}" if failed else f"not collected: {each.mutation.tests}"
                run.record(each, "no test", problem)
                return
            if not again and run.is_current(each.design, each.mutation):
                return
            start = time.monotonic()
            with borrowed(copies) as copy:
                outcome, detail = check_mutation(copy, each, cases, timeout)
            run.record(each, outcome, f"{time.monotonic() - start:.0f} s: {detail}")

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(check, pending))


def check_mutation(copy: Copy, pending: Pending, cases: list[str], timeout: float) -> tuple[str, str]:
    """Return the verdict on a mutation; tests that detect it must pass again without it right afterwards."""
    outcome, detail = verdict(pending, copy.run_mutated(pending.mutation, cases, timeout))
    failed = not_passed(cases, copy.run(cases, timeout)) if outcome == FAILS else []
    return ("no test", f"afterwards, without the mutation: {failed}") if failed else (outcome, detail)


def not_passed(cases: Iterable[str], outcomes: dict[str, Case]) -> list[str]:
    """Return the cases that failed or did not end."""
    return [name for name in cases if outcomes.get(name, Case("did not end")).outcome != "passed"]


@contextmanager
def borrowed(copies: queue.SimpleQueue[Copy]) -> Iterator[Copy]:
    """Lend a free copy."""
    copy = copies.get()
    try:
        yield copy
    finally:
        copies.put(copy)


def commit() -> str:
    """Return the short commit of the work tree."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--design", default="", help="the name of a design, such as FLIP-469")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose requirement or file contains it")
    parser.add_argument("--quick", action="store_true", help="only rows whose tests need no Spark session")
    parser.add_argument("--again", action="store_true", help="run mutations that have a current result, too")
    parser.add_argument("--jobs", type=int, default=1, help="the number of mutations that run at a time")
    parser.add_argument("--timeout", type=float, default=600, help="the seconds that the tests of a mutation may take")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the file for the results")
    options = parser.parse_args(arguments)
    run = Run(options.results, commit())
    chosen = [
        (design, mutation)
        for design, rows in rows_by_design().items()
        for mutation in mutations_of(design, rows)
        if options.design in design and not mutation.reason
        if options.only in mutation.requirement or options.only in mutation.file
    ]
    todo = [(design, each) for design, each in chosen if options.again or not run.is_current(design, each)]
    if todo:
        markers = "not slow and not spark" if options.quick else "not slow"
        collected = collect((test for _, mutation in todo for test in mutation.tests), markers)
        pending = [
            Pending(design, mutation, tuple(cases_of(test, collected) for test in mutation.tests))
            for design, mutation in todo
        ]
        selected = [each for each in pending if all(each.cases) or not options.quick]
        run_all(selected, run, options.jobs, options.timeout, again=options.again)
    results = read_results(options.results)
    outcomes = [
        results.get(design, {}).get(mutation.requirement, {}).get("outcome", "not run") for design, mutation in chosen
    ]
    print(f"\n{len(chosen)} mutations: {dict(Counter(outcomes))}; {len(chosen) - len(todo)} had a current result")
    return int(any(outcome != FAILS for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
