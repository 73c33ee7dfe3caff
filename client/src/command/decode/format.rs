use clap::ValueEnum;

/// Output format of `tracehold decode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::command::decode) enum Format {
    /// As the trace's native tools print it
    Text,
    /// One decoded element per line (CTF)
    Elements,
    /// One JSON object per event
    Ndjson,
}
