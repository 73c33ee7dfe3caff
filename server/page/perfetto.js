// Hands a trace to the Perfetto UI.

import { say } from "./dom.js";

const PERFETTO = "https://ui.perfetto.dev";

/** Opens the UI in a window of its own, which then has the trace that `load` requests, without a server. */
export async function openInPerfetto(title, load) {
  const ui = open(PERFETTO, "_blank");
  if (!ui) {
    say("The browser did not open a window; allow pop-ups for this page.", { bad: true });
    return;
  }
  try {
    const trace = await (await load()).arrayBuffer();
    if (!trace.byteLength) throw new Error("No event matches: there is nothing to open in Perfetto.");
    await handOver(ui, title, trace);
  } catch (error) {
    ui.close();
    throw error;
  }
}

function handOver(ui, title, buffer) {
  return new Promise((resolve, reject) => {
    const ping = setInterval(() => ui.closed ? end(reject, new Error("the window was closed")) : ui.postMessage("PING", PERFETTO), 100);
    const limit = setTimeout(() => end(reject, new Error(`${PERFETTO} did not answer; download the selection as Perfetto and open it there`)), 30_000);
    const answer = event => {
      if (event.origin !== PERFETTO || event.source !== ui || event.data !== "PONG") return;
      ui.postMessage({ perfetto: { buffer, title, fileName: `${title}.pftrace` } }, PERFETTO, [buffer]);
      end(resolve);
    };
    const end = (then, value) => {
      clearInterval(ping);
      clearTimeout(limit);
      removeEventListener("message", answer);
      then(value);
    };
    addEventListener("message", answer);
  });
}
