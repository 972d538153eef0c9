// Keeps a page up to date: the server sends an event when a job has changed, and the content is fetched again.
"use strict";

const live = document.getElementById("live");
const connection = document.getElementById("connection");
const ZOOM_LEVELS = [0.25, 0.35, 0.5, 0.7, 0.85, 1, 1.25, 1.6, 2];
const MIN_INITIAL_ZOOM = 0.7; // below it, the text of the graph is too small to read
let zoom = null; // scale of the graph; null until the page is shown
let shown = null; // offsets of the graph to which the script scrolled last; the user has scrolled if they differ

async function refresh() {
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!response.ok) return;
  const updated = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("live");
  const open = new Set([...live.querySelectorAll("details")].filter((details) => details.open).map((details) => details.id));
  const offsets = [...live.querySelectorAll(".scroll")].map((area) => [area.scrollLeft, area.scrollTop]);
  const focused = document.activeElement && document.activeElement.id;
  const search = live.querySelector(".search");
  live.replaceChildren(...updated.childNodes);
  // Keep the search form, as the user may be typing.
  if (search && live.querySelector(".search")) live.querySelector(".search").replaceWith(search);
  live.dataset.events = updated.dataset.events;
  live.querySelectorAll("details").forEach((details) => { if (open.has(details.id)) details.open = true; });
  scaleGraph();
  live.querySelectorAll(".scroll").forEach((area, i) => { if (offsets[i]) [area.scrollLeft, area.scrollTop] = offsets[i]; });
  showLongestStep();
  if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
}

function follow() {
  const address = live.dataset.events;
  if (!address) return;
  const source = new EventSource(address);
  let isRefreshing = false;
  let hasChanged = false;
  async function update() {
    if (isRefreshing) { hasChanged = true; return; }
    isRefreshing = true;
    try { await refresh(); } finally { isRefreshing = false; }
    if (hasChanged) { hasChanged = false; update(); }
  }
  source.addEventListener("open", () => { connection.textContent = "live"; });
  source.addEventListener("changed", update);
  source.addEventListener("ended", () => { source.close(); connection.textContent = ""; update(); });
  source.addEventListener("error", () => { connection.textContent = "not connected"; });
  addEventListener("pagehide", () => source.close());
}

// Scales the graph, and shows the zoom buttons.
function scaleGraph() {
  const svg = live.querySelector(".graph svg");
  const buttons = live.querySelector(".zoom");
  if (!svg || !buttons) return;
  buttons.hidden = false;
  if (zoom === null) zoom = Math.max(fittingZoom(), MIN_INITIAL_ZOOM);
  svg.setAttribute("width", svg.viewBox.baseVal.width * zoom);
  svg.setAttribute("height", svg.viewBox.baseVal.height * zoom);
}

// Scrolls the graph to the longest step, unless the user has scrolled it.
function showLongestStep() {
  const graph = live.querySelector(".graph");
  const step = graph && graph.querySelector(".longest rect");
  if (!step || (shown && (graph.scrollLeft !== shown[0] || graph.scrollTop !== shown[1]))) return;
  const area = graph.getBoundingClientRect();
  const box = step.getBoundingClientRect();
  graph.scrollLeft += box.left + box.width / 2 - area.left - area.width / 2;
  graph.scrollTop += box.top + box.height / 2 - area.top - area.height / 2;
  shown = [graph.scrollLeft, graph.scrollTop];
}

function fittingZoom() {
  const svg = live.querySelector(".graph svg");
  return Math.min(1, live.querySelector(".graph").clientWidth / svg.viewBox.baseVal.width);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-zoom]");
  if (!button) return;
  const now = zoom;
  if (button.dataset.zoom === "fit") zoom = fittingZoom();
  if (button.dataset.zoom === "in") zoom = ZOOM_LEVELS.find((level) => level > now + 0.01) || now;
  if (button.dataset.zoom === "out") zoom = ZOOM_LEVELS.findLast((level) => level < now - 0.01) || now;
  scaleGraph();
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("#cancel");
  if (!button || !confirm("Cancel this job?")) return;
  button.disabled = true;
  const response = await fetch(`/jobs/${button.dataset.job}`, { method: "PATCH" });
  if (!response.ok) connection.textContent = (await response.json()).detail;
});

scaleGraph();
showLongestStep();
follow();
