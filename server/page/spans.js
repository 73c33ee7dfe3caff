// The spans of a trace as a tree: the arithmetic of the waterfall.

/** Spans that are drawn; of a trace with more, those that began first. */
export const SPANS_MAX = 2000;
/** Deeper spans are drawn as deep as this. */
const DEPTH_MAX = 60;

/** A trace id as it is compared, or null for text that is none. */
export function traceIdOf(text) {
  const id = text.trim().toLowerCase().replaceAll("-", "");
  return /^[0-9a-f]{32}$/.test(id) && !/^0+$/.test(id) ? id : null;
}

/**
 * The rows of a trace in the order in which they are drawn: every span below its parent, siblings by time,
 * then by id. A parent that is not among the rows gets a line of its own, which has no span.
 */
export function linesOf(rows) {
  const spans = rows.filter(row => row.ts !== null && row.ts !== undefined).map(spanOf).sort(earlier);
  // The first one counts, should two spans have the same id.
  const byId = new Map(spans.toReversed().map(span => [span.id, span]));
  const roots = [];
  const absent = new Map();
  for (const span of spans) {
    const parent = byId.get(span.parent);
    if (parent && !leadsTo(parent, span, byId)) {
      parent.children.push(span);
    } else if (!span.parent || parent) {
      roots.push(span);
    } else {
      let stand = absent.get(span.parent);
      if (!stand) {
        stand = { id: span.parent, row: null, start: span.start, end: span.end, children: [] };
        absent.set(span.parent, stand);
        roots.push(stand);
      }
      stand.children.push(span);
      if (span.end > stand.end) stand.end = span.end;
    }
  }
  roots.sort(earlier);
  const lines = flat(roots);
  const begin = spans.reduce((least, span) => span.start < least ? span.start : least, spans[0]?.start ?? 0n);
  const end = spans.reduce((most, span) => span.end > most ? span.end : most, begin);
  return { lines, begin, end, spans: spans.length, errors: spans.filter(span => span.isError).length, absent: absent.size };
}

function spanOf(row) {
  const start = BigInt(row.ts);
  return {
    id: row["args.span_id"] ?? "", parent: row["args.parent_span_id"] ?? "", row, start, end: start + BigInt(row.dur ?? 0),
    service: String(row["ctx.service.name"] ?? row.agent ?? "–"), name: String(row.name ?? "–"), isError: row["args.status"] === "error", children: [],
  };
}

function earlier(one, other) {
  if (one.start !== other.start) return one.start < other.start ? -1 : 1;
  return one.id < other.id ? -1 : one.id > other.id ? 1 : 0;
}

/** Whether a chain of parents comes to a span again: a producer may write any ids. */
function leadsTo(from, span, byId) {
  const seen = new Set();
  for (let at = from; at && !seen.has(at); at = byId.get(at.parent)) {
    if (at === span) return true;
    seen.add(at);
  }
  return false;
}

/** Spans with their depth, each before its children; without recursion, as traces may be deep. */
function flat(roots) {
  const lines = [];
  const rest = roots.toReversed().map(span => ({ span, depth: 0 }));
  while (rest.length) {
    const { span, depth } = rest.pop();
    lines.push({ span, depth });
    const below = Math.min(depth + 1, DEPTH_MAX);
    for (const child of span.children.toReversed()) rest.push({ span: child, depth: below });
  }
  return lines;
}
