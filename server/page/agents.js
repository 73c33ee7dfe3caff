// Agents and their streams.

import { empty, make, table } from "./dom.js";
import { count } from "./units.js";

const SHOWN_MAX = 1000;

export async function showAgents(view) {
  const { items, more } = await view.list("/agents", SHOWN_MAX);
  const rows = items.flatMap(agent => agent.streams.length
    ? agent.streams.map((stream, at) => ({ agent: at ? null : agent, stream }))
    : [{ agent, stream: null }]);
  view.show(
    make("h1", {}, "Agents"),
    items.length
      ? table([
        ["Agent", row => row.agent && (row.agent.name === row.agent.id ? row.agent.id : `${row.agent.name} (${row.agent.id})`)],
        ["Host", row => row.agent?.host],
        ["Trace metadata", row => row.agent && (row.agent.has_metadata ? "yes" : "–")],
        ["Stream", row => row.stream?.id],
        ["Kind", row => row.stream?.kind],
        ["Codec", row => row.stream?.codec],
      ], rows, "Agents and streams")
      : empty("No agents yet. ", make("code", {}, "tracehold push PATH"), " registers one, and so does a sender of OpenTelemetry spans."),
    more ? make("p", { class: "faint" }, `Only the first ${count(SHOWN_MAX)} are shown.`) : null);
}
