"""Debian's Chromium for tests, and measurements of its pages."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from typing import Any

from tests.support.paths import ROOT
from tests.support.services import require_component

ARTIFACTS = ROOT / "artifacts"
"""The folder for screenshots."""
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
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_BOXES = """(selector) => [...document.querySelectorAll(selector)].map((element) => {
    const box = element.getBoundingClientRect();
    return { text: element.textContent, left: box.left, right: box.right, top: box.top, bottom: box.bottom };
})"""
_CUT_OFF = """() => [...document.querySelectorAll(
    "h1, h2, p, dd, td, th, button, .button, .figures, .card li, .decision, .badge, .state"
)].filter((element) => element.offsetParent !== null && element.scrollWidth > element.clientWidth + 1
    && getComputedStyle(element).display !== "inline").map((element) => element.textContent.trim().slice(0, 80))"""


def started() -> Iterator[Any]:
    """Start a browser for a fixture."""
    require_component("Chromium", CHROMIUM)
    from playwright.sync_api import sync_playwright

    ARTIFACTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def axe_source() -> str:
    """Return the source of axe-core, which a Python package contains."""
    return resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()


def overflow(page: Any) -> int:
    """Return the horizontal overflow of a page in pixels."""
    return int(page.evaluate(_OVERFLOW))


def cut_off(page: Any) -> list[str]:
    """Return the texts that are wider than their boxes."""
    texts: list[str] = page.evaluate(_CUT_OFF)
    return texts


def boxes(page: Any, selector: str) -> list[dict[str, Any]]:
    """Return the positions and texts of elements."""
    elements: list[dict[str, Any]] = page.evaluate(_BOXES, selector)
    return [box for box in elements if box["right"] > box["left"]]


def overlapping(elements: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the texts of the first few pairs of boxes that overlap."""
    pairs: list[tuple[str, str]] = []
    ordered = sorted(elements, key=lambda box: box["top"])
    for number, first in enumerate(ordered):
        for other in ordered[number + 1 :]:
            if other["top"] >= first["bottom"] - 1:
                break
            if first["left"] < other["right"] - 1 and other["left"] < first["right"] - 1:
                pairs.append((first["text"], other["text"]))
    return pairs[:_FEW]


def accessibility_violations(page: Any, source: str) -> list[tuple[str, str]]:
    """Return the violations that axe-core reports on a page: the rule, and the first element."""
    page.evaluate(source)
    violations = page.evaluate("axe.run().then((report) => report.violations)")
    return [(violation["id"], violation["nodes"][0]["html"][:200]) for violation in violations]
