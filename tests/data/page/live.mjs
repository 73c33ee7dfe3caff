// What is live: views follow what changes as the server says it, and ask where it cannot.

import assert from "node:assert/strict";
import { end, given, intercept, open, pictures, press, seconds, server, shows, text, until } from "./browser.mjs";

const { storage, push } = given;
const api = async (method, path, body) => {
  const response = await fetch(`${server}/api/v1${path}`, {
    method, body: body && JSON.stringify(body), headers: { "content-type": "application/json" },
  });
  assert.ok(response.ok, await response.clone().text());
  return response.status === 204 ? null : response.json();
};
const isLive = page => until(page, () => document.querySelector("main > div").dataset.live === "true");

/** The requests of a page for a part of the API, but for the one that it follows. */
function requests(page) {
  const all = [];
  page.on("request", request => {
    const { pathname } = new URL(request.url());
    if (pathname.startsWith("/api/v1/") && pathname !== "/api/v1/changes") all.push(pathname);
  });
  return all;
}

// A list asks for nothing while nothing happens, and is new before it would have been asked for.
{
  const page = await open("#/");
  await shows(page, "first");
  await isLive(page);
  await seconds(1.5);
  const asked = requests(page);
  await seconds(6);
  assert.deepEqual(asked, []);
  const began = performance.now();
  const made = await api("POST", "/storages", { name: "made elsewhere" });
  await shows(page, "made elsewhere");
  assert.ok(performance.now() - began < 4000);
  await api("DELETE", `/storages/${made.id}`);
  await until(page, () => !document.body.textContent.includes("made elsewhere"));
  await page.close();
}

// A storage follows its packets, its name, its state and its end; others do not concern it.
{
  const page = await open(`#/storage/${storage}`);
  await shows(page, "events in intervals of");
  await isLive(page);
  await seconds(1.5);
  const asked = requests(page);
  const other = await api("POST", "/storages", { name: "other" });
  await api("DELETE", `/storages/${other.id}`);
  await seconds(2);
  assert.deepEqual(asked, []);
  const unfold = title => page.evaluate(title => {
    [...document.querySelectorAll("summary")].find(each => each.textContent === title).click();
  }, title);
  const isSeen = title => page.evaluate(title => {
    const found = [...document.querySelectorAll("summary")].find(each => each.textContent === title);
    return found.checkVisibility();
  }, title);
  await unfold("Streams");
  await until(page, () => document.querySelectorAll('[aria-label="Streams"] tbody tr').length === 1);
  assert.equal(await isSeen("Files"), false);
  const response = await fetch(`${server}${push.path}`, { method: "POST", body: push.bodies[0], headers: { "content-type": "application/octet-stream", "tracehold-epoch": "1", "tracehold-sequence": "0" } });
  assert.ok(response.ok, await response.text());
  await shows(page, "1 packet came since the events were drawn");
  await api("PATCH", `/storages/${storage}`, { name: "renamed elsewhere" });
  await until(page, () => document.title.startsWith("renamed elsewhere"));
  await api("POST", `/storages/${storage}/finalize`);
  await until(page, () => document.querySelector("h1 .badge").textContent === "finalized");
  // So do its streams and files.
  await until(page, () => document.querySelectorAll('[aria-label="Streams"] tbody tr').length === 2);
  assert.equal(await isSeen("Files"), true);
  await unfold("Files");
  await until(page, () => document.querySelector('[aria-label="Files"] tbody tr'));
  const copy = await api("POST", `/storages/${storage}/copy`, { name: "short-lived" });
  await page.evaluate(id => { location.hash = `#/storage/${id}`; }, copy.storage);
  await until(page, () => document.querySelector("h1")?.textContent.startsWith("short-lived"));
  await isLive(page);
  await api("DELETE", `/storages/${copy.storage}`);
  await shows(page, "Not up to date");
  await until(page, () => [...document.querySelectorAll("main button")].every(each => each.disabled));
  await page.close();
}

// Agents follow what arrives in their streams, and what is lost of it.
{
  const page = await open("#/agents");
  await shows(page, "late");
  await isLive(page);
  const row = () => page.$$eval("main table tbody tr", rows => [...rows.find(row => row.cells[5].textContent === "live").cells].map(cell => cell.textContent));
  await api("PUT", "/agents/host/streams/live", { kind: "dft" });
  await until(page, () => [...document.querySelectorAll("main table tbody tr")].some(row => row.cells[5].textContent === "live"));
  assert.deepEqual((await row()).slice(8), ["–", "–", "–", "–"]);
  const made = await api("POST", "/storages", { name: "of streams" });
  await api("POST", `/storages/${made.id}/open`);
  const send = sequence => fetch(`${server}/api/v1/storages/${made.id}/agents/host/streams/live/packets`, {
    method: "POST", body: push.bodies[0], headers: { "content-type": "application/octet-stream", "tracehold-epoch": "1", "tracehold-sequence": String(sequence) },
  });
  for (let at = 0; at < 9; at++) assert.ok((await send(at)).ok);
  await until(page, () => [...document.querySelectorAll("main table tbody tr")].some(row => row.cells[5].textContent === "live" && /^0\.[1-9]$/.test(row.cells[8].textContent) && /^0\.[1-9]$/.test(row.cells[10].textContent)));
  assert.equal((await row()).at(-1), "nothing");
  assert.equal((await send(20)).status, 409);
  await shows(page, "1 push refused after a gap");
  await page.screenshot({ path: `${pictures}/agents-live.png`, fullPage: true });
  await api("DELETE", `/storages/${made.id}`);
  await page.close();
}

// Jobs and recordings appear, and recordings end.
{
  const page = await open("#/jobs");
  await isLive(page);
  await api("POST", `/storages/${storage}/verify`);
  await until(page, () => [...document.querySelectorAll("tbody tr")].some(row => row.textContent.startsWith("verifydone")));
  await page.evaluate(() => { location.hash = "#/recordings"; });
  await shows(page, "No recordings.");
  await isLive(page);
  const recording = await api("POST", "/recordings", { name: "live" });
  await until(page, () => document.querySelector("tbody tr")?.textContent.includes("live"));
  await api("DELETE", `/recordings/${recording.id}`);
  await until(page, () => document.querySelector("tbody .badge")?.textContent === "off");
  await page.close();
}

// Where the server cannot say what changes, the page asks.
{
  const page = await open("#/server");
  await intercept(page, "/api/v1/changes", () => ({ status: 404, contentType: "text/plain", body: "" }));
  await page.evaluate(() => { location.hash = "#/"; });
  await shows(page, "renamed elsewhere");
  assert.notEqual(await page.$eval("main > div", node => node.dataset.live), "true");
  await api("PATCH", `/storages/${storage}`, { name: "asked for" });
  await shows(page, "asked for");
  await page.close();
}

// A connection that ends is followed by another one, which goes on where the first one ended.
{
  const page = await open("#/server");
  const began = [];
  await intercept(page, "/api/v1/changes", request => {
    began.push(request.headers()["last-event-id"]);
    return began.length > 1 ? null : {
      status: 200, contentType: "text/event-stream", body: "retry: 2000\n\nevent: reset\nid: before-7\ndata: {}\n\nevent: sto",
    };
  });
  await page.evaluate(() => { location.hash = "#/"; });
  await shows(page, "asked for");
  while (began.length < 2) await seconds(0.1);
  assert.deepEqual(began, [undefined, "before-7"]);
  await isLive(page);
  await api("PATCH", `/storages/${storage}`, { name: "followed again" });
  await shows(page, "followed again");
  assert.match(await text(page, "tbody"), /followed again/);
  await page.close();
}

// That the server does not answer is said once, with what was wanted, until it answers again.
{
  const page = await open(`#/storage/${storage}`);
  await shows(page, "events in intervals of");
  await page.setOfflineMode(true);
  for (let times = 0; times < 2; times++) {
    await press(page, "Verify");
    await shows(page, `Verify: The server at ${new URL(server).host} does not answer.`);
    await until(page, () => [...document.querySelectorAll("button")].every(each => !each.disabled));
  }
  assert.equal((await page.$$(".message")).length, 1);
  await page.setOfflineMode(false);
  await until(page, () => !document.querySelector(".message"));

  // What could not be shown is shown then.
  await page.setOfflineMode(true);
  await page.evaluate(() => { location.hash = "#/server"; });
  await until(page, () => document.querySelector("main .bad")?.textContent.endsWith("does not answer."));
  await page.setOfflineMode(false);
  await shows(page, "Retention");
  await page.close();
}

await end();
