// Long-running work.

import { change, mayOperate, path } from "./api.js";
import { acting, badge, button, empty, make, table } from "./dom.js";
import { refresh } from "./refresh.js";
import { bytes, date } from "./units.js";

export async function showJobs(view) {
  const body = make("div", {});
  view.show(make("h1", {}, "Jobs"), body);
  const load = async () => {
    const { items } = await view.get("/jobs");
    refresh(body, items.length ? jobTable(items, load) : empty("No work was started since the server started: exports, imports, copies, verifications and finalizations appear here."));
  };
  await load();
  view.follow(["job"], { milliseconds: 2000 }, load);
}

function jobTable(items, reload) {
  return table([
    ["Kind", job => job.kind],
    ["State", job => badge(job.state)],
    ["Storage", job => job.storage ? make("a", { href: `#/storage/${job.storage}` }, job.storage) : ""],
    ["Progress", job => job.bytes_total
      ? make("span", {}, make("progress", { max: job.bytes_total, value: job.bytes_done, "aria-label": "Progress" }), ` ${bytes(job.bytes_done)} of ${bytes(job.bytes_total)}`)
      : bytes(job.bytes_done)],
    ["Started (UTC)", job => date(job.started), "n"],
    ["Ended (UTC)", job => date(job.ended), "n"],
    ["Outcome", job => job.state === "RUNNING" && mayOperate()
      ? button("Cancel", acting(async () => { await change("DELETE", path`/jobs/${job.id}`); await reload(); }))
      : job.problem?.detail || job.problem?.title || ""],
  ], items, "Jobs", job => job.id);
}
