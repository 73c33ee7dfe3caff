// Every view in every look, and the tasks of a person from a look at a trace to a storage of their own.

import assert from "node:assert/strict";
import { axe, counted, end, fill, given, open, pictures, press, shows, text, until } from "./browser.mjs";

const { storage } = given;

// Every view, in light, in dark, and on a phone: no finding of axe, nothing wider than the screen.
for (const [name, place, words] of [
  ["storages", "#/", "first"], ["storage", `#/storage/${storage}`, "events in intervals of"],
  ["agents", "#/agents", "dft"], ["recordings", "#/recordings", "Buffer"],
  ["jobs", "#/jobs", "Jobs"], ["server", "#/server", "Retention"], ["api", "docs", "storages"],
]) {
  for (const look of [{}, { scheme: "dark" }, { width: 360 }]) {
    const page = await open(place, look);
    await shows(page, words);
    if (name === "storage") await counted(page);
    const title = [name, look.scheme, look.width].filter(Boolean).join("-");
    await page.screenshot({ path: `${pictures}/${title}.png`, fullPage: true });
    await page.evaluate(source => new Function(source)(), axe).catch(() => {});
    const session = await page.createCDPSession();
    await session.send("Page.setBypassCSP", { enabled: true });
    await page.reload();
    await shows(page, words);
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run());
    assert.deepEqual(violations.map(each => `${title}: ${each.id}: ${each.nodes.map(node => node.html).join(" ")}`), []);
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${title} is ${overflow} pixels too wide`);
    await page.close();
  }
}

// The time line says how many events there are, and a selection of it fewer.
const page = await open(`#/storage/${storage}`);
await shows(page, "events in intervals of");
const whole = await counted(page);
const canvas = await page.$(".timeline canvas");
const box = await canvas.boundingBox();
await page.mouse.move(box.x + box.width * 0.1, box.y + 50);
await page.mouse.down();
await page.mouse.move(box.x + box.width * 0.3, box.y + 50, { steps: 3 });
await page.mouse.up();
await until(page, whole => {
  const found = /^([\d,]+) events/.exec(document.querySelector(".rows-note").textContent);
  return found && Number(found[1].replaceAll(",", "")) < whole;
}, whole);
await press(page, "Whole");

// Names and values are completed, and the count is that of the query.
await page.type(".query input", "nam");
await page.waitForSelector(".complete:not([hidden]) li");
await page.keyboard.press("Tab");
await page.type(".query input", ' == "rea');
await until(page, () => [...document.querySelectorAll(".complete:not([hidden]) li")].some(each => each.textContent.startsWith('"read"')));
await page.keyboard.press("Tab");
assert.equal(await page.$eval(".query input", node => node.value), 'name == "read"');
await page.keyboard.press("Enter");
await until(page, whole => {
  const found = /^([\d,]+) events/.exec(document.querySelector(".rows-note").textContent);
  return found && Number(found[1].replaceAll(",", "")) < whole;
}, whole);
const reads = await counted(page);
await until(page, () => document.querySelectorAll(".rows tbody tr").length > 5 && [...document.querySelectorAll(".rows tbody tr")].every(row => row.children[2].textContent === "read"));

// Groups add up.
await press(page, "Group by");
await until(page, () => document.querySelector(".bars tbody tr"));
assert.equal(Number((await text(page, ".bars tbody td.n")).replaceAll(",", "")), reads);
await page.screenshot({ path: `${pictures}/storage-groups.png`, fullPage: true });

// The place of an error is shown.
await page.type(".query input", " and dur > 5MS");
await page.keyboard.press("Enter");
await until(page, () => document.querySelector(".caret").textContent.includes("^"));
assert.match(await text(page, ".caret"), /unknown unit "MS"/);
await page.screenshot({ path: `${pictures}/storage-error.png`, fullPage: true });
await page.close();

// A storage is created, renamed, finalized and deleted.
const list = await open("#/");
await shows(list, "first");
await press(list, "Create …");
await fill(list, "Name", "made here");
await press(list, "Create", "dialog");
await shows(list, "No events with a time yet");
await press(list, "Rename …");
await fill(list, "Name", "renamed");
await press(list, "Save", "dialog");
await until(list, () => document.querySelector("h1")?.textContent.startsWith("renamed"));
await press(list, "Finalize");
await until(list, () => document.querySelector("h1 .badge").textContent === "finalized");
await press(list, "Delete …");
await fill(list, "Write", "renamed");
await press(list, "Delete", "dialog");
await until(list, () => location.hash === "#/" && document.body.textContent.includes("first") && ![...document.querySelectorAll("td a")].some(each => each.textContent === "renamed"));
await list.close();

// A name that a shell would run is not in a command, and a long one is not wider than the screen.
const ask = (path, body) => fetch(`${given.server}/api/v1/storages${path}`, {
  method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
});
const { id } = await (await ask("", { name: `a b $(touch x) ${"x".repeat(180)}` })).json();
assert.ok((await ask(`/${id}/open`, {})).ok);
const narrow = await open(`#/storage/${id}`, { width: 360 });
await shows(narrow, "Push a trace");
assert.equal(await narrow.$eval(".empty code", node => node.textContent), `tracehold push --storage ${id} PATH`);
assert.ok(await narrow.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
await narrow.close();

// Nor does it push the other columns of a table away: it is cut, and whole in the title.
for (const place of ["#/", "#/agents"]) {
  const wide = await open(place);
  await until(wide, id => document.querySelector(`a[href="#/storage/${id}"]`), id);
  const [isSeen, title] = await wide.$eval(`a[href="#/storage/${id}"]`, link => {
    const scroll = link.closest(".scroll");
    return [scroll.scrollWidth <= scroll.clientWidth, link.closest("td").title];
  });
  assert.ok(isSeen, `${place} has a table that is too wide`);
  assert.equal(title, `a b $(touch x) ${"x".repeat(180)}`);
  await wide.close();
}

await end();
