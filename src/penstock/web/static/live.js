// Keeps a page current: the server says when something has changed, and the part that shows it is fetched again.
"use strict";

const live = document.getElementById("live");
const connection = document.getElementById("connection");

async function refresh() {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("live");
  const open = new Set([...live.querySelectorAll("details")].filter((one) => one.open).map((one) => one.id));
  const places = [...live.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
  const focused = document.activeElement && document.activeElement.id;
  live.replaceChildren(...fresh.childNodes);
  live.dataset.events = fresh.dataset.events;
  live.querySelectorAll("details").forEach((one) => { if (open.has(one.id)) one.open = true; });
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

document.addEventListener("click", async (event) => {
  const button = event.target.closest("#cancel");
  if (!button || !confirm("Cancel this job?")) return;
  button.disabled = true;
  const answer = await fetch(`/jobs/${button.dataset.job}`, { method: "PATCH" });
  if (!answer.ok) connection.textContent = (await answer.json()).detail;
});

follow();
