//! Random queries over the rows of a trace, and an evaluator of their results: filters over sampled
//! values, orders, limits, groups, intervals, histograms and aggregates. `random_sources` compares.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use harness::Random;
use serde_json::{Map, Value};

use crate::queries::{Ran, run};
use crate::random_arithmetic::without_computed;

/// An event: its fields.
pub(crate) type Row = Map<String, Value>;

/// A random one of some values.
fn one<'v, T>(random: &mut Random, values: &'v [T]) -> &'v T {
    let at = usize::try_from(random.below(values.len() as u64)).unwrap();
    &values[at]
}

fn chance(random: &mut Random, of: u64) -> bool {
    random.below(of) == 0
}

/// A number as in the query language: exact, and also of text that spells one.
fn number(value: &Value) -> Option<(i128, f64)> {
    let text = match value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    let digits = text.strip_prefix('-').unwrap_or(&text);
    let begins = digits.starts_with(|c: char| c.is_ascii_digit());
    if !begins
        || !digits
            .chars()
            .all(|c| c.is_ascii_digit() || ".eE+-".contains(c))
    {
        return None;
    }
    if let Ok(whole) = text.parse::<i128>() {
        return Some((whole, 0.0));
    }
    let float: f64 = text.parse().ok().filter(|float: &f64| float.is_finite())?;
    if float.abs() >= 1e38 {
        // Beyond all integers: the float itself decides.
        let whole = if float < 0.0 { i128::MIN } else { i128::MAX };
        return Some((whole, float));
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is in range")]
    Some((float.trunc() as i128, float.fract()))
}

fn float(value: &Value) -> Option<f64> {
    let (whole, fraction) = number(value)?;
    let is_huge = fraction.abs() >= 1e38;
    Some(if is_huge {
        fraction
    } else {
        whole as f64 + fraction
    })
}

/// Numbers by value, others byte by byte; `None` for different types.
fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        _ => number(a)?.partial_cmp(&number(b)?),
    }
}

/// The place of a value in an order: booleans, numbers, text, missing.
fn in_order(a: Option<&Value>, b: Option<&Value>, descending: bool) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Bool(_) => 0,
        _ if number(value).is_some() => 1,
        _ => 2,
    };
    let (a, b) = match (a, b) {
        (None, None) => return Ordering::Equal,
        (None, _) => return Ordering::Greater,
        (_, None) => return Ordering::Less,
        (Some(a), Some(b)) => (a, b),
    };
    let order = rank(a).cmp(&rank(b)).then_with(|| match number(a) {
        Some(a) => a.partial_cmp(&number(b).unwrap()).unwrap(),
        None => compare(a, b).unwrap(),
    });
    if descending { order.reverse() } else { order }
}

/// A filter, and what it should match.
struct Filter {
    text: String,
    passes: Box<dyn Fn(&Row) -> bool>,
}

fn filter(random: &mut Random, rows: &[Row], depth: u64) -> Filter {
    match random.below(if depth == 0 { 1 } else { 4 }) {
        0 | 1 => predicate(random, rows),
        2 => {
            let inner = filter(random, rows, depth - 1);
            Filter {
                text: format!("not ({})", inner.text),
                passes: Box::new(move |row| !(inner.passes)(row)),
            }
        }
        _ => {
            let is_and = chance(random, 2);
            let word = if is_and { "and" } else { "or" };
            let (a, b) = (
                filter(random, rows, depth - 1),
                filter(random, rows, depth - 1),
            );
            Filter {
                text: format!("({}) {word} ({})", a.text, b.text),
                passes: Box::new(move |row| {
                    let (a, b) = ((a.passes)(row), (b.passes)(row));
                    if is_and { a && b } else { a || b }
                }),
            }
        }
    }
}

/// A field of a random row, and its value there.
fn sample(random: &mut Random, rows: &[Row]) -> (String, Value) {
    loop {
        let row = one(random, rows);
        let names: Vec<&String> = row.keys().collect();
        let name = *one(random, &names);
        let is_plain = match &row[name] {
            // It becomes a part of an argument of the command line.
            Value::String(text) => {
                let is_special = |c: char| c.is_control() || "\"'\\\u{fffd}".contains(c);
                !text.contains(is_special)
            }
            Value::Null => false,
            _ => true,
        };
        if is_plain {
            return (name.clone(), row[name].clone());
        }
    }
}

fn literal(field: &str, value: &Value) -> String {
    match value {
        Value::String(text) => format!("'{text}'"),
        // Nanoseconds in every kind.
        number if field == "dur" => format!("{number}ns"),
        other => other.to_string(),
    }
}

/// A field in an expression.
fn operand(field: &str) -> String {
    if field.starts_with('(') {
        field.to_owned()
    } else {
        format!("`{field}`")
    }
}

fn predicate(random: &mut Random, rows: &[Row]) -> Filter {
    let (field, value) = sample(random, rows);
    let of = |text: String, passes: Box<dyn Fn(&Value) -> bool>| {
        let name = field.clone();
        Filter {
            text: format!("{} {text}", operand(&field)),
            passes: Box::new(move |row| row.get(&name).is_some_and(&passes)),
        }
    };
    if field == "ts" || chance(random, 6) {
        let name = field.clone();
        let is_null = chance(random, 2);
        let text = if is_null { "is null" } else { "is not null" };
        return Filter {
            text: format!("{} {text}", operand(&field)),
            passes: Box::new(move |row| row.contains_key(&name) != is_null),
        };
    }
    let written = literal(&field, &value);
    if let Value::String(text) = &value
        && chance(random, 3)
    {
        let part: String = text.chars().skip(1).take(3).collect();
        let wanted = part.clone();
        return of(
            format!("contains '{part}'"),
            Box::new(move |found| match found {
                Value::String(found) => found.contains(&wanted),
                _ => false,
            }),
        );
    }
    if chance(random, 5) {
        let negated = chance(random, 2);
        let word = if negated { "not in" } else { "in" };
        return of(
            format!("{word} [{written}]"),
            Box::new(move |found| (compare(found, &value) == Some(Ordering::Equal)) != negated),
        );
    }
    type Test = fn(Ordering) -> bool;
    let operators: [(&str, Test); 6] = [
        ("==", Ordering::is_eq),
        ("!=", Ordering::is_ne),
        ("<", Ordering::is_lt),
        ("<=", Ordering::is_le),
        (">", Ordering::is_gt),
        (">=", Ordering::is_ge),
    ];
    let (op, test) = *one(random, &operators);
    of(
        format!("{op} {written}"),
        Box::new(move |found| compare(found, &value).is_some_and(test)),
    )
}

/// A query: its arguments, and the expected lines.
pub(crate) struct Query {
    arguments: Vec<String>,
    lines: Vec<Row>,
    /// Columns whose numbers are within one percent.
    about: Vec<String>,
    found: bool,
}

fn quote(label: &str) -> String {
    if label.starts_with('(') || label.contains(":(") {
        label.to_owned()
    } else {
        format!("`{label}`")
    }
}

pub(crate) fn query(random: &mut Random, rows: &[Row]) -> Query {
    let filter = filter(random, rows, 2);
    let found = rows.iter().filter(|row| (filter.passes)(row));
    let found: Vec<&Row> = found.collect();
    let mut query = if chance(random, 2) {
        ordered(random, rows, &found)
    } else {
        grouped(random, rows, &found)
    };
    let offset = if chance(random, 3) {
        random.below(4)
    } else {
        0
    };
    let limit = chance(random, 2).then(|| random.below(9) + 1);
    if offset > 0 {
        query
            .arguments
            .extend(["--offset".into(), offset.to_string()]);
    }
    if let Some(limit) = limit {
        query
            .arguments
            .extend(["--limit".into(), limit.to_string()]);
    }
    let (skip, take) = (
        usize::try_from(offset).unwrap(),
        usize::try_from(limit.unwrap_or(1 << 40)).unwrap(),
    );
    query.lines = query.lines.into_iter().skip(skip).take(take).collect();
    query.found = !found.is_empty() && !query.lines.is_empty();
    query.arguments.insert(0, filter.text);
    query
}

fn ordered(random: &mut Random, rows: &[Row], found: &[&Row]) -> Query {
    let mut found = found.to_vec();
    let mut arguments = Vec::new();
    let count = random.below(3);
    if count > 0 {
        let keys = (0..count).map(|_| (sample(random, rows).0, chance(random, 2)));
        let keys: Vec<(String, bool)> = keys.collect();
        found.sort_by(|a, b| {
            let of = |(name, descending): &(String, bool)| {
                in_order(a.get(name), b.get(name), *descending)
            };
            let orders = keys.iter().map(of);
            orders.fold(Ordering::Equal, Ordering::then)
        });
        let keys = keys.iter().map(|(name, descending)| {
            let direction = if *descending { " desc" } else { "" };
            format!("{}{direction}", quote(name))
        });
        let keys: Vec<String> = keys.collect();
        arguments = vec!["--order-by".to_owned(), keys.join(", ")];
    }
    Query {
        arguments,
        lines: found.into_iter().map(without_computed).collect(),
        about: Vec::new(),
        found: true,
    }
}

type Group<'r> = (Vec<Option<Value>>, Vec<&'r Row>);

fn grouped(random: &mut Random, rows: &[Row], found: &[&Row]) -> Query {
    let mut arguments = Vec::new();
    let mut keys: Vec<String> = Vec::new();
    for _ in 0..random.below(3) {
        let (name, _) = sample(random, rows);
        if name != "ts" && !keys.contains(&name) {
            keys.push(name);
        }
    }
    if !keys.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| quote(key)).collect();
        arguments.extend(["--group-by".to_owned(), keys.join(",")]);
    }
    let every = chance(random, 3).then(|| *one(random, &[1_000_i64, 7_000_000, 1_000_000_000]));
    if let Some(every) = every {
        arguments.extend(["--every".to_owned(), format!("{every}ns")]);
    }
    let histogram = chance(random, 4).then(|| sample(random, rows).0);
    if let Some(field) = &histogram {
        arguments.extend(["--histogram".to_owned(), field.clone()]);
    }
    let mut aggregates = vec![("count".to_owned(), None)];
    let functions = [
        "sum", "avg", "min", "max", "count", "distinct", "p0", "p50", "p99.9",
    ];
    for _ in 0..random.below(4) {
        let name = sample(random, rows).0;
        let label = format!("{}:{name}", one(random, &functions));
        let is_named = |(other, _): &(String, _)| *other == label;
        if !aggregates.iter().any(is_named) {
            aggregates.push((label, Some(name)));
        }
    }
    let labels: Vec<String> = aggregates.iter().map(|(label, _)| quote(label)).collect();
    arguments.extend(["--aggregate".to_owned(), labels.join(",")]);
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    if keys.is_empty() && every.is_none() && histogram.is_none() {
        groups.push((Vec::new(), Vec::new()));
        known.insert("[]".to_owned(), 0);
    }
    for row in found {
        let interval = every.map(|every| {
            let start = row.get("ts").and_then(Value::as_i64);
            start.map(|start| Value::from(start.div_euclid(every) * every))
        });
        let fields = keys.iter().map(|key| row.get(key).cloned());
        let power = histogram.as_ref().map(|field| {
            let (whole, _) = number(row.get(field)?)?;
            let whole = u64::try_from(whole.clamp(0, u64::MAX.into())).unwrap();
            Some(Value::from(
                whole.checked_ilog2().map_or(0, |bit| 1_u64 << bit),
            ))
        });
        let key: Vec<_> = interval.into_iter().chain(fields).chain(power).collect();
        let text = serde_json::to_string(&key).unwrap();
        let at = *known.entry(text).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push(row);
    }
    sort_groups(&mut groups, every.is_some(), histogram.is_some());
    let mut columns: Vec<String> = every.iter().map(|_| "ts".to_owned()).collect();
    columns.extend(keys);
    columns.extend(histogram.map(|field| format!("{field}_from")));
    let lines = groups.iter().map(|(key, rows)| {
        let keys = columns.iter().cloned().zip(key.iter().cloned());
        let results = aggregates.iter().map(|(label, field)| {
            let function = label.split(':').next().unwrap();
            (label.clone(), aggregate(function, field.as_deref(), rows))
        });
        let cells = keys.chain(results);
        cells
            .map(|(name, cell)| (name, cell.unwrap_or(Value::Null)))
            .collect()
    });
    Query {
        lines: lines.collect(),
        about: aggregates.into_iter().map(|(label, _)| label).collect(),
        arguments,
        found: true,
    }
}

/// By interval and bucket, then the largest first, then by keys.
fn sort_groups(groups: &mut [Group<'_>], has_interval: bool, has_bucket: bool) {
    groups.sort_by(|(a, rows_a), (b, rows_b)| {
        let last = a.len().wrapping_sub(1);
        let is_bucket = |at: &usize| (has_interval && *at == 0) || (has_bucket && *at == last);
        // Texts that spell the same number are different groups, and come before numbers; those
        // without a fraction come before the others, and zero before minus zero.
        let spelling = |value: &Option<Value>| match value {
            Some(Value::String(text)) => (0, text.len(), text.clone()),
            Some(Value::Number(number)) if number.is_f64() => {
                let is_negative = number.as_f64().is_some_and(f64::is_sign_negative);
                (2, usize::from(is_negative), String::new())
            }
            _ => (1, 0, String::new()),
        };
        let at = |at: usize| {
            let order = in_order(a[at].as_ref(), b[at].as_ref(), false);
            order.then(spelling(&a[at]).cmp(&spelling(&b[at])))
        };
        let buckets = (0..a.len()).filter(is_bucket).map(at);
        let others = (0..a.len()).filter(|at| !is_bucket(at)).map(at);
        buckets
            .fold(Ordering::Equal, Ordering::then)
            .then(rows_b.len().cmp(&rows_a.len()))
            .then(others.fold(Ordering::Equal, Ordering::then))
    });
}

fn aggregate(function: &str, field: Option<&str>, rows: &[&Row]) -> Option<Value> {
    let Some(field) = field else {
        return Some(Value::from(rows.len()));
    };
    let values: Vec<&Value> = rows.iter().filter_map(|row| row.get(field)).collect();
    let mut numbers: Vec<f64> = values.iter().filter_map(|value| float(value)).collect();
    // Of texts that spell the same number, the shorter one is the smaller one.
    let spelling = |value: &&Value| value.as_str().map(|text| (text.len(), text.to_owned()));
    let mut sorted = values.clone();
    sorted.sort_by(|a, b| {
        let order = in_order(Some(a), Some(b), false);
        order.then_with(|| spelling(a).cmp(&spelling(b)))
    });
    match function {
        "count" => Some(Value::from(values.len())),
        "min" => sorted.first().map(|value| (*value).clone()),
        "max" => sorted.last().map(|value| (*value).clone()),
        "distinct" => {
            let mut distinct = values.clone();
            distinct.sort_by(|a, b| in_order(Some(a), Some(b), false));
            distinct.dedup_by(|a, b| in_order(Some(a), Some(b), false).is_eq());
            Some(Value::from(distinct.len()))
        }
        _ if numbers.is_empty() => None,
        "sum" => Some(Value::from(numbers.iter().sum::<f64>())),
        "avg" => Some(Value::from(
            numbers.iter().sum::<f64>() / numbers.len() as f64,
        )),
        percentile => {
            let share: f64 = percentile.strip_prefix('p')?.parse().unwrap();
            numbers.sort_by(f64::total_cmp);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rank is below the count"
            )]
            // Thousandths of a percent are whole, so the rank is exact.
            let share = (share * 1_000.0).round() as usize;
            let rank = (share * numbers.len()).div_ceil(100_000).max(1) - 1;
            Some(Value::from(numbers[rank]))
        }
    }
}

/// Whether two cells are equal, numbers by value.
fn is_same(found: &Value, expected: &Value, label: &str) -> bool {
    if label.starts_with('p') && label.contains(':')
        || label.starts_with("sum:")
        || label.starts_with("avg:")
    {
        return match (found.as_f64(), expected.as_f64()) {
            // Sums of this evaluator are rounded; percentiles are approximate.
            (Some(found), Some(expected)) => {
                let error = if label.starts_with('p') { 0.0101 } else { 1e-9 };
                (found - expected).abs() <= expected.abs() * error
            }
            (found, expected) => found == expected,
        };
    }
    found == expected
        || compare(found, expected) == Some(Ordering::Equal)
        || is_read_alike(found, expected)
}

/// Whether two fractions differ by what the JSON reader of the tests loses, which does not read the
/// last digit exactly.
fn is_read_alike(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= b.abs() * (2.0 * f64::EPSILON)
        }
        _ => false,
    }
}

pub(crate) fn check(queries: &[Query], source: &[&str], what: &str) {
    check_by(&run, queries, source, what);
}

/// Compares on a source, with a way to run the client.
pub(crate) fn check_by(
    run: &dyn Fn(&[&str]) -> Ran,
    queries: &[Query],
    source: &[&str],
    what: &str,
) {
    for query in queries {
        let arguments: Vec<&str> = query.arguments.iter().map(String::as_str).collect();
        let form = ["--format", "ndjson"];
        let all = [&["query"], source, &arguments[..], &form].concat();
        let (code, out, errors) = run(&all);
        let said = format!("{what}: {arguments:?}\n{out}{errors}");
        assert_eq!(code, i32::from(!query.found), "{said}");
        let lines: Vec<Row> = out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), query.lines.len(), "{said}");
        for (found, expected) in lines.iter().zip(&query.lines) {
            let differs = expected.iter().find(|(name, value)| {
                let cell = found.get(*name);
                !cell.is_some_and(|cell| is_same(cell, value, query.about_of(name)))
            });
            assert!(
                differs.is_none() && found.len() == expected.len(),
                "{differs:?} {found:?} not {expected:?} in {said}"
            );
        }
    }
}

impl Query {
    /// The expression.
    pub(crate) fn expression(&self) -> &str {
        &self.arguments[0]
    }

    /// The name of an aggregate, or nothing for other columns.
    fn about_of<'q>(&'q self, name: &'q str) -> &'q str {
        if self.about.iter().any(|label| label == name) {
            name
        } else {
            ""
        }
    }
}
