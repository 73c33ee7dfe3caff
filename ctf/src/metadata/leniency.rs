//! Strict and lenient parsing of metadata.

/// How to treat violations of the specification that are common in practice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leniency {
    /// Follow the specifications: reject unknown entries.
    #[default]
    Strict,
    /// Follow Babeltrace 2: skip unknown attributes and scopes of TSDL blocks with a warning, and
    /// accept character constants, events without any data, and extra bytes after packetized
    /// metadata.
    Lenient,
}
