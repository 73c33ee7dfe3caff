//! CTF 1.8 metadata text: TSDL, the trace stream description language.
//!
//! A recursive descent parser that does not backtrack over bodies: the time is linear in the length
//! of the text and in the number of fields, which aliases multiply. A text that nests deeply is
//! parsed again, on a larger stack.

mod aliases;
mod arrays;
mod attribute;
mod constants;
mod enumerators;
mod parser;
mod roles;
mod scanner;
mod scope;
mod types;

use crate::class::{BuildError, FIELD_DEPTH_MAX, PLAIN_DEPTH_MAX, TraceClass};
use crate::deep_stack::run_deep;
use crate::metadata::leniency::Leniency;

/// Parses `text`. Warnings are pairs of byte offset and message.
pub(crate) fn parse(
    text: &[u8],
    leniency: Leniency,
) -> Result<(TraceClass, Vec<(u32, String)>), BuildError> {
    match parse_within(text, leniency, PLAIN_DEPTH_MAX) {
        Err(error) if error.is_too_deep => {
            let parse = || parse_within(text, leniency, FIELD_DEPTH_MAX);
            run_deep(FIELD_DEPTH_MAX, parse).unwrap_or(Err(error))
        }
        parsed => parsed,
    }
}

fn parse_within(
    text: &[u8],
    leniency: Leniency,
    depth_max: u32,
) -> Result<(TraceClass, Vec<(u32, String)>), BuildError> {
    let mut parser = parser::Parser::new(text, leniency, depth_max);
    parser.parse()?;
    roles::assign(&mut parser.builder)?;
    parser.builder.allow_empty_events = leniency == Leniency::Lenient;
    let trace = parser.builder.build()?;
    Ok((trace, parser.warnings))
}
