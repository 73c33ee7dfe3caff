// Agents and their streams: what they store, how fast, and what was dropped.

import { Refused, path, pause } from "./api.js";
import { badge, empty, make, table } from "./dom.js";
import { refresh } from "./refresh.js";
import { bytes, count } from "./units.js";

const SHOWN_MAX = 1000;
/** The server adds up what agents store this often. */
const EVERY_MS = 5000;
/** A rate is that of this time. */
const RATE_MS = 30_000;
/** Storages that are written now, whose status is asked for. */
const WRITTEN_MAX = 20;

export async function showAgents(view) {
  const body = make("div", {});
  const rates = new Rates();
  view.show(make("h1", {}, "Agents"), body);
  const load = async () => {
    const [{ items, more }, written] = await Promise.all([view.list("/agents", SHOWN_MAX), writtenNow(view)]);
    rates.add(items, performance.now());
    const drops = dropsOf(written.statuses);
    refresh(body,
      items.length ? agentTable(items, rates, drops)
        : empty("No agents yet. ", make("code", {}, "tracehold push PATH"), " registers one, and so does a sender of OpenTelemetry spans."),
      more ? make("p", { class: "faint" }, `Only the first ${count(SHOWN_MAX)} are shown.`) : null,
      make("h2", {}, "Storages that are written"),
      written.statuses.length ? storageTable(written.statuses) : empty("No storage is open or records."),
      written.more ? make("p", { class: "faint" }, `Only the newest ${count(WRITTEN_MAX)} are shown, and only their drops are counted.`) : null);
  };
  await load();
  follow(view, load);
}

/** Asks again while the page is seen: a rate that falls to nothing is no change that the server would report. */
async function follow(view, load) {
  const { signal } = view;
  while (!signal.aborted) {
    try {
      await pause(EVERY_MS, signal);
      if (!document.hidden && !document.querySelector("dialog")) await load();
      view.stale.hidden = true;
    } catch (error) {
      if (signal.aborted) return;
      view.stale.textContent = `Not up to date: ${error.message}`;
      view.stale.hidden = false;
    }
  }
}

/** The status of the storages that are open or record. */
async function writtenNow(view) {
  const lists = await Promise.all(["OPEN", "RECORDING"].map(state => view.list(`/storages?order=newest&state=${state}`, WRITTEN_MAX + 1)));
  const items = lists.flatMap(list => list.items);
  const statuses = await Promise.all(items.slice(0, WRITTEN_MAX).map(async storage => {
    try {
      return { storage, status: await view.get(path`/storages/${storage.id}/status`) };
    } catch (error) {
      // It may have been deleted since it was listed.
      if (!(error instanceof Refused)) throw error;
      return null;
    }
  }));
  return { statuses: statuses.filter(Boolean), more: items.length > WRITTEN_MAX };
}

/** Bytes that an agent stores a second, from what it stored at different times. */
export class Rates {
  constructor() { this.samples = []; }

  add(agents, now) {
    const stored = new Map(agents.map(agent => [agent.id, agent.stored_bytes]));
    this.samples = [...this.samples.filter(sample => now - sample.now <= RATE_MS), { now, stored }];
  }

  /** Null while there is one time only, or if what is stored is not known. */
  of(id) {
    const known = this.samples.filter(sample => sample.stored.get(id) !== null && sample.stored.get(id) !== undefined);
    if (known.length < 2) return null;
    const [first, last] = [known[0], known.at(-1)];
    // A storage may have been deleted meanwhile.
    return Math.max(Number(last.stored.get(id)) - Number(first.stored.get(id)), 0) / (last.now - first.now) * 1000;
  }
}

/** Dropped packets by agent and stream, of all storages that are written. */
export function dropsOf(statuses) {
  const drops = new Map();
  for (const { status } of statuses) {
    for (const { agent, stream, packets, bytes: size } of status.dropped ?? []) {
      const key = `${agent} ${stream}`;
      const sum = drops.get(key) ?? { packets: 0, bytes: 0 };
      drops.set(key, { packets: sum.packets + Number(packets), bytes: sum.bytes + Number(size) });
    }
  }
  return drops;
}

function agentTable(items, rates, drops) {
  const rows = items.flatMap(agent => agent.streams.length
    ? agent.streams.map((stream, at) => ({ agent: at ? null : agent, stream, drop: drops.get(`${agent.id} ${stream.id}`), key: `${agent.id} ${stream.id}` }))
    : [{ agent, stream: null, key: agent.id }]);
  return table([
    ["Agent", row => row.agent && (row.agent.name === row.agent.id ? row.agent.id : `${row.agent.name} (${row.agent.id})`)],
    ["Host", row => row.agent?.host],
    ["Stored", row => row.agent && bytes(row.agent.stored_bytes), "n"],
    ["Quota", row => row.agent && quotaOf(row.agent), "n"],
    ["Stored a second", row => row.agent && perSecond(rates.of(row.agent.id)), "n"],
    ["Trace metadata", row => row.agent && (row.agent.has_metadata ? "yes" : "–")],
    ["Stream", row => row.stream?.id],
    ["Kind", row => row.stream?.kind],
    ["Codec", row => row.stream?.codec],
    ["Dropped", row => row.drop ? make("span", { class: "bad" }, `${count(row.drop.packets)} packets, ${bytes(row.drop.bytes)}`) : row.stream && "0", "n"],
  ], rows, "Agents and streams", row => row.key);
}

const perSecond = rate => rate === null ? "–" : `${bytes(Math.round(rate))}/s`;

/** The quota of an agent, and how much of it is used. */
function quotaOf({ stored_bytes: stored, quota_bytes_max: most }) {
  if (most === null || most === undefined) return "none";
  if (stored === null || stored === undefined || Number(most) === 0) return bytes(most);
  const share = Number(stored) / Number(most);
  return make("span", { class: share >= 1 ? "bad" : share >= 0.9 ? "warn" : null }, `${bytes(most)}, ${Math.round(100 * share)} % used`);
}

function storageTable(statuses) {
  const marked = (number, text = count(number)) => Number(number) ? make("span", { class: "bad" }, text) : "0";
  return table([
    ["Storage", ({ storage }) => make("a", { href: `#/storage/${storage.id}` }, storage.name || storage.id)],
    ["State", ({ storage }) => badge(storage.state)],
    ["Writing", ({ status }) => status.write_status?.toLowerCase()],
    ["Packets a second", ({ status }) => Number(status.packets_per_second ?? 0).toFixed(1), "n"],
    ["Bytes a second", ({ status }) => `${bytes(status.bytes_per_second)}/s`, "n"],
    ["Queued", ({ status }) => count(status.queued_packets), "n"],
    ["Dropped", ({ status }) => marked(status.dropped_packets), "n"],
    ["Not written", ({ status }) => marked(status.failed_packets), "n"],
    ["Lost before the agent", ({ status }) => marked(status.lost), "n"],
  ], statuses, "Storages that are written", ({ storage }) => storage.id);
}
