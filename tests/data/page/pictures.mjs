// Pictures of I/O, the distribution of a field, agents with rates, and the seal of a storage.

import assert from "node:assert/strict";
import { LOOKS, audit, counted, end, given, intercept, open, pictures, seconds, shows, text, until } from "./browser.mjs";

const { first, rocks } = given;

/** Opens a part of the events of a storage. */
async function part(id, tab, words, look = {}) {
  const page = await open(`#/storage/${id}`, look);
  await counted(page);
  await page.$eval(`[data-tab="${tab}"]`, node => node.click());
  await shows(page, words);
  return page;
}

/** The colours of the picture that are no grey. */
const colours = page => page.$$eval(".timeline canvas", all => {
  const canvas = all.at(-1);
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4) if (Math.max(...data.slice(at, at + 3)) - Math.min(...data.slice(at, at + 3)) > 30) seen.add(`${data.slice(at, at + 3)}`);
  return seen.size;
});

/** The rows of the table below the picture. */
async function rowsOf(page) {
  await page.evaluate(() => [...document.querySelectorAll("summary")].find(each => each.textContent === "As a table").click());
  await until(page, () => document.querySelector("details[open] tbody tr"));
  return page.$$eval("details[open] tbody tr", rows => rows.map(row => [...row.cells].map(cell => cell.textContent)));
}

// In every look: no finding of axe, nothing wider than the screen.
for (const [name, look] of LOOKS) {
  for (const [id, tab, words] of [[first, "io", "logarithmic"], [first, "values", "events have dur"], [first, "traces", "No span matches"]]) {
    const page = await part(id, tab, words, look);
    // The tab is in the address.
    await audit(page, `${tab}-${name}`, page => shows(page, words));
    await page.close();
  }
}

// The table has the columns that its events have; what is said of whole packets is behind what is said of events.
for (const [id, isThere] of [[first, ["ts", "dur", "name", "cat", "pid", "tid"]], [rocks, ["ts", "dur", "name", "cat"]], [given.ctf, ["ts", "name", "cat"]]]) {
  const page = await open(`#/storage/${id}`);
  await until(page, () => document.querySelector(".rows tbody td")?.textContent.startsWith("20"));
  const columns = await page.$$eval(".rows th", all => all.map(each => each.textContent));
  assert.deepEqual(columns.filter(name => ["ts", "dur", "name", "cat", "pid", "tid"].includes(name)), isThere);
  const ofPackets = columns.map(name => name.startsWith("packet."));
  assert.equal(ofPackets.includes(true), id === given.ctf);
  assert.deepEqual(ofPackets, ofPackets.toSorted());
  await page.close();
}

// A choice is beside its name also on a small screen.
{
  const page = await open(`#/storage/${first}?tab=groups`, { width: 360 });
  await shows(page, "12 groups");
  const apart = await page.$$eval(".together", all => all.filter(each => each.checkVisibility()).map(each => {
    const [name, next] = [...each.children].map(node => node.getBoundingClientRect());
    return next.top > name.bottom || name.top > next.bottom;
  }));
  assert.deepEqual(apart, [false, false]);
  await page.close();
}

// A picture of its own, for the documents.
{
  const page = await part(first, "io", "logarithmic");
  const picture = await page.evaluateHandle(() => document.querySelector('[aria-label="Picture"]').parentNode.parentNode);
  await picture.screenshot({ path: `${pictures}/heat-map.png` });
  await page.close();
}

// Each picture has colours, a legend and a table; the numbers of the table add up to the events.
{
  const page = await part(rocks, "io", "logarithmic");
  assert.ok(await colours(page) > 1);
  const latencies = await rowsOf(page);
  assert.equal(latencies[0].length, 3);
  const pick = async (kind, ready) => {
    await page.select('[aria-label="Picture"]', kind);
    await until(page, ready);
    return rowsOf(page);
  };
  const offsets = await pick("offset", () => document.querySelector('canvas[aria-label^="Offset"]'));
  assert.ok(offsets.length > 10 && await colours(page) > 1);
  const quantiles = await pick("quantiles", () => document.querySelector(".line-3"));
  assert.deepEqual(quantiles[0].length, 6);
  const misses = await pick("misses", () => document.querySelectorAll(".timeline ~ .legend .line-0").length === 1 && !document.querySelector(".line-1"));
  const sum = at => misses.reduce((sum, row) => sum + Number(row[at].replaceAll(",", "")), 0);
  assert.deepEqual([sum(1), sum(2)], [1180, 352]);
  await page.type(".query input", "kind == 'rocksdb-io'");
  await page.keyboard.press("Enter");
  await shows(page, "I/O is in traces of DFTracer");
  await page.close();
}

// The distribution of a chosen field, with its quantiles; groups by the sum of another one.
{
  const page = await part(first, "values", "events have dur");
  const choose = (label, value) => page.$eval(`[aria-label="${label}"]`, (node, value) => {
    node.value = value;
    node.dispatchEvent(new Event("change"));
  }, value);
  await choose("Numbers of field", "ret");
  await shows(page, "8,006 events have ret");
  assert.match(await text(page, ".bars thead"), /^retEvents/);
  const total = await page.$$eval(".bars tbody td.n", all => all.reduce((sum, cell) => sum + Number(cell.textContent.replaceAll(",", "")), 0));
  assert.equal(total, 8006);
  await until(page, () => [...document.querySelectorAll("#numeric-fields option")].some(each => each.value === "args.ret"));
  await choose("Numbers of field", "nosuch");
  await shows(page, "No event that matches has a number in nosuch.");
  await choose("Numbers of field", "ret");
  await page.$eval('[data-tab="groups"]', node => node.click());
  await choose("Bars show", "sum");
  await until(page, () => document.querySelector(".bars tbody td")?.textContent === "lseek64" || document.querySelector(".bars tbody td")?.textContent === "read");
  const sums = await page.$$eval(".bars tbody tr", rows => rows.map(row => Number(row.cells[2].textContent.replaceAll(",", "").replace("–", "0"))));
  assert.deepEqual(sums, sums.toSorted((one, other) => other - one));
  await page.close();
}

// The fields of groups, what their bars show and the picture are in the address: reload, a link and Back keep them.
{
  const page = await part(first, "groups", "groups");
  const choose = async (label, value) => {
    // Changes that follow each other faster are one step.
    await seconds(1.1);
    await page.$eval(`[aria-label="${label}"]`, (node, value) => {
      node.value = value;
      node.dispatchEvent(new Event("change"));
    }, value);
  };
  const parameters = () => page.evaluate(() => decodeURIComponent(location.hash.split("?")[1] ?? ""));
  const bars = () => document.querySelector(".bars")?.textContent ?? "";
  const hasBars = (where, expected) => until(where, expected => document.querySelector(".bars")?.textContent === expected, expected);
  await choose("Group by field", "cat, name");
  await until(page, () => document.querySelector(".bars thead")?.textContent.startsWith("catname"));
  assert.equal(await parameters(), "tab=groups&group=cat, name");
  const byCategory = await page.evaluate(bars);
  await choose("Numbers of field", "ret");
  await choose("Bars show", "sum");
  assert.equal(await parameters(), "tab=groups&group=cat, name&numbers=ret&bars=sum");
  // The most events are reads.
  await until(page, () => document.querySelector(".bars tbody tr")?.cells[1].textContent === "lseek64");
  const bySum = await page.evaluate(bars);
  await page.reload();
  await hasBars(page, bySum);
  const other = await open(await page.evaluate(() => location.hash));
  await hasBars(other, bySum);
  const inputs = ["Group by field", "Numbers of field", "Bars show"];
  const seen = await other.evaluate(labels => labels.map(label => document.querySelector(`[aria-label="${label}"]`).value), inputs);
  assert.deepEqual(seen, ["cat, name", "ret", "sum"]);
  await other.close();
  await page.goBack();
  await page.goBack();
  await hasBars(page, byCategory);
  await page.$eval('[data-tab="io"]', node => node.click());
  await shows(page, "logarithmic");
  await choose("Picture", "quantiles");
  await until(page, () => document.querySelector(".line-3"));
  assert.equal(await parameters(), "tab=io&group=cat, name&picture=quantiles");
  await page.reload();
  await until(page, () => document.querySelector(".line-3"));
  assert.equal(await page.$eval('[aria-label="Picture"]', node => node.value), "quantiles");
  // What there is not is as if it were not there.
  const odd = await open(`#/storage/${first}?tab=io&group=&numbers=&bars=it&picture=none`);
  await shows(odd, "logarithmic");
  assert.equal(await odd.evaluate(() => location.hash), `#/storage/${first}?tab=io`);
  await odd.close();
  await page.close();
}

// Agents say what they store, and storages that are written how fast.
{
  const page = await open("#/agents");
  await shows(page, "Storages that are written");
  const [row] = await page.$$eval("main table", ([agents]) => [...agents.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent)));
  assert.match(row[2], /^[\d.]+ KiB$/);
  assert.equal(row[3], "none");
  assert.match(row[8], /^\d+\.\d$/);
  assert.match(row[9], /^[\d.]+ ([KM]i)?B\/s$/);
  assert.equal(row[11], "nothing");
  await page.close();
}
{
  const page = await open("#/");
  const activity = {
    packets_per_second: 9.96, bytes_per_second: 2048, events_per_second: 12345.6, lost_events: 1, gaps: 0, refused_pushes: 2, failed_packets: 1, dropped_packets: 14,
  };
  const agent = { id: "a", name: "a", host: "h", streams: [{ id: "s", kind: "dft", codec: "none", activity }, { id: "silent", kind: "dft", codec: "none", activity: null }], has_metadata: false, stored_bytes: 950, quota_bytes_max: 1000 };
  await intercept(page, "/api/v1/", request => {
    const { pathname } = new URL(request.url());
    const body = pathname.endsWith("/agents") ? { items: [agent], next: null }
      : pathname.endsWith("/status") ? { write_status: "BAD", packets_per_second: 2.5, bytes_per_second: 2048, dropped_packets: 7, lost: 3, failed_packets: 0, queued_packets: 1, dropped: [{ agent: "a", stream: "s", packets: 7, bytes: 70 }] } : null;
    return body && { status: 200, contentType: "application/json", body: JSON.stringify(body) };
  });
  await page.evaluate(() => { location.hash = "#/agents"; });
  await shows(page, "1 event lost by the producer, 14 packets dropped, 1 packet not written, 2 other pushes refused");
  const cells = await page.$$eval("main table tbody tr", rows => rows.map(row => [...row.cells].slice(8).map(cell => cell.textContent)));
  assert.deepEqual(cells[0].slice(0, 3), ["10.0", "2.00 KiB/s", "12,346"]);
  assert.deepEqual(cells[1], ["–", "–", "–", "–"]);
  assert.match(await text(page, "main"), /1000 B, 95 % used.*2\.52\.00 KiB\/s1703/s);
  await page.close();
}

// A storage says whether its seal is whole, and what to do if it is not.
for (const [state, words] of [["none", "not sealed"], ["sealed", "sealed"], ["broken", "The seal is broken: it cannot be read"]]) {
  const page = await open("#/");
  await intercept(page, `/api/v1/storages/${given.final}/status`, () => ({ status: 200, contentType: "application/json", body: JSON.stringify({ sealed: state }) }));
  await page.evaluate(id => { location.hash = `#/storage/${id}`; }, given.final);
  await until(page, words => [...document.querySelectorAll("main dd, main p")].some(each => each.textContent.startsWith(words)), words);
  if (state === "broken") assert.match(await text(page, "main p.bad"), /tracehold storage verify .*backup/s);
  await page.close();
}

await end();
