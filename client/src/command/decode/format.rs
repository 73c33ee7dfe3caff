use clap::ValueEnum;

/// What is printed of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::command::decode) enum Format {
    /// As the trace's own tools print it
    Text,
    /// One element a line (CTF)
    Elements,
    /// One JSON object a line and event
    Ndjson,
}
