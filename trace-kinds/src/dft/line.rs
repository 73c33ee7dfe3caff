//! A line in the layout that DFTracer writes, read in one pass.
//!
//! All dialects share one order of keys: `id` (missing on metadata of 2.x), `name`, `cat`, `type`
//! (2.x only), `pid`, `tid`, `ts` and `dur` (missing on metadata), `ph`, `args`, without spaces.
//! The reader expects that order and checks every byte; a line that differs is parsed as JSON.

use super::arguments::Arguments;
use super::remainder::{PHASE_KEY, Remainder};
use super::scalar::{Cursor, Scalar};
use super::shapes::{ParsedHead, ShapedHead, Shapes};

/// The top-level fields of a line.
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
    /// The `args` object with its braces; empty if the line has none.
    pub(super) args: &'a [u8],
    /// The shape of the bytes between `id` and `ts`, if there is one.
    pub(super) shape: Option<u32>,
}

/// Reads the line at `at`, and its arguments into `arguments`. Returns the head and the offset of
/// the next line; `None` if the line has another layout.
#[inline]
pub(super) fn read<'a>(
    bytes: &'a [u8],
    at: usize,
    shapes: &mut Shapes,
    arguments: &mut Arguments<'_, 'a>,
) -> Option<(Head<'a>, usize)> {
    let mut cursor = Cursor::new(bytes, at);
    let (mut id, mut begin) = (Scalar::Null, b'{');
    if cursor.eat(b"{\"id\":") {
        (id, begin) = (number(&mut cursor)?, b',');
    }
    if cursor.peek() != Some(begin) {
        return None;
    }
    let start = cursor.position();
    let (shape, head, ts) = match shapes.expected(bytes, start) {
        Some((shape, head, end)) => {
            cursor.skip(end - start);
            (Some(shape), head, number(&mut cursor)?)
        }
        None => parse(&mut cursor, shapes)?,
    };
    let ShapedHead {
        name,
        cat,
        type_,
        pid,
        tid,
    } = head;
    let dur = optional_number(&mut cursor, b",\"dur\":")?;
    let mut remainder = shapes.remainder(shape);
    arguments.clear();
    let known = match &remainder {
        Some(remainder) => remainder.eat_middle(&mut cursor),
        None => None,
    };
    let (ph, has_args) = match known {
        Some(ph) => (ph, true),
        None => middle(&mut cursor, remainder.as_deref_mut())?,
    };
    let args_start = cursor.position();
    if has_args {
        arguments.read(&mut cursor, remainder)?;
    }
    let args = &bytes[args_start..cursor.position()];
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
        shape,
    };
    Some((head, cursor.position()))
}

/// Reads the phase and the key of the arguments; `false` if there are none.
#[inline(never)]
fn middle<'a>(
    cursor: &mut Cursor<'a>,
    remainder: Option<&mut Remainder>,
) -> Option<(Scalar<'a>, bool)> {
    let start = cursor.position();
    if !cursor.eat(PHASE_KEY) {
        return None;
    }
    let phase = cursor.value()?;
    let has_args = cursor.eat(b",\"args\":");
    if let Some(remainder) = remainder.filter(|_| has_args) {
        remainder.learn_middle(cursor, start, phase);
    }
    Some((phase, has_args))
}

/// Parses the head after the `id`, and the `ts` that follows it.
#[inline(never)]
fn parse<'a>(
    cursor: &mut Cursor<'a>,
    shapes: &mut Shapes,
) -> Option<(Option<u32>, ShapedHead<'a>, Scalar<'a>)> {
    let (bytes, start) = (cursor.bytes(), cursor.position());
    // The caller checked which of comma and brace is valid here.
    let begins = cursor.eat(b",\"name\":\"") || cursor.eat(b"{\"name\":\"");
    if !begins {
        return None;
    }
    let name_start = cursor.position();
    let name = cursor.string_body()?;
    if !cursor.eat(b",\"cat\":\"") {
        return None;
    }
    let cat_start = cursor.position();
    let head = ShapedHead {
        name,
        cat: cursor.string_body()?,
        type_: optional_number(cursor, b",\"type\":")?,
        pid: optional_number(cursor, b",\"pid\":")?,
        tid: optional_number(cursor, b",\"tid\":")?,
    };
    if !cursor.eat(b",\"ts\":") {
        return Some((None, head, Scalar::Null));
    }
    let shape = shapes.learn(
        bytes,
        &ParsedHead {
            start,
            end: cursor.position(),
            name: (name_start, name_start + head.name.len()),
            cat: (cat_start, cat_start + head.cat.len()),
            type_: head.type_,
            pid: head.pid,
            tid: head.tid,
        },
    );
    Some((shape, head, number(cursor)?))
}

/// An integer, bare or in quotes.
#[inline(always)]
fn number<'a>(cursor: &mut Cursor<'a>) -> Option<Scalar<'a>> {
    let start = *cursor;
    if let Some(value) = cursor.unsigned()
        && matches!(cursor.peek(), Some(b',' | b'}'))
    {
        return Some(Scalar::UInt(value));
    }
    *cursor = start;
    other_number(cursor)
}

#[cold]
fn other_number<'a>(cursor: &mut Cursor<'a>) -> Option<Scalar<'a>> {
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
