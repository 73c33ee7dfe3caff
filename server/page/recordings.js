// Recordings and the buffer.

import { change, mayOperate, path } from "./api.js";
import { acting, ask, badge, button, empty, facts, make, table } from "./dom.js";
import { refresh } from "./refresh.js";
import { bytes, count, date } from "./units.js";

export async function showRecordings(view) {
  const body = make("div", {});
  const buffer = make("div", {});
  const load = async () => {
    const [{ items }, held, storages] = await Promise.all([
      view.list("/recordings"), view.get("/buffer"), view.list("/storages?order=newest"),
    ]);
    const names = new Map(storages.items.map(storage => [storage.id, storage.name]));
    refresh(body, items.length ? recordingTable(items, names, load)
      : empty("No recordings. A recording keeps what agents push without a storage, and spans: start one here, or ", make("code", {}, "tracehold record start --name NAME"), "."));
    refresh(buffer, facts([
      ["Packets", count(held.packets)], ["Bytes", `${bytes(held.bytes)} of ${bytes(held.bytes_max)}`], ["Evicted", count(held.evicted)],
    ]));
  };
  view.show(
    make("h1", {}, "Recordings"),
    mayOperate() ? make("div", { class: "bar" }, button("Start …", () => start(load), { class: "main" })) : null,
    body,
    make("h2", {}, "Buffer"),
    make("p", { class: "faint" }, "What came last without a storage, in memory; a recording can begin with it."),
    buffer);
  await load();
  view.follow(["recording", "buffer"], { milliseconds: 3000 }, load);
}

function recordingTable(items, names, reload) {
  return table([
    ["Storage", one => make("a", { href: `#/storage/${one.storage}` }, names.get(one.storage) || one.storage)],
    ["State", one => badge(one.state)],
    ["Agents", one => one.agents.length ? one.agents.join(", ") : "all"],
    ["Packets", one => count(one.counts.packets), "n"],
    ["Bytes", one => bytes(one.counts.bytes), "n"],
    ["Started (UTC)", one => date(one.started), "n"],
    ["Ended (UTC)", one => one.ended ? `${date(one.ended)} ${one.reason || ""}` : "–", "n"],
    ["Action", one => one.ended || !mayOperate() ? ""
      : button("Stop", acting(async () => { await change("DELETE", path`/recordings/${one.id}`); await reload(); }))],
  ], items, "Recordings", one => one.id);
}

function start(done) {
  ask("Start a recording", [
    { name: "name", label: "Name of the storage", input: make("input", { required: true, autocomplete: "off" }) },
    { name: "seconds", label: "Ends after so many seconds (empty: until it is stopped)", input: make("input", { type: "number", min: 1 }) },
  ], {
    label: "Start",
    submit: async ({ name, seconds }) => {
      const body = { name };
      if (seconds) body.duration_seconds = Number(seconds);
      await change("POST", "/recordings", body);
      await done();
    },
  });
}
