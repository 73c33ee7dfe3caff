// The arithmetic of the page, without a browser. `PAGE_FOLDER` has its modules.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const load = name => import(pathToFileURL(`${process.env.PAGE_FOLDER}/${name}.js`));
const { parse, write } = await load("json");
const { bytes, count, duration, step, time } = await load("units");
const { lanesOf, stack } = await load("intervals");
const { spelled, typedIn } = await load("completion");
const { fieldsOf } = await load("results");
const { path } = await load("api");
const { Messages } = await load("changes");

const check = (call, cases) => {
  for (const [input, expected] of cases) assert.deepEqual(call(input), expected, `${call} of ${input}`);
};

// Integers beyond 2^53 are exact; everything else is as JSON has it.
check(parse, [
  ['{"a":0.3333333333333333}', { a: 0.3333333333333333 }],
  ["1.4142135623730951", 1.4142135623730951],
  ["[1e308,-2.5E-3,1234567890123456e3]", [1e308, -0.0025, 1234567890123456e3]],
  ["[9007199254740991,9007199254740993]", [9007199254740991, 9007199254740993n]],
  ["[-9223372036854775808,18446744073709551615]", [-9223372036854775808n, 18446744073709551615n]],
  ["[12345678901234567890]", [12345678901234567890n]],
  ['"12345678901234567890"', "12345678901234567890"],
  ['{"12345678901234567890":"a \\"12345678901234567890"}', { "12345678901234567890": 'a "12345678901234567890' }],
  ['["\\u000112","\\u0001\\u0001x","\\u0001"]', ["\u000112", "\u0001\u0001x", "\u0001"]],
  ['{"\\u0001a" : "\\u0001b"}', { "\u0001a": "\u0001b" }],
  ['"\\\\"', "\\"],
  ['["\\\\",12345678901234567890]', ["\\", 12345678901234567890n]],
]);
assert.equal(write({ query: "\u000112", from: 12345678901234567890n, to: undefined, fields: ["a"] }),
  '{"query":"\\u000112","from":12345678901234567890,"fields":["a"]}');

// Messages come in pieces that end anywhere.
const stream = 'retry: 2000\n\nevent: job\nid: a-1\ndata: {"n":12345678901234567890,"text":"a: b"}\n\n: nothing new\nid: a-2\n\nevent: x';
for (let size = 1; size < stream.length; size++) {
  const messages = new Messages();
  const found = [];
  for (let at = 0; at < stream.length; at += size) found.push(...messages.add(stream.slice(at, at + size)));
  assert.deepEqual(found, [{ retry: "2000" }, { event: "job", id: "a-1", data: { n: 12345678901234567890n, text: "a: b" } }, { id: "a-2" }]);
}

check(bytes, [
  [null, "–"], [0, "0 B"], [1023, "1023 B"], [1024, "1.00 KiB"], [10_300, "10.1 KiB"], [1_030_000, "1006 KiB"],
  [1_048_500, "1.00 MiB"], [1_048_576, "1.00 MiB"], [104_857_600, "100 MiB"], [2 ** 40 * 5, "5.00 TiB"], [2 ** 60, "1024 PiB"],
]);
check(duration, [
  [null, "–"], [999, "999 ns"], [1500, "1.5 µs"], [90e9, "90 s"], [7199e9, "120 min"], [86_400e9 * 12_345.4, "12,345 d"],
]);
check(nanos => time(nanos, 1e6), [[-1n, "1969-12-31 23:59:59.999"], [1_700_000_000_123_456_789n, "2023-11-14 22:13:20.123"]]);
check(([span, parts]) => step(span, parts), [[[1000, 300], 5], [[86_400e9, 300], 300e9], [[365 * 86_400e9, 10], 37 * 86_400e9]]);
check(count, [[1234567, "1,234,567"], [12345678901234567890n, "12,345,678,901,234,567,890"]]);

// Intervals and their groups: nothing is lost, also beyond the groups that have a colour.
{
  const rows = [];
  for (let group = 0; group < 12; group++) {
    for (let at = 0; at < 5; at++) rows.push({ ts: 1_000_000_000_000_000_000n + BigInt(at * 10), name: `n${group}`, count: group + 1 });
  }
  rows.push({ ts: null, name: "n0", count: 3 });
  const { groups, buckets, most, total, shift } = stack(rows, "name", 1_000_000_000_000_000_003n, 10);
  assert.equal(total, 5 * 78 + 3);
  assert.deepEqual(groups.map(group => group.name), ["n11", "n10", "n9", "n8", "n7", "n6", "n5", "n4", "n3", "3 others"]);
  assert.equal(groups.reduce((sum, group) => sum + group.total, 0), total);
  assert.deepEqual([...buckets.keys()], [0, 1, 2, 3, 4]);
  assert.equal(most, 78);
  assert.equal(buckets.get(2).parts.reduce((sum, part) => sum + part, 0), 78);
  assert.equal(shift, 3);
}

// Slices that overlap are below each other, others are in one row.
{
  const event = (ts, dur, tid) => ({ ts, dur, pid: 1, tid });
  const { lanes, rows } = lanesOf([event(0, 100, 2), event(10, 20, 2), event(40, 10, 2), event(100, 1, 2), event(5, 1, 10), { dur: 1 }], 0n);
  assert.deepEqual(lanes.map(lane => [lane.title, lane.slices.map(slice => slice.depth)]), [["1 / 2", [0, 1, 1, 0]], ["1 / 10", [0]]]);
  assert.equal(rows, 3);
}

check(typedIn, [
  ["na", { field: null, text: "na", replaces: 2 }],
  ["name == ", { field: "name", operator: "==", text: "", replaces: 0 }],
  ['name == "re', { field: "name", operator: "==", text: "re", replaces: 3 }],
  [`name == "it's`, { field: "name", operator: "==", text: "it's", replaces: 5 }],
  ["a.b ~ 'x y", { field: "a.b", operator: "~", text: "x y", replaces: 4 }],
  ['name == "a" and d', { field: null, text: "d", replaces: 1 }],
  ["pid == 5 and na", { field: null, text: "na", replaces: 2 }],
  ['name == "a" and cat != "P', { field: "cat", operator: "!=", text: "P", replaces: 2 }],
  ["dur > ", null],
]);
check(([value, operator]) => spelled(value, operator), [
  [["read", "=="], '"read"'], [["C:\\x", "=="], '"C:\\x"'], [['say "hi"', "=="], `'say "hi"'`], [["it's", "=="], `"it's"`],
  [[`"it's"`, "=="], null], [["ends\\", "=="], null], [["two\nlines", "=="], null], [[5, "=="], "5"], [[7n, "!="], "7"],
  [[true, "=="], "true"], [[null, "=="], null], [["a.b", "~"], '"a\\.b"'], [[`"it's"`, "~"], `"\\"it's\\""`], [[5, "~"], '"5"'],
]);
check(fieldsOf, [["name", ["name"]], ["name, pid", ["name", "pid"]], ["`a,b`,c", ["`a,b`", "c"]], [" , ", ["name"]]]);

// No value of a path adds a step to it.
check(id => path`/storages/${id}/status`, [["a/b", "/storages/a%2Fb/status"], ["é?#", "/storages/%C3%A9%3F%23/status"], ["...", "/storages/.../status"]]);
for (const id of ["", ".", ".."]) assert.throws(() => path`/storages/${id}`);
