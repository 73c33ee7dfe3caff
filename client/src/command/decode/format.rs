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
    /// All messages with their properties, as sink.text.details of babeltrace2 prints them (CTF)
    Details,
    /// A CTF trace in the new folder --output, with the events in the window (CTF)
    Ctf,
    /// The text of the metadata (CTF)
    CtfMetadata,
    /// The number of events; of CTF also of streams and packets, as babeltrace2 counts messages
    Counter,
    /// Nothing: only decode
    Dummy,
}

impl Format {
    /// True for formats that only CTF traces have.
    pub(in crate::command::decode) fn is_of_ctf(self) -> bool {
        matches!(
            self,
            Self::Elements | Self::Details | Self::Ctf | Self::CtfMetadata
        )
    }

    /// True for formats that print no events.
    pub(in crate::command::decode) fn is_summary(self) -> bool {
        matches!(self, Self::Counter | Self::Dummy)
    }
}
