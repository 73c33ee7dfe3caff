// The page of a storage: facts, events, streams and files.

import { Address } from "./address.js";
import { Refused, download, path } from "./api.js";
import { acting, badge, button, empty, facts, make, sayError, table } from "./dom.js";
import { Explorer } from "./explorer.js";
import { refresh } from "./refresh.js";
import { storageActions } from "./storage_actions.js";
import { bytes, count, date, many } from "./units.js";

/** A list that is unfolded is loaded again at most so often, and not more than a tenth of the time. */
const PARTS_MS = 5000;
const LIVE = ["OPEN", "RECORDING", "FINALIZING", "RECOVERING"];

export async function showStorage(view, [id, parameters]) {
  let storage = null;
  let status = null;
  const load = async () => {
    storage = await view.get(path`/storages/${id}`);
    if (storage.id !== id) throw new Error("The server sent the description of something else.");
    status = await statusOf(view, id);
  };
  const head = make("div", {});
  const parts = new Details(view, id);
  const events = new Events(view, new Address(`#/storage/${id}`, parameters));
  const draw = async () => {
    view.title = nameOf(storage);
    refresh(head, ...headOf(storage, status), storageActions(() => storage, reload));
    parts.follow(storage);
    await events.follow(storage);
  };
  const reload = async () => {
    await load();
    await draw();
  };
  await load();
  view.show(head, events.node);
  await draw();
  view.node.append(parts.node);
  view.follow(["storage"], { milliseconds: 2000, storage: id }, async () => {
    if (view.node.dataset.live !== "true" && !LIVE.includes(storage.state)) return;
    try {
      await reload();
    } catch (error) {
      // Nothing can be done with a storage that was deleted.
      if (error.status === 404) for (const each of view.node.querySelectorAll("button")) each.disabled = true;
      throw error;
    }
  });
}

const nameOf = storage => storage.name || storage.id;

/** The storage as a word of a command: a name may have blanks, and what a shell would run. */
const wordOf = storage => /^[\w.][\w.-]*$/.test(storage.name) ? storage.name : storage.id;

async function statusOf(view, id) {
  try {
    return await view.get(path`/storages/${id}/status`);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return { refusal: error.message };
  }
}

function headOf(storage, status) {
  const writing = status.write_status && ["OPEN", "RECORDING"].includes(storage.state);
  const warning = (kind, ...parts) => make("p", { class: kind }, ...parts);
  return [
    make("h1", {}, nameOf(storage), badge(storage.state)),
    storage.description ? make("p", {}, storage.description) : null,
    storage.failure ? warning("bad", `Failed: ${storage.failure}. `, make("code", {}, `tracehold storage verify --repair ${wordOf(storage)}`), " says what a repair would keep.") : null,
    status.refusal ? warning("warn", `Its write status is not known: ${status.refusal}`) : null,
    status.damaged_places ? warning("bad", `${count(status.damaged_places)} places are damaged; answers say what they leave out.`) : null,
    status.missing_packets ? warning("warn", `${count(status.missing_packets)} packets are missing since a repair.`) : null,
    status.missing_unknown ? warning("bad", `It is not known which packets are missing since a repair: ${status.missing_unknown}`) : null,
    status.sealed === "broken" ? warning("bad", "The seal is broken: it cannot be read, or it does not list the files that the storage has, as after an index was rebuilt. ",
      make("code", {}, `tracehold storage verify ${wordOf(storage)}`), " names the files that it does not prove; restore the storage from a backup or an export to have a whole seal again.") : null,
    facts([
      ["Events", count(storage.events) + (storage.uncounted_packets ? `, and those of ${count(storage.uncounted_packets)} packets that could not be counted` : "")],
      ["As sent", bytes(storage.bytes)],
      ["Stored", `${bytes(storage.stored_bytes)}${storage.stored_bytes ? ` (${(storage.bytes / storage.stored_bytes).toFixed(1)} : 1)` : ""}`],
      ["Packets", count(storage.packets)],
      ["Lost before the agent", count(storage.lost)],
      ["Created (UTC)", date(storage.created)],
      ["Finalized (UTC)", date(storage.finalized)],
      ...(storage.state === "FINALIZED" && status.sealed ? [["Seal", sealOf(status.sealed)]] : []),
      ...(writing ? [["Writing", `${status.write_status.toLowerCase()}, ${bytes(Math.round(status.bytes_per_second))}/s, ${count(status.queued_packets)} queued`]] : []),
      ...Object.entries(storage.labels).map(([name, values]) => [`Label ${name}`, [].concat(values).join(", ")]),
    ]),
  ];
}

/** Whether the files are those that were sealed. Their bytes are compared by a verification. */
function sealOf(state) {
  const kind = { sealed: "good", broken: "bad" }[state];
  return make("span", { class: kind ?? "faint" }, state === "none" ? "not sealed" : state);
}

/** The events of a storage. They stay as they were drawn; what came since is shown on request. */
class Events {
  /** `address` says what is shown first, and is told what is. */
  constructor(view, address) {
    Object.assign(this, { view, address });
    this.explorer = null;
    this.drawn = null;
    this.news = make("div", { class: "bar", role: "status" });
    this.place = make("div", {});
    this.node = make("div", {}, this.news, this.place);
  }

  async follow(storage) {
    const packets = Number(storage.packets);
    if (this.explorer) {
      const since = packets - this.drawn;
      refresh(this.news, since > 0
        ? make("span", {}, `${many(since, "packet")} came since the events were drawn.`) : null, since > 0
        ? button("Show new events", acting(() => this.draw(storage.id)), { class: "main" }) : null);
    } else if (packets !== this.drawn) {
      await this.draw(storage.id);
    }
  }

  async draw(id) {
    const storage = await this.view.get(path`/storages/${id}`);
    const range = await this.rangeOf(storage);
    this.drawn = Number(storage.packets);
    refresh(this.news);
    if (range && this.explorer) {
      this.explorer.extend(range);
    } else if (range) {
      this.explorer = new Explorer(storage, range, { signal: this.view.signal, address: this.address });
      this.place.replaceChildren(this.explorer.node);
    } else {
      this.place.replaceChildren(empty("No events with a time yet. Push a trace: ",
        make("code", {}, `tracehold push --storage ${wordOf(storage)} PATH`)));
    }
  }

  /** First and last time of the events, in nanoseconds, as BigInt. */
  async rangeOf(storage) {
    let { begin, end } = storage;
    if (begin === null || end === null) {
      const { rows } = await this.view.query(storage.id, { aggregate: "min:ts,max:ts" });
      begin = rows[0]?.["min:ts"] ?? null;
      end = rows[0]?.["max:ts"] ?? null;
    }
    if (begin === null || end === null) return null;
    return { begin: BigInt(begin), end: BigInt(end) + 1n };
  }
}

/** Streams and files, which are loaded when they are unfolded, and follow what comes. */
class Details {
  constructor(view, id) {
    this.streams = new Part("Streams", view.signal, async () => {
      const { rows } = await view.query(id, { group_by: "agent,stream,kind", aggregate: "count", derived: true });
      return rows.length ? table([
        ["Agent", row => row.agent], ["Stream", row => row.stream], ["Kind", row => row.kind], ["Events", row => count(row.count), "n"],
      ], rows, "Streams", row => `${row.agent} ${row.stream} ${row.kind}`) : empty("No events.");
    });
    this.files = new Part("Files", view.signal, async () => {
      const { files } = await view.get(path`/storages/${id}/files`);
      const fetchFile = file => acting(() => download(path`/storage/${id}/${file.name}`, file.name, file.length));
      return table([
        ["Name", file => button(file.name, fetchFile(file), { class: "link", title: "Download" })],
        ["Role", file => file.role], ["Bytes", file => count(file.length), "n"], ["CRC32C", file => make("code", {}, file.checksum)],
      ], files, "Files", file => file.name);
    });
    this.node = make("section", { "aria-label": "Details" }, this.streams.node, this.files.node);
  }

  follow(storage) {
    this.files.node.hidden = storage.state !== "FINALIZED";
    for (const part of [this.streams, this.files]) part.follow(`${storage.state} ${storage.packets}`);
  }
}

/** Something below a title that is loaded when it is unfolded, and again when its version is another one. */
class Part {
  constructor(title, signal, load) {
    Object.assign(this, { signal, load, wanted: null, loaded: null });
    this.body = make("div", {});
    this.node = make("details", {}, make("summary", {}, title), this.body);
    this.node.addEventListener("toggle", () => this.update());
  }

  follow(version) {
    this.wanted = version;
    this.update();
  }

  async update() {
    if (this.isBusy || !this.node.open || this.loaded === this.wanted || this.signal.aborted) return;
    this.isBusy = true;
    const began = performance.now();
    const version = this.wanted;
    const isFirst = this.loaded === null;
    if (isFirst) this.body.textContent = "Loading …";
    try {
      const fresh = await this.load();
      if (isFirst) this.body.replaceChildren(fresh);
      else refresh(this.body, fresh);
      this.loaded = version;
    } catch (error) {
      if (isFirst) {
        this.body.textContent = "";
        sayError(error);
      }
    }
    const gap = isFirst && this.loaded === null ? 0 : Math.max(PARTS_MS, 9 * (performance.now() - began));
    setTimeout(() => {
      this.isBusy = false;
      // What could not be loaded at all is loaded when it is unfolded again.
      if (this.loaded !== null) this.update();
    }, gap);
  }
}
