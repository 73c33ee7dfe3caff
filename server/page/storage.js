// The page of a storage: facts, time line, query, streams.

import { get, query, save, send, bodyOf } from "./api.js";
import { acting, badge, button, empty, facts, make, say, sayError, table } from "./dom.js";
import { bytes, count, date, duration, time } from "./units.js";
import { QueryBox } from "./query_box.js";
import { Results } from "./results.js";
import { storageActions } from "./storages.js";
import { Timeline } from "./timeline.js";

const PERFETTO = "https://ui.perfetto.dev";
const FORMATS = [["ndjson", "NDJSON", "ndjson"], ["csv", "CSV", "csv"], ["arrow", "Arrow", "arrows"], ["parquet", "Parquet", "parquet"], ["perfetto", "Perfetto", "pftrace"]];

export async function showStorage(main, [id], signal) {
  let storage = await get(`/storages/${id}`);
  const head = make("div", {});
  const draw = async () => {
    const focused = document.activeElement?.textContent;
    const status = await get(`/storages/${storage.id}/status`).catch(() => null);
    head.replaceChildren(...headOf(storage, status, reload));
    [...head.querySelectorAll("button")].find(each => each.textContent === focused && focused)?.focus();
  };
  const reload = async () => {
    storage = await get(`/storages/${id}`);
    document.title = `${storage.name || storage.id} · Tracehold`;
    await draw();
  };
  main.replaceChildren(head);
  await reload();
  const range = await rangeOf(storage, signal);
  if (!range) {
    main.append(empty("No events with a time yet. Push a trace: ",
      make("code", {}, `tracehold push --storage ${storage.name || storage.id} PATH`)));
  } else {
    main.append(explore(storage, range, signal));
  }
  main.append(details(storage, signal));
  const timer = setInterval(() => {
    const live = ["OPEN", "RECORDING", "FINALIZING", "RECOVERING"].includes(storage.state);
    if (!document.hidden && live && !document.querySelector("dialog")) reload().catch(() => {});
  }, 2000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

function headOf(storage, status, reload) {
  const writing = status && ["OPEN", "RECORDING"].includes(storage.state);
  return [
    make("h1", {}, storage.name || storage.id, badge(storage.state)),
    storage.description ? make("p", {}, storage.description) : "",
    storage.failure ? make("p", { class: "bad" }, `Failed: ${storage.failure}. `, make("code", {}, `tracehold storage verify --repair ${storage.name || storage.id}`), " says what a repair would keep.") : "",
    status?.damaged_places ? make("p", { class: "bad" }, `${count(status.damaged_places)} places are damaged; answers say what they leave out.`) : "",
    status?.missing_packets ? make("p", { class: "warn" }, `${count(status.missing_packets)} packets are missing since a repair.`) : "",
    facts([
      ["Events", count(storage.events)],
      ["As sent", bytes(storage.bytes)],
      ["Stored", `${bytes(storage.stored_bytes)}${storage.stored_bytes ? ` (${(storage.bytes / storage.stored_bytes).toFixed(1)} : 1)` : ""}`],
      ["Packets", count(storage.packets)],
      ["Lost before the agent", count(storage.lost)],
      ["Created (UTC)", date(storage.created)],
      ["Finalized (UTC)", date(storage.finalized)],
      ...(writing ? [["Writing", `${status.write_status.toLowerCase()}, ${bytes(status.bytes_per_second)}/s, ${count(status.queued_packets)} queued`]] : []),
      ...Object.entries(storage.labels).map(([name, values]) => [`Label ${name}`, [].concat(values).join(", ")]),
    ]),
    storageActions(storage, reload),
  ];
}

/** First and last time of the events, in nanoseconds, as BigInt. */
async function rangeOf(storage, signal) {
  let { begin, end } = storage;
  if (begin === null || end === null) {
    const { rows } = await query(storage.id, { aggregate: "min:ts,max:ts" }, signal).catch(() => ({ rows: [] }));
    begin = rows[0]?.["min:ts"] ?? null;
    end = rows[0]?.["max:ts"] ?? null;
  }
  if (begin === null || end === null) return null;
  return { begin: BigInt(begin), end: BigInt(end) + 1n };
}

function explore(storage, range, signal) {
  const window = { ...range };
  const question = () => ({ query: box.text || undefined, from: window.begin, to: window.end });
  const span = make("p", { class: "faint mono", "aria-live": "polite" });
  const results = new Results(storage.id, question, signal);
  const timeline = new Timeline(storage.id, range, question, signal, next => {
    Object.assign(window, next);
    changed();
  });
  const box = new QueryBox(storage.id, () => changed());
  const changed = () => {
    span.textContent = `${time(window.begin, 1e3)} to ${time(window.end, 1e3)} UTC, ${duration(Number(window.end - window.begin))}`;
    timeline.load(error => box.fault(error));
    results.reset();
  };
  const downloads = FORMATS.map(([format, title, extension]) => button(title, acting(async () => {
    await save(await ask(storage, question(), format), `${storage.name || storage.id}.${extension}`);
  })));
  const section = make("section", { "aria-label": "Events" },
    make("h2", {}, "Events"),
    span,
    box.node,
    timeline.node,
    results.node,
    make("h2", {}, "Selection"),
    make("div", { class: "bar" },
      button("Open in Perfetto", acting(() => openInPerfetto(storage, question())), { class: "main" }),
      make("span", { class: "faint" }, "or download as"), downloads));
  changed();
  return section;
}

const ask = (storage, question, format) => send(`/api/v1/storages/${storage.id}/query`, {
  method: "POST", body: bodyOf({ ...question, format }), headers: { "content-type": "application/json" },
});

/** Hands the selection to the Perfetto UI in a window of its own, which then has it without a server. */
async function openInPerfetto(storage, question) {
  const ui = open(PERFETTO, "_blank");
  if (!ui) {
    say("The browser did not open a window; allow pop-ups for this page.", { bad: true });
    return;
  }
  const response = await ask(storage, question, "perfetto");
  const buffer = await response.arrayBuffer();
  const title = storage.name || storage.id;
  await new Promise((resolve, reject) => {
    const ping = setInterval(() => ui.closed ? end(reject, new Error("the window was closed")) : ui.postMessage("PING", PERFETTO), 100);
    const answer = event => {
      if (event.origin !== PERFETTO || event.data !== "PONG") return;
      ui.postMessage({ perfetto: { buffer, title, fileName: `${title}.pftrace` } }, PERFETTO, [buffer]);
      end(resolve);
    };
    const end = (then, value) => {
      clearInterval(ping);
      removeEventListener("message", answer);
      then(value);
    };
    addEventListener("message", answer);
    setTimeout(() => end(reject, new Error(`${PERFETTO} did not answer; download the selection as Perfetto and open it there`)), 30_000);
  });
}

/** Streams and files, loaded when they are unfolded. */
function details(storage, signal) {
  const streams = lazily("Streams", async () => {
    const { rows } = await query(storage.id, { group_by: "agent,stream,kind", aggregate: "count", derived: true }, signal);
    return rows.length ? table([
      ["Agent", row => row.agent], ["Stream", row => row.stream], ["Kind", row => row.kind], ["Events", row => count(row.count), "n"],
    ], rows, "Streams") : empty("No events.");
  });
  const files = storage.state === "FINALIZED" ? lazily("Files", async () => {
    const { files } = await get(`/storages/${storage.id}/files`);
    return table([
      ["Name", file => make("a", { href: `/storage/${storage.id}/${file.name}`, download: file.name }, file.name)],
      ["Role", file => file.role], ["Bytes", file => count(file.length), "n"], ["CRC32C", file => make("code", {}, file.checksum)],
    ], files, "Files");
  }) : null;
  return make("section", { "aria-label": "Details" }, streams, files);
}

function lazily(title, load) {
  const body = make("div", {});
  const node = make("details", {}, make("summary", {}, title), body);
  node.addEventListener("toggle", async () => {
    if (!node.open || body.firstChild) return;
    body.textContent = "Loading …";
    try {
      body.replaceChildren(await load());
    } catch (error) {
      body.textContent = "";
      sayError(error);
    }
  });
  return node;
}
