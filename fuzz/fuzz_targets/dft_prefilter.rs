//! The prefilter scan of DFTracer lines must not skip a line that passes when the complete text is
//! parsed, and must return each line once. The first line of the input is the filter, the rest is
//! the text.
#![no_main]

use std::ops::{ControlFlow, Range};

use libfuzzer_sys::fuzz_target;
use query_language::{BareUnit, FieldTable, Filter, Program, Query};
use trace_kinds::Event;
use trace_kinds::dft::{DftDecoder, DftVisitor, Metadata, Names, Prefilter, TimeUnit};

const UNITS: [TimeUnit; 4] = [
    TimeUnit::Nanosecond,
    TimeUnit::Microsecond,
    TimeUnit::Millisecond,
    TimeUnit::Second,
];

/// Collects the lines whose events pass.
struct Passing<'p> {
    program: &'p Program,
    text: &'p [u8],
    lines: Vec<Vec<u8>>,
}

impl DftVisitor for Passing<'_> {
    fn event<E: Event>(&mut self, event: &E, line: Range<usize>) -> ControlFlow<()> {
        if self.program.matches(event) {
            self.lines.push(self.text[line].to_vec());
        }
        ControlFlow::Continue(())
    }

    fn metadata(&mut self, _: Metadata) {}
}

/// The query for these bytes. Most bytes are not a query, so there are short forms of queries that
/// the prefilter supports.
fn query(door: u8, text: &str) -> String {
    let number = |at: usize| text.as_bytes().get(at).copied().unwrap_or_default();
    let word: String = text
        .chars()
        .filter(|char| !matches!(char, '\'' | '\\'))
        .collect();
    match door % 6 {
        0 => text.to_owned(),
        1 => format!("ts >= {} and ts < {}", number(0), number(1)),
        2 => format!("dur > {}", number(0)),
        3 => format!("ts == {}", number(0)),
        4 => format!("name == '{word}'"),
        _ => format!("fhash in ['{word}', 'b'] and not name == 'a'"),
    }
}

fn passing(
    text: &[u8],
    filter: &Filter,
    unit: TimeUnit,
    prefilter: Option<&Prefilter>,
) -> Vec<Vec<u8>> {
    let mut table = FieldTable::new();
    let program = Program::compile(filter, &mut table);
    let decoder = DftDecoder::new(&table, Names::default(), unit);
    let mut lines = Vec::new();
    let mut walk = |run: &[u8]| {
        let mut visitor = Passing {
            program: &program,
            text: run,
            lines: Vec::new(),
        };
        let _decoded = decoder.walk(run, &mut visitor);
        lines.append(&mut visitor.lines);
        ControlFlow::Continue(())
    };
    let _all = match prefilter {
        Some(prefilter) => prefilter.runs(text, &mut walk),
        None => walk(text),
    };
    lines
}

fuzz_target!(|input: &[u8]| {
    let Some((door, rest)) = input.split_first() else {
        return;
    };
    let first = rest
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(rest.len());
    let (line, text) = rest.split_at(first);
    let Ok(line) = std::str::from_utf8(line) else {
        return;
    };
    let text = text.strip_prefix(b"\n").unwrap_or(text);
    let unit = UNITS[usize::from(door / 6) % UNITS.len()];
    let Ok(query) = Query::parse(&query(*door, line)) else {
        return;
    };
    let nanoseconds = u32::try_from(unit.nanoseconds()).expect("a second is short enough");
    let Ok(filter) = query.bind(BareUnit::Nanos(nanoseconds)) else {
        return;
    };
    if let Some(prefilter) = Prefilter::new(&filter, unit) {
        let all = passing(text, &filter, unit, None);
        assert_eq!(passing(text, &filter, unit, Some(&prefilter)), all);
    }
});
