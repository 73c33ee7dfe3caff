//! Operations as lines of text.

use std::io::Write as _;

use super::IoTraceRecord;

/// Appends the line of one operation: start and latency in ns, operation, range, file, cause, and
/// further fields if they are set.
///
/// ```text
/// 1795240026000001000 +38208 write 0+4096 0192…/93224496ff98a4d8.itdata cause=ingest thread=17
/// ```
pub fn put_io_trace_line(out: &mut Vec<u8>, record: &IoTraceRecord<'_>) {
    put(
        out,
        format_args!(
            "{} +{} {}",
            record.start,
            record.latency,
            record.operation.name()
        ),
    );
    match record.offset {
        Some(offset) => put(out, format_args!(" {offset}+{}", record.asked)),
        None if record.asked > 0 => put(out, format_args!(" {}", record.asked)),
        None => {}
    }
    out.push(b' ');
    out.extend_from_slice(record.path);
    put(
        out,
        format_args!(" cause={} thread={}", record.cause.name(), record.thread),
    );
    if record.done != record.asked {
        put(out, format_args!(" done={}", record.done));
    }
    if record.errno != 0 {
        put(out, format_args!(" errno={}", record.errno));
    }
    if let Some(is_hit) = record.cache_hit {
        out.extend_from_slice(if is_hit {
            b" cache=hit"
        } else {
            b" cache=miss"
        });
    }
    if let Some(block) = &record.block {
        let (kind, size) = (block.block_type.name(), block.size);
        let (leaf, entries) = (block.leaf, block.entries);
        put(
            out,
            format_args!(" block={kind} size={size} leaf={leaf:016x} entries={entries}"),
        );
        if block.not_inserted {
            out.extend_from_slice(b" not_inserted");
        }
        if let Some(found) = block.found {
            put(out, format_args!(" found={found}"));
        }
    }
    if let Some(request) = record.request {
        out.extend_from_slice(b" request=");
        out.extend_from_slice(request);
        if record.requests > 1 {
            put(out, format_args!(" and {} more", record.requests - 1));
        }
    }
    out.push(b'\n');
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text)
        .expect("writing to a vector cannot fail");
}
