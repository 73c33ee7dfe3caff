// The state of the server, retention, and the trace of its I/O.

import { change, get } from "./api.js";
import { acting, ask, button, facts, make, table } from "./dom.js";
import { bytes, count, date, duration } from "./units.js";

export async function showServer(main) {
  const [ready, retention, trace] = await Promise.all([
    fetch("/readyz").then(response => response.json()), get("/retention"), get("/io-trace"),
  ]);
  main.replaceChildren(
    make("h1", {}, "Server"),
    facts([
      ["Status", ready.status],
      ["Disk", ready.disk_total_bytes === undefined ? null : `${bytes(ready.disk_free_bytes)} of ${bytes(ready.disk_total_bytes)} free`],
      ["Failed storages", count(ready.failed_storages)],
      ["Storages with a poisoned writer", count(ready.poisoned_storages)],
      ["Ended tasks", ready.ended_tasks?.join(", ") || "none"],
    ]),
    (ready.failures || []).length
      ? table([["Storage", one => make("a", { href: `#/storage/${one.id || one.storage}` }, one.name || one.id || one.storage)],
        ["Why", one => one.failure || one.reason || ""]], ready.failures, "Failed storages")
      : null,
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
      trace.state === "off"
        ? button("Trace I/O …", () => startTrace(() => showServer(main)))
        : button("Stop tracing", acting(async () => { await change("POST", "/io-trace/stop"); await showServer(main); })),
      trace.storage ? make("a", { href: `#/storage/${trace.storage}` }, "its storage") : null),
    make("h2", {}, "Links"),
    make("p", {}, make("a", { href: "/docs" }, "API"), " · ", make("a", { href: "/openapi.json" }, "openapi.json"), " · ",
      make("a", { href: "/metrics" }, "metrics")));
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
