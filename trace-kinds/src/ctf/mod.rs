//! CTF: events of the packets of one trace.

mod error;
mod events;
mod fields;
mod paths;

pub use events::CtfDecoder;

#[cfg(test)]
mod tests;
