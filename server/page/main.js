// Chooses the view by the part of the address after `#`.

import { askAgain, isShare, learnCaller } from "./api.js";
import { make, sayError } from "./dom.js";
import { bytes } from "./units.js";
import { showAgents } from "./agents.js";
import { showJobs } from "./jobs.js";
import { showRecordings } from "./recordings.js";
import { readiness, showServer } from "./server.js";
import { showStorage } from "./storage.js";
import { showStorages } from "./storages.js";
import { View } from "./view.js";
import { showTrace } from "./waterfall.js";

const VIEWS = [
  [/^#\/$/, showStorages, "Storages"],
  [/^#\/storage\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:\?(.*))?$/, showStorage, "Storage"],
  [/^#\/storage\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/trace\/([0-9a-f]{32})$/, showTrace, "Trace"],
  [/^#\/agents$/, showAgents, "Agents"],
  [/^#\/recordings$/, showRecordings, "Recordings"],
  [/^#\/jobs$/, showJobs, "Jobs"],
  [/^#\/server$/, showServer, "Server"],
];

function nothing() {
  throw new Error("There is nothing at this address.");
}

let leave = null;
/** Whether what is shown lacks an answer of the server: it is asked for once the server answers again. */
let isLacking = false;

async function show() {
  leave?.abort();
  leave = new AbortController();
  isLacking = false;
  const { signal } = leave;
  const place = location.hash || "#/";
  const [pattern, showView, title] = VIEWS.find(([pattern]) => pattern.test(place)) || [/^/, nothing, "Not found"];
  document.title = `${title} · Tracehold`;
  for (const link of document.querySelectorAll("header nav a")) {
    const path = link.getAttribute("href");
    const here = path === place || (path === "#/" && place.startsWith("#/storage/"));
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  askAgain();
  const node = make("div", {});
  const view = new View(node, signal);
  view.show(make("h1", {}, title), make("p", { class: "faint" }, "Loading …"));
  document.getElementById("main").replaceChildren(node);
  try {
    await learnCaller(signal);
    await showView(view, pattern.exec(place).slice(1));
  } catch (error) {
    if (signal.aborted) return;
    view.show(make("h1", {}, title), make("p", { class: "bad" }, error.message),
      make("p", { class: "faint" }, error.problem?.remedy || ""));
    isLacking = Boolean(error.isUnreachable);
    if (!error.problem && !isLacking) sayError(error);
  }
}

async function health() {
  const line = document.getElementById("health");
  try {
    const state = await readiness();
    const parts = [state.isReady ? state.status : state.detail || state.title];
    if (state.failed_storages) parts.push(`${state.failed_storages} failed`);
    if (state.disk_low) parts.push("disk low: packets are refused");
    if (state.disk_free_bytes != null) parts.push(`${bytes(state.disk_free_bytes)} free`);
    line.textContent = parts.join(" · ");
    if (isLacking && state.isReady) show();
    line.className = state.isReady && state.status === "ready" && !state.disk_low ? "" : "bad";
  } catch {
    line.textContent = "no response from the server";
    line.className = "bad";
  }
}

// The address belongs to the views.
document.querySelector(".skip").addEventListener("click", event => {
  event.preventDefault();
  document.getElementById("main").focus();
});
// Whoever has a shared URL sees one storage.
if (isShare) document.querySelector("header nav").remove();
addEventListener("hashchange", show);
setInterval(() => document.hidden || health(), 5000);
health();
show();
