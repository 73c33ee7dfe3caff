//! Kinds of streams, codecs of payloads, and types of leaves.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A name that no variant has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{found}`: use one of {known}")]
pub struct UnknownName {
    /// What the name should be of.
    pub what: &'static str,
    /// The name found.
    pub found: String,
    /// The known names.
    pub known: &'static str,
}

macro_rules! named_codes {
    (
        $(#[$meta:meta])* $name:ident, $what:literal, $known:literal,
        $($(#[$variant_meta:meta])* $variant:ident = $code:literal $text:literal),* $(,)?
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $text)] $variant),*
        }

        impl $name {
            /// Every variant, in the order of their codes.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Its code on disk.
            #[must_use]
            pub fn code(self) -> u8 {
                match self { $(Self::$variant => $code),* }
            }

            /// The variant with this code.
            #[must_use]
            pub fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }

            /// Its name in the API.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(UnknownName {
                        what: $what,
                        found: text.chars().take(64).collect(),
                        known: $known,
                    }),
                }
            }
        }
    };
}

named_codes! {
    /// Kind of the packets of a stream.
    Kind, "kind",
    "`raw`, `ctf`, `dft`, `rocksdb-io`, `rocksdb-block-cache`, `otlp`, `io-trace`, \
     `chrome`",
    /// Opaque bytes.
    Raw = 0 "raw",
    /// Packets of the Common Trace Format.
    Ctf = 1 "ctf",
    /// DFTracer JSON lines, plain or gzip.
    Dft = 2 "dft",
    /// RocksDB I/O trace records.
    RocksdbIo = 3 "rocksdb-io",
    /// RocksDB block cache trace records.
    RocksdbBlockCache = 4 "rocksdb-block-cache",
    /// OpenTelemetry spans.
    Otlp = 5 "otlp",
    /// The server's own I/O trace.
    IoTrace = 6 "io-trace",
    /// Chrome trace JSON.
    Chrome = 7 "chrome",
}

named_codes! {
    /// How the payload of a frame is stored.
    Codec, "codec", "`none`, `zstd`",
    /// As the agent sent it.
    None = 0 "none",
    /// One zstd frame.
    Zstd = 1 "zstd",
}

named_codes! {
    /// What a leaf of the index tree records of its packets.
    LeafType, "leaf type", "`array`, `plain`",
    /// Location, size, time span and position of every packet.
    Array = 0 "array",
    /// Totals only, for streams that are always read completely.
    Plain = 1 "plain",
}
