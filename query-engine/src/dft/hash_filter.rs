//! Rewrites a filter for one file: texts become the hashes that represent them in this file.
//!
//! - A hash that is compared with text (`fhash == "/p/x"`) is also compared with every hash of that
//!   text, so both spellings find the same events.
//! - A text field (`fname`) is the text in the event, or the text of its hash. An
//!   index only contains what is in events, so the filter for pruning becomes: the text in the
//!   event passes, or there is none and the hash is one of those whose text passes. This is true of
//!   exactly the same events, which pruning below `not` relies on.

use std::collections::HashSet;
use std::convert::Infallible;

use query_language::{CompareOp, Condition, Expr, FieldPath, Filter, Number, Predicate, Scalar};
use trace_kinds::dft::{HASH_FIELDS, HashField, HashKind, HashValue, Names};

use crate::source::LocalFilter;

/// Hashes that one predicate may become. With more hashes the predicate does not prune.
const HASHES_MAX: usize = 4_096;

/// The names that a filter needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NeededNames {
    /// None, because it compares no hash with text.
    None,
    /// The hashes of these texts, each of its kind.
    HashesOf(HashSet<(HashKind, Box<[u8]>)>),
    /// The texts of all hashes.
    All,
}

/// The names that the filter needs.
pub(crate) fn needed_names(filter: &Filter) -> NeededNames {
    let (mut all, mut texts) = (false, HashSet::new());
    filter.for_each(&mut |predicate| {
        all |= text_field(predicate).is_some();
        if let Some(field) = hash_field(predicate) {
            let literals = text_literals(&predicate.condition);
            texts.extend(literals.map(|text| (field.kind, Box::from(text))));
        }
    });
    match (all, texts.is_empty()) {
        (true, _) => NeededNames::All,
        (false, true) => NeededNames::None,
        (false, false) => NeededNames::HashesOf(texts),
    }
}

/// Whether the filter needs any names.
pub(crate) fn needs_names(filter: &Filter) -> bool {
    needed_names(filter) != NeededNames::None
}

/// Rewrites the filter for a file or stream with these names.
pub(crate) fn localize(filter: &Filter, names: &Names) -> LocalFilter {
    let evaluate = rewrite(filter, &|predicate| match hash_field(predicate) {
        Some(field) => with_hashes(predicate, field, names),
        None => Expr::Test(predicate.clone()),
    });
    let prune = rewrite(&evaluate, &|predicate| match text_field(predicate) {
        Some(field) => by_hash(predicate, field, names),
        None => Expr::Test(predicate.clone()),
    });
    LocalFilter { evaluate, prune }
}

fn rewrite(filter: &Filter, replace: &dyn Fn(&Predicate<Scalar>) -> Filter) -> Filter {
    let rewritten: Result<Filter, Infallible> =
        filter.rewrite(&mut |predicate| Ok(replace(predicate)));
    match rewritten {
        Ok(filter) => filter,
        Err(never) => match never {},
    }
}

fn hash_field(predicate: &Predicate<Scalar>) -> Option<&'static HashField> {
    HASH_FIELDS
        .iter()
        .find(|field| field.hash == predicate.field.as_str())
}

fn text_field(predicate: &Predicate<Scalar>) -> Option<&'static HashField> {
    HASH_FIELDS
        .iter()
        .find(|field| field.text == predicate.field.as_str())
}

/// The literals that a value is compared with for equality, and whether the comparison is negated.
fn compared(condition: &Condition<Scalar>) -> Option<(&[Scalar], bool)> {
    match condition {
        Condition::Compare(CompareOp::Eq, value) => Some((std::slice::from_ref(value), false)),
        Condition::Compare(CompareOp::Ne, value) => Some((std::slice::from_ref(value), true)),
        Condition::In { values, negated } => Some((values.as_slice(), *negated)),
        _ => None,
    }
}

/// The texts among them.
fn text_literals(condition: &Condition<Scalar>) -> impl Iterator<Item = &[u8]> {
    let values = compared(condition).map_or(&[][..], |(values, _)| values);
    values.iter().filter_map(|value| match value {
        Scalar::Str(text) => Some(&**text),
        Scalar::Number(_) | Scalar::Bool(_) => None,
    })
}

fn literal(hash: &HashValue) -> Scalar {
    match hash {
        HashValue::Number(number) => Scalar::Number(Number::Int(i128::from(*number))),
        HashValue::Text(text) => Scalar::Str(text.clone()),
    }
}

/// A comparison of a hash with text, extended by the hashes of that text.
fn with_hashes(predicate: &Predicate<Scalar>, field: &HashField, names: &Names) -> Filter {
    let Some((values, negated)) = compared(&predicate.condition) else {
        return Expr::Test(predicate.clone());
    };
    let texts: Vec<&[u8]> = text_literals(&predicate.condition).collect();
    let hashes = if texts.is_empty() {
        Vec::new()
    } else {
        names.hashes(field.kind, &|text| texts.contains(&text))
    };
    if hashes.is_empty() {
        return Expr::Test(predicate.clone());
    }
    let all = values
        .iter()
        .cloned()
        .chain(hashes.iter().map(literal))
        .collect();
    Expr::test(
        predicate.field.clone(),
        Condition::In {
            values: all,
            negated,
        },
    )
}

/// A predicate on a text field, expressed with fields that are in events.
fn by_hash(predicate: &Predicate<Scalar>, field: &HashField, names: &Names) -> Filter {
    let passes = |text: &[u8]| text_passes(&predicate.condition, text);
    let hashes = names.hashes(field.kind, &passes);
    if hashes.len() > HASHES_MAX {
        // No index has this field, so every chunk may match.
        return Expr::test(
            FieldPath::new("args.fname\u{0}"),
            predicate.condition.clone(),
        );
    }
    let text = || FieldPath::new(field.text);
    let of_hash = Condition::In {
        values: hashes.iter().map(literal).collect(),
        negated: false,
    };
    Expr::Or(vec![
        Expr::Test(predicate.clone()),
        Expr::And(vec![
            Expr::Not(Box::new(Expr::test(text(), Condition::Exists))),
            Expr::test(FieldPath::new(field.hash), of_hash),
        ]),
    ])
}

/// Whether a text passes a condition.
fn text_passes(condition: &Condition<Scalar>, text: &[u8]) -> bool {
    let filter = Expr::test(FieldPath::new("text"), condition.clone());
    let mut table = query_language::FieldTable::new();
    let program = query_language::Program::compile(&filter, &mut table);
    let event = [Some(query_language::Value::Str(text))];
    program.matches(event.as_slice())
}
