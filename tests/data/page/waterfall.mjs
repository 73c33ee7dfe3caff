// The spans of a trace: found, drawn as bars below their parents, and used with the keyboard alone.

import assert from "node:assert/strict";
import { LOOKS, audit, counted, end, given, intercept, open, press, shows, text, until } from "./browser.mjs";

const { storage, trace, spans, long } = given;
const place = `#/storage/${storage}/trace/${trace}`;
const drawn = page => shows(page, "INSERT payment");
const labels = page => page.$$eval(".spans .span", all => all.filter(each => !each.hidden).map(each => `${each.ariaLevel} ${each.querySelector(".span-label").textContent}`));
const chosen = page => page.$eval('.spans [aria-selected="true"]', node => node.textContent);

// In every look: no finding of axe, nothing wider than the screen.
for (const [name, look] of LOOKS) {
  const page = await open(place, look);
  await drawn(page);
  await audit(page, `trace-${name}`, drawn);
  // No duration is cut: what is left of one would be another one.
  const cut = await page.$$eval(".span-track", all => all.map(track => [track, track.querySelector(".span-time")])
    .filter(([track, time]) => {
      const [whole, part] = [track, time].map(node => node.getBoundingClientRect());
      return time.textContent && (part.left < whole.left || part.right > whole.right + 0.5);
    }).map(([, time]) => time.textContent));
  assert.deepEqual(cut, [], name);
  await page.close();
}

// Spans are below their parents, errors and missing parents are said in words, and the order is always the same.
const page = await open(place);
await drawn(page);
const lines = await labels(page);
assert.deepEqual(lines, [
  "1 ▾shop POST /buy", "2 ▾cart load cart", "3 db SELECT item", "3 db SELECT item", "2 ▾shop pay error", "3 db INSERT payment",
  "1 ▾parent 000000000000dead is not in this storage", "2 db cleanup",
]);
assert.match(await text(page, "dl.facts"), new RegExp(`Spans${spans}Errors1Services3.*Took90 ms`));
await shows(page, "one parent is not in this storage");
await page.reload();
await drawn(page);
assert.deepEqual(await labels(page), lines);
// A bar begins and ends when its span did.
const bar = await page.$$eval(".spans .span-bar", all => [all[1].style.left, all[1].style.width].map(parseFloat));
assert.ok(Math.abs(bar[0] - 100 * 5 / 90) < 0.1 && Math.abs(bar[1] - 100 * 25 / 90) < 0.1, `${bar}`);

// The keyboard reaches every span, folds, and has the details; only one span is in the order of Tab.
await page.focus('.spans [tabindex="0"]');
await page.keyboard.press("ArrowDown");
assert.match(await chosen(page), /cart load cart 25 ms$/);
await page.keyboard.press("ArrowLeft");
assert.equal((await labels(page)).length, lines.length - 2);
await page.keyboard.press("ArrowRight");
assert.equal((await labels(page)).length, lines.length);
await page.keyboard.press("End");
assert.match(await chosen(page), /^db cleanup 40 ms$/);
assert.match(await text(page, '[aria-label="Details of the span"]'), /cleanup.*args\.step/);
await page.keyboard.press("ArrowLeft");
assert.equal(await chosen(page), "▾parent 000000000000dead is not in this storage");
await page.keyboard.press("Home");
await page.keyboard.press("ArrowLeft");
assert.equal((await labels(page)).length, 3);
assert.equal((await page.$$('.spans [tabindex="0"]')).length, 1);

// Its events are a query, whose rows lead to the trace again.
await page.evaluate(() => [...document.querySelectorAll("a")].find(each => each.textContent === "its events as a query").click());
assert.equal(await counted(page), spans);
assert.equal(await page.$eval(".query input", node => node.value), `kind == "otlp" and args.trace_id == "${trace}"`);
await until(page, trace => document.querySelector(`.rows a[href$="/trace/${trace}"]`), trace);
await page.evaluate(() => document.querySelector('.rows a[href*="/trace/"]').click());
await drawn(page);

// Perfetto is given the time of the trace alone.
const requests = [];
page.on("request", request => requests.push(request.url()));
await page.evaluate(() => { globalThis.open = () => ({ closed: true, close() {}, postMessage() {} }); });
await press(page, "Open in Perfetto");
await shows(page, "the window was closed");
const [view] = requests.filter(each => each.includes("/view/"));
assert.match(decodeURIComponent(view), new RegExp(`/view/\\d+-\\d+\\.pftrace\\?where=kind == "otlp" and args.trace_id == "${trace}"$`));
await page.close();

// What no event matches is not handed over.
{
  const page = await open(`#/storage/${storage}?query=${encodeURIComponent('name == "nothing"')}`);
  assert.equal(await counted(page), 0);
  await page.evaluate(() => { globalThis.open = () => ({ closed: false, close() { globalThis.isClosed = true; }, postMessage() {} }); });
  await press(page, "Open in Perfetto");
  await shows(page, "No event matches: there is nothing to open in Perfetto.");
  assert.equal(await page.evaluate(() => globalThis.isClosed), true);
  await page.close();
}

// A trace whose first span is in another storage, or does not match, is found by its longest one.
{
  const page = await open(`#/storage/${storage}?query=${encodeURIComponent('name == "pay" or name == "load cart"')}`);
  await counted(page);
  await page.$eval('[data-tab="traces"]', node => node.click());
  await shows(page, "the first span of 1 is in another storage or does not match");
  assert.match(await text(page, "main"), new RegExp(`${trace}2 services2 spans without a first one43 ms`));
  await page.close();
}

// Traces are found by how long they took, or by a typed id.
{
  const page = await open(`#/storage/${storage}`);
  await counted(page);
  await page.$eval('[data-tab="traces"]', node => node.click());
  await shows(page, "the 2 traces whose first span took longest");
  await page.type('[aria-label="Trace id"]', "no id");
  await page.keyboard.press("Enter");
  await shows(page, "A trace id has 32 hexadecimal digits");
  await page.$eval('[aria-label="Trace id"]', node => { node.value = ""; });
  await page.type('[aria-label="Trace id"]', trace.toUpperCase());
  await page.keyboard.press("Enter");
  await drawn(page);
  await page.close();
}

// Of a trace with more spans than are drawn it is said how many are omitted; one that is not there is said so.
{
  const page = await open(`#/storage/${storage}/trace/${long}`);
  await shows(page, "only the first 2,000 of 2,100 spans are drawn");
  assert.equal((await page.$$(".spans .span")).length, 2000);
  await page.evaluate(storage => { location.hash = `#/storage/${storage}/trace/${"f".repeat(32)}`; }, storage);
  await shows(page, "No span of this trace is in the storage.");
  await page.close();
}

// What could not be read is said.
{
  const page = await open("#/");
  await intercept(page, "/queries", () => ({
    status: 200, contentType: "application/x-ndjson",
    body: '{"rows":[{"name":"INSERT payment","ts":1,"args.span_id":"a"}],"matched":1,"skipped":["2 packets are damaged"],"skipped_records":2,"notes":[]}\n',
  }));
  await page.evaluate(place => { location.hash = place; }, place);
  await shows(page, "skipped: 2 packets are damaged");
  await page.close();
}

await end();
