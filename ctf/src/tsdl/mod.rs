//! CTF 1.8 metadata text: TSDL, the trace stream description language.
//!
//! A recursive descent parser that does not backtrack over bodies: the time is linear in the length
//! of the text and in the number of fields, which aliases multiply.

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

use crate::class::{BuildError, TraceClass};
use crate::metadata::leniency::Leniency;

/// Parses `text`. Warnings are pairs of byte offset and message.
pub(crate) fn parse(
    text: &[u8],
    leniency: Leniency,
) -> Result<(TraceClass, Vec<(u32, String)>), BuildError> {
    let mut parser = parser::Parser::new(text, leniency);
    parser.parse()?;
    roles::assign(&mut parser.builder)?;
    parser.builder.allow_empty_events = leniency == Leniency::Lenient;
    let trace = parser.builder.build()?;
    Ok((trace, parser.warnings))
}
