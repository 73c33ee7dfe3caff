// A zoom is one request, whatever is shown below the time line, and shows what it says.

import assert from "node:assert/strict";
import { counted, end, given, open, press, seconds, shows, text, until } from "./browser.mjs";

const { storage, events, long } = given;
const note = () => text(page, ".timeline ~ [role=status]");
const numberOf = said => Number(/^([\d,]+) events/.exec(said)?.[1].replaceAll(",", ""));

const page = await open("#/");
const asked = [];
page.on("request", request => {
  const { pathname } = new URL(request.url());
  if (pathname.startsWith("/api/v1/") && pathname !== "/api/v1/changes") asked.push(pathname.split("/").at(-1));
});
await page.evaluate(id => { location.hash = `#/storage/${id}`; }, storage);
await shows(page, "events in intervals of");
assert.equal(await counted(page), events);
// The head of the storage is asked for a second time when the page begins to follow it.
while (asked.filter(each => each === "status").length < 2) await seconds(0.05);
await page.waitForNetworkIdle({ concurrency: 1 });
await until(page, () => document.querySelector(".rows tbody td")?.textContent.startsWith("20"));

/** Presses a button of the time line, and waits until everything that is seen is new. */
async function zoom(title, isReady) {
  const before = await text(page, "p.mono");
  asked.length = 0;
  await page.evaluate(() => { document.querySelector(".timeline ~ [role=status]").textContent = ""; });
  await press(page, title);
  await until(page, before => document.querySelector("p.mono").textContent !== before, before);
  await shows(page, "events in intervals of");
  await until(page, isReady);
  assert.deepEqual(asked, ["queries"], title);
}

const areRowsThere = () => /^[\d,]+ events$/.test(document.querySelector(".rows-note").textContent)
  && document.querySelector(".rows tbody td")?.textContent.startsWith("20");

// Half of the time has half of the events, until they are few enough to be drawn one by one.
let wanted = events;
const areSlicesShown = () => page.$eval(".timeline canvas ~ canvas", canvas => !canvas.hidden);
while (wanted > 5000) {
  assert.equal(await areSlicesShown(), false, `${wanted} events`);
  await zoom("In", areRowsThere);
  wanted /= 2;
  assert.ok(Math.abs(await counted(page) - wanted) <= 2, await text(page, ".rows-note"));
}
await until(page, () => !document.querySelector(".timeline canvas ~ canvas").hidden);
// All of them are known then, and their number is no estimate.
assert.equal(numberOf(await note()), await counted(page));
assert.doesNotMatch(await note(), /estimated/);
await zoom("Later", areRowsThere);
await zoom("Whole", areRowsThere);
assert.equal(await areSlicesShown(), false);

// So it is with groups and distributions.
for (const [tab, words] of [["Group by", "groups"], ["Distribution", "events have dur"]]) {
  await press(page, tab);
  await shows(page, words);
  // The fields that can be chosen are asked for once.
  await until(page, () => document.querySelector("#numeric-fields option"));
  const areBarsNew = () => !document.querySelector(".rows-note").textContent.startsWith("Loading");
  await zoom("In", areBarsNew);
  await zoom("Out", areBarsNew);
}

// Who zooms faster than the server answers sees the last part only, and the others are not asked for any more.
const ended = [];
page.on("requestfailed", request => ended.push(request.failure().errorText));
await press(page, "Events");
await until(page, areRowsThere);
await page.evaluate(() => {
  const press = title => [...document.querySelectorAll("button")].find(each => each.textContent === title).click();
  press("In");
  press("In");
  press("Later");
  press("Whole");
});
await until(page, areRowsThere);
await shows(page, "events in intervals of");
assert.equal(await counted(page), events);
assert.ok(ended.every(each => each === "net::ERR_ABORTED"), `${ended}`);
await page.close();

// What is looked at is in the address: reload, a link and Back keep it.
{
  const page = await open(`#/storage/${storage}`);
  await counted(page);
  const state = async () => {
    const number = await counted(page);
    return [await text(page, "p.mono"), number, await page.$eval(".query input", node => node.value), await text(page, ".timeline ~ .bar [aria-pressed=true]").catch(() => null)];
  };
  const whole = await state();
  assert.equal(await page.evaluate(() => location.hash), `#/storage/${storage}`);
  const step = async act => {
    await seconds(1.1);
    const before = await page.evaluate(() => location.hash);
    await act();
    await until(page, before => location.hash !== before, before);
  };
  await step(() => press(page, "In"));
  const zoomed = await state();
  assert.equal(zoomed[1], events / 2);
  await step(async () => {
    await page.type(".query input", 'name == "operation 7"');
    await page.keyboard.press("Escape");
    await page.keyboard.press("Enter");
  });
  await until(page, most => Number(/^([\d,]+) events/.exec(document.querySelector(".rows-note")?.textContent)?.[1].replaceAll(",", "")) < most, 1000);
  const asked = await state();
  await step(() => press(page, "Group by"));
  await step(() => press(page, "stream"));
  const isGroups = () => document.querySelector('[data-tab="groups"]')?.ariaPressed === "true" && document.querySelector(".bars tbody tr td")?.textContent === "operation 7";
  await until(page, isGroups);
  await page.reload();
  await until(page, isGroups);
  assert.deepEqual([await text(page, "p.mono"), await page.$eval(".query input", node => node.value)], [asked[0], asked[2]]);
  const other = await open(await page.evaluate(() => location.hash));
  await until(other, isGroups);
  assert.equal(await other.$$eval("[aria-pressed=true]", all => all.map(each => each.textContent).join()), "stream,Group by");
  await other.close();
  for (const expected of [null, asked, zoomed, whole]) {
    await page.goBack();
    if (expected) await until(page, text => document.querySelector("p.mono")?.textContent === text && /^[\d,]+ events$/.test(document.querySelector(".rows-note")?.textContent), expected[0]);
    if (expected) assert.deepEqual(await state(), expected);
  }
  // A part of time that is not there is the whole.
  const odd = await open(`#/storage/${storage}?from=5&to=7&tab=nothing&by=it`);
  assert.equal(await counted(odd), events);
  assert.equal(await odd.evaluate(() => location.hash), `#/storage/${storage}`);
  await odd.close();
  await page.close();
}

// A slice that began before the part of time is drawn in it, also if no event is there, and is no event of it.
{
  const inside = await open(`#/storage/${long}`);
  await counted(inside);
  await shows(inside, "events in intervals of");
  const sent = [];
  inside.on("request", request => { if (request.url().endsWith("/queries")) sent.push(request.postData()); });
  for (let times = 0; times < 4; times++) {
    const before = await text(inside, "p.mono");
    sent.length = 0;
    await press(inside, "In");
    await until(inside, before => document.querySelector("p.mono").textContent !== before, before);
    await until(inside, areRowsThere);
  }
  await shows(inside, "1 slice that began before is drawn too");
  assert.equal(sent.length, 1);
  assert.equal(numberOf(await text(inside, ".timeline ~ [role=status]")), await counted(inside));
  await inside.type(".query input", 'name == "run"');
  await inside.keyboard.press("Enter");
  await until(inside, () => /^0 events in .*1 slice that began before/.test(document.querySelector(".timeline ~ [role=status]").textContent));
  assert.equal(await inside.$eval(".timeline canvas ~ canvas", canvas => canvas.hidden), false);
  await inside.close();
}

// Who drags the table sees where the drag ends: what was passed is not asked for, and what is far is not waited for.
{
  const table = await open(`#/storage/${storage}`);
  assert.equal(await counted(table), events);
  await until(table, areRowsThere);
  await table.waitForNetworkIdle({ concurrency: 1 });
  const sent = [];
  const left = [];
  let isHeld = true;
  await table.setRequestInterception(true);
  table.on("requestfailed", request => left.push(request.postData()));
  table.on("request", async request => {
    if (request.url().endsWith("/queries")) {
      sent.push(request.postData());
      if (isHeld) return;
    }
    await request.continue();
  });
  const scroll = share => table.$eval(".rows", (node, share) => {
    node.scrollTop = share * (node.scrollHeight - node.clientHeight);
  }, share);
  for (let at = 1; at <= 20; at++) {
    await scroll(at / 40);
    await seconds(0.02);
  }
  while (!sent.length) await seconds(0.02);
  await seconds(0.3);
  assert.equal(sent.length, 1, `${sent}`);
  assert.match(sent[0], /"offset":16200\b/);
  isHeld = false;
  await scroll(1);
  await until(table, () => document.querySelector(".rows tbody tr:last-child td")?.textContent.startsWith("20"));
  assert.equal(sent.length, 2);
  assert.ok(left.includes(sent[0]), "a query that nobody waits for is not ended");
  assert.equal(await table.$eval(".rows tbody tr:last-child", row => row.children[2].textContent), `operation ${(events - 1) % 50}`);
  await table.close();
}
await end();
