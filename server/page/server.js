// The state of the server, retention, and the trace of its I/O.

import { change, download, mayOperate, send } from "./api.js";
import { acting, ask, button, facts, make, table } from "./dom.js";
import { nodesOf } from "./nodes.js";
import { bytes, count, date, duration } from "./units.js";

/** What the server says of its readiness; while it is not ready, a problem document. */
export async function readiness(signal) {
  const response = await send("/readyz", { accept: [503], signal });
  return { isReady: response.ok, ...await response.json() };
}

export async function showServer(view) {
  const nodes = await nodesOf(view);
  const again = async () => view.show(...await partsOf(view, nodes, again));
  await again();
}

async function partsOf(view, nodes, again) {
  const [ready, retention, trace] = await Promise.all([
    readiness(view.signal), view.get("/retention"), view.get("/io-trace"),
  ]);
  return [
    make("h1", {}, "Server"),
    facts([
      ["Status", ready.isReady ? ready.status : ready.detail || ready.title],
      ["Disk", ready.disk_total_bytes == null ? null : `${bytes(ready.disk_free_bytes)} of ${bytes(ready.disk_total_bytes)} free`],
      ["Failed storages", count(ready.failed_storages)],
      ["Storages with a poisoned writer", count(ready.poisoned_storages)],
      ["Ended tasks", ready.ended_tasks?.join(", ") || "none"],
    ]),
    failedStorages(ready),
    nodes,
    make("h2", {}, "Retention"),
    facts([
      ["Oldest age", retention.age_seconds_max ? duration(retention.age_seconds_max * 1e9) : "no limit"],
      ["All bytes", retention.bytes_max ? bytes(retention.bytes_max) : "no limit"],
      ["Only with label", retention.label],
      ["Would be deleted now", `${count(retention.storages)} storages, ${bytes(retention.bytes)}`],
      ["Kept by a legal hold", count(retention.held)],
    ]),
    make("h2", {}, "Trace of the server's own I/O"),
    facts([
      ["State", trace.state], ["Operations", count(trace.recorded)], ["Dropped", count(trace.dropped)],
      ["Bytes", bytes(trace.bytes)], ["Started (UTC)", date(trace.started)],
    ]),
    make("div", { class: "bar" },
      !mayOperate() ? null : trace.state === "running"
        ? button("Stop tracing", acting(async () => { await change("POST", "/io-trace/stop"); await again(); }))
        : button("Trace I/O …", () => startTrace(again)),
      trace.storage ? make("a", { href: `#/storage/${trace.storage}` }, "its storage") : null),
    make("h2", {}, "Links"),
    make("p", {}, make("a", { href: "docs" }, "API"), " · ", make("a", { href: "openapi.json" }, "openapi.json"), " · ",
      button("metrics", acting(() => download("/metrics", "metrics.txt", 0)), { class: "link" })),
  ];
}

function failedStorages({ failed_storages: failed, failures }) {
  if (!failures?.length) {
    return failed ? make("p", { class: "faint" }, "A token of a reader shows which storages failed, and why.") : null;
  }
  const listed = table([
    ["Storage", one => make("a", { href: `#/storage/${one.storage}` }, one.storage)],
    ["Why", one => one.reason],
  ], failures, "Failed storages");
  return failed > failures.length
    ? make("div", {}, listed, make("p", { class: "faint" }, `The first ${count(failures.length)} are shown.`)) : listed;
}

function startTrace(done) {
  ask("Trace the server's I/O", [
    make("p", { class: "faint" }, "Every read, write and sync of the server becomes an event of a storage of its own."),
    { name: "name", label: "Name of the storage", input: make("input", { required: true, value: "io-trace", autocomplete: "off" }) },
  ], {
    label: "Start",
    submit: async values => {
      await change("POST", "/io-trace/start", values);
      await done();
    },
  });
}
