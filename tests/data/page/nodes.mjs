// The servers that share an object store: where each is, whether it lives, and what it has open.

import assert from "node:assert/strict";
import { LOOKS, audit, end, given, open, server, shows, until } from "./browser.mjs";

const { own, other, gone } = given;
const rows = page => page.$$eval("section[aria-label=Nodes] tbody tr", rows => rows.map(row => [...row.cells].map(cell => cell.textContent)));
const rowOf = async (page, name) => (await rows(page)).find(([node]) => node.split(" ")[0] === name);

if (!gone) {
  for (const [look, options] of LOOKS) {
    const page = await open("#/server", options);
    await shows(page, "Last sign of life");
    await audit(page, `nodes-${look}`, page => shows(page, "Last sign of life"));
    await page.close();
  }
}

const page = await open("#/server");
await shows(page, "Last sign of life");
const state = gone ? "gone" : "live";
await until(page, (name, state) => [...document.querySelectorAll("section[aria-label=Nodes] tbody tr")].some(row => row.cells[0].textContent === name && row.cells[1].textContent === state), other.node, state);
const [node, , address, sign, owned] = await rowOf(page, own.node);
assert.deepEqual([node, address], [`${own.node} (this)`, own.url]);
assert.match(sign, /^(now|[\d.]+ \S+ ago)$/);
assert.match(owned, new RegExp(`^${own.storages.length} open`));
const links = await page.$$eval("section[aria-label=Nodes] tbody a", all => all.map(each => each.getAttribute("href")));
for (const id of own.storages) assert.ok(links.includes(`#/storage/${id}`), `${links}`);
// The other one has a page of its own, as long as it lives.
const there = other.storages.map(id => `${other.url}/#/storage/${id}`);
assert.deepEqual(there.filter(each => links.includes(each)), gone ? [] : there, `${links}`);

if (!gone) {
  // What is opened on a node is there without a reload.
  const api = async (method, path, body) => {
    const response = await fetch(`${other.url}/api/v1${path}`, { method, body: body && JSON.stringify(body), headers: { "content-type": "application/json" } });
    assert.ok(response.ok, await response.clone().text());
    return response.json();
  };
  const made = await api("POST", "/storages", { name: "opened later" });
  await api("POST", `/storages/${made.id}/open`);
  await until(page, href => Boolean(document.querySelector(`a[href="${href}"]`)), `${other.url}/#/storage/${made.id}`);
  // A list that is unfolded stays so.
  const unfold = () => page.$$eval("section[aria-label=Nodes] details", all => all.map(each => each.open));
  await page.$$eval("section[aria-label=Nodes] summary", all => all.forEach(each => each.click()));
  assert.ok((await unfold()).every(Boolean));
  const last = await api("POST", "/storages", { name: "opened last" });
  await api("POST", `/storages/${last.id}/open`);
  await until(page, href => Boolean(document.querySelector(`a[href="${href}"]`)), `${other.url}/#/storage/${last.id}`);
  assert.ok((await unfold()).every(Boolean), `${await unfold()}`);
  await page.screenshot({ path: `${given.pictures}/nodes-open.png`, fullPage: true });
  assert.ok(server.startsWith("http"));
}
await page.close();
await end();
