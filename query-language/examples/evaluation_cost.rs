//! The cost of evaluating a filter on an event, in nanoseconds: `cargo run --release -p
//! query-language --example evaluation_cost [ROUNDS]`. The events are decoded already.

use std::hint::black_box;
use std::time::Instant;

use query_language::{BareUnit, FieldTable, Program, Query, Value};

const EVENTS: usize = 20_000;

const QUERIES: [&str; 7] = [
    "name == 'rare_event'",
    "dur > 5000000",
    "ts >= 1795225981000000 and ts < 1795225982000000",
    "name == 'read' and dur > 100us and not (pid in [1, 2, 3])",
    "fhash in ['00', '01', '02', '03', '04', '05', '06', '07', '08', '09', '10', '11']",
    "name contains 'ea' or cat starts_with 'AI'",
    "name ~ '^(re|wri)'",
];

#[expect(clippy::print_stdout, reason = "printing is what a measurement is for")]
fn main() {
    let rounds: u32 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(50);
    for text in QUERIES {
        let query = Query::parse(text).expect("a query of this list");
        let filter = query.bind(BareUnit::MICROS).expect("units of this list");
        let mut table = FieldTable::new();
        let program = Program::compile(&filter, &mut table);
        let events: Vec<Vec<Option<Value<'_>>>> = (0..EVENTS)
            .zip(0_i64..)
            .map(|(n, number)| {
                let fields = table.paths().iter().map(|path| match path.as_str() {
                    "name" => Some(Value::Str([&b"read"[..], b"lseek64", b"open64"][n % 3])),
                    "cat" => Some(Value::Str(b"POSIX")),
                    "args.fhash" => Some(Value::Str(b"6fc4a5a5dc1cf0b1")),
                    "pid" => Some(Value::Uint(1_028_567)),
                    "ts" => Some(Value::Int(1_795_225_981_000_000_000 + number * 100_000)),
                    "dur" => Some(Value::Int((number * 7_919) % 2_000_000)),
                    _ => None,
                });
                fields.collect()
            })
            .collect();
        let mut best = f64::MAX;
        let mut matches = 0;
        for _ in 0..rounds {
            let begin = Instant::now();
            matches = events
                .iter()
                .filter(|event| program.matches(black_box(*event)))
                .count();
            best = best.min(begin.elapsed().as_secs_f64());
        }
        println!(
            "{:6.1} ns an event, {matches} of {EVENTS} match: {text}",
            best * 1e9 / EVENTS as f64
        );
    }
}
