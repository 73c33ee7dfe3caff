//! A filter in terms of one file: texts become the hashes that stand for them in this file.
//!
//! - A hash compared with text (`fhash == "/p/x"`) is compared with every hash of that text as
//!   well, so both spellings of the same thing find it.
//! - A text (`fname`) is what the event holds itself, or what its hash stands for. An index knows
//!   only what events hold, so for pruning the question becomes: the event's own text passes, or it
//!   has none and its hash is one of those whose text passes. That is true of the very same
//!   events, which pruning below `not` relies on.

use std::collections::HashSet;
use std::convert::Infallible;

use query_language::{CompareOp, Condition, Expr, FieldPath, Filter, Number, Predicate, Scalar};
use trace_kinds::dft::{HASH_FIELDS, HashField, HashKind, HashValue, Names};

use crate::source::LocalFilter;

/// Hashes that a question may become. A text that more files share is not pruned by.
const HASHES_MAX: usize = 4_096;

/// Which names a filter asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NamesAsked {
    /// None, because it has no text to compare a hash with.
    None,
    /// The hashes of these texts, each of its kind.
    HashesOf(HashSet<(HashKind, Box<[u8]>)>),
    /// What any hash stands for.
    All,
}

/// Which names the filter asks for.
pub(crate) fn names_asked(filter: &Filter) -> NamesAsked {
    let (mut all, mut texts) = (false, HashSet::new());
    filter.for_each(&mut |predicate| {
        all |= text_field(predicate).is_some();
        if let Some(field) = hash_field(predicate) {
            let literals = text_literals(&predicate.condition);
            texts.extend(literals.map(|text| (field.kind, Box::from(text))));
        }
    });
    match (all, texts.is_empty()) {
        (true, _) => NamesAsked::All,
        (false, true) => NamesAsked::None,
        (false, false) => NamesAsked::HashesOf(texts),
    }
}

/// Whether the filter asks for any names.
pub(crate) fn asks_for_names(filter: &Filter) -> bool {
    names_asked(filter) != NamesAsked::None
}

/// The filter in terms of a file or stream with these names.
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

/// The literals that a value is compared with as a whole.
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

/// A hash compared with text, compared with the hashes of that text too.
fn with_hashes(predicate: &Predicate<Scalar>, field: &HashField, names: &Names) -> Filter {
    let Some((values, negated)) = compared(&predicate.condition) else {
        return Expr::Test(predicate.clone());
    };
    let texts: Vec<&[u8]> = text_literals(&predicate.condition).collect();
    let hashes = match texts.is_empty() {
        true => Vec::new(),
        false => names.hashes(field.kind, &|text| texts.contains(&text)),
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

/// A text asked by what events hold themselves.
fn by_hash(predicate: &Predicate<Scalar>, field: &HashField, names: &Names) -> Filter {
    let passes = |text: &[u8]| text_passes(&predicate.condition, text);
    let hashes = names.hashes(field.kind, &passes);
    if hashes.len() > HASHES_MAX {
        // A field that no index has: every chunk may match.
        return Expr::test(
            FieldPath::new("args.fname\u{0}"),
            predicate.condition.clone(),
        );
    }
    let own = || FieldPath::new(field.text);
    let of_hash = Condition::In {
        values: hashes.iter().map(literal).collect(),
        negated: false,
    };
    Expr::Or(vec![
        Expr::Test(predicate.clone()),
        Expr::And(vec![
            Expr::Not(Box::new(Expr::test(own(), Condition::Exists))),
            Expr::test(FieldPath::new(field.hash), of_hash),
        ]),
    ])
}

/// Whether a text passes a condition, as the evaluator judges it.
fn text_passes(condition: &Condition<Scalar>, text: &[u8]) -> bool {
    let filter = Expr::test(FieldPath::new("text"), condition.clone());
    let mut table = query_language::FieldTable::new();
    let program = query_language::Program::compile(&filter, &mut table);
    let event = [Some(query_language::Value::Str(text))];
    program.matches(event.as_slice())
}
