"""A change selects the tests of its room and of the modules that import it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools.affected_tests import ROOT, affected_tests, changed_files

CASES = [
    ("a pure module", "src/penstock/sizing/packing.py", ["tests/sizing/test_packing.py"], ["tests/web/test_api.py"]),
    (
        "a module of another room's tests",
        "src/penstock/spark/run/layouts.py",
        ["tests/history/test_fallback_decisions.py"],
        [],
    ),
    (
        "a module that others import",
        "src/penstock/spark/io/jdbc.py",
        ["tests/connectors/jdbc/test_source.py", "tests/spark/bridge/test_java.py"],
        ["tests/connectors/jdbc/test_splits.py"],
    ),
    (
        "a module at the top",
        "src/penstock/base/masking.py",
        ["tests/base/test_masking.py"],
        ["tests/sizing/test_packing.py"],
    ),
    (
        "a Java class",
        "src/penstock/spark/java/penstock/exchange/CoalescedLayouts.java",
        ["tests/spark/bridge/test_java.py", "tests/extension/test_written.py"],
        ["tests/cli/test_main.py"],
    ),
    (
        "a helper of tests",
        "tests/support/stages.py",
        ["tests/optimizer/test_strategies.py"],
        ["tests/sizing/test_packing.py"],
    ),
    ("a test", "tests/cli/test_main.py", ["tests/cli/test_main.py"], ["tests/cli/test_shell.py"]),
    ("a page", "docs/glossary.md", ["tests/docs/test_claims.py"], ["tests/cli/test_main.py"]),
    ("a tool", "tools/figures.py", ["tests/docs/test_claims.py"], ["tests/docs/test_package.py"]),
    ("nothing", None, [], ["tests/sizing/test_packing.py"]),
    (
        "a removed module",
        "src/penstock/sizing/removed.py",
        ["tests/sizing/test_packing.py"],
        ["tests/cli/test_main.py"],
    ),
    (
        "the conftest of a folder",
        "tests/duckdb/conftest.py",
        ["tests/duckdb/worker/test_memory.py"],
        ["tests/cli/test_main.py"],
    ),
    ("the conftest of all tests", "tests/conftest.py", ["tests"], ["tests/test_architecture.py"]),
    ("the services of all tests", "tests/support/services.py", ["tests"], ["tests/test_architecture.py"]),
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("changed", "included", "excluded"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_change_affects_the_tests_of_its_room_and_importers(
    changed: str | None, included: list[str], excluded: list[str]
) -> None:
    tests = {str(path.relative_to(ROOT)) for path in affected_tests([ROOT / changed] if changed else [])}
    assert tests >= set(included)
    assert not tests & set(excluded)
    assert tests & {"tests", "tests/test_architecture.py"}


def test_changed_files_include_removed_moved_and_untracked_files(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for name in ("changed", "removed", "moved", "same"):
        (tmp_path / name).write_text(f"{name}\n" * 9)
    git("add", ".")
    git("commit", "-m", "all")
    (tmp_path / "changed").write_text("different")
    (tmp_path / "removed").unlink()
    git("mv", "moved", "elsewhere")
    (tmp_path / "new").touch()
    assert {path.name for path in changed_files("HEAD", tmp_path)} == {
        "changed",
        "removed",
        "moved",
        "elsewhere",
        "new",
    }
