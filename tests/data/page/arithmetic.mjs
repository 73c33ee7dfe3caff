// The arithmetic of the page, without a browser. `PAGE_FOLDER` has its modules.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const load = name => import(pathToFileURL(`${process.env.PAGE_FOLDER}/${name}.js`));
const { parse, write } = await load("json");
const { bytes, count, duration, many, step, time } = await load("units");
const { densest, lanesOf, runningAt, stack, sumsOf } = await load("intervals");
const { labelOf, listed, named, spelled, typedIn } = await load("completion");
const { fieldsOf, powersOf } = await load("statistics");
const { SPANS_MAX, linesOf, traceIdOf } = await load("spans");
const { NEAR, Places } = await load("places");
const { gridOf, missesOf, seriesOf } = await load("grid");
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

// A row is looked for from a time near it, and the number of rows before that time is exact, whatever the guess.
{
  const total = 4_000_000;
  // Nine of ten events are in a thousandth of the time.
  const timeOf = row => row < 0.9 * total ? row / 0.9 / 1000 : total / 1000 + (row - 0.9 * total) * 9.99;
  const times = Array.from({ length: total }, (_, row) => Math.floor(timeOf(row)));
  const end = BigInt(times.at(-1)) + 1n;
  const before = time => {
    let [low, high] = [0, total];
    while (low < high) {
      const half = (low + high) >> 1;
      if (times[half] < time) low = half + 1;
      else high = half;
    }
    return low;
  };
  const every = 1000;
  const { buckets } = stack(Array.from({ length: Number(end) / every + 1 }, (_, at) =>
    ({ ts: at * every, name: "n", count: before((at + 1) * every) - before(at * every) })), "name", 0n, every);
  const sums = sumsOf({ buckets, shift: 0 }, { begin: 0n, every });
  assert.deepEqual(sums.at(-1)[1], total);
  for (const guess of [sums, null, [[0n, 0], [end, 5]]]) {
    let counts = 0;
    const countOf = async (from, to) => {
      assert.ok(from < to, `${from} ${to}`);
      counts++;
      return before(Number(to)) - before(Number(from));
    };
    const places = new Places({ from: 0n, to: end }, total, () => guess);
    for (const row of [0, 40_000, 3_999_800, 2_000_000, 2_000_200, 3_500_000]) {
      const { time, rows } = await places.before(row, countOf);
      assert.equal(rows, before(Number(time)), `${row}`);
      assert.ok(rows <= row, `${row}`);
      if (guess === sums) assert.ok(row - rows <= NEAR, `${row} ${rows}`);
    }
    assert.ok(counts <= (guess === sums ? 5 : 12), `${counts}`);
  }
  // All events may have one time.
  const one = new Places({ from: 7n, to: 8n }, total, () => null);
  assert.deepEqual(await one.before(3_000_000, assert.fail), { time: 7n, rows: 0 });
}

// Slices that overlap are below each other, others are in one row.
{
  const event = (ts, dur, tid) => ({ ts, dur, pid: 1, tid });
  const { lanes, rows } = lanesOf([event(0, 100, 2), event(10, 20, 2), event(40, 10, 2), event(100, 1, 2), event(5, 1, 10), { dur: 1 }], 0n);
  assert.deepEqual(lanes.map(lane => [lane.title, lane.slices.map(slice => slice.depth)]), [["1 / 2", [0, 1, 1, 0]], ["1 / 10", [0]]]);
  assert.equal(rows, 3);
  // Spans have no process: those of each service are in lanes of their own.
  const span = (agent, pid) => ({ ts: 1, dur: 1, agent, stream: "traces", pid, tid: null });
  const titles = [span("shop", null), span("db", undefined), span("db", 7), { ts: 1, pid: null, tid: null }];
  assert.deepEqual(lanesOf(titles, 0n).lanes.map(lane => lane.title), ["7 / 7", "db / traces", "events", "shop / traces"]);
}

// A time line with nearly nothing but one bar says where that is.
{
  const at = (place, number) => ({ ts: 1000 + place * 10, name: "n", count: number });
  const found = rows => densest(stack(rows, "name", 1003n, 10), { begin: 1003n, span: 4000, every: 10 });
  assert.deepEqual(found([at(0, 4), at(396, 60), at(398, 40)]), { from: 4960n, to: 4990n, share: 100 / 104 });
  assert.deepEqual(found([at(0, 40), at(398, 60)]), { from: 4980n, to: 4990n, share: 0.6 });
  assert.equal(found([at(0, 50), at(398, 50)]), null);
  assert.equal(found([at(398, 99)]), null);
  assert.equal(found(Array.from({ length: 400 }, (_, place) => at(place, 1))), null);
  assert.equal(found([...Array.from({ length: 400 }, (_, place) => at(place, 1)), at(7, 600)]), null);
  assert.equal(found([]), null);
}

// What has not ended is long, or began not long before.
assert.equal(runningAt(1_000_000_000n, 100n, 999_998_000n),
  "ts + dur > 1970-01-01T00:00:01.000000000Z and (dur > 100ns or ts >= 1970-01-01T00:00:00.999999900Z)"
  + " and (dur > 400ns or ts >= 1970-01-01T00:00:00.999999600Z) and (dur > 1600ns or ts >= 1970-01-01T00:00:00.999998400Z)");
check(number => many(number, "event"), [[0, "0 events"], [1, "1 event"], [1n, "1 event"], [1234, "1,234 events"], [null, "– events"]]);

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
  ["dur > 5 and `args.a", { field: null, text: "args.a", replaces: 7 }],
  ["`", { field: null, text: "", replaces: 1 }],
  ["`args.a b` == 4", { field: "args.a b", operator: "==", text: "4", replaces: 1 }],
  ["`args.a b` == `na", { field: null, text: "na", replaces: 3 }],
  [`name == "\`" and \`x`, { field: null, text: "x", replaces: 2 }],
  ['name in ["a', null],
]);
check(named, [
  ["args.a", "args.a"], ["args.a b", "`args.a b`"], ["args.x-y", "`args.x-y`"], ['args.q"', '`args.q"`'], ["9", "`9`"], ["In", "`In`"],
  ["é", "`é`"], ["a`b", null], ["", null],
]);
check(listed, [["dur", "dur"], ["args.a b", "`args.a b`"], ["`args.a b`", "`args.a b`"], ["(ret * 2)", "(ret * 2)"]]);
check(labelOf, [["dur", "dur"], ["`args.a b`", "args.a b"], ["(dur + `args.a b`)", "(dur + `args.a b`)"]]);
check(([value, operator]) => spelled(value, operator), [
  [["read", "=="], '"read"'], [["C:\\x", "=="], '"C:\\x"'], [['say "hi"', "=="], `'say "hi"'`], [["it's", "=="], `"it's"`],
  [[`"it's"`, "=="], null], [["ends\\", "=="], null], [["two\nlines", "=="], null], [[5, "=="], "5"], [[7n, "!="], "7"],
  [[true, "=="], "true"], [[null, "=="], null], [["a.b", "~"], '"a\\.b"'], [[`"it's"`, "~"], `"\\"it's\\""`], [[5, "~"], '"5"'],
]);
check(fieldsOf, [["name", ["name"]], ["name, pid", ["name", "pid"]], ["`a,b`,c", ["`a,b`", "c"]], [" , ", ["name"]]]);

// Empty buckets between others are there, and those that nothing is in are not.
check(powersOf, [
  [[], []], [[{ dur_from: 8, count: 2 }, { dur_from: 0, count: 1 }, { dur_from: 2, count: 3 }, { dur_from: null, count: 9 }],
    [{ from: 0, count: 1 }, { from: 2, count: 3 }, { from: 4, count: 0 }, { from: 8, count: 2 }]],
]);

check(traceIdOf, [
  [" 0AF7651916CD43DD8448EB211C80319C ", "0af7651916cd43dd8448eb211c80319c"], ["0af76519-16cd-43dd-8448-eb211c80319c", "0af7651916cd43dd8448eb211c80319c"],
  ["0".repeat(32), null], ["0af7", null], ['" or true', null],
]);

// Spans are below their parents, whatever order and ids they come with; a chain of parents may be a circle.
{
  const span = (id, parent, ts, dur = 5, more = {}) => ({ "args.span_id": id, "args.parent_span_id": parent, ts, dur, name: id, ...more });
  const shape = rows => linesOf(rows).lines.map(({ span, depth }) => `${"-".repeat(depth)}${span.row ? span.name : `(${span.id})`}`).join(" ");
  const rows = [span("c", "b", 3), span("z", "a", 9), span("b", "a", 2), span("d", "a", 2), span("a", null, 1, 20), span("o", "gone", 4), span("p", "gone", 5, 40), { name: "without a time" }];
  assert.equal(shape(rows), "a -b --c -d -z (gone) -o -p");
  assert.equal(shape(rows.toReversed()), "a -b --c -d -z (gone) -o -p");
  const found = linesOf([...rows, span("e", "a", 7, 1, { "args.status": "error" })]);
  assert.deepEqual([found.begin, found.end, found.spans, found.errors, found.absent], [1n, 45n, 8, 1, 1]);
  assert.equal(shape([span("x", "y", 1), span("y", "x", 2), span("below", "y", 3)]), "x y -below");
  assert.equal(shape([span("self", "self", 1)]), "self");
  assert.equal(shape([span("same", null, 1), span("same", null, 2), span("below", "same", 3)]), "same -below same");
  assert.deepEqual(linesOf([]), { lines: [], begin: 0n, end: 0n, spans: 0, errors: 0, absent: 0 });
  const deep = Array.from({ length: SPANS_MAX }, (_, at) => span(`s${at}`, at ? `s${at - 1}` : null, at));
  assert.equal(linesOf(deep).lines.length, SPANS_MAX);
  assert.equal(Math.max(...linesOf(deep).lines.map(line => line.depth)), 60);
  const long = linesOf([span("a", null, 9_007_199_254_740_993n, 1)]);
  assert.deepEqual([long.begin, long.end], [9_007_199_254_740_993n, 9_007_199_254_740_994n]);
}

// Pictures over time: gaps stay gaps, nothing is counted twice.
{
  const scale = { begin: 1005n, every: 10 };
  const grid = gridOf([{ ts: 1000, dur_from: 4, count: 2 }, { ts: 1030, dur_from: 32, count: 5 }, { ts: null, dur_from: 4, count: 9 }, { ts: 1010, dur_from: null, count: 9 }],
    row => row.dur_from, low => 2 * low, scale);
  assert.deepEqual(grid.lows, [4, 8, 16, 32]);
  assert.deepEqual(grid.cells.map(({ column, row, count }) => [column, row, count]), [[0, 0, 2], [3, 3, 5]]);
  assert.deepEqual([grid.most, grid.total], [5, 7]);
  assert.deepEqual(gridOf([], row => row.dur_from, low => 2 * low, scale), { cells: [], lows: [], most: 0, total: 0 });
  const { lines, most, least } = seriesOf([{ ts: 1020, v: 3 }, { ts: 1000, v: 1 }, { ts: 1010, v: 2 }, { ts: 1040, v: 9 }, { ts: 1050, v: null }], ["v"], row => row.v, scale);
  assert.deepEqual(lines[0].pieces.map(piece => piece.map(point => point.value)), [[1, 2, 3], [9]]);
  assert.deepEqual([least, most], [1, 9]);
  assert.deepEqual(missesOf([{ ts: 1, is_cache_hit: true, count: 3 }, { ts: 1, is_cache_hit: false, count: 1 }, { ts: 1, is_cache_hit: null, count: 7 }, { ts: 2, is_cache_hit: true, count: 1 }]),
    [{ ts: 1, lookups: 4, misses: 1, ratio: 0.25 }, { ts: 2, lookups: 1, misses: 0, ratio: 0 }]);
}

// No value of a path adds a step to it.
check(id => path`/storages/${id}/status`, [["a/b", "/storages/a%2Fb/status"], ["é?#", "/storages/%C3%A9%3F%23/status"], ["...", "/storages/.../status"]]);
for (const id of ["", ".", ".."]) assert.throws(() => path`/storages/${id}`);
