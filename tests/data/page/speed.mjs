// How fast the page of a large storage is: seconds until its time line is drawn, and of a zoom with the
// requests for it. Prints JSON for `cargo xtask bench page`.

import { end, given, open, until } from "./browser.mjs";

const { storage, runs } = given;
const figures = { first: [], zoom: [], requests: [] };
/** Whether the time line says what it shows: it does when it is drawn. */
const isDrawn = () => / events in intervals of /.test(document.querySelector(".timeline ~ [role=status]")?.textContent ?? "");

for (let run = 0; run <= runs; run++) {
  const page = await open("#/");
  await page.waitForSelector("main a");
  // The whole page is loaded, as by somebody who opens an address; what is drawn counts from then.
  await page.evaluate(id => { location.hash = `#/storage/${id}`; }, storage);
  await page.reload({ waitUntil: "domcontentloaded" });
  await until(page, isDrawn);
  const first = await page.evaluate(() => performance.now() / 1000);
  const asked = [];
  page.on("request", request => {
    if (request.url().endsWith("/query") && request.postData()?.includes('"estimate":true')) asked.push(request.url());
  });
  const zoom = await page.evaluate(() => new Promise(resolve => {
    const note = document.querySelector(".timeline ~ [role=status]");
    const begin = performance.now();
    new MutationObserver((_, observer) => {
      observer.disconnect();
      resolve((performance.now() - begin) / 1000);
    }).observe(note, { childList: true, characterData: true, subtree: true });
    [...document.querySelectorAll("button")].find(each => each.textContent === "In").click();
  }));
  // The first run warms the caches.
  if (run > 0) {
    figures.first.push(first);
    figures.zoom.push(zoom);
    figures.requests.push(asked.length);
  }
  await page.close();
}
await end();
console.log(JSON.stringify(figures));
