//! Random queries over all operators, compared with an evaluator that shares no code with the
//! programs: files with and without indexes, compressed, and storages in every state.
//!
//! `TRACEHOLD_RANDOM_QUERIES` is the number of queries, if it is more than in the suite.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use harness::{Random, Server};
use serde_json::{Map, Value, json};

use crate::queries::{mount, push, run, settings, wait_for_indexes};

/// Events of the trace.
const EVENTS: u64 = 600;
/// Queries that are compared.
const QUERIES: u64 = 40;
/// Start of the trace in microseconds.
const BEGIN: u64 = 1_700_000_000_000_000;

const NAMES: [&str; 5] = ["read", "pread", "write", "open", "close"];
const PATHS: [&str; 4] = ["/data/a", "/data/b.txt", "/tmp/a", "b"];
const LISTS: [&str; 3] = ["[1,2]", "[]", "[{\"z\":1,\"a\":[0.5]}]"];

/// A random number below `end`.
fn below(random: &mut Random, end: u16) -> u16 {
    u16::try_from(random.below(u64::from(end))).unwrap()
}

/// One of some values.
fn one<T: Copy>(random: &mut Random, values: &[T]) -> T {
    let count = u16::try_from(values.len()).unwrap();
    values[usize::from(below(random, count))]
}

/// An event; some arguments are missing.
fn event(random: &mut Random, id: u64) -> Value {
    let list = one(random, &LISTS);
    let mut args = Map::new();
    for (name, value) in [
        ("ret", json!(i32::from(below(random, 40)) - 20)),
        ("ratio", json!(f64::from(below(random, 8)) / 4.0)),
        ("path", json!(one(random, &PATHS))),
        ("flag", json!(below(random, 2) == 0)),
        ("list", serde_json::from_str(list).unwrap()),
    ] {
        if below(random, 4) > 0 {
            args.insert(name.to_owned(), value);
        }
    }
    json!({
        "id": id, "name": one(random, &NAMES), "cat": one(random, &["POSIX", "STDIO"]),
        "pid": below(random, 4), "tid": below(random, 9), "ts": BEGIN + id * 10,
        "dur": below(random, 50), "ph": "X", "args": args,
    })
}

/// A line in DFTracer's layout, in another one, or with spaces in nested values.
fn line(random: &mut Random, event: &Value) -> String {
    let of = |key: &str| event[key].to_string();
    let mut args = of("args");
    if below(random, 2) == 0 {
        args = args.replace("[1,2]", "[1, 2]").replace("{\"a\"", "{ \"a\"");
    }
    let keys = ["id", "name", "cat", "pid", "tid", "ts", "dur", "ph"];
    let mut fields: Vec<String> = keys.map(|key| format!("\"{key}\":{}", of(key))).to_vec();
    fields.push(format!("\"args\":{args}"));
    if below(random, 8) == 0 {
        fields.reverse();
    }
    format!("{{{}}}\n", fields.join(","))
}

/// A predicate or a combination of some.
enum Expression {
    Test {
        field: &'static str,
        text: String,
        passes: Box<dyn Fn(&Value) -> bool>,
    },
    /// With its value where the field is missing.
    Missing(&'static str, String, bool),
    Not(Box<Expression>),
    Both(Box<Expression>, &'static str, Box<Expression>),
}

impl Expression {
    fn random(random: &mut Random, depth: u16) -> Self {
        match below(random, if depth == 0 { 1 } else { 4 }) {
            0 => test(random),
            1 => Self::Not(Box::new(Self::random(random, depth - 1))),
            _ => {
                let word = one(random, &["and", "or", "AND", "Or"]);
                let (a, b) = (
                    Self::random(random, depth - 1),
                    Self::random(random, depth - 1),
                );
                Self::Both(Box::new(a), word, Box::new(b))
            }
        }
    }

    /// With brackets only where the precedence of operators needs them.
    fn text(&self, precedence: u8) -> String {
        let (own, text) = match self {
            Self::Test { field, text, .. } => (3, format!("{field} {text}")),
            Self::Missing(_, text, _) => (3, text.clone()),
            Self::Not(inner) => (2, format!("not {}", inner.text(2))),
            Self::Both(a, word, b) => {
                let own = u8::from(word.eq_ignore_ascii_case("and"));
                (own, format!("{} {word} {}", a.text(own), b.text(own)))
            }
        };
        if own < precedence {
            format!("({text})")
        } else {
            text
        }
    }

    fn passes(&self, event: &Value) -> bool {
        match self {
            Self::Test { field, passes, .. } => value(event, field).is_some_and(passes),
            Self::Missing(field, _, expected) => value(event, field).is_none() == *expected,
            Self::Not(inner) => !inner.passes(event),
            Self::Both(a, word, b) if word.eq_ignore_ascii_case("and") => {
                a.passes(event) && b.passes(event)
            }
            Self::Both(a, _, b) => a.passes(event) || b.passes(event),
        }
    }
}

fn value<'v>(event: &'v Value, field: &str) -> Option<&'v Value> {
    if field == "kind" {
        return Some(&Value::Null);
    }
    event.get(field).or_else(|| event["args"].get(field))
}

fn of(field: &'static str, text: String, passes: impl Fn(&Value) -> bool + 'static) -> Expression {
    let passes = Box::new(passes);
    Expression::Test {
        field,
        text,
        passes,
    }
}

fn test(random: &mut Random) -> Expression {
    match below(random, 8) {
        0 => {
            let field = one(random, &["pid", "tid", "ret", "ratio"]);
            number(random, field)
        }
        // Durations of DFTracer are in microseconds.
        1 => number(random, "dur"),
        2 => {
            let at = 1_700_000_000_000_000.0 + f64::from(below(random, 600)) * 10.0;
            let (op, compare) = one(random, &OPERATORS);
            let passes = move |found: &Value| compare(found.as_f64().unwrap() - at);
            of("ts", format!("{op} {at}"), passes)
        }
        3 => {
            let us = f64::from(below(random, 60));
            let (op, compare) = one(random, &OPERATORS);
            let passes = move |found: &Value| compare(found.as_f64().unwrap() - us);
            of("dur", format!("{op} {us}us"), passes)
        }
        4 => text(random),
        5 => {
            let field = one(random, &["ret", "path", "flag", "list", "nosuch", "name"]);
            match below(random, 3) {
                0 => Expression::Missing(field, format!("exists({field})"), false),
                1 => Expression::Missing(field, format!("{field} is null"), true),
                _ => Expression::Missing(field, format!("{field} is not null"), false),
            }
        }
        6 => {
            let wanted = below(random, 2) == 0;
            let passes = move |found: &Value| *found == json!(wanted);
            of("flag", format!("== {wanted}"), passes)
        }
        _ => {
            let (kind, is_kind) = one(random, &[("dft", true), ("ctf", false)]);
            of("kind", format!("== '{kind}'"), move |_| is_kind)
        }
    }
}

/// An operator, and whether a difference of both sides passes.
type Operator = (&'static str, fn(f64) -> bool);

const OPERATORS: [Operator; 6] = [
    ("==", |d| d == 0.0),
    ("!=", |d| d != 0.0),
    ("<", |d| d < 0.0),
    ("<=", |d| d <= 0.0),
    (">", |d| d > 0.0),
    (">=", |d| d >= 0.0),
];

fn number(random: &mut Random, field: &'static str) -> Expression {
    let half = f64::from(below(random, 120)) / 4.0 - 10.0;
    let wanted = if below(random, 2) == 0 {
        half.floor()
    } else {
        half
    };
    if below(random, 4) == 0 {
        let other = wanted + 1.0;
        let is_negated = below(random, 2) == 0;
        let word = if is_negated { "not in" } else { "in" };
        let passes = move |found: &Value| {
            let found = found.as_f64().unwrap();
            ([wanted, other].contains(&found)) != is_negated
        };
        return of(field, format!("{word} [{wanted}, {other}]"), passes);
    }
    let (op, compare) = one(random, &OPERATORS);
    let passes = move |found: &Value| compare(found.as_f64().unwrap() - wanted);
    of(field, format!("{op} {wanted}"), passes)
}

/// A test of a text. The text of an array is its compact JSON.
fn text(random: &mut Random) -> Expression {
    let fields: [(&'static str, &[&'static str]); 4] = [
        ("name", &NAMES),
        ("cat", &["POSIX", "STDIO"]),
        ("path", &PATHS),
        ("list", &LISTS[..2]),
    ];
    let (field, values) = one(random, &fields);
    let wanted = one(random, values);
    let part = match below(random, 3) {
        0 => wanted,
        1 => wanted.get(1..3).unwrap_or(wanted),
        _ => wanted.get(..2).unwrap_or(wanted),
    };
    let escape = |c: char| (!c.is_alphanumeric() && c != '/').then_some('\\');
    let escaped: String = part
        .chars()
        .flat_map(|c| escape(c).into_iter().chain([c]))
        .collect();
    let (text, wanted, test): (String, _, fn(&str, &str) -> bool) = match below(random, 8) {
        0 => (format!("== \"{wanted}\""), wanted, |found, wanted| {
            found == wanted
        }),
        1 => (format!("!= '{wanted}'"), wanted, |found, wanted| {
            found != wanted
        }),
        2 => (format!("in ['{wanted}', 'x']"), wanted, |found, wanted| {
            found == wanted
        }),
        3 => (
            format!("not in ['{wanted}', 'x']"),
            wanted,
            |found, wanted| found != wanted,
        ),
        4 => (format!("contains '{part}'"), part, |found, part| {
            found.contains(part)
        }),
        5 => (format!("starts_with '{part}'"), part, |found, part| {
            found.starts_with(part)
        }),
        6 => (format!("like '%{part}'"), part, |found, part| {
            found.ends_with(part)
        }),
        _ => (format!("~ '^{escaped}'"), part, |found, part| {
            found.starts_with(part)
        }),
    };
    of(field, text, move |found| match found {
        Value::String(found) => test(found, wanted),
        other => test(&other.to_string(), wanted),
    })
}

/// The ids of the matching events according to a source, in order of time.
fn ids(source: &[&str], query: &str) -> Vec<u64> {
    let form = ["--fields", "id", "--format", "csv"];
    let (code, out, errors) = run(&[&["query"], source, &[query], &form].concat());
    assert!(code <= 1, "{source:?} {query}: {errors}");
    // The generator also asks for a field that no event has.
    let is_hint = |line: &str| line.contains("events has the field");
    assert!(errors.lines().all(is_hint), "{source:?} {query}: {errors}");
    out.lines().skip(1).map(|id| id.parse().unwrap()).collect()
}

fn check(expected: &[(String, Vec<u64>)], source: &[&str], what: &str) {
    for (query, expected) in expected {
        assert_eq!(ids(source, query), *expected, "{what}: {query}");
        let (code, out, errors) = run(&[&["query"], source, &[query, "--count"]].concat());
        assert_eq!(
            out.trim(),
            expected.len().to_string(),
            "{what}: {query} {errors}"
        );
        assert_eq!(code, i32::from(expected.is_empty()), "{what}: {query}");
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let parts = text
        .split_inclusive(|byte| *byte == b'\n')
        .collect::<Vec<_>>();
    let members = parts.chunks(100).map(|lines| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&lines.concat()).unwrap();
        encoder.finish().unwrap()
    });
    members.collect::<Vec<_>>().concat()
}

/// Compares the queries on a file: without an index, with one, and with columns.
fn check_file(expected: &[(String, Vec<u64>)], path: &Path) {
    let file = path.to_str().unwrap();
    check(expected, &[file], file);
    for more in [
        &["--field", "args.ret", "--field", "args.list"][..],
        &["--columns"],
    ] {
        let (code, _, errors) = run(&[&["index", file, "--chunk-kib", "16"], more].concat());
        assert_eq!(code, 0, "{errors}");
        check(expected, &[file], &format!("{file} {more:?}"));
    }
}

#[test]
fn random_queries_have_the_results_of_an_independent_evaluator() {
    let mut random = Random::new(20_261_122);
    let events: Vec<Value> = (0..EVENTS).map(|id| event(&mut random, id)).collect();
    let mut trace = String::from("[\n");
    for event in &events {
        write!(trace, "{}", line(&mut random, event)).unwrap();
    }
    let count = std::env::var("TRACEHOLD_RANDOM_QUERIES");
    let count = count.map_or(QUERIES, |count| count.parse().unwrap());
    let expected: Vec<(String, Vec<u64>)> = (0..count.max(QUERIES))
        .map(|_| {
            let expression = Expression::random(&mut random, 3);
            let found = events.iter().filter(|event| expression.passes(event));
            let ids = found.map(|event| event["id"].as_u64().unwrap());
            (expression.text(0), ids.collect())
        })
        .collect();
    let some = |(_, ids): &&(String, Vec<u64>)| !ids.is_empty() && ids.len() < events.len();
    assert!(expected.iter().filter(some).count() > 15);

    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.pfw");
    let compressed = folder.path().join("compressed.pfw.gz");
    fs::write(&plain, &trace).unwrap();
    fs::write(&compressed, gzip(trace.as_bytes())).unwrap();
    let server = Server::start(&folder.path().join("data"), &settings());
    let storage = server.api().create_storage("trace");
    push(&server, &storage, &compressed, "4096");
    let url = server.url();
    let stored = ["--server", url.as_str(), "--storage", storage.as_str()];
    check(&expected, &stored, "an open storage");
    server.api().finalize(&storage);
    wait_for_indexes(&server, &storage);
    check(&expected, &stored, "a finalized storage");
    let mounted = folder.path().join("mount");
    mount(&server, &storage, &mounted);
    check(&expected, &["--dir", mounted.to_str().unwrap()], "a mount");
    check_file(&expected, &plain);
    check_file(&expected, &compressed);
}
