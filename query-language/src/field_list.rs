//! Lists of fields outside of expressions: columns, keys of an order, keys of groups.
//!
//! ```text
//! list  = item ("," item)*
//! item  = field ["asc" | "desc"]
//! field = any text without spaces, commas and backquotes | "`" any but a backquote "`"
//!       | "(" arithmetic ")"
//! ```

use std::ops::Range;

use crate::FieldPath;
use crate::error::{LISTED_FIELDS_MAX, QueryError, QueryErrorKind};
use crate::operand::parse_arithmetic;

/// A field by which rows are ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderKey {
    /// The field as written, which is the name of its column.
    pub label: String,
    /// Whether large values come first.
    pub descending: bool,
}

impl OrderKey {
    /// Parses a list such as `dur desc, name`.
    ///
    /// # Errors
    /// When an item is no field, or is followed by something else than `asc` or `desc`.
    pub fn parse_list(text: &str) -> Result<Vec<OrderKey>, QueryError> {
        let key = |(label, rest, span): Item<'_>| {
            let descending = match rest {
                "" => false,
                word if word.eq_ignore_ascii_case("asc") => false,
                word if word.eq_ignore_ascii_case("desc") => true,
                other => {
                    let start = span.end - other.len();
                    return Err(expected(text, start..span.end, "asc, desc or a comma"));
                }
            };
            let is_bare = !text[span.clone()].starts_with('`');
            if let Some(meant) = other_direction(label).filter(|_| is_bare) {
                let found = label.to_owned();
                let kind = QueryErrorKind::OtherDirection { found, meant };
                return Err(QueryError::new(text, span, kind));
            }
            Ok(OrderKey {
                label: label.to_owned(),
                descending,
            })
        };
        items(text)?.into_iter().map(key).collect()
    }

    /// The field.
    pub fn field(&self) -> FieldPath {
        FieldPath::new(&self.label)
    }
}

/// What the order of another language is here: `dur:desc` and `-dur` would be fields that no event
/// has, and rows in order of time.
fn other_direction(label: &str) -> Option<String> {
    if let Some(field) = label.strip_prefix('-') {
        return Some(format!("{field} desc"));
    }
    if let Some(field) = label.strip_prefix('+') {
        return Some(field.to_owned());
    }
    let (field, direction) = label.rsplit_once(':')?;
    let direction = direction.to_ascii_lowercase();
    ["asc", "desc"]
        .contains(&direction.as_str())
        .then(|| format!("{field} {direction}"))
}

/// Parses a list of fields such as ``name, pid, `odd name` ``.
///
/// # Errors
/// When an item is no field.
pub fn parse_fields(text: &str) -> Result<Vec<String>, QueryError> {
    let label = |(label, rest, span): Item<'_>| match rest {
        "" => Ok(label.to_owned()),
        other => {
            let start = span.end - other.len();
            Err(expected(text, start..span.end, "a comma"))
        }
    };
    items(text)?.into_iter().map(label).collect()
}

/// Checks fields that are not from one text: those in brackets are arithmetic.
///
/// # Errors
/// When one in brackets is something else.
pub fn check_fields(labels: &[String]) -> Result<(), QueryError> {
    let mut computed = labels.iter().filter(|label| label.starts_with('('));
    computed.try_for_each(|label| parse_arithmetic(label).map(|_| ()))
}

fn expected(text: &str, span: Range<usize>, expected: &'static str) -> QueryError {
    let found = match text.get(span.clone()) {
        None | Some("") => "the end of the list".to_owned(),
        Some(found) => format!("`{found}`"),
    };
    QueryError::new(text, span, QueryErrorKind::Expected { expected, found })
}

/// An item of a list: the field, what follows it, and the bytes of both.
type Item<'t> = (&'t str, &'t str, Range<usize>);

fn items(text: &str) -> Result<Vec<Item<'_>>, QueryError> {
    let mut items = Vec::new();
    let mut start = 0;
    loop {
        let end = item_end(text, start);
        let item = &text[start..end];
        let at = start + item.len() - item.trim_start().len();
        let item = item.trim();
        let span = at..at + item.len();
        let (label, rest) = match item.strip_prefix('`') {
            Some(quoted) => match quoted.split_once('`') {
                Some((label, rest)) if !label.is_empty() => (label, rest.trim_start()),
                _ => return Err(expected(text, span, "a field and its closing backquote")),
            },
            None if begins_arithmetic(item) => {
                let end = arithmetic_end(item);
                (&item[..end], item[end..].trim_start())
            }
            None => match item.split_once(char::is_whitespace) {
                Some((label, rest)) => (label, rest.trim_start()),
                None => (item, ""),
            },
        };
        if label.is_empty() {
            return Err(expected(text, at..end, "a field"));
        }
        if label.starts_with('(')
            && let Err(error) = parse_arithmetic(label)
        {
            let span = at + error.span().start..at + error.span().end;
            return Err(QueryError::new(text, span, error.kind().clone()));
        }
        items.push((label, rest, span));
        if items.len() > LISTED_FIELDS_MAX {
            return Err(QueryError::new(
                text,
                at..end,
                QueryErrorKind::TooManyFields,
            ));
        }
        if end == text.len() {
            return Ok(items);
        }
        start = end + 1;
    }
}

/// Whether an item is arithmetic, or a function of it.
fn begins_arithmetic(item: &str) -> bool {
    let argument = item.split_once(':').map(|(_, argument)| argument);
    item.starts_with('(') || argument.is_some_and(|argument| argument.starts_with('('))
}

/// The end of the brackets of an item; all of it if they do not close.
fn arithmetic_end(item: &str) -> usize {
    let (mut open, mut is_quoted) = (0_usize, false);
    let close = item.char_indices().find(|(_, c)| {
        is_quoted ^= *c == '`';
        match c {
            '(' if !is_quoted => open += 1,
            ')' if !is_quoted => open = open.saturating_sub(1),
            _ => return false,
        }
        *c == ')' && open == 0
    });
    close.map_or(item.len(), |(at, _)| at + 1)
}

/// The end of the item that begins at `start`: the next comma outside of backquotes.
fn item_end(text: &str, start: usize) -> usize {
    let mut is_quoted = false;
    let found = text[start..].char_indices().find(|&(_, c)| {
        is_quoted ^= c == '`';
        c == ',' && !is_quoted
    });
    found.map_or(text.len(), |(at, _)| start + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&[(&str, bool)], &str>) {
        match (OrderKey::parse_list(text), expected) {
            (Ok(keys), Ok(expected)) => {
                let keys: Vec<(&str, bool)> = keys
                    .iter()
                    .map(|key| (key.label.as_str(), key.descending))
                    .collect();
                assert_eq!(keys, expected, "{text}");
            }
            (Err(error), Err(expected)) => {
                let error = error.to_string();
                assert!(error.contains(expected), "{text}: {error}");
            }
            (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn orders_are_lists_of_fields_with_directions() {
        check("dur", Ok(&[("dur", false)]));
        check(
            " dur DESC, name asc,args.http-status ",
            Ok(&[("dur", true), ("name", false), ("args.http-status", false)]),
        );
        check("`odd, name` desc", Ok(&[("odd, name", true)]));
        check("", Err("column 1: expected a field"));
        check("dur,,name", Err("column 5: expected a field"));
        check("dur,", Err("column 5: expected a field"));
        check(
            "dur down",
            Err("column 5: expected asc, desc or a comma, found `down`"),
        );
        let meant = "column 6: `dur:desc` is no order here; did you mean `dur desc`?";
        check("name,dur:desc", Err(meant));
        check("sum:dur:ASC", Err("did you mean `sum:dur asc`?"));
        check("-dur", Err("did you mean `dur desc`?"));
        check("+dur", Err("did you mean `dur`?"));
        check(
            "`-dur` desc,sum:dur",
            Ok(&[("-dur", true), ("sum:dur", false)]),
        );
        check(
            "`dur",
            Err("column 1: expected a field and its closing backquote"),
        );
        check(
            "``",
            Err("column 1: expected a field and its closing backquote"),
        );
        check(&["a"; 65].join(","), Err("more than 64 fields"));
        assert!(parse_fields("name desc").is_err());
        assert_eq!(parse_fields("name, `a b`").unwrap(), ["name", "a b"]);
    }
}
