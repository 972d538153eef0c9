"""Workflows and issue forms conform to the schemas of the repository host, and call existing make targets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

GITHUB = ROOT / ".github"
FILES = {
    "vendor.github-workflows": sorted((GITHUB / "workflows").glob("*.yml")),
    "vendor.github-issue-forms": sorted(
        set((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) - {GITHUB / "ISSUE_TEMPLATE" / "config.yml"}
    ),
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
}


def check(schema: str, files: list[Path]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("schema", "files"), FILES.items(), ids=FILES)
def test_files_conform_to_their_schema(schema: str, files: list[Path]) -> None:
    assert files
    outcome = check(schema, files)
    assert outcome.returncode == 0, outcome.stdout


def test_a_wrong_workflow_is_rejected(tmp_path: Path) -> None:
    workflow = tmp_path / "wrong.yml"
    workflow.write_text("name: wrong\non: push\njobs:\n  lint:\n    steps: []\n")
    assert "runs-on" in check("vendor.github-workflows", [workflow]).stdout


def test_workflows_call_existing_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {
        name for path in FILES["vendor.github-workflows"] for name in re.findall(r"make ([a-z-]+)", path.read_text())
    }
    assert {"lint", "test", "docs-site", "wheel"} <= called <= targets
