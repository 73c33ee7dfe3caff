// What is looked at of a storage, in the address: reload, Back and a link keep it.

/** Changes that follow each other so fast, as those of the wheel, are one step of Back. */
const STEP_MS = 1000;
const INTEGER = /^-?\d{1,19}$/;
/** What is shown of the events that match: the tab, the fields of groups, the field with numbers, what bars show, and the picture of I/O. */
const RESULTS = ["tab", "group", "numbers", "bars", "picture"];

export class Address {
  /** `place` is the address of the storage, `parameters` what follows it. */
  constructor(place, parameters) {
    this.place = place;
    this.last = null;
    const found = new URLSearchParams(parameters ?? "");
    const time = name => INTEGER.test(found.get(name) ?? "") ? BigInt(found.get(name)) : null;
    this.query = found.get("query") ?? "";
    this.by = found.get("by");
    this.results = Object.fromEntries(RESULTS.map(name => [name, found.get(name)]));
    const [begin, end] = [time("from"), time("to")];
    this.window = begin !== null && end !== null && begin < end ? { begin, end } : null;
  }

  /**
   * Says what is looked at now; the whole time is no `window`, so that it goes on being the whole one. What is shown
   * anyway is null.
   */
  show({ query, window, by, results }) {
    const parameters = Object.entries({ query, from: window?.begin, to: window?.end, by, ...results })
      .filter(([, value]) => value !== undefined && value !== null && value !== "")
      .map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
    const address = parameters.length ? `${this.place}?${parameters.join("&")}` : this.place;
    const now = performance.now();
    // What an address shows at first is no step.
    const isStep = this.last !== null && now - this.last >= STEP_MS;
    this.last ??= -Infinity;
    // The view was left, or shows this already.
    if (location.hash.split("?")[0] !== this.place || location.hash === address) return;
    if (!isStep) history.replaceState(null, "", address);
    else history.pushState(null, "", address);
    this.last = now;
  }
}
