//! A trace line in the layout that DFTracer writes, read in one pass.
//!
//! All dialects share one order of keys: `id` (missing on metadata of 2.x), `name`, `cat`, `type`
//! (2.x only), `pid`, `tid`, `ts` and `dur` (missing on metadata), `ph`, `args`, without any space.
//! The reader trusts that order and checks every byte of it; where a line differs in anything it
//! gives up, and the line is parsed as the JSON object that it may still be.

use super::arguments::Arguments;
use super::scalar::{Cursor, Scalar};

/// The fields at the top of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Head<'a> {
    pub(super) id: Scalar<'a>,
    pub(super) name: &'a [u8],
    pub(super) cat: &'a [u8],
    pub(super) type_: Scalar<'a>,
    pub(super) pid: Scalar<'a>,
    pub(super) tid: Scalar<'a>,
    pub(super) ts: Scalar<'a>,
    pub(super) dur: Scalar<'a>,
    pub(super) ph: Scalar<'a>,
    /// The `args` object with its braces; empty when the line has none.
    pub(super) args: &'a [u8],
}

/// Reads the line that begins at `at`, and its arguments into `arguments`. Gives the head and the
/// offset behind the line and its line end; `None` when the layout does not hold.
#[inline]
pub(super) fn read<'a>(
    bytes: &'a [u8],
    at: usize,
    arguments: &mut Arguments<'_, 'a>,
) -> Option<(Head<'a>, usize)> {
    let mut cursor = Cursor::new(bytes, at);
    let id = if cursor.eat(b"{\"id\":") {
        let id = number(&mut cursor)?;
        if !cursor.eat(b",\"name\":\"") {
            return None;
        }
        id
    } else if cursor.eat(b"{\"name\":\"") {
        Scalar::Null
    } else {
        return None;
    };
    let name = cursor.string_body()?;
    if !cursor.eat(b",\"cat\":\"") {
        return None;
    }
    let cat = cursor.string_body()?;
    let type_ = optional_number(&mut cursor, b",\"type\":")?;
    let pid = optional_number(&mut cursor, b",\"pid\":")?;
    let tid = optional_number(&mut cursor, b",\"tid\":")?;
    let ts = optional_number(&mut cursor, b",\"ts\":")?;
    let dur = optional_number(&mut cursor, b",\"dur\":")?;
    if !cursor.eat(b",\"ph\":") {
        return None;
    }
    let ph = cursor.value()?;
    let mut args: &[u8] = &[];
    arguments.clear();
    if cursor.eat(b",\"args\":") {
        let start = cursor.position();
        arguments.read(&mut cursor)?;
        args = &bytes[start..cursor.position()];
    }
    let ended = cursor.eat(b"}\n") || (cursor.eat(b"}") && cursor.peek().is_none());
    if !ended {
        return None;
    }
    let head = Head {
        id,
        name,
        cat,
        type_,
        pid,
        tid,
        ts,
        dur,
        ph,
        args,
    };
    Some((head, cursor.position()))
}

/// An integer, bare or in quotes.
#[inline(always)]
fn number<'a>(cursor: &mut Cursor<'a>) -> Option<Scalar<'a>> {
    match cursor.value()? {
        value @ (Scalar::UInt(_) | Scalar::Str(_)) => Some(value),
        _ => None,
    }
}

#[inline(always)]
fn optional_number<'a>(cursor: &mut Cursor<'a>, key: &[u8]) -> Option<Scalar<'a>> {
    if cursor.eat(key) {
        number(cursor)
    } else {
        Some(Scalar::Null)
    }
}
