// Agents and their streams.

import { list } from "./api.js";
import { empty, make, table } from "./dom.js";

export async function showAgents(main) {
  const { items, more } = await list("/agents");
  const rows = items.flatMap(agent => agent.streams.length
    ? agent.streams.map((stream, at) => ({ agent: at ? null : agent, stream }))
    : [{ agent, stream: null }]);
  main.replaceChildren(
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
      : empty("No agents yet. ", make("code", {}, "tracehold push PATH"), " registers one, and so does a sender of OpenTelemetry spans."));
  if (more) main.append(make("p", { class: "faint" }, "Only the first 1,000 are shown."));
}
