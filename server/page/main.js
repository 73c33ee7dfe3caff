// Chooses the view by the part of the address after `#`.

import { send } from "./api.js";
import { make, sayError } from "./dom.js";
import { bytes } from "./units.js";
import { showAgents } from "./agents.js";
import { showJobs } from "./jobs.js";
import { showRecordings } from "./recordings.js";
import { showServer } from "./server.js";
import { showStorage } from "./storage.js";
import { showStorages } from "./storages.js";

const VIEWS = [
  [/^#\/agents$/, showAgents, "Agents"],
  [/^#\/recordings$/, showRecordings, "Recordings"],
  [/^#\/jobs$/, showJobs, "Jobs"],
  [/^#\/server$/, showServer, "Server"],
  [/^#\/storage\/([^/?]+)/, showStorage, "Storage"],
  [/^/, showStorages, "Storages"],
];

let leave = null;

async function show() {
  leave?.abort();
  leave = new AbortController();
  const { signal } = leave;
  const place = location.hash || "#/";
  const [pattern, view, title] = VIEWS.find(([pattern]) => pattern.test(place));
  document.title = `${title} · Tracehold`;
  for (const link of document.querySelectorAll("header nav a")) {
    const path = link.getAttribute("href");
    const here = path === place || (path === "#/" && place.startsWith("#/storage/"));
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const main = document.getElementById("main");
  main.replaceChildren(make("h1", {}, title), make("p", { class: "faint" }, "Loading …"));
  try {
    await view(main, pattern.exec(place).slice(1).map(decodeURIComponent), signal);
  } catch (error) {
    if (signal.aborted) return;
    main.replaceChildren(make("h1", {}, title), make("p", { class: "bad" }, error.message),
      make("p", { class: "faint" }, error.problem?.remedy || ""));
    if (!error.problem) sayError(error);
  }
}

async function health() {
  const line = document.getElementById("health");
  try {
    const response = await fetch("/readyz");
    const state = await response.json();
    const parts = [response.ok ? "ready" : state.detail || state.status];
    if (state.failed_storages) parts.push(`${state.failed_storages} failed`);
    if (state.disk_low) parts.push("disk low: packets are refused");
    if (state.disk_free_bytes !== undefined) parts.push(`${bytes(state.disk_free_bytes)} free`);
    line.textContent = parts.join(" · ");
    line.className = response.ok && !state.disk_low && !state.failed_storages ? "" : "bad";
  } catch {
    line.textContent = "no response from the server";
    line.className = "bad";
  }
}

addEventListener("hashchange", show);
setInterval(() => document.hidden || health(), 5000);
health();
show();
