//! Lists of fields outside of expressions: columns, keys of an order, keys of groups.
//!
//! ```text
//! list  = item ("," item)*
//! item  = [function ":"] field ["asc" | "desc"]
//! field = any text without spaces, commas and backquotes | "`" any but a backquote "`"
//!       | "(" arithmetic ")"
//! ```
//!
//! Labels have no backquotes, except within arithmetic.

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
        let key = |Item { label, rest, span }: Item<'_>| {
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
            if let Some(meant) = other_direction(&label).filter(|_| is_bare) {
                let found = label;
                let kind = QueryErrorKind::OtherDirection { found, meant };
                return Err(QueryError::new(text, span, kind));
            }
            Ok(OrderKey { label, descending })
        };
        items(text, LISTED_FIELDS_MAX)?
            .into_iter()
            .map(key)
            .collect()
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
/// When an item is no field, or there are too many.
pub fn parse_fields(text: &str) -> Result<Vec<String>, QueryError> {
    labels(text, LISTED_FIELDS_MAX)
}

/// As [`parse_fields`] for the columns of rows, which may be any number. Nothing follows a column,
/// so spaces within a name need no backquotes.
///
/// # Errors
/// When an item is no field.
pub fn parse_columns(text: &str) -> Result<Vec<String>, QueryError> {
    let column = |Item { label, rest, span }: Item<'_>| {
        let whole = &text[span.clone()];
        if rest.is_empty() {
            return Ok(label);
        }
        if whole.contains('`') || begins_arithmetic(whole) {
            let start = span.end - rest.len();
            return Err(expected(text, start..span.end, "a comma"));
        }
        Ok(whole.to_owned())
    };
    items(text, usize::MAX)?.into_iter().map(column).collect()
}

/// Parses one field that is not in a list: in it spaces and commas need no backquotes.
///
/// # Errors
/// When there is none, its backquotes do not close, or it is in brackets and no arithmetic.
pub fn parse_field(text: &str) -> Result<String, QueryError> {
    let field = text.trim();
    if field.starts_with('`') {
        let quoted = field.strip_prefix('`').and_then(|it| it.strip_suffix('`'));
        let quoted = quoted.filter(|name| !name.is_empty() && !name.contains('`'));
        return match quoted {
            Some(name) => Ok(name.to_owned()),
            None => Err(expected(text, 0..text.len(), CLOSED)),
        };
    }
    if field.is_empty() {
        return Err(expected(text, 0..text.len(), "a field"));
    }
    if field.starts_with('(') {
        parse_arithmetic(field)?;
    }
    Ok(field.to_owned())
}

fn labels(text: &str, most: usize) -> Result<Vec<String>, QueryError> {
    let label = |Item { label, rest, span }: Item<'_>| match rest {
        "" => Ok(label),
        other => {
            let start = span.end - other.len();
            Err(expected(text, start..span.end, "a comma"))
        }
    };
    items(text, most)?.into_iter().map(label).collect()
}

fn expected(text: &str, span: Range<usize>, expected: &'static str) -> QueryError {
    let found = match text.get(span.clone()) {
        None | Some("") => "the end of the list".to_owned(),
        Some(found) => format!("`{found}`"),
    };
    QueryError::new(text, span, QueryErrorKind::Expected { expected, found })
}

/// What a field in backquotes needs.
const CLOSED: &str = "a field and its closing backquote";

/// An item of a list.
struct Item<'t> {
    /// The field, or a function of it.
    label: String,
    /// What follows it.
    rest: &'t str,
    /// The bytes of both.
    span: Range<usize>,
}

fn items(text: &str, most: usize) -> Result<Vec<Item<'_>>, QueryError> {
    let mut items = Vec::new();
    let mut start = 0;
    loop {
        let end = item_end(text, start);
        let item = &text[start..end];
        let at = start + item.len() - item.trim_start().len();
        let item = item.trim();
        let span = at..at + item.len();
        let Some((label, rest)) = split(item) else {
            return Err(expected(text, span, CLOSED));
        };
        if label.is_empty() {
            return Err(expected(text, at..end, "a field"));
        }
        if label.starts_with('(')
            && let Err(error) = parse_arithmetic(&label)
        {
            let span = at + error.span().start..at + error.span().end;
            return Err(QueryError::new(text, span, error.kind().clone()));
        }
        items.push(Item { label, rest, span });
        if items.len() > most {
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

/// The label of an item and what follows it; `None` if its backquotes do not close.
fn split(item: &str) -> Option<(String, &str)> {
    let (function, quoted) = match item.split_once('`') {
        Some((function, quoted)) if is_before_quoted(function) => (function, quoted),
        _ if begins_arithmetic(item) => {
            let end = arithmetic_end(item);
            return Some((item[..end].to_owned(), item[end..].trim_start()));
        }
        _ => {
            return Some(match item.split_once(char::is_whitespace) {
                Some((label, rest)) => (label.to_owned(), rest.trim_start()),
                None => (item.to_owned(), ""),
            });
        }
    };
    let (name, rest) = quoted.split_once('`')?;
    (!name.is_empty()).then(|| (format!("{function}{name}"), rest.trim_start()))
}

/// Whether a backquote after this begins the name of a field: nothing, or a function and a colon.
fn is_before_quoted(text: &str) -> bool {
    let is_of_function = |c: char| c.is_ascii_alphanumeric() || c == '.';
    let function = text.strip_suffix(':').unwrap_or(text);
    text.is_empty() || (text.ends_with(':') && function.chars().all(is_of_function))
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
        check("p99.9:`odd, name` desc", Ok(&[("p99.9:odd, name", true)]));
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
        check(
            "sum:`dur",
            Err("column 1: expected a field and its closing backquote"),
        );
        check(&["a"; 65].join(","), Err("more than 64 fields"));
        assert!(parse_fields("name desc").is_err());
        assert_eq!(parse_fields("name, `a b`").unwrap(), ["name", "a b"]);
    }
    #[test]
    fn columns_are_fields_of_any_number() {
        let columns = |text: &str| parse_columns(text).map_err(|error| error.to_string());
        assert_eq!(columns(&["a"; 65].join(",")).map(|it| it.len()), Ok(65));
        let expected = ["id", "dur", "a, b", "(`x y` + 1)"].map(str::to_owned);
        assert_eq!(
            columns("`id`, dur,`a, b`, (`x y` + 1)"),
            Ok(expected.into())
        );
        assert!(columns("").is_err());
        assert_eq!(
            columns("a b, c"),
            Ok(["a b", "c"].map(str::to_owned).into())
        );
        assert!(columns("`a` b").is_err() && columns("(a + b) c").is_err());
    }

    #[test]
    fn a_field_outside_of_a_list_may_have_backquotes() {
        for (text, expected) in [
            ("id", Some("id")),
            (" dur ", Some("dur")),
            ("`id`", Some("id")),
            ("` dur`", Some(" dur")),
            ("odd, name", Some("odd, name")),
            ("(dur * 2)", Some("(dur * 2)")),
            ("(`a b` + dur)", Some("(`a b` + dur)")),
            ("", None),
            (" ", None),
            ("``", None),
            ("`id", None),
            ("`a`b`", None),
            ("(dur", None),
        ] {
            assert_eq!(parse_field(text).ok().as_deref(), expected, "{text}");
        }
    }
}
