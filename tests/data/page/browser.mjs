// A browser without a window for the tests of the page.
//
// `PAGE_GIVEN` is a JSON object with the addresses and ids that a test is about, `PAGE_MODULES` the
// folder with the modules `puppeteer-core` and `axe-core`.

import { createRequire } from "node:module";
import { mkdirSync, readFileSync } from "node:fs";
import assert from "node:assert/strict";

const modules = createRequire(`${process.env.PAGE_MODULES}/`);
const puppeteer = modules("puppeteer-core");
export const axe = readFileSync(modules.resolve("axe-core/axe.min.js"), "utf8");
export const given = JSON.parse(process.env.PAGE_GIVEN);
export const { server, pictures } = given;
mkdirSync(pictures, { recursive: true });

const browser = await puppeteer.launch({
  executablePath: "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", ...JSON.parse(process.env.PAGE_BROWSER || "[]")],
});
const complaints = [];

/** Opens a place below a server; `look` is the width of the window and the colour scheme. */
export async function open(place, { width = 1280, scheme = "light", base = server, context = browser } = {}) {
  const page = await context.newPage();
  const { origin } = new URL(base);
  page.on("console", message => {
    // A browser reports every refusal of the server as an error, wanted or not.
    if (["error", "warn"].includes(message.type()) && !message.text().startsWith("Failed to load resource")) complaints.push(`${place}: ${message.text()}`);
  });
  page.on("pageerror", error => complaints.push(`${place}: ${error.message}`));
  page.on("request", request => {
    const url = request.url();
    if (!url.startsWith(origin) && !url.startsWith("data:") && !url.startsWith("blob:")) complaints.push(`${place}: request to ${url}`);
  });
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(`${base}/${place}`);
  return page;
}

/** A browser that knows nothing of the others: it has no token. */
export const stranger = () => browser.createBrowserContext();

/** Answers requests to `part` of a path with what `answer` returns; null sends them to the server. */
export async function intercept(page, part, answer) {
  await page.setRequestInterception(true);
  page.on("request", async request => {
    if (request.isInterceptResolutionHandled()) return;
    const found = request.url().includes(part) ? await answer(request) : null;
    if (found) await request.respond(found).catch(() => {});
    else await request.continue().catch(() => {});
  });
}

export const text = (page, selector) => page.$eval(selector, node => node.textContent);

/** Waits until a function of the page is true, and says what the page shows if it never is. */
export async function until(page, what, ...values) {
  try {
    return await page.waitForFunction(what, { timeout: 20_000, polling: 50 }, ...values);
  } catch (error) {
    throw new Error(`${what} of ${values} never is: ${await text(page, "body").catch(String)}`, { cause: error });
  }
}

export const shows = (page, words) => until(page, words => document.body.textContent.includes(words), words);

export async function press(page, title, inside = "body") {
  const found = await until(page, (title, inside) =>
    [...document.querySelectorAll(`${inside} button`)].find(each => each.textContent === title), title, inside);
  await found.click();
}

export async function fill(page, label, value) {
  const input = await page.evaluateHandle(label =>
    [...document.querySelectorAll("dialog label")].find(each => each.textContent.startsWith(label)).querySelector("input"), label);
  await input.evaluate(node => { node.value = ""; });
  await input.type(value);
}

/** The number of events that the table says, once it says one. */
export async function counted(page) {
  await until(page, () => /^[\d,]+ events?/.test(document.querySelector(".rows-note")?.textContent));
  return Number((await text(page, ".rows-note")).match(/^[\d,]+/)[0].replaceAll(",", ""));
}

/** Presses a button that opens a window, and returns its page. */
export async function opened(page, title) {
  const target = new Promise(resolve => browser.once("targetcreated", resolve));
  await press(page, title);
  return (await target).page();
}

/** Fails if axe has a finding, or something is wider than the screen. `ready` waits until the page is drawn again. */
export async function audit(page, title, ready) {
  await page.screenshot({ path: `${pictures}/${title}.png`, fullPage: true });
  const session = await page.createCDPSession();
  await session.send("Page.setBypassCSP", { enabled: true });
  await page.reload();
  await ready(page);
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  assert.deepEqual(violations.map(each => `${title}: ${each.id}: ${each.nodes.map(node => node.html).join(" ")}`), []);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, `${title} is ${overflow} pixels too wide`);
}

export const LOOKS = [["light", {}], ["dark", { scheme: "dark" }], ["360", { width: 360 }]];

export const seconds = number => new Promise(resolve => setTimeout(resolve, number * 1000));

/** Ends the test, which failed if a page complained. */
export async function end() {
  assert.deepEqual(complaints, []);
  await browser.close();
}
