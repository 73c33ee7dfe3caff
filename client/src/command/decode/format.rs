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
    /// The text of the metadata (CTF)
    CtfMetadata,
    /// Numbers of events, streams and packets, as babeltrace2 counts messages (CTF)
    Counter,
    /// Nothing: only decode (CTF)
    Dummy,
}

impl Format {
    /// True for formats that only CTF traces have.
    pub(in crate::command::decode) fn is_of_ctf(self) -> bool {
        matches!(
            self,
            Self::Elements | Self::CtfMetadata | Self::Counter | Self::Dummy
        )
    }
}
