// Longer work with the page: lists that change while they are used, copies, traces of the server.

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { counted, end, fill, given, open, press, server, shows, text, until } from "./browser.mjs";

const { storage, push } = given;
const api = async (method, path, body) => {
  const response = await fetch(`${server}/api/v1${path}`, {
    method, body: body && JSON.stringify(body), headers: { "content-type": "application/json" },
  });
  assert.ok(response.ok, await response.clone().text());
  return response.json();
};
const polled = page => page.waitForResponse(response => response.url().includes("/api/v1/storages"));

// The keyboard stays where it is while a list changes.
{
  const page = await open("#/");
  await shows(page, "first");
  await page.$eval(`a[href="#/storage/${storage}"]`, node => { node.focus(); node.isTheSame = true; });
  const focused = () => page.evaluate(() => [document.activeElement.getAttribute("href"), document.activeElement.isTheSame === true]);
  await polled(page);
  assert.deepEqual(await focused(), [`#/storage/${storage}`, true]);
  await api("POST", "/storages", { name: "new above" });
  await shows(page, "new above");
  assert.deepEqual(await focused(), [`#/storage/${storage}`, true]);
  await api("PATCH", `/storages/${storage}`, { name: "first again" });
  await shows(page, "first again");
  assert.equal((await focused())[0], `#/storage/${storage}`);
  await api("PATCH", `/storages/${storage}`, { name: "first" });

  // The skip link is a place of the page, not another view.
  await page.focus(".skip");
  await page.keyboard.press("Enter");
  assert.deepEqual([await page.evaluate(() => document.activeElement.id), await text(page, "h1")], ["main", "Storages"]);
  await page.close();
}

// Every storage is found, and several labels are filters together.
{
  for (let at = 0; at < 201; at++) await api("POST", "/storages", { name: `many ${at}`, labels: at < 2 ? { use_case: "page", rating: String(at + 1) } : {} });
  const page = await open("#/");
  await shows(page, "The newest 200 are shown.");
  assert.doesNotMatch(await text(page, "main"), /first/);
  await page.type("input[type=search]", "FIRS");
  await until(page, () => document.querySelectorAll("tbody tr").length === 1);
  assert.match(await text(page, "tbody"), /first/);
  await page.$eval("input[type=search]", node => { node.value = ""; node.dispatchEvent(new Event("input")); });
  await press(page, "Show 200 more");
  await shows(page, "first");
  const filter = async label => {
    await page.type('[aria-label="Filter by label"]', label);
    await page.keyboard.press("Enter");
  };
  const rows = number => until(page, number => document.querySelectorAll("tbody tr").length === number, number);
  await filter("use_case=page");
  await rows(2);
  await filter("rating>1");
  await rows(1);
  assert.match(await text(page, "tbody"), /many 1/);
  await press(page, "use_case=page ×");
  await press(page, "rating>1 ×");
  await rows(203);
  await page.select('[aria-label="State"]', "OPEN");
  await rows(1);
  await page.close();
}

// Events that come later are shown on request.
{
  const page = await open(`#/storage/${storage}`);
  const before = await counted(page);
  for (const [at, body] of push.bodies.entries()) {
    const response = await fetch(`${server}${push.path}`, { method: "POST", body, headers: { "content-type": "application/octet-stream", "tracehold-epoch": "1", "tracehold-sequence": String(at) } });
    assert.ok(response.ok, await response.text());
  }
  await shows(page, "came since the events were drawn");
  await press(page, "Show new events");
  await until(page, before => Number(/^([\d,]+) events/.exec(document.querySelector(".rows-note").textContent)?.[1].replaceAll(",", "")) > before, before);
  assert.equal(await counted(page), before + push.bodies.length);
  await until(page, () => !document.body.textContent.includes("came since"));
  await page.close();
}

// An archive is imported, and the dialog shows how much is sent.
{
  await api("POST", `/storages/${storage}/finalize`);
  const folder = mkdtempSync(join(tmpdir(), "page-"));
  const archive = join(folder, "first.zip");
  const exported = await fetch(`${server}/api/v1/storages/${storage}/export`);
  writeFileSync(archive, Buffer.from(await exported.arrayBuffer()));
  await fetch(`${server}/api/v1/storages/${storage}`, { method: "DELETE" });
  const page = await open("#/");
  for (const [file, words] of [["/dev/null", "archive"], [archive, "imported"]]) {
    await press(page, "Import …");
    await page.evaluate(() => {
      globalThis.sent = 0;
      new MutationObserver(() => { globalThis.sent = Math.max(globalThis.sent, document.querySelector("dialog progress")?.value ?? 0); })
        .observe(document.querySelector("dialog progress"), { attributes: true });
    });
    await (await page.$("dialog input[type=file]")).uploadFile(file);
    await press(page, "Import", "dialog");
    await shows(page, words);
    if (file !== archive) await press(page, "Cancel", "dialog");
  }
  assert.equal(await page.evaluate(() => globalThis.sent), 1);
  rmSync(folder, { recursive: true });
  await page.close();
}

// A copy opens.
{
  const page = await open(`#/storage/${storage}`);
  await counted(page);
  await press(page, "Copy …");
  await fill(page, "Name of the copy", "a copy");
  await press(page, "Copy", "dialog");
  await until(page, () => document.querySelector("h1")?.textContent.startsWith("a copy"));
  await page.close();
}

// The I/O of the server is traced again and again.
{
  const page = await open("#/server");
  for (const name of ["one", "two"]) {
    await press(page, "Trace I/O …");
    await fill(page, "Name", name);
    await press(page, "Start", "dialog");
    await press(page, "Stop tracing");
  }
  await shows(page, "Trace I/O …");
  await page.close();
}

await end();
