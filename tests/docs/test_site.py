"""The site of the docs has every page, a search index and a menu of versions; its links work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tools.docs_site import adapt_links, copy_sources

SITE_PAGES = {Path("docs/b.md"), Path("examples/README.md")}


@pytest.mark.parametrize(
    ("text", "home", "expected"),
    [
        ("[a](b.md#c)", None, "[a](b.md#c)"),
        ("[a](#c) and [d](https://e.org/f)", None, "[a](#c) and [d](https://e.org/f)"),
        ("[a](../src/e.py)", None, "a"),
        ("[a](../src/e.py#L3)", "https://e.org/p", "[a](https://e.org/p/blob/main/src/e.py#L3)"),
        ("[`a[0]`](../LICENSE)", None, "`a[0]`"),
        ("[a](../examples)", None, "[a](../examples/README.md)"),
        ("![a](../images/a.png)", None, "![a](../images/a.png)"),
    ],
)
def test_links_of_a_page(text: str, home: str | None, expected: str) -> None:
    assert adapt_links(text, Path("docs/f.md"), SITE_PAGES, home) == expected


def test_the_sources_have_every_page_of_the_docs(tmp_path: Path) -> None:
    copy_sources(tmp_path / "sources", None)
    pages = {path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(tmp_path / "sources") for path in tmp_path.rglob("*.md")}


@pytest.mark.thorough
def test_the_site_has_no_broken_link_and_lists_its_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SITE", "https://example.org/docs")
    for version in ("v1.0", "latest"):
        command = [sys.executable, "tools/docs_site.py", str(tmp_path / "site"), "--version", version]
        outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert outcome.returncode == 0, outcome.stderr
    page = (tmp_path / "site" / "latest" / "docs" / "reference" / "api" / "penstock.connectors.html").read_text()
    assert 'id="filesink"' in page
    assert "FileSink" in (tmp_path / "site" / "latest" / "searchindex.js").read_text()
    versions = json.loads((tmp_path / "site" / "switcher.json").read_text())
    assert [entry["url"] for entry in versions] == [
        "https://example.org/docs/latest/README.html",
        "https://example.org/docs/v1.0/README.html",
    ]
