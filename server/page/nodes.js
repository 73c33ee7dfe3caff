// The servers that share an object store.

import { badge, empty, make, table } from "./dom.js";
import { refresh } from "./refresh.js";
import { bytes, count, duration } from "./units.js";

const EVERY_MS = 5000;
const GAP_MS = 1000;

/** The nodes as a part of a view, which stays up to date; null if the server shares its storages with none. */
export async function nodesOf(view) {
  const first = await view.get("/nodes");
  if (first.node === null) return null;
  const body = make("div", {});
  const unfolded = new Set();
  const show = ({ node, nodes }) => refresh(body, nodes.length ? nodeTable(node, nodes, unfolded) : empty("No node has given a sign of life yet."));
  show(first);
  view.follow(["nodes"], { milliseconds: EVERY_MS, gap: GAP_MS }, async () => show(await view.get("/nodes")));
  return make("section", { "aria-label": "Nodes" }, make("h2", {}, "Nodes"),
    make("p", { class: "faint" }, "The servers that share the object store. Each serves every sealed storage; one that is open is written by its owner."), body);
}

function nodeTable(own, nodes, unfolded) {
  return table([
    ["Node", each => each.node === own ? `${each.node} (this)` : each.node],
    ["State", each => badge(each.state)],
    ["Address", each => addressOf(own, each, "", each.url)],
    ["Last sign of life", each => each.age_seconds ? `${duration(Number(each.age_seconds) * 1e9)} ago` : "now", "n"],
    ["Owner of", each => ownedBy(own, each, unfolded)],
    ["Free disk", each => bytes(each.bytes_free), "n"],
    ["Version", each => each.version],
  ], nodes, "Servers that share the object store", each => each.node);
}

/** The open storages of a node, which its own page shows. */
function ownedBy(own, each, unfolded) {
  if (!Number(each.storages_open)) return "no open storage";
  const more = Number(each.storages_open) - each.open.length;
  const list = make("details", { open: unfolded.has(each.node) }, make("summary", {}, `${count(each.storages_open)} open`),
    make("ul", {}, each.open.map(id => make("li", { class: "mono" }, addressOf(own, each, `#/storage/${id}`, id)))),
    more > 0 ? make("p", { class: "faint" }, `and ${count(more)} older ones`) : null);
  list.addEventListener("toggle", () => list.open ? unfolded.add(each.node) : unfolded.delete(each.node));
  return list;
}

/** A link to a place of the page of a node; text if its address is none of the web. */
function addressOf(own, each, place, text) {
  if (each.node === own && place) return make("a", { href: place }, text);
  const isWeb = /^https?:\/\//.test(each.url);
  return isWeb && each.state !== "gone" ? make("a", { href: `${each.url.replace(/\/$/, "")}/${place}` }, text) : text;
}
