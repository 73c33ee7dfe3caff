//! Lines that can pass a filter, found by a search of the text before any line is decoded.
//!
//! Decoding a line takes ten times as long as finding a few bytes in it. If a filter requires a
//! text, a line can pass only if it contains the text in quotes; if it requires a range of times,
//! only if some `"ts"` of the line is followed by anything but a plain number outside the range.
//! Any other spelling of the same JSON needs a backslash, so lines with one are always decoded.
//! The lines found are decoded and filtered like any others, so finding too many is never wrong.

use std::ops::ControlFlow;

use memchr::memmem::Finder;
use query_language::{CompareOp, Condition, Expr, Filter, Number, Predicate, Scalar as Literal};

use super::names::HASH_FIELDS;
use super::scalar::Cursor;
use super::time::TimeUnit;

/// Finds the lines of a text that can pass a filter.
#[derive(Debug)]
pub struct Prefilter {
    test: Test,
}

#[derive(Debug)]
enum Test {
    /// The line contains one of these.
    Texts(Vec<Finder<'static>>),
    /// The number after this key is within the range.
    Numbers(Box<Finder<'static>>, Within),
}

/// A range of integers in the unit of a file, both ends included, and all numbers from `all_from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Within {
    low: i128,
    high: i128,
    /// From here on, scaled times exceed 64 bits and are compared as floating-point numbers.
    all_from: u64,
}

/// The most texts that are searched for; lines are not filtered by longer lists.
const TEXTS_MAX: usize = 4;
/// Bytes of text between decisions on whether searching pays off.
const BLOCK_BYTES: usize = 256 << 10;
/// Searching pays off while it finds at most one byte in this many.
const FOUND_ONE_IN_MIN: usize = 4;
/// The most blocks that are passed on unsearched after searching did not pay off.
const UNSEARCHED_MAX: usize = 16;

impl Prefilter {
    /// A search for what `filter` requires of every event, in lines whose times are in `unit`;
    /// `None` if it requires nothing that can be searched for.
    pub fn new(filter: &Filter, unit: TimeUnit) -> Option<Prefilter> {
        let mut required = Vec::new();
        conjuncts(filter, &mut required);
        let texts = required.iter().filter_map(|predicate| texts_of(predicate));
        // The longest text is the rarest, as a rule.
        let rarest = texts.max_by_key(|texts| texts.iter().map(|text| text.len()).min());
        let test = match rarest {
            Some(texts) => Test::Texts(texts.iter().map(|text| quoted(text)).collect()),
            None => {
                let range = ["ts", "dur"].iter().find_map(|field| {
                    let range = range_of(field, &required, unit)?;
                    Some((quoted(field.as_bytes()), range))
                });
                let (key, range) = range?;
                Test::Numbers(Box::new(key), range)
            }
        };
        Some(Prefilter { test })
    }

    /// Calls `each` for the lines of `text` that can pass, in runs of complete lines, in their
    /// order. Where many lines can pass, the following blocks are passed on unsearched.
    pub fn runs(
        &self,
        text: &[u8],
        mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let (mut at, mut unsearched) = (0, 0);
        while at < text.len() {
            let end = line_end(text, (at + BLOCK_BYTES).min(text.len()) - 1);
            let mut found = 0;
            self.block(&text[at..end], &mut |run| {
                found += run.len();
                each(run)
            })?;
            let dense = found > (end - at) / FOUND_ONE_IN_MIN;
            unsearched = if dense {
                (unsearched * 2).clamp(1, UNSEARCHED_MAX)
            } else {
                0
            };
            at = end;
            if unsearched > 0 && at < text.len() {
                let end = (at + unsearched * BLOCK_BYTES).min(text.len());
                let end = line_end(text, end - 1);
                each(&text[at..end])?;
                at = end;
            }
        }
        ControlFlow::Continue(())
    }

    /// The runs of a block of complete lines.
    fn block(
        &self,
        text: &[u8],
        each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut hits = Hits::new(self, text);
        let mut run = 0..0;
        while let Some(hit) = hits.next(run.end) {
            let line = line_begin(text, run.end, hit)..line_end(text, hit);
            if line.start == run.end {
                run.end = line.end;
            } else {
                if !run.is_empty() {
                    each(&text[run])?;
                }
                run = line;
            }
        }
        if run.is_empty() {
            ControlFlow::Continue(())
        } else {
            each(&text[run])
        }
    }
}

/// Positions in a text, each in a line that can pass.
struct Hits<'s, 't> {
    prefilter: &'s Prefilter,
    text: &'t [u8],
    /// The next position of each text; the end of the text if there is none.
    texts: [usize; TEXTS_MAX],
    backslash: usize,
}

impl<'s, 't> Hits<'s, 't> {
    fn new(prefilter: &'s Prefilter, text: &'t [u8]) -> Self {
        let mut hits = Hits {
            prefilter,
            text,
            texts: [text.len(); TEXTS_MAX],
            backslash: memchr::memchr(b'\\', text).unwrap_or(text.len()),
        };
        if let Test::Texts(finders) = &prefilter.test {
            for (next, finder) in hits.texts.iter_mut().zip(finders) {
                *next = finder.find(text).unwrap_or(text.len());
            }
        }
        hits
    }

    /// The first position at or after `from`.
    fn next(&mut self, from: usize) -> Option<usize> {
        let rest = self.text.get(from..)?;
        if self.backslash < from {
            let found = memchr::memchr(b'\\', rest);
            self.backslash = found.map_or(self.text.len(), |at| from + at);
        }
        let hit = match &self.prefilter.test {
            Test::Texts(finders) => {
                let mut first = self.text.len();
                for (next, finder) in self.texts.iter_mut().zip(finders) {
                    if *next < from {
                        *next = finder.find(rest).map_or(self.text.len(), |at| from + at);
                    }
                    first = first.min(*next);
                }
                first
            }
            // The text after the backslash is searched once the backslash has been returned.
            Test::Numbers(key, range) => number_hit(&self.text[..self.backslash], from, key, range)
                .unwrap_or(self.text.len()),
        };
        let hit = hit.min(self.backslash);
        (hit < self.text.len()).then_some(hit)
    }
}

/// The first key at or after `from` that is followed by anything but a number outside `range`.
fn number_hit(text: &[u8], from: usize, key: &Finder<'_>, range: &Within) -> Option<usize> {
    let mut at = from;
    loop {
        let hit = at + key.find(text.get(at..)?)?;
        at = hit + key.needle().len();
        let mut cursor = Cursor::new(text, at);
        let plain = cursor.eat(b":").then(|| cursor.unsigned()).flatten();
        let ends = matches!(cursor.peek(), Some(b',' | b'}'));
        match plain.filter(|_| ends) {
            Some(number) if !range.has(number) => at = cursor.position(),
            _ => return Some(hit),
        }
    }
}

impl Within {
    fn has(&self, number: u64) -> bool {
        (self.low..=self.high).contains(&i128::from(number)) || number >= self.all_from
    }
}

/// The predicates that every event must pass.
fn conjuncts<'f>(filter: &'f Filter, into: &mut Vec<&'f Predicate<Literal>>) {
    match filter {
        Expr::And(operands) => operands.iter().for_each(|operand| conjuncts(operand, into)),
        Expr::Test(predicate) => into.push(predicate),
        Expr::Or(_) | Expr::Not(_) => {}
    }
}

/// The texts of which an event must have one to pass, if lines contain them verbatim.
fn texts_of(predicate: &Predicate<Literal>) -> Option<Vec<&[u8]>> {
    let field = &predicate.field;
    // Times are converted to numbers, and a line may contain the hash of a text instead.
    let elsewhere = field.is_time()
        || field.is_duration()
        || HASH_FIELDS.iter().any(|known| known.text == field.as_str());
    let values = match &predicate.condition {
        Condition::Compare(CompareOp::Eq, value) => std::slice::from_ref(value),
        Condition::In {
            values,
            negated: false,
        } => values,
        _ => return None,
    };
    if elsewhere || values.is_empty() || values.len() > TEXTS_MAX {
        return None;
    }
    let text = |value: &'_ Literal| matches!(value, Literal::Str(text) if !nested(text));
    if !values.iter().all(text) {
        return None;
    }
    let texts = values.iter().filter_map(|value| match value {
        Literal::Str(text) => Some(&**text),
        Literal::Number(_) | Literal::Bool(_) => None,
    });
    Some(texts.collect())
}

/// An object or an array is compared as text, which need not be spelled as in the line.
fn nested(text: &[u8]) -> bool {
    text.starts_with(b"{") || text.starts_with(b"[")
}

fn quoted(text: &[u8]) -> Finder<'static> {
    Finder::new(&[b"\"", text, b"\""].concat()).into_owned()
}

/// The range that the predicates `required` restrict a field to; `None` if they do not.
fn range_of(field: &str, required: &[&Predicate<Literal>], unit: TimeUnit) -> Option<Within> {
    let factor = i128::from(unit.nanoseconds());
    let (mut low, mut high, mut found) = (i128::MIN, i128::MAX, false);
    for predicate in required.iter().filter(|p| p.field.as_str() == field) {
        let Condition::Compare(op, Literal::Number(number)) = &predicate.condition else {
            continue;
        };
        let (least, most) = match number.normalize() {
            Number::Int(value) => (value, value),
            #[expect(clippy::cast_possible_truncation, reason = "integers below 10^30")]
            Number::Float(value) if value.abs() < 1e30 => {
                (value.floor() as i128, value.ceil() as i128)
            }
            Number::Float(_) => continue,
        };
        // Rounded outwards, so the range is too large by one unit at most.
        let (least, most) = (least.div_euclid(factor), most.div_euclid(factor) + 1);
        match op {
            CompareOp::Eq => (low, high) = (low.max(least), high.min(most)),
            CompareOp::Lt | CompareOp::Le => high = high.min(most),
            CompareOp::Gt | CompareOp::Ge => low = low.max(least),
            CompareOp::Ne => continue,
        }
        found = true;
    }
    found.then(|| Within {
        low,
        high,
        all_from: u64::MAX / unit.nanoseconds(),
    })
}

/// Start of the line with the byte at `at`; a line starts at `from`, which is not after `at`.
fn line_begin(text: &[u8], from: usize, at: usize) -> usize {
    memchr::memrchr(b'\n', &text[from..at]).map_or(from, |newline| from + newline + 1)
}

/// End of the line with the byte at `at`, its line end included.
fn line_end(text: &[u8], at: usize) -> usize {
    memchr::memchr(b'\n', &text[at..]).map_or(text.len(), |newline| at + newline + 1)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;
    use query_language::{BareUnit, FieldTable, Program, Query};

    use super::*;
    use crate::Event;
    use crate::dft::{DftDecoder, DftVisitor, Metadata, Names};

    fn filter(query: &str) -> Filter {
        let query = Query::parse(query).expect(query);
        query.bind(BareUnit::Nanos(1_000)).unwrap()
    }

    /// The lines whose events pass, and the number of events decoded, of all lines or those found.
    fn passing(text: &[u8], filter: &Filter, prefilter: Option<&Prefilter>) -> (Vec<Vec<u8>>, u64) {
        struct Passing<'p>(&'p Program, &'p [u8], Vec<Vec<u8>>);
        impl DftVisitor for Passing<'_> {
            fn event<E: Event>(&mut self, event: &E, line: Range<usize>) -> ControlFlow<()> {
                if self.0.matches(event) {
                    self.2.push(self.1[line].to_vec());
                }
                ControlFlow::Continue(())
            }
            fn metadata(&mut self, _: Metadata) {}
        }
        let mut table = FieldTable::new();
        let program = Program::compile(filter, &mut table);
        let decoder = DftDecoder::new(&table, Names::default(), TimeUnit::Microsecond);
        let (mut lines, mut read) = (Vec::new(), 0);
        let mut walk = |run: &[u8]| {
            let mut visitor = Passing(&program, run, Vec::new());
            read += decoder.walk(run, &mut visitor).events;
            lines.append(&mut visitor.2);
            ControlFlow::Continue(())
        };
        let _all = match prefilter {
            Some(prefilter) => prefilter.runs(text, &mut walk),
            None => walk(text),
        };
        (lines, read)
    }

    #[track_caller]
    fn check(text: &[u8], query: &str) -> u64 {
        let filter = filter(query);
        let prefilter = Prefilter::new(&filter, TimeUnit::Microsecond).expect(query);
        let (expected, _) = passing(text, &filter, None);
        let (found, read) = passing(text, &filter, Some(&prefilter));
        assert_eq!(
            found,
            expected,
            "{query} of {}",
            String::from_utf8_lossy(text)
        );
        read
    }

    const LINES: &str = r#"{"id":1,"name":"read","cat":"POSIX","pid":1,"tid":1,"ts":10,"dur":2,"ph":1,"args":{"fhash":"ab"}}
{"id":2,"name":"open","cat":"POSIX","pid":1,"tid":1,"ts":20,"dur":9,"ph":1,"args":{"fhash":"cd"}}
{"id":3,"name":"r\u0065ad","cat":"POSIX","pid":1,"tid":1,"ts":30,"dur":2,"ph":1,"args":{"fhash":"\u0061b"}}
{"id":4,"name":"x","cat":"POSIX","pid":1,"tid":1,"t\u0073":20,"dur":2,"ph":1,"args":{"fhash":"ab"}}
{"id":5,"name":"x","cat":"POSIX","pid":1,"tid":1,"ts":1,"dur":2,"ph":1,"args":{},"ts":21}
{"id":6,"name":"x","cat":"POSIX","pid":1,"tid":1,"ts" : 22,"dur":2,"ph":1,"args":{"fhash": "ab"}}
{"id":"7","name":"x","cat":"POSIX","pid":"1","tid":"1","ts":"23","dur":"9","ph":"X","args":{"ts":5}}
{"id":8,"name":"x","cat":"POSIX","pid":1,"tid":1,"ts":2.4e1,"dur":2,"ph":1,"args":{"fhash":["ab"]}}
{"id":9,"name":"x","cat":"POSIX","pid":1,"tid":1,"dur":2,"ph":1,"args":{"ts":25,"fhash":"ab"}}
{"id":10,"name":"x","cat":"POSIX","pid":1,"tid":1,"ts":99999999999999999999,"ph":1,"args":{"fhash":{"a":1}}}
{"name":"x","ts":18446744073709551615}
no record
{"id":11,"name":"x","cat":"POSIX","pid":1,"tid":1,"ts":26,"dur":2,"ph":1,"args":{"fhash":"ab"}}"#;

    #[test]
    fn other_spellings_of_json_are_found() {
        let text = LINES.as_bytes();
        for query in [
            "fhash == 'ab'",
            "name == 'read' and dur > 1",
            "fhash in ['ab', 'cd'] and not name == 'open'",
            "pid == '1'",
            "ts >= 20 and ts < 27",
            "ts == 24",
            "ts > 100",
            "dur > 5 and exists(ts)",
            "ts >= 26 and cat ~ 'P'",
            "name == 'none'",
        ] {
            let filter = filter(query);
            let whole = passing(text, &filter, None);
            if query != "name == 'none'" {
                assert!(!whole.0.is_empty(), "{query} finds nothing to compare");
            }
            check(text, query);
        }
    }

    #[test]
    fn lines_that_cannot_pass_are_not_decoded() {
        let line = |number: u64| {
            let name = if number == 700 { "rare" } else { "read" };
            format!(
                "{{\"id\":{number},\"name\":\"{name}\",\"cat\":\"POSIX\",\"pid\":1,\"tid\":1,\
                 \"ts\":{},\"dur\":1,\"ph\":1,\"args\":{{}}}}\n",
                number * 10
            )
        };
        let text: String = (0..9_000).map(line).collect();
        assert_eq!(check(text.as_bytes(), "name == 'rare'"), 1);
        assert!(check(text.as_bytes(), "ts >= 500 and ts < 600") <= 12);
        // Where all lines can pass, the rest is not searched.
        let read = check(text.as_bytes(), "name == 'read'");
        assert!((8_999..=9_000).contains(&read), "{read}");
        // A window in the middle costs no more than a few times its lines.
        let window = check(text.as_bytes(), "ts >= 40000 and ts < 60000");
        assert!((2_000..8_500).contains(&window), "{window}");
    }

    #[test]
    fn some_filters_require_nothing_that_can_be_found() {
        for query in [
            "fname == '/a'",
            "pid == 1",
            "name != 'read'",
            "name == 'read' or ts > 5",
            "not name == 'read'",
            "args.list == '[1]'",
            "name in ['a', 'b', 'c', 'd', 'e']",
            "fhash in ['a', 5]",
            "ts != 5",
        ] {
            let prefilter = Prefilter::new(&filter(query), TimeUnit::Microsecond);
            assert!(prefilter.is_none(), "{query}: {prefilter:?}");
        }
    }

    fn value() -> impl Strategy<Value = String> {
        prop_oneof![
            (0..40_u64).prop_map(|number| number.to_string()),
            (0..40_u64).prop_map(|number| format!("\"{number}\"")),
            (0..40_u64).prop_map(|number| format!(" {number}.0")),
            "\"[ab]{1,2}\"",
            Just("\"\\u0061\"".to_owned()),
            Just("{\"ts\":7}".to_owned()),
            Just("18446744073709551".to_owned()),
            Just("-3".to_owned()),
            Just("null".to_owned()),
        ]
    }

    fn record() -> impl Strategy<Value = String> {
        let key = prop_oneof![
            Just("\"ts\""),
            Just("\"dur\""),
            Just("\"name\""),
            Just("\"fhash\""),
            Just("\"t\\u0073\""),
        ];
        let odd =
            proptest::collection::vec((key, value(), any::<bool>()), 0..5).prop_map(|fields| {
                let field = |(key, value, blank): &(&str, String, bool)| {
                    format!("{key}{}:{value}", if *blank { " " } else { "" })
                };
                let fields: Vec<String> = fields.iter().map(field).collect();
                format!("{{{}}}", fields.join(","))
            });
        let plain = (value(), value(), value(), "[ab]{1,2}").prop_map(|(ts, dur, hash, name)| {
            format!(
                "{{\"id\":1,\"name\":\"{name}\",\"cat\":\"c\",\"pid\":1,\"tid\":1,\"ts\":{ts},\
                 \"dur\":{dur},\"ph\":1,\"args\":{{\"fhash\":{hash}}}}}"
            )
        });
        prop_oneof![3 => plain, 2 => odd, 1 => "[a{\"}\\\\:]{0,9}"]
    }

    proptest! {
        #[test]
        fn found_lines_are_those_that_pass(
            records in proptest::collection::vec(record(), 0..40),
            query in prop_oneof![
                (0..40_u64, 0..40_u64).prop_map(|(a, b)| format!("ts >= {a} and ts < {b}")),
                (0..40_u64).prop_map(|a| format!("dur > {a} and exists(name)")),
                (0..40_u64).prop_map(|a| format!("ts == {a}")),
                "[ab]{1,2}".prop_map(|text| format!("fhash == '{text}'")),
                "[ab]{1,2}".prop_map(|text| format!("name in ['{text}', 'b'] and not fhash == 'a'")),
            ],
            ends in any::<bool>(),
        ) {
            let text = records.join("\n") + if ends { "\n" } else { "" };
            check(text.as_bytes(), &query);
        }
    }
}
