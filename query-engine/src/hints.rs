//! Says which fields no event seems to have, with near names: those in the expression of a query
//! that matches nothing, or matches events without the field, and those that a result requests.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use query_language::{Expr, FieldId, FieldPath, FieldTable, arithmetic};
use trace_kinds::Event;
use trace_kinds::dft::HASH_FIELDS;

use crate::source::{ChunkSource, Scratch};
use crate::{Report, Request};

/// Events of each source whose fields are known.
const EVENTS_MAX: usize = 1_000;
/// Sources that are read,
const SOURCES_MAX: usize = 16;
/// and if the query matches something, so that its result may well be right.
const SOURCES_OF_MATCHES_MAX: usize = 4;
/// A query that decoded more than this is not slowed down further.
const DECODED_BYTES_MAX: u64 = 256 << 20;
/// Names of fields that are compared.
const NAMES_MAX: usize = 4_096;

/// The fields that a result requests, and whether one of its events has them.
#[derive(Debug, Default)]
pub(crate) struct Requested(Vec<(FieldPath, FieldId, AtomicBool)>);

impl Requested {
    /// Adds the fields to the table.
    pub(crate) fn new(paths: &[FieldPath], table: &mut FieldTable) -> Requested {
        let mut named = BTreeSet::new();
        for path in paths {
            add_named(path, &mut named);
        }
        let fields = named.into_iter().map(|path| {
            let id = table.insert(&path);
            (path, id, AtomicBool::new(false))
        });
        Requested(fields.collect())
    }

    /// Notes which of the fields an event of the result has.
    pub(crate) fn note(&self, event: &dyn Event) {
        for (_, id, is_found) in &self.0 {
            if !is_found.load(Ordering::Relaxed) && event.field(*id).is_some() {
                is_found.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The fields that no event had.
    fn missing(&self) -> impl Iterator<Item = &FieldPath> {
        let missing = |found: &&(FieldPath, FieldId, AtomicBool)| !found.2.load(Ordering::Relaxed);
        self.0.iter().filter(missing).map(|(path, ..)| path)
    }
}

/// Adds a field, or those of arithmetic. The common fields need no hint: kinds without them are
/// known.
fn add_named(path: &FieldPath, named: &mut BTreeSet<FieldPath>) {
    let mut add = |field: &FieldPath| {
        if field.as_str().contains('.') {
            named.insert(field.clone());
        }
    };
    match arithmetic(path) {
        Some(term) => term.for_each_field(&mut add),
        None => add(path),
    }
}

/// Calls `visit` with the fields of negated predicates, which accept events without the field.
fn each_negated<L>(expr: &Expr<L>, is_negated: bool, visit: &mut impl FnMut(&FieldPath)) {
    match expr {
        Expr::Test(predicate) if is_negated => visit(&predicate.field),
        Expr::Test(_) => {}
        Expr::And(operands) | Expr::Or(operands) => {
            for operand in operands {
                each_negated(operand, is_negated, visit);
            }
        }
        Expr::Not(operand) => each_negated(operand, true, visit),
    }
}

/// Adds hints to a report about fields that no event has: of the expression if nothing matches, of
/// its negated predicates, and of what the result requests. An event without a field may well be
/// meant, so of a query that matches something only names that are near others are told.
pub(crate) fn add_hints(
    sources: &[Box<dyn ChunkSource>],
    request: &Request,
    requested: &Requested,
    report: &mut Report,
) {
    let mut named: BTreeSet<FieldPath> = requested.missing().cloned().collect();
    let is_short = report.counters.decoded_bytes <= DECODED_BYTES_MAX;
    let query = request.query.as_ref().filter(|_| is_short);
    let mut unsure: BTreeSet<FieldPath> = BTreeSet::new();
    if let Some(query) = query {
        let expr = query.expr();
        match report.matched {
            0 => expr.for_each(&mut |predicate| add_named(&predicate.field, &mut named)),
            _ => each_negated(expr, false, &mut |field| add_named(field, &mut unsure)),
        }
    }
    unsure.retain(|field| !named.contains(field));
    let sources_max = if named.is_empty() {
        SOURCES_OF_MATCHES_MAX
    } else {
        SOURCES_MAX
    };
    named.extend(unsure.iter().cloned());
    if named.is_empty() {
        return;
    }
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut table = FieldTable::new();
    let wanted = Requested::new(&Vec::from_iter(named), &mut table);
    let sampled = sources.iter().take(sources_max);
    let events: usize = sampled
        .map(|source| sample(&**source, (&table, &wanted), &mut known))
        .sum();
    if events == 0 {
        return;
    }
    known.extend(HASH_FIELDS.iter().map(|field| field.text.to_owned()));
    for (field, _, is_found) in wanted.0 {
        let wanted = field.as_str();
        if known.contains(wanted) {
            continue;
        }
        let is_found = is_found.into_inner();
        let is_unsure = unsure.contains(&field);
        if let Some(member) = member_of(wanted, &known).filter(|_| !is_unsure) {
            let member = FieldPath::new(member);
            // The text of an object is its JSON, which is not that of a member.
            report.notes.push(if is_found {
                format!("the field {field} is an object; one of its members is {member}")
            } else {
                format!("none of the first {events} events has the field {field}, but {member}")
            });
            continue;
        }
        if is_found {
            continue;
        }
        // Written in a query, that name would mean the same field again.
        let others = known.iter().filter(|name| FieldPath::new(name) != field);
        let near = others.map(|name| (distance(wanted, name), name));
        let near = near.filter(|(far, _)| *far <= far_max(wanted)).min();
        let advice = match near {
            Some((_, near)) => format!("did you mean {near}?"),
            None if is_unsure => continue,
            None => "`tracehold fields` lists all".to_owned(),
        };
        report.notes.push(format!(
            "none of the first {events} events has the field {field}; {advice}"
        ));
    }
}

/// A field within another one, whose own value is not among the known fields.
fn member_of<'k>(field: &str, known: &'k BTreeSet<String>) -> Option<&'k str> {
    let prefix = format!("{field}.");
    let first = known.range(prefix.clone()..).next();
    first
        .map(String::as_str)
        .filter(|name| name.starts_with(&prefix))
}

/// Adds the names of the fields of the first events, and notes which of the wanted ones they have.
/// Returns their number.
fn sample(
    source: &dyn ChunkSource,
    (table, wanted): (&FieldTable, &Requested),
    known: &mut BTreeSet<String>,
) -> usize {
    // What cannot be read has been reported.
    let Ok(evidence) = source.evidence() else {
        return 0;
    };
    let tasks = match evidence {
        None => source.tasks(None),
        Some(evidence) if evidence.index().chunks().is_empty() => return 0,
        Some(_) => source.tasks(Some(&[0])),
    };
    let Some(task) = tasks.first() else {
        return 0;
    };
    let mut events = 0;
    let mut each = |event: &dyn Event| {
        wanted.note(event);
        event.each_field(&mut |field, _| {
            if !known.contains(field) && known.len() < NAMES_MAX {
                known.insert(field.to_owned());
            }
        });
        events += 1;
        if events < EVENTS_MAX {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    let _read = source.read(task, table, &mut Scratch::default(), &mut each);
    events
}

/// The name of a field without `args.`, `ctx.` or `packet.`.
fn bare(path: &str) -> &str {
    let roots = ["args.", "ctx.", "packet."];
    let found = roots.iter().find_map(|root| path.strip_prefix(root));
    found.unwrap_or(path)
}

/// The distance up to which a name is similar.
fn far_max(wanted: &str) -> usize {
    (bare(wanted).len() / 3).min(2)
}

/// Insertions, deletions, replacements and swaps of neighbours that make one name the other; none
/// if they differ in case or in the group of their fields only.
fn distance(wanted: &str, name: &str) -> usize {
    let (a, b) = (bare(wanted).to_lowercase(), bare(name).to_lowercase());
    if a.len().abs_diff(b.len()) > 2 {
        return usize::MAX;
    }
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    // The rows of the last two characters, and the one of this character.
    let mut earlier: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(earlier[j - 2] + 1);
            }
            row.push(least);
        }
        earlier = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wanted: &str, name: &str, is_near: bool) {
        let found = distance(wanted, name) <= far_max(wanted);
        assert_eq!(found, is_near, "{wanted} {name}");
    }

    #[test]
    fn near_names_differ_in_few_characters_case_or_root() {
        check("args.fnam", "args.fname", true);
        check("args.FName", "args.fname", true);
        check("args.vpid", "ctx.vpid", true);
        check("args.durration", "args.duration", true);
        check("args.ret", "args.rat", true);
        check("args.nmae", "name", true);
        check("args.rte", "args.ret", true);
        check("args.ab", "args.ac", false);
        check("args.nosuch", "args.fname", false);
        check("args.offset", "args.ret", false);
    }
}
