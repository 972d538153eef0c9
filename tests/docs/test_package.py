"""Package metadata has a README with working links, and the pages of the docs have no broken links."""

from __future__ import annotations

import re
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.paths import ROOT
from tools.build_wheel import build

RELATIVE = re.compile(r"\]\((?!https?://)([^)#]+)")


def relative_links(text: str) -> list[str]:
    return RELATIVE.findall(text)


def metadata(folder: Path) -> tuple[list[str], str]:
    """Build a wheel; return its URLs and its README."""
    with ZipFile(build(folder)) as wheel:
        name = next(file for file in wheel.namelist() if file.endswith("/METADATA"))
        message = message_from_bytes(wheel.read(name))
    payload = message.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return message.get_all("Project-URL") or [], payload.decode()


@pytest.mark.slow
def test_links_with_an_address_are_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "https://example.org/penstock/")
    urls, readme = metadata(tmp_path)
    assert "Source, https://example.org/penstock" in urls
    assert "![Times as fast" in readme
    assert "(https://example.org/penstock/raw/main/docs/images/demo.svg)" in readme
    assert "(https://example.org/penstock/blob/main/docs/README.md)" in readme
    assert relative_links(readme) == []


@pytest.mark.slow
def test_no_broken_links_without_an_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_URL", raising=False)
    urls, readme = metadata(tmp_path)
    assert urls == []
    assert "![" not in readme
    assert relative_links(readme) == []
    assert "make demo" in readme


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_are_not_broken(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    missing = [link for link in relative_links(text) if not (page.parent / link).exists()]
    assert missing == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_headings_are_not_broken(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", text)
    missing = [f"{file}#{name}" for file, name in links if name not in anchors(page.parent / file if file else page)]
    assert missing == []
