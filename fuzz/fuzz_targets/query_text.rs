//! Query text: a query that parses must be the same after printing and parsing it again, and
//! compile.
#![no_main]

use libfuzzer_sys::fuzz_target;
use query_language::{BareUnit, FieldTable, Program, Query, Value};

fuzz_target!(|text: &str| {
    let query = match Query::parse(text) {
        Ok(query) => query,
        Err(error) => {
            assert!(error.span().end <= text.len());
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let written = query.expr().to_string();
    let again = Query::parse(&written).expect("what is written out reads back");
    assert_eq!(again.expr().to_string(), written);
    if let Ok(filter) = query.bind(BareUnit::MICROS) {
        let mut table = FieldTable::new();
        let program = Program::compile(&filter, &mut table);
        for value in [
            None,
            Some(Value::Str(b"read")),
            Some(Value::Uint(u64::MAX)),
            Some(Value::Float(f64::NAN)),
        ] {
            program.matches(&vec![value; table.len()]);
        }
    }
});
