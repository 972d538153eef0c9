"""Debian's Chromium for tests, and what is measured on a page that it shows."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.services import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

ARTIFACTS = Path(__file__).parent.parent.parent / "artifacts"
"""Where pictures of what was seen are left."""
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_FEW = 5
_WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_BOXES = """(selector) => [...document.querySelectorAll(selector)].map((one) => {
    const box = one.getBoundingClientRect();
    return { text: one.textContent, left: box.left, right: box.right, top: box.top, bottom: box.bottom };
})"""
_CUT_OFF = """() => [...document.querySelectorAll(
    "h1, h2, p, dd, td, th, button, .button, .figures, .card li, .decision, .badge, .state"
)].filter((one) => one.offsetParent !== null && one.scrollWidth > one.clientWidth + 1
    && getComputedStyle(one).display !== "inline").map((one) => one.textContent.trim().slice(0, 80))"""


def started() -> Iterator[Any]:
    """Start a browser, for a fixture."""
    needed("Chromium", CHROMIUM)
    from playwright.sync_api import sync_playwright

    ARTIFACTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def axe_source() -> str:
    """Return the checks of axe-core, which a package for Python brings along."""
    return resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()


def wider(page: Any) -> int:
    """Return by how many pixels a page is wider than its window."""
    return int(page.evaluate(_WIDER))


def cut_off(page: Any) -> list[str]:
    """Return the texts that are wider than their boxes."""
    found: list[str] = page.evaluate(_CUT_OFF)
    return found


def boxes(page: Any, selector: str) -> list[dict[str, Any]]:
    """Return where elements are, and their texts."""
    found: list[dict[str, Any]] = page.evaluate(_BOXES, selector)
    return [box for box in found if box["right"] > box["left"]]


def overlapping(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return pairs of boxes that lie upon each other; the first few, as a page may have very many."""
    pairs: list[tuple[str, str]] = []
    ordered = sorted(found, key=lambda box: box["top"])
    for number, one in enumerate(ordered):
        for other in ordered[number + 1 :]:
            if other["top"] >= one["bottom"] - 1:
                break
            if one["left"] < other["right"] - 1 and other["left"] < one["right"] - 1:
                pairs.append((one["text"], other["text"]))
    return pairs[:_FEW]


def findings_of_axe(page: Any, source: str) -> list[tuple[str, str]]:
    """Return what axe-core finds on a page: the rule, and the first element."""
    page.evaluate(source)
    violations = page.evaluate("axe.run().then((found) => found.violations)")
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in violations]
