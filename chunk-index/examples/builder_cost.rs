//! What an event costs the chunk builder, in nanoseconds: `cargo run --release -p chunk-index
//! --example builder_cost [ROUNDS]`. Events repeat themselves as those of a DFTracer trace do.

use std::hint::black_box;
use std::time::Instant;

use chunk_index::{ChunkBuilder, IndexConfig};
use query_language::{FieldTable, Value};

/// Events of a chunk: a member of 16 MiB has about as many.
const EVENTS: usize = 80_000;

struct Row {
    name: &'static str,
    cat: &'static str,
    tid: u64,
    ts: i64,
    dur: i64,
    fhash: String,
    ret: u64,
}

fn rows() -> Vec<Row> {
    let mut state = 7_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    let mut rows = Vec::with_capacity(EVENTS);
    let mut ts = 1_795_225_981_000_000_000;
    while rows.len() < EVENTS {
        let fhash = format!(
            "{:016x}",
            (random() % 5_000).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        );
        let tid = 1_028_568 + random() % 4;
        let mut push = |name, cat, dur: u64, ret| {
            ts += 4_000;
            rows.push(Row {
                name,
                cat,
                tid,
                ts,
                dur: i64::try_from(dur * 1_000).unwrap_or(i64::MAX),
                fhash: fhash.clone(),
                ret,
            });
        };
        push("open64", "POSIX", random() % 100, 3);
        for _ in 0..4 + random() % 12 {
            let offset = random();
            push("lseek64", "POSIX", random() % 3, offset);
            push("read", "POSIX", random() % 1_000, 131_072);
        }
        push("close", "POSIX", 1, 0);
        push("NPZReader.open", "reader", random() % 5_000, 0);
        push("compute", "ai_framework", random() % 9_000, 0);
    }
    rows.truncate(EVENTS);
    rows
}

type Column = for<'a> fn(&'a Row) -> Option<Value<'a>>;

fn column(path: &str) -> Column {
    match path {
        "name" => |row| Some(Value::from(row.name)),
        "cat" => |row| Some(Value::from(row.cat)),
        "pid" => |_| Some(Value::Uint(1_028_567)),
        "tid" => |row| Some(Value::Uint(row.tid)),
        "ts" => |row| Some(Value::Int(row.ts)),
        "dur" => |row| Some(Value::Int(row.dur)),
        "args.hhash" => |_| Some(Value::Str(b"6fc4a5a5dc1cf0b1")),
        "args.fhash" => |row| Some(Value::from(row.fhash.as_str())),
        "args.ret" | "args.offset" => |row| Some(Value::Uint(row.ret)),
        _ => |_| None,
    }
}

/// Lays an event out in the order of the table; this cost is subtracted.
fn decode<'a>(row: &'a Row, columns: &[Column]) -> [Option<Value<'a>>; 16] {
    let mut event = [None; 16];
    for (place, column) in event.iter_mut().zip(columns) {
        *place = column(row);
    }
    event
}

#[expect(clippy::print_stdout, reason = "printing is what a measurement is for")]
fn main() {
    let rounds: u32 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let rows = rows();
    let plain = ["pid", "tid", "hhash", "fhash"];
    let wide = ["pid", "tid", "hhash", "fhash", "ret", "count", "offset"];
    for dimensions in [&plain[..], &wide[..]] {
        let mut table = FieldTable::new();
        let mut builder =
            ChunkBuilder::new(IndexConfig::new(dimensions.iter().copied()), &mut table);
        let columns: Vec<Column> = table
            .paths()
            .iter()
            .map(|path| column(path.as_str()))
            .collect();
        let (mut reading, mut adding, mut finishing) = (f64::MAX, f64::MAX, f64::MAX);
        for _ in 0..rounds {
            let begin = Instant::now();
            for row in &rows {
                black_box(&decode(row, &columns)[..columns.len()]);
            }
            let read = Instant::now();
            for row in &rows {
                builder.add(&decode(row, &columns)[..columns.len()]);
            }
            let added = Instant::now();
            let summary = builder.finish();
            finishing = finishing.min(added.elapsed().as_secs_f64());
            reading = reading.min((read - begin).as_secs_f64());
            adding = adding.min((added - read).as_secs_f64());
            assert_eq!(summary.statistics.events(), EVENTS as u64);
        }
        println!(
            "{} dimensions: {:.1} ns an event, {:.0} us at the end of a chunk of {EVENTS}",
            dimensions.len() + 2,
            (adding - reading) * 1e9 / EVENTS as f64,
            finishing * 1e6,
        );
    }
}
