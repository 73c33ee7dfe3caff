// Agents and their streams: what they store, how fast packets arrive, and what was lost.

import { Refused, isScoped, path } from "./api.js";
import { badge, empty, make, table } from "./dom.js";
import { refresh } from "./refresh.js";
import { bytes, count } from "./units.js";

const SHOWN_MAX = 1000;
/** The list is loaded at most this often while much changes, and this often while the server cannot say what does. */
const GAP_MS = 1000;
const EVERY_MS = 5000;
/** Storages that are written now, whose status is asked for. */
const WRITTEN_MAX = 20;

export async function showAgents(view) {
  const body = make("div", {});
  view.show(make("h1", {}, "Agents"), body);
  const load = async () => {
    const [{ items, more }, written] = await Promise.all([view.list("/agents", SHOWN_MAX), writtenNow(view)]);
    refresh(body,
      items.length ? agentTable(items)
        : isScoped() ? empty("This token sees no agent: those that there may be are outside its scope.") : empty("No agents yet. ", make("code", {}, "tracehold push PATH"), " registers one, and so does a sender of OpenTelemetry spans."),
      more ? make("p", { class: "faint" }, `Only the first ${count(SHOWN_MAX)} are shown.`) : null,
      make("h2", {}, "Storages that are written"),
      written.statuses.length ? storageTable(written.statuses) : empty(isScoped() ? "No storage that this token sees is open or records." : "No storage is open or records."),
      written.more ? make("p", { class: "faint" }, `Only the newest ${count(WRITTEN_MAX)} are shown.`) : null);
  };
  await load();
  view.follow(["agent", "storage"], { milliseconds: EVERY_MS, gap: GAP_MS }, load);
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

function agentTable(items) {
  const rows = items.flatMap(agent => agent.streams.length
    ? agent.streams.map((stream, at) => ({ agent: at ? null : agent, stream, key: `${agent.id} ${stream.id}` }))
    : [{ agent, stream: null, key: agent.id }]);
  const of = (row, shown) => row.stream?.activity ? shown(row.stream.activity) : row.stream && "–";
  return table([
    ["Agent", row => row.agent && (row.agent.name === row.agent.id ? row.agent.id : `${row.agent.name} (${row.agent.id})`)],
    ["Host", row => row.agent?.host],
    ["Stored", row => row.agent && bytes(row.agent.stored_bytes), "n"],
    ["Quota", row => row.agent && quotaOf(row.agent), "n"],
    ["Trace metadata", row => row.agent && (row.agent.has_metadata ? "yes" : "–")],
    ["Stream", row => row.stream?.id],
    ["Kind", row => row.stream?.kind],
    ["Codec", row => row.stream?.codec],
    ["Packets a second", row => of(row, activity => rate(activity.packets_per_second)), "n"],
    ["Bytes a second", row => of(row, activity => `${bytes(Math.round(activity.bytes_per_second))}/s`), "n"],
    ["Events a second", row => of(row, activity => rate(activity.events_per_second)), "n"],
    ["Lost", row => of(row, lossesOf)],
  ], rows, "Agents and streams", row => row.key);
}

/** With a decimal below ten. */
const rate = number => Number(number) < 10 ? Number(number).toFixed(1) : count(Math.round(Number(number)));

/** What was lost of a stream since the server started, in words. */
function lossesOf(activity) {
  const losses = [
    [activity.lost_events, "event lost by the producer", "events lost by the producer"],
    [activity.dropped_packets, "packet dropped", "packets dropped"],
    [activity.failed_packets, "packet not written", "packets not written"],
    [activity.gaps, "push refused after a gap", "pushes refused after a gap"],
    [activity.refused_pushes, "other push refused", "other pushes refused"],
  ].filter(([number]) => Number(number));
  const said = losses.map(([number, one, many]) => `${count(number)} ${Number(number) === 1 ? one : many}`).join(", ");
  return said ? make("span", { class: "bad" }, said) : "nothing";
}

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
