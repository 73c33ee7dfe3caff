// The page hands a selection to the real Perfetto UI, served here under the name of its own server.

import assert from "node:assert/strict";
import { createServer } from "node:https";
import { existsSync, readFileSync, statSync } from "node:fs";
import { extname, join, normalize } from "node:path";

const { ui, key, certificate, storage, base, views } = JSON.parse(process.env.PAGE_GIVEN);
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".wasm": "application/wasm", ".css": "text/css", ".json": "application/json" };

const perfetto = createServer({ key: readFileSync(key), cert: readFileSync(certificate) }, (request, response) => {
  const { pathname } = new URL(request.url, "https://ui.perfetto.dev");
  const file = normalize(join(ui, pathname === "/" ? "index.html" : pathname));
  if (!file.startsWith(ui) || !existsSync(file) || statSync(file).isDirectory()) {
    response.writeHead(404).end();
  } else {
    response.writeHead(200, { "content-type": TYPES[extname(file)] || "application/octet-stream" }).end(readFileSync(file));
  }
});
await new Promise(resolve => perfetto.listen(0, "127.0.0.1", resolve));
process.env.PAGE_BROWSER = JSON.stringify([
  `--host-resolver-rules=MAP ui.perfetto.dev:443 127.0.0.1:${perfetto.address().port}`, "--ignore-certificate-errors",
]);
const { counted, end, open, opened, pictures, shows, until } = await import("./browser.mjs");

/** Number of slices and sum of their durations, as the engine of the UI counts them. */
async function slices(page, title) {
  await until(page, title => document.title.startsWith(title) && globalThis.app?.trace, title);
  return page.evaluate(async () => {
    const result = await globalThis.app.trace.engine.query("select count(1) as count, ifnull(sum(dur), 0) as sum from slice");
    const { count, sum } = result.firstRow({ count: 0n, sum: 0n });
    return { count: Number(count), sum: Number(sum) };
  });
}

const page = await open(`#/storage/${storage}`);
await shows(page, "Open in Perfetto");
for (const { query, count, sum } of views) {
  await page.$eval(".query input", node => { node.value = ""; });
  await page.type(".query input", query || " ");
  await page.keyboard.press("Enter");
  await until(page, count => document.querySelector(".rows-note").textContent.startsWith(`${count.toLocaleString("en-US")} events`), count);
  assert.equal(await counted(page), count);
  const window = await opened(page, "Open in Perfetto");
  assert.deepEqual(await slices(window, "traces"), { count, sum }, query);
  await window.screenshot({ path: `${pictures}/perfetto-${count}.png` });

  // The same as Chrome JSON, which other viewers read.
  const where = query ? `?where=${encodeURIComponent(query)}` : "";
  const chrome = await (await fetch(`${base}/storage/${storage}/view/-.json${where}`)).text();
  await window.evaluate(text => {
    const { buffer } = new TextEncoder().encode(text);
    globalThis.app.openTraceFromBuffer({ buffer, title: "chrome", fileName: "chrome.json" });
  }, chrome);
  assert.deepEqual(await slices(window, "chrome"), { count, sum }, `JSON: ${query}`);
  await window.close();
}
perfetto.close();
await end();
