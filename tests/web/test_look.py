"""Layout and accessibility of the pages in a real browser, at several widths.

The jobs are read from the event logs in the folder logs. Screenshots of all pages are written to the folder artifacts.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from penstock.history.event_log import EventLog, LocalFolder
from penstock.history.logs import History
from penstock.web.api import create_app
from penstock.web.store import JobStore
from tests.history.records import edge, events, node, vertex
from tests.support.services import free_port
from tests.web import browser as look

LOGS = sorted((Path(__file__).parent / "logs").glob("*.jsonl.gz"))
WIDTHS = (390, 1280, 1920)
SIXTY, RUNNING = "60" * 6, "a1" * 6


def sixty_steps() -> list[Any]:
    """Return the events of a job of 60 steps with long names, each of which reads up to three other steps."""
    lines = events(name="sixty steps", job_id=SIXTY)[:1]
    lines[0]["application"] = {"id": "local-1", "page": "http://driver:4040"}
    lines.append({"type": "nodes", "at": 1.0, "nodes": [node(n, f"operator {n}") for n in range(60)]})
    edges, vertices = [], []
    for n in range(60):
        sources = sorted({max(n - 1, 0) // 2, (n * 7) % max(n, 1), max(n - 3, 0)} - {n}) if n % 4 else []
        edges += [edge(s, n, f"HASH(a_long_column_{s}, another_column)", "BLOCKING") for s in sources]
        inputs = [(f"v{s}", f"{s}-{n}") for s in sources]
        label = (
            f"table_with_a_long_name_{n} join another_table_{n} on customer_identifier_{n}, then aggregate by region"
        )
        times = {"CREATED": 10.0, "RUNNING": 10.0 + n / 10, "FINISHED": 11.0 + n / 9}
        vertices.append(vertex(n, [n], "FINISHED", inputs, label=label, timestamps=times, bytes_out=10 ** (n % 12)))
    ended = {"type": "state", "at": 20.0, "state": "FINISHED", "pending": 0, "counts": {"FINISHED": 60}}
    return [*lines, {"type": "edges", "at": 1.0, "edges": edges}, *vertices, ended]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs")
    for log in LOGS:
        (path / log.stem).write_bytes(gzip.decompress(log.read_bytes()))
    half = events(name="half done", job_id=RUNNING, ended=False)
    half[0]["started"] = time.time() - 100
    for job, lines in ((SIXTY, sixty_steps()), (RUNNING, half)):
        EventLog(LocalFolder(path).create(f"20261122T120000-{job}.jsonl")).write(lines)
    return path


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    port = free_port()
    store = JobStore(History(LocalFolder(folder)))
    for record in [store.record(job.id) for job in store.summaries()]:
        if record is not None and record.application:  # a job of this process has links to Spark's pages
            store.add(record, lambda _: None)
    app = create_app(store, "token")
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    yield from look.started()


@pytest.fixture(autouse=True)
def closed(chromium: Any) -> Iterator[None]:
    """Close all pages, as a page that follows a job would prevent the shutdown of the server."""
    yield
    for context in chromium.contexts:
        context.close()


def jobs() -> dict[str, list[str]]:
    """Return the ids of the stored jobs by their names, the latest first."""
    ids: dict[str, list[str]] = {}
    for log in reversed(LOGS):
        with gzip.open(log, "rt") as lines:
            job = json.loads(next(lines))
        ids.setdefault(job["name"], []).append(job["id"])
    return ids


def paths() -> dict[str, str]:
    """Return the paths of all pages by short names."""
    pages = {"list": "/", "dashboard": "/ui/dashboard", "not found": "/ui/jobs/nope", "no match": "/?q=nothing"}
    for name, ids in jobs().items():
        pages[name] = f"/ui/jobs/{ids[0]}"
        pages[f"{name} step"] = f"/ui/jobs/{ids[0]}/vertices/v6"
        if len(ids) > 1:
            pages[f"{name} compared"] = f"/ui/jobs/{ids[0]}/compare/{ids[1]}"
    pages["half done"] = f"/ui/jobs/{RUNNING}?pending=true"
    return pages | {"sixty steps": f"/ui/jobs/{SIXTY}"}


PAGES = paths()


def opened(chromium: Any, address: str, path: str, width: int, **options: Any) -> Any:
    # The page's security policy would block the script of axe.
    context = chromium.new_context(viewport={"width": width, "height": 900}, bypass_csp=True, **options)
    page = context.new_page()
    page.goto(address + path)
    return page


def test_logs_of_all_jobs_exist() -> None:
    assert {"TPC-H Q5", "TPC-H Q9", "TPC-H Q18", "TPC-H Q21", "TPC-DS Q64"} <= set(jobs())


@pytest.mark.sample(3)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_nothing_overflows_or_overlaps(chromium: Any, address: str, name: str, width: int) -> None:
    page = opened(chromium, address, PAGES[name], width)
    assert look.overflow(page) <= 0, "the page itself does not scroll sideways"
    assert look.cut_off(page) == []
    for selector in (".graph text", ".axis text, .columns text", ".facts > div", ".timeline li > *", ".lanes li > *"):
        assert look.overlapping(look.boxes(page, selector)) == [], selector
    outside = page.evaluate(
        """() => [...document.querySelectorAll(".graph g")].flatMap((g) => {
            const box = g.querySelector("rect").getBoundingClientRect();
            return [...g.querySelectorAll("text")].filter((text) => {
                const own = text.getBoundingClientRect();
                return own.left < box.left || own.right > box.right || own.bottom > box.bottom;
            }).map((text) => text.textContent);
        })"""
    )
    assert outside == [], "texts of a step stay in its box"


@pytest.mark.sample(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_accessibility(chromium: Any, address: str, name: str, scheme: str) -> None:
    """Includes contrast at WCAG level AA."""
    source = look.axe_source()
    for width in (390, 1280):
        page = opened(chromium, address, PAGES[name], width, color_scheme=scheme)
        page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
        assert look.accessibility_violations(page, source) == []
        picture = f"{name}-{'phone' if width == 390 else 'desktop'}-{scheme}.png".replace(" ", "-").lower()
        page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = false; })")
        page.screenshot(path=look.ARTIFACTS / picture, full_page=True)
        page.context.close()


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["list", "half done", "sixty steps"])
def test_keyboard_reaches_all_controls(chromium: Any, address: str, name: str) -> None:
    page = opened(chromium, address, PAGES[name], 1280)
    clickable = page.evaluate(
        """() => [...document.querySelectorAll("a, button, input, select, summary, .scroll")]
            .filter((control) => control.type !== "hidden" && control.checkVisibility()).length"""
    )
    reached = set()
    for _ in range(clickable + 5):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                """() => {
                    const active = document.activeElement;
                    const all = [...document.querySelectorAll("a, button, input, select, summary, .scroll")];
                    return all.indexOf(active);
                }"""
            )
        )
    assert len(reached - {-1}) == clickable


def test_focus_is_visible(chromium: Any, address: str) -> None:
    page = opened(chromium, address, "/", 1280)
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_legend_has_the_colours_of_the_timeline(chromium: Any, address: str, scheme: str) -> None:
    page = opened(chromium, address, PAGES["TPC-H Q9"], 1280, color_scheme=scheme)
    colours = page.evaluate(
        """() => [["busy", ".time .busy"], ["wait", ".time .run"], ["idle", ".time .idle"]].map(([key, bar]) => [
            getComputedStyle(document.querySelector(`.legend .${key}-key`)).backgroundColor,
            getComputedStyle(document.querySelector(bar)).fill,
        ])"""
    )
    assert all(key == bar for key, bar in colours)
    texts = " ".join(page.locator("section:has(#timeline) .quiet").all_inner_texts()).lower()
    assert not {"dark", "light", "grey"} & set(texts.replace(":", " ").replace(";", " ").split())


@pytest.mark.parametrize("name", ["TPC-H Q9", "TPC-DS Q64", "sixty steps"])
def test_table_of_steps_is_complete(chromium: Any, address: str, name: str) -> None:
    page = opened(chromium, address, PAGES[name], 1280)
    hidden = page.evaluate(
        """() => { const area = document.querySelector(".steps").parentElement;
                   return area.scrollWidth - area.clientWidth; }"""
    )
    assert hidden == 0


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["TPC-H Q9", "TPC-DS Q64", "sixty steps"])
def test_the_longest_step_is_in_view(chromium: Any, address: str, name: str, width: int) -> None:
    page = opened(chromium, address, PAGES[name], width)
    outside = page.evaluate(
        """() => {
            const area = document.querySelector(".graph").getBoundingClientRect();
            const box = document.querySelector(".graph .longest rect").getBoundingClientRect();
            return [area.left - box.left, box.right - area.right, area.top - box.top, box.bottom - area.bottom];
        }"""
    )
    assert max(outside) <= 1, "the box is inside the visible part of the graph"
    durations = page.locator(".timeline .figures b").all_inner_texts()
    longest = page.locator(".timeline .longest")
    assert float(longest.locator(".figures b").inner_text().split()[0]) == max(
        float(text.split()[0]) for text in durations
    )
    assert longest.locator(".what").evaluate("(text) => text.scrollHeight <= text.clientHeight + 1"), "all of its text"


def test_zoom_of_the_graph(chromium: Any, address: str) -> None:
    page = opened(chromium, address, PAGES["sixty steps"], 1280)
    graph = page.locator(".graph svg")
    drawn = graph.bounding_box()["width"]
    assert drawn > 1280, "at its own size it scrolls"
    page.get_by_role("button", name="Fit").click()
    assert graph.bounding_box()["width"] <= page.locator(".graph").bounding_box()["width"]
    page.get_by_role("button", name="Larger").focus()
    fitted = graph.bounding_box()["width"]
    page.keyboard.press("Enter")
    assert graph.bounding_box()["width"] > fitted
    page.get_by_role("button", name="Smaller").click()
    page.get_by_role("button", name="Smaller").click()
    assert graph.bounding_box()["width"] < drawn


@pytest.mark.thorough
def test_list_is_searched_filtered_and_sorted(chromium: Any, address: str) -> None:
    page = opened(chromium, address, "/", 1280)
    page.get_by_label("Name or id").fill("sixty")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=sixty*")
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("link", name="Show all").click()
    page.wait_for_url(f"{address}/")
    page.get_by_label("State").select_option("interrupted")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**state=interrupted*")
    assert page.locator("tbody .state").all_inner_texts() == []
    page.goto(address)
    page.get_by_role("link", name="Name").click()
    page.wait_for_url("**sort=-name*")
    page.get_by_role("link", name="Name").click()
    page.wait_for_url("**sort=name*")
    names = page.locator("tbody td.name a").all_inner_texts()
    assert names == sorted(names, key=str.lower)
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Name")


@pytest.mark.thorough
def test_table_of_steps_is_sorted(chromium: Any, address: str) -> None:
    page = opened(chromium, address, PAGES["sixty steps"], 1280)
    page.locator(".steps").get_by_role("link", name="Wrote").click()
    page.wait_for_url("**sort=-bytes-out*")
    wrote = page.locator(".steps tbody tr:first-child td").nth(9).inner_text()
    assert wrote == "93.1 GiB"
