//! Aggregates of groups, as a list such as `count, sum:ret, p99:dur`.
//!
//! ```text
//! list      = aggregate ("," aggregate)*
//! aggregate = "count" | function ":" field
//! function  = "count" | "sum" | "avg" | "min" | "max" | "distinct" | "p" percent
//! percent   = 0 to 100, with up to three decimal places
//! ```

use crate::FieldPath;
use crate::error::{QueryError, QueryErrorKind};
use crate::field_list::parse_fields;
use crate::operand::parse_arithmetic;

/// What an aggregate computes from the values of its field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Function {
    /// Number of events that have the field; without one, number of events.
    Count,
    /// Sum of the numbers.
    Sum,
    /// Mean of the numbers.
    Avg,
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// The number that this share (0 to 1) of the numbers does not exceed, from a sketch.
    Quantile(f64),
    /// Number of distinct values.
    Distinct,
}

/// An aggregate of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// Name of its column.
    pub label: String,
    /// What is computed.
    pub function: Function,
    /// From the values of which field; `None` for the number of events.
    pub field: Option<FieldPath>,
}

const FUNCTIONS: &str = "count, or sum, avg, min, max, distinct, count or a percentile such as \
                         p99, with a colon and a field";

impl Aggregate {
    /// An aggregate of a field under another name.
    pub fn named(label: &str, function: Function, field: Option<&str>) -> Aggregate {
        Aggregate {
            label: label.to_owned(),
            function,
            field: field.map(FieldPath::new),
        }
    }

    /// Parses a list.
    ///
    /// # Errors
    /// When an item is no aggregate.
    pub fn parse_list(text: &str) -> Result<Vec<Aggregate>, QueryError> {
        let mut aggregates = Vec::new();
        for item in parse_fields(text)? {
            let start = text.find(&item).unwrap_or(0);
            if let Some((name, field)) = item.split_once(':')
                && field.starts_with('(')
                && let Err(error) = parse_arithmetic(field)
            {
                let start = start + name.len() + 1;
                let span = start + error.span().start..start + error.span().end;
                return Err(QueryError::new(text, span, error.kind().clone()));
            }
            let aggregate = parse(&item).ok_or_else(|| {
                let kind = QueryErrorKind::Expected {
                    expected: FUNCTIONS,
                    found: format!("`{item}`"),
                };
                QueryError::new(text, start..start + item.len(), kind)
            })?;
            aggregates.push(aggregate);
        }
        Ok(aggregates)
    }
}

fn parse(item: &str) -> Option<Aggregate> {
    let (name, field) = match item.split_once(':') {
        Some((_, "")) => return None,
        Some((name, field)) => (name, Some(field)),
        None => (item, None),
    };
    let function = match (name, field) {
        ("count", _) => Function::Count,
        (_, None) => return None,
        ("sum", _) => Function::Sum,
        ("avg", _) => Function::Avg,
        ("min", _) => Function::Min,
        ("max", _) => Function::Max,
        ("distinct", _) => Function::Distinct,
        (name, _) => Function::Quantile(share(name.strip_prefix('p')?)?),
    };
    Some(Aggregate::named(item, function, field))
}

/// A percentage as a share of one.
fn share(percent: &str) -> Option<f64> {
    let (whole, fraction) = percent.split_once('.').unwrap_or((percent, "0"));
    let digits = |text: &str, most| {
        (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if !digits(whole, 3) || !digits(fraction, 3) {
        return None;
    }
    let thousandths: u32 = format!("{whole}{fraction:0<3}").parse().ok()?;
    (thousandths <= 100_000).then(|| f64::from(thousandths) / 100_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(Function, Option<&str>)]) {
        let found = Aggregate::parse_list(text).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.function, one.field.as_ref().map(FieldPath::as_str)))
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn aggregates_are_functions_of_fields() {
        check("count", &[(Function::Count, None)]);
        check(
            "sum:ret, avg:dur,min:ts",
            &[
                (Function::Sum, Some("args.ret")),
                (Function::Avg, Some("dur")),
                (Function::Min, Some("ts")),
            ],
        );
        check("p99.9:dur", &[(Function::Quantile(0.999), Some("dur"))]);
        check(
            "p0:a,p100:a",
            &[
                (Function::Quantile(0.0), Some("args.a")),
                (Function::Quantile(1.0), Some("args.a")),
            ],
        );
        check("count:fname", &[(Function::Count, Some("args.fname"))]);
        check("`max:odd name`", &[(Function::Max, Some("args.odd name"))]);
        check(
            "max:`odd, name`, count:`i`,p99.9:`x`",
            &[
                (Function::Max, Some("args.odd, name")),
                (Function::Count, Some("args.i")),
                (Function::Quantile(0.999), Some("args.x")),
            ],
        );
        for text in [
            "",
            "sum",
            "sum:",
            "median:dur",
            "p101:dur",
            "p:dur",
            "p9.:dur",
            "p-1:dur",
            "pinf:dur",
            "count,",
            "count sum:ret",
            "p99.9999:dur",
        ] {
            assert!(Aggregate::parse_list(text).is_err(), "{text}");
        }
        let error = Aggregate::parse_list("count, med:dur").unwrap_err();
        assert_eq!(error.column(), 8);
    }
}
