// How fast the page of a large storage is: seconds until its time line is drawn, of a zoom until the time
// line and until all that is seen are drawn, and the requests of a zoom. Zooms go from the whole storage
// in, until single events are drawn. Prints JSON for `cargo xtask bench page`.

import { end, given, open, seconds, until } from "./browser.mjs";

const { storage, runs } = given;
const figures = { first: [], zoom: [], all: [], requests: [] };
const ZOOMS = 12;
/** Whether the time line says what it shows: it does when it is drawn. */
const isDrawn = () => / events in intervals of /.test(document.querySelector(".timeline ~ [role=status]")?.textContent ?? "");

for (let run = 0; run <= runs; run++) {
  const page = await open("#/");
  await page.waitForSelector("main a");
  // The whole page is loaded, as by somebody who opens an address; what is drawn counts from then.
  await page.evaluate(id => { location.hash = `#/storage/${id}`; }, storage);
  const statuses = [];
  const asked = [];
  page.on("request", request => {
    const { pathname } = new URL(request.url());
    // The head of the storage follows changes by itself.
    if (pathname.startsWith("/api/v1/") && request.method() === "POST") asked.push(pathname);
  });
  page.on("requestfinished", request => {
    if (request.url().endsWith("/status")) statuses.push(request.url());
  });
  await page.reload({ waitUntil: "domcontentloaded" });
  await until(page, isDrawn);
  const first = await page.evaluate(() => performance.now() / 1000);
  // The head of the storage is asked for a second time when the page begins to follow it.
  while (statuses.length < 2) await seconds(0.05);
  await until(page, () => document.querySelector(".rows tbody td")?.textContent.startsWith("20"));
  for (let at = 0; at < ZOOMS; at++) {
    asked.length = 0;
    const [zoom, all] = await page.evaluate(() => new Promise(resolve => {
      const note = document.querySelector(".timeline ~ [role=status]");
      const rows = document.querySelector(".rows-note");
      const begin = performance.now();
      const now = () => (performance.now() - begin) / 1000;
      let zoom = null;
      note.textContent = "";
      new MutationObserver((_, observer) => {
        if (zoom === null && / events in intervals of /.test(note.textContent)) zoom = now();
        const isCounted = /^[\d,]+ events$/.test(rows.textContent);
        if (zoom === null || !isCounted || !document.querySelector(".rows tbody td")?.textContent.startsWith("20")) return;
        observer.disconnect();
        resolve([zoom, now()]);
      }).observe(document.querySelector("main"), { childList: true, characterData: true, subtree: true });
      [...document.querySelectorAll("button")].find(each => each.textContent === "In").click();
    }));
    // The first run warms the caches.
    if (run > 0) {
      figures.zoom.push(zoom);
      figures.all.push(all);
      figures.requests.push(asked.length);
    }
  }
  if (run > 0) figures.first.push(first);
  await page.close();
}
await end();
console.log(JSON.stringify(figures));
