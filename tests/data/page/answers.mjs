// What the page makes of the answers of the server: estimates, refusals, odd values, late answers.

import assert from "node:assert/strict";
import { counted, end, given, intercept, open, press, seconds, shows, text, until } from "./browser.mjs";

const { large, odd, names, values, repaired } = given;
const place = id => `#/storage/${id}`;
const note = page => text(page, ".timeline ~ [role=status]");

// Numbers from summaries are called so.
{
  const page = await open(place(large));
  await shows(page, "events in intervals of");
  assert.match(await note(page), /estimated from summaries/);
  await page.close();
}

// Fractions and integers of any length are shown as they are.
{
  const page = await open(place(odd));
  assert.equal(await counted(page), names.length * 4);
  await page.type(".query input", 'name == "fraction"');
  await page.keyboard.press("Enter");
  await until(page, () => document.querySelector(".rows tbody tr")?.textContent.includes("fraction"));
  const row = await text(page, ".rows tbody tr");
  for (const value of values) assert.ok(row.includes(value), `${value} is not in ${row}`);
  await page.close();
}

// More lanes than fit are said once, however often the pointer moves.
{
  const page = await open(place(odd));
  await shows(page, "lanes are drawn");
  const box = await (await page.$(".timeline canvas")).boundingBox();
  const before = await note(page);
  for (let at = 0; at < 20; at++) await page.mouse.move(box.x + 10 + at * 20, box.y + 40);
  assert.equal(await note(page), before);
  assert.equal(before.match(/lanes are drawn/g).length, 1);
  const height = () => page.$eval(".timeline canvas ~ canvas", canvas => canvas.clientHeight);
  const few = await height();
  await press(page, "Show all 60 lanes");
  await until(page, () => !document.body.textContent.includes("lanes are drawn"));
  assert.ok(await height() > few);

  // By kind, slices have the colour of their kind.
  await press(page, "kind");
  await until(page, () => document.querySelector(".legend").textContent.startsWith("dft"));
  await until(page, () => {
    const canvas = document.querySelectorAll(".timeline canvas")[1];
    if (canvas.hidden) return false;
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let at = 0; at < data.length; at += 4) seen.add(`${data[at]},${data[at + 1]},${data[at + 2]}`);
    return seen.has("0,114,178") && !seen.has("138,143,152");
  });
  await page.close();
}

// Groups beyond those that are shown are mentioned, and several fields are several columns.
{
  const page = await open(place(odd));
  await counted(page);
  await press(page, "Group by");
  await shows(page, "the 100 largest groups, there are more");
  assert.equal((await page.$$(".bars tbody tr")).length, 100);
  await page.$eval('[aria-label="Group by field"]', node => { node.value = "name, pid"; node.dispatchEvent(new Event("change")); });
  await until(page, () => document.querySelectorAll(".bars thead th").length === 7);
  const cells = await page.$$eval(".bars tbody tr:first-child td", all => all.slice(0, 2).map(each => each.textContent));
  assert.ok(names.includes(cells[0]) && cells[1] === "7", `${cells}`);
  await page.close();
}

// Values are completed in a spelling that finds their events.
for (const [typed, expected] of [
  ['name == "C:', 'name == "C:\\x"'], ["name == say", `name == 'say "hi"'`],
  ['name ~ "C:', 'name ~ "C:\\\\x"'],
]) {
  const page = await open(place(odd));
  await counted(page);
  await page.type(".query input", typed);
  await page.waitForSelector(".complete:not([hidden]) li");
  await page.keyboard.press("Tab");
  assert.equal(await page.$eval(".query input", node => node.value), expected);
  await page.keyboard.press("Enter");
  await until(page, () => document.querySelector(".rows-note").textContent.startsWith("4 events"));
  await page.close();
}

// Names that need backquotes get them, and what is computed of their fields is found.
{
  const page = await open(place(odd));
  await counted(page);
  for (const [before, after] of [["args.a", "`args.a b`"], ["`args.a", "`args.a b`"]]) {
    await page.$eval(".query input", node => { node.value = ""; });
    await page.type(".query input", before);
    await page.waitForSelector(".complete:not([hidden]) li");
    await page.keyboard.press("Tab");
    assert.equal(await page.$eval(".query input", node => node.value), after);
  }
  await page.type(".query input", " == 7");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await until(page, () => document.querySelector(".rows-note").textContent.startsWith("612 events"));
  const choose = (label, value) => page.$eval(`[aria-label="${label}"]`, (node, value) => {
    node.value = value;
    node.dispatchEvent(new Event("change"));
  }, value);
  for (const field of ["`args.a b`", "args.a b"]) {
    await press(page, "Distribution");
    await choose("Numbers of field", field);
    await shows(page, "612 events have args.a b");
    await until(page, () => document.querySelector(".facts + .scroll, section dl.facts")?.textContent.includes("Least7"));
    await press(page, "Group by");
    await choose("Group by field", field);
    await choose("Bars show", "sum");
    await until(page, sum => document.querySelector(".bars tbody tr")?.textContent.startsWith(`7612${sum}`), "4,284");
    await choose("Bars show", "count");
  }
  // Times are dates.
  await press(page, "Distribution");
  await choose("Numbers of field", "ts");
  await shows(page, "Least2023-11-14 22:13:20.000000");
  await page.close();
}

// A refused count says so; a busy server is asked again.
{
  const page = await open("#/");
  let refused = 0;
  await intercept(page, "/queries", () => {
    refused++;
    return { status: 429, headers: { "retry-after": "1" }, contentType: "application/problem+json", body: '{"title": "busy", "detail": "8 queries are already running"}' };
  });
  await page.evaluate(place => { location.hash = place; }, place(odd));
  await until(page, () => document.querySelector(".rows-note.bad")?.textContent.includes("8 queries are already running"));
  assert.equal(refused, 5);
  await page.close();
}

// What failed is loaded again: all answers of a request, or only the rows, whose problem leaves the others alone.
const drawn = "{\"rows\":[{\"ts\":1700000000000000000,\"name\":\"n\",\"count\":612}],\"matched\":612,\"skipped\":[],\"skipped_records\":0,\"notes\":[]}\n";
const slices = drawn.replace(/"rows":\[.*?\]/, '"rows":[]');
const number = drawn.replace(/"rows":\[.*?\]/, '"rows":[{"count":612}]');
const problem = '{"problem":{"title":"internal error","status":500}}\n';
for (const [failed, words, isTimeLineDrawn] of [
  [{ status: 500, contentType: "application/problem+json", body: '{"title": "internal error"}' }, "internal error", false],
  [{ status: 200, contentType: "application/x-ndjson", body: drawn + slices + number + problem }, "internal error", true],
  [{ status: 200, contentType: "application/x-ndjson", body: drawn + slices + number }, "ended early", true],
  [{ status: 200, contentType: "application/x-ndjson", body: drawn + slices + number + '{"rows":[{"na' }, "ended early", true],
]) {
  const page = await open("#/");
  let failures = 0;
  await intercept(page, "/queries", () => failures++ === 0 ? failed : null);
  await page.evaluate(place => { location.hash = place; }, place(odd));
  await shows(page, words);
  assert.equal(/^612 events in intervals/.test(await note(page)), isTimeLineDrawn, await note(page));
  await press(page, "Try again");
  await until(page, () => [...document.querySelectorAll(".rows tbody tr")].some(each => !each.textContent.includes("…")));
  assert.equal(await counted(page), names.length * 4);
  await shows(page, "612 events in intervals");
  assert.equal(await text(page, ".caret"), "");
  await page.close();
}

// Where nearly all events are is a click away.
{
  const page = await open("#/");
  let answers = 0;
  const apart = drawn.replace(/"rows":\[.*?\]/, '"rows":[{"ts":1700000000000000000,"name":"n","count":17},{"ts":1700000000003000000,"name":"n","count":595}]');
  await intercept(page, "/queries", () => answers++ === 0
    ? { status: 200, contentType: "application/x-ndjson", body: apart + slices + number + slices } : null);
  await page.evaluate(place => { location.hash = place; }, place(odd));
  await press(page, "Show where 97 % of the events are");
  await until(page, () => document.querySelector("p.mono").textContent.startsWith("2023-11-14 22:13:20.003000000 to"));
  assert.ok(await counted(page) < 10);
  await until(page, () => ![...document.querySelectorAll("button")].some(each => each.textContent.startsWith("Show where")));
  await page.close();
}

// What comes late for a view that was left changes nothing.
{
  const page = await open("#/");
  let isHeld = false;
  await intercept(page, "/api/v1/storages/", async request => {
    isHeld = true;
    await seconds(1.5);
    return null;
  });
  await page.evaluate(place => { location.hash = place; }, place(odd));
  while (!isHeld) await seconds(0.05);
  await page.evaluate(() => { location.hash = "#/jobs"; });
  await seconds(5);
  assert.equal(await text(page, "h1"), "Jobs");
  assert.equal(await page.title(), "Jobs · Tracehold");
  assert.doesNotMatch(await text(page, "main"), /No events|odd|Streams/);
  await page.close();
}

// An address is no path to something else of the server.
{
  const page = await open("#/");
  const requests = [];
  page.on("request", request => requests.push(request.url()));
  await page.evaluate(id => { location.hash = `#/storage/${id}%2Fpackets%2F0`; }, odd);
  await shows(page, "There is nothing at this address.");
  assert.deepEqual(requests.filter(each => each.includes("packets")), []);
  await page.close();
}

// A repaired storage is not called whole.
{
  const page = await open(place(repaired));
  await shows(page, "packets are missing since a repair");
  await press(page, "Verify");
  await page.waitForSelector(".message.bad");
  assert.match(await text(page, ".message.bad"), /1 packets are missing.*packets 3 to 3/s);
  await page.close();
}

await end();
