//! What is done about careless producers.

/// How metadata is judged where producers are careless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leniency {
    /// As the specifications say: what has no meaning is refused.
    #[default]
    Strict,
    /// As Babeltrace 2 reads traces: unknown attributes and scopes of TSDL blocks are skipped with
    /// a warning, character constants are accepted, and so are events without any data and stray
    /// bytes after packetized metadata.
    Lenient,
}
