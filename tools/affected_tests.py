"""Print the test files that a change affects, one per line; `make check` runs them.

The change consists of the files that differ from a commit (by default HEAD) and of untracked files. It affects

* the tests of a changed module's room (package): ``tests/sizing`` for ``src/penstock/sizing/packing.py``,
* the test files that import a changed module, directly or through helpers in ``tests``,
* the tests of the modules that import a changed module: ``tests/connectors/jdbc/test_source.py`` if
  ``connectors/jdbc/source.py`` imports it,
* changed test files,
* the tests of a folder whose ``conftest.py`` changed; all tests if it is ``tests/conftest.py``,
* the architecture test, always.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE, TESTS = ROOT / "src" / "penstock", ROOT / "tests"
ALWAYS_RUN = TESTS / "test_architecture.py"
SHARED_BY_ALL = {TESTS / "conftest.py", TESTS / "support" / "services.py"}
JAVA_ROOMS = {"spark", "duckdb", "extension"}
"""Rooms whose tests run the Java classes."""
READ_BY_DOCS_TESTS = {"docs", "bench", "examples"}
"""Folders that the tests in ``tests/docs`` read."""


def changed_files(base: str, root: Path = ROOT) -> list[Path]:
    """Return the files that differ from a commit, including removed files and the old names of moved files."""

    def names(*arguments: str) -> list[str]:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()

    tracked = names("diff", "--name-only", "--no-renames", base)
    return [root / name for name in tracked + names("ls-files", "--others", "--exclude-standard")]


def affected_tests(changed: list[Path]) -> list[Path]:
    """Return the test files that changed files affect, or the folder ``tests`` if they affect all."""
    if not SHARED_BY_ALL.isdisjoint(changed):
        return [TESTS]
    files = sorted(TESTS.rglob("*.py"))
    imports = {path: _imported_modules(path) for path in files}
    modules = {_module_name(path) for path in changed if path.suffix == ".py"}
    while True:  # importing a helper means depending on its imports
        helpers = {_module_name(path) for path in files if imports[path] & modules and not _is_test(path)}
        if helpers <= modules:
            break
        modules |= helpers
    rooms = set().union(*map(_rooms, changed))
    tests = {path for path in files if imports[path] & modules or path in changed or _room_of_test(path) in rooms}
    tests |= {_test_of_module(path) for path in PACKAGE.rglob("*.py") if _imported_modules(path) & modules} & set(files)
    folders = {path.parent for path in changed if path.name == "conftest.py"}
    tests |= {path for path in files if not folders.isdisjoint(path.parents)}
    return sorted({ALWAYS_RUN, *filter(_is_test, tests)})


def _module_name(path: Path) -> str:
    """Return the name for importing a file, such as ``penstock.sizing.packing`` or ``tests.support.services``."""
    parts = path.relative_to(ROOT / "src" if PACKAGE in path.parents else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def _imported_modules(path: Path) -> set[str]:
    """Return the modules that a file imports; for ``from a import b`` both ``a`` and ``a.b``."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return modules


def _rooms(path: Path) -> set[str]:
    """Return the rooms whose tests a changed file affects, regardless of imports."""
    top, *_ = path.relative_to(ROOT).parts
    if path.suffix == ".java":
        return JAVA_ROOMS
    if PACKAGE in path.parents:
        return {path.relative_to(PACKAGE).parts[0].removesuffix(".py")}
    return {"docs"} if top in READ_BY_DOCS_TESTS or path.suffix == ".md" else set()


def _room_of_test(path: Path) -> str:
    """Return the room of a test file: ``sizing`` for ``tests/sizing/test_packing.py`` and ``tests/test_sizing.py``."""
    return path.relative_to(TESTS).parts[0].removeprefix("test_").removesuffix(".py")


def _test_of_module(path: Path) -> Path:
    """Return the test file that a module would have: ``tests/sizing/test_packing.py`` for ``sizing/packing.py``."""
    return TESTS / path.relative_to(PACKAGE).with_name(f"test_{path.name}")


def _is_test(path: Path) -> bool:
    return path.name.startswith("test_")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--base", default="HEAD", help="the commit to compare with (default: HEAD)")
    for test in affected_tests(changed_files(parser.parse_args().base)):
        print(test.relative_to(ROOT))
