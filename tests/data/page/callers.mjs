// The page for those who need a token, have a shared URL, or come through a proxy.

import assert from "node:assert/strict";
import http from "node:http";
import { counted, end, fill, given, open, press, seconds, shows, stranger, text, until } from "./browser.mjs";

const { storage, failed, file, operator, reader, scoped, share, behindProxy } = given;

async function enter(page, token) {
  await page.waitForSelector("dialog");
  await fill(page, "Token", token);
  await press(page, "Use it", "dialog");
}

/** What the page downloads as files. */
async function downloads(page) {
  const session = await page.createCDPSession();
  await session.send("Browser.setDownloadBehavior", { behavior: "deny", eventsEnabled: true });
  const names = [];
  session.on("Browser.downloadWillBegin", event => names.push(`${event.suggestedFilename} ${event.url.split(":")[0]}`));
  return names;
}

// Every part works with the token of an operator, and most with that of a reader.
for (const [token, isOperator] of [[operator, true], [reader, false]]) {
  const context = await stranger();
  const page = await open("#/", { context });
  await enter(page, token);
  await shows(page, "first");
  await until(page, () => document.querySelector("main > div").dataset.live === "true");
  await until(page, () => /1 failed.*free/.test(document.querySelector("#health").textContent));
  await page.evaluate(() => { location.hash = "#/server"; });
  await shows(page, "Failed storages");
  await page.waitForSelector(`a[href="#/storage/${failed}"]`);
  assert.match(await text(page, "dl.facts"), /Disk[\d.,]+ [KMGT]iB of/);
  const saved = await downloads(page);
  await press(page, "metrics");
  while (!saved.length) await seconds(0.05);
  await page.evaluate(id => { location.hash = `#/storage/${id}`; }, storage);
  assert.ok(await counted(page) > 0);
  await page.evaluate(() => [...document.querySelectorAll("summary")].find(each => each.textContent === "Files").click());
  await press(page, file);
  while (saved.length < 2) await seconds(0.05);
  await press(page, "Export");
  while (saved.length < 3) await seconds(0.05);
  assert.deepEqual(saved, ["metrics.txt blob", `${file} blob`, "first.zip blob"]);
  // What the server refuses is not offered.
  const offered = new Set();
  for (const place of [`#/storage/${storage}`, "#/", "#/recordings", "#/server"]) {
    await page.evaluate(place => { location.hash = place; }, place);
    await until(page, () => !/Loading …/.test(document.querySelector("main").textContent));
    for (const text of await page.$$eval("main button", all => all.map(each => each.textContent))) offered.add(text);
  }
  const changing = ["Copy …", "Rename …", "Delete …", "Create …", "Import …", "Start …", "Trace I/O …"];
  assert.deepEqual(changing.filter(each => offered.has(each)), isOperator ? changing : []);
  assert.ok(offered.has("Verify"));
  await context.close();
}

// Who sees only a part is not told that there is nothing else.
{
  const context = await stranger();
  const page = await open("#/agents", { context });
  await enter(page, scoped);
  await shows(page, "This token sees no agent");
  await context.close();
}

// Whoever closes the dialog is not asked again and again, and Server says nothing that it does not know.
{
  const context = await stranger();
  const page = await open("#/", { context });
  await page.waitForSelector("dialog");
  await press(page, "Cancel", "dialog");
  await shows(page, "This server needs a token.");
  await seconds(6);
  assert.equal(await page.$("dialog"), null);
  assert.doesNotMatch(await text(page, "#health"), /free/);
  await context.close();
}

// A shared URL shows its storage without a token, and nothing that it cannot do.
{
  const context = await stranger();
  const page = await open("", { context, base: share.replace(/\/$/, "") });
  await until(page, () => document.querySelector("h1")?.textContent.startsWith("first"));
  assert.ok(await counted(page) > 0);
  assert.equal(await page.$("dialog"), null);
  assert.equal(await page.$("header nav"), null);
  const buttons = await page.$$eval("main button", all => all.map(each => each.textContent));
  assert.deepEqual(["Delete …", "Rename …", "Verify", "Copy …"].filter(each => buttons.includes(each)), []);
  const saved = await downloads(page);
  await page.evaluate(() => [...document.querySelectorAll("summary")].find(each => each.textContent === "Files").click());
  await press(page, file);
  while (!saved.length) await seconds(0.05);
  assert.deepEqual(saved, [`${file} http`]);
  await context.close();
}

// A proxy names its user, and has the server below a prefix.
{
  const proxy = http.createServer((request, response) => {
    const path = request.url.replace(/^\/traces\//, "/");
    if (path === request.url) {
      response.writeHead(404).end();
      return;
    }
    const headers = { ...request.headers, "x-user": "ada" };
    const passed = http.request(`${behindProxy}${path}`, { method: request.method, headers }, answer => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    request.pipe(passed);
    // The page follows changes for as long as it is open.
    response.on("close", () => passed.destroy());
    passed.on("error", () => response.destroy());
  });
  await new Promise(resolve => proxy.listen(0, "127.0.0.1", resolve));
  const page = await open("#/", { base: `http://127.0.0.1:${proxy.address().port}/traces` });
  await shows(page, "No storages yet.");
  await press(page, "Create …");
  await fill(page, "Name", "of ada");
  await press(page, "Create", "dialog");
  await shows(page, "No events with a time yet");
  assert.match(await text(page, "h1"), /of ada/);
  await page.goto(`http://127.0.0.1:${proxy.address().port}/traces/docs`);
  await shows(page, "storages");
  assert.equal(await page.$("dialog"), null);
  await page.close();
  proxy.close();
}

await end();
