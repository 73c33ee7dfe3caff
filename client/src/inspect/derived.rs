//! Prints derived files: chunk indexes, columns, provenance.
//!
//! They are read and verified completely, so any damage is an error with its location.

use chunk_index::{
    Checkpoint, Chunk, ChunkFilter, Columns, FileType, Identity, Index, OwnedValue, Provenance,
    Segment, Sidecar, SidecarError, TextRange, TimeRange, Totals, Window, Zone,
};
use query_language::{FieldPath, Number};
use serde_json::{Map, Value, json};

/// The JSON document of a derived file of `file_type`.
pub(super) fn document(file_type: FileType, file: &[u8]) -> Result<Value, SidecarError> {
    match file_type {
        FileType::Index => Ok(index(&Sidecar::read(file)?)),
        FileType::Columns => Ok(columns(&Columns::read(file)?)),
        FileType::Provenance => Ok(provenance(&Provenance::read(file)?)),
        FileType::Bundle => Err(SidecarError::NotAnIndex("it has those of several leaves")),
    }
}

fn index(index: &Index) -> Value {
    let fields = index.dimensions();
    let chunks = index.chunks().iter().enumerate();
    let chunks: Vec<Value> = chunks
        .map(|(at, place)| chunk(index, &fields, at, place))
        .collect();
    let checkpoints: Vec<Value> = index.checkpoints().iter().map(checkpoint).collect();
    let attachments = index.attachments().iter();
    let attachments = attachments.map(|attachment| {
        json!({
            "name": attachment.name,
            "bytes": attachment.bytes.as_ref().map(|bytes| bytes.len()),
        })
    });
    json!({
        "role": "chunk index",
        "of": identity(index.identity()),
        "config": format!("{:016x}", index.config_hash()),
        "fields": fields.iter().map(FieldPath::as_str).collect::<Vec<_>>(),
        "chunks": chunks,
        "checkpoints": checkpoints,
        "lexicons": dictionaries(index, &fields),
        "attachments": attachments.collect::<Vec<_>>(),
    })
}

fn chunk(index: &Index, fields: &[FieldPath], at: usize, place: &Chunk) -> Value {
    let mut summaries = Map::new();
    for path in fields {
        if let Some((zone, dictionary)) = index.limits(path, at) {
            let values = dictionary.map(|dictionary| {
                let entries = dictionary.entries().iter();
                let entries = entries.map(|(value, count)| json!([owned(value), count]));
                entries.collect::<Vec<_>>()
            });
            let filter = index.filter(path, at).map(|filter| {
                let kind = match filter {
                    ChunkFilter::Bloom(_) => "bloom",
                    ChunkFilter::Entries(_) => "places",
                };
                json!({ "kind": kind, "bytes": filter.byte_len() })
            });
            summaries.insert(path.as_str().to_owned(), field(zone, values, filter));
        }
    }
    let statistics = index.statistics(at);
    let groups = statistics.map(|statistics| {
        let groups = statistics.groups.iter().map(|group| {
            json!({
                "name": group.name.as_deref().map(text), "cat": group.cat.as_deref().map(text),
                "totals": totals(&group.totals),
            })
        });
        groups.collect::<Vec<_>>()
    });
    json!({
        "number": place.number, "offset": place.offset, "length": place.length,
        "raw_offset": place.raw_offset, "raw_length": place.raw_length,
        "first_line": place.first_line, "lines": place.lines,
        "events": place.events, "timed": place.timed, "odd": place.odd,
        "times": place.times.map(times),
        "groups": groups,
        "other": statistics.map(|statistics| totals(&statistics.other)),
        "fields": summaries,
        "slowest": index.slowest(at).map(|slowest| slowest.records.len()),
    })
}

fn field(zone: &Zone, values: Option<Vec<Value>>, filter: Option<Value>) -> Value {
    let texts = |range: &TextRange| json!([text(&range.min), range.max.as_deref().map(text)]);
    json!({
        "present": zone.present, "distinct": zone.distinct, "distinct_exact": zone.distinct_exact,
        "numbers": zone.numbers.map(|(min, max)| json!([number(min), number(max)])),
        "texts": zone.texts.as_ref().map(texts),
        "values": values, "filter": filter,
    })
}

fn totals(totals: &Totals) -> Value {
    let durations = &totals.durations;
    let range = durations.range();
    json!({
        "events": totals.events, "timed": totals.timed, "odd": totals.odd,
        "times": totals.times.map(times),
        "durations": {
            "count": durations.count, "sum": number(Number::Int(durations.sum)),
            "min": range.map(|(min, _)| min), "max": range.map(|(_, max)| max),
            "p50": durations.quantile(0.5), "p90": durations.quantile(0.9),
            "p99": durations.quantile(0.99),
        },
    })
}

fn times(times: TimeRange) -> Value {
    json!({ "first": times.first, "last": times.last, "end": times.end })
}

fn checkpoint(checkpoint: &Checkpoint) -> Value {
    let window = match &checkpoint.window {
        Window::Member => None,
        Window::Loaded(window) => Some(window.len() as u64),
        Window::Stored(stored) => Some(u64::from(stored.length)),
    };
    json!({
        "raw_offset": checkpoint.raw_offset, "offset": checkpoint.offset,
        "bits": checkpoint.bits, "window_bytes": window,
    })
}

/// Number of values of each file dictionary, by its field.
fn dictionaries(index: &Index, fields: &[FieldPath]) -> Map<String, Value> {
    let dictionaries = fields.iter().filter_map(|path| {
        let dictionary = index.file_dictionary(path)?;
        Some((path.as_str().to_owned(), json!(dictionary.len())))
    });
    dictionaries.collect()
}

fn columns(columns: &Columns) -> Value {
    let mut chunks = Vec::new();
    for chunk in columns.chunks() {
        let mut stored = Map::new();
        for (name, block) in chunk.columns {
            let range = block.range();
            let bytes = json!({ "offset": range.start, "length": range.end - range.start });
            stored.insert(name.to_owned(), bytes);
        }
        chunks.push(json!({
            "raw_offset": chunk.raw_offset, "raw_length": chunk.raw_length,
            "events": chunk.events, "columns": stored,
        }));
    }
    json!({
        "role": "columns", "of": identity(columns.identity()),
        "fields": columns.names(), "chunks": chunks,
    })
}

fn provenance(provenance: &Provenance) -> Value {
    let sources = provenance.sources.iter();
    let sources = sources
        .map(|source| json!({ "path": source.path, "identity": identity(&source.identity) }));
    let groups = provenance.groups.iter();
    let groups = groups.map(|group| json!({ "name": group.name, "predicate": group.predicate }));
    json!({
        "role": "provenance", "owner": provenance.owner,
        "sources": sources.collect::<Vec<_>>(), "groups": groups.collect::<Vec<_>>(),
        "segments": provenance.segments.iter().map(segment).collect::<Vec<_>>(),
    })
}

fn segment(segment: &Segment) -> Value {
    json!({
        "chunk": segment.chunk, "source": segment.source, "group": segment.group,
        "offset": segment.offset, "length": segment.length,
        "first_line": segment.first_line, "lines": segment.lines, "events": segment.events,
    })
}

fn identity(identity: &Identity) -> Value {
    json!({
        "length": identity.length, "modified": identity.modified,
        "checksum": identity.checksum.map(|checksum| format!("{checksum:016x}")),
    })
}

fn owned(value: &OwnedValue) -> Value {
    match value {
        OwnedValue::Str(bytes) => json!(text(bytes)),
        OwnedValue::Int(value) => json!(value),
        OwnedValue::Uint(value) => json!(value),
        OwnedValue::Float(value) => json!(value),
        OwnedValue::Bool(value) => json!(value),
    }
}

/// A number in JSON, or as text if it does not fit 64 bits.
fn number(number: Number) -> Value {
    match number {
        Number::Int(value) => match i64::try_from(value) {
            Ok(value) => json!(value),
            Err(_) => json!(value.to_string()),
        },
        Number::Float(value) => json!(value),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
