// Keeps a page current: the server says when something has changed, and the part that shows it is fetched again.
"use strict";

const live = document.getElementById("live");
const connection = document.getElementById("connection");
const STEPS = [0.25, 0.35, 0.5, 0.7, 0.85, 1, 1.25, 1.6, 2];
let zoom = null; // how large the graph is drawn; null until somebody says so

async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
  const open = new Set([...live.querySelectorAll("details")].filter((one) => one.open).map((one) => one.id));
  const places = [...live.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
  const focused = document.activeElement && document.activeElement.id;
  const search = live.querySelector(".search");
  live.replaceChildren(...fresh.childNodes);
  // What somebody is writing is not taken from under their hands.
  if (search && live.querySelector(".search")) live.querySelector(".search").replaceWith(search);
  live.dataset.events = fresh.dataset.events;
  live.querySelectorAll("details").forEach((one) => { if (open.has(one.id)) one.open = true; });
  draw();
  live.querySelectorAll(".scroll").forEach((one, i) => { if (places[i]) [one.scrollLeft, one.scrollTop] = places[i]; });
  if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
}

function follow() {
  const address = live.dataset.events;
  if (!address) return;
  const source = new EventSource(address);
  let busy = false;
  let again = false;
  async function update() {
    if (busy) { again = true; return; }
    busy = true;
    try { await refresh(); } finally { busy = false; }
    if (again) { again = false; update(); }
  }
  source.addEventListener("open", () => { connection.textContent = "live"; });
  source.addEventListener("changed", update);
  source.addEventListener("ended", () => { source.close(); connection.textContent = ""; update(); });
  source.addEventListener("error", () => { connection.textContent = "not connected"; });
  addEventListener("pagehide", () => source.close());
}

// Draws the graph as large as wished, and shows the buttons for it.
function draw() {
  const svg = live.querySelector(".graph svg");
  const buttons = live.querySelector(".zoom");
  if (!svg || !buttons) return;
  buttons.hidden = false;
  if (zoom === null) return;
  svg.setAttribute("width", svg.viewBox.baseVal.width * zoom);
  svg.setAttribute("height", svg.viewBox.baseVal.height * zoom);
}

function fitting() {
  const svg = live.querySelector(".graph svg");
  return Math.min(1, live.querySelector(".graph").clientWidth / svg.viewBox.baseVal.width);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-zoom]");
  if (!button) return;
  const now = zoom === null ? 1 : zoom;
  if (button.dataset.zoom === "fit") zoom = fitting();
  if (button.dataset.zoom === "in") zoom = STEPS.find((one) => one > now + 0.01) || now;
  if (button.dataset.zoom === "out") zoom = STEPS.findLast((one) => one < now - 0.01) || now;
  draw();
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("#cancel");
  if (!button || !confirm("Cancel this job?")) return;
  button.disabled = true;
  const answer = await fetch(`/jobs/${button.dataset.job}`, { method: "PATCH" });
  if (!answer.ok) connection.textContent = (await answer.json()).detail;
});

draw();
follow();
