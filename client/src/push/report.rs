use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::plan::SourceFile;

/// What happens while pushing.
#[derive(Debug, Clone)]
pub enum PushEvent {
    /// A stream begins, at this packet; an earlier push sent those before it.
    Begun {
        /// The file.
        source: Arc<SourceFile>,
        /// First sequence to be sent.
        sequence: u64,
    },
    /// The file is pushed and acknowledged this much further, in bytes of the file.
    Advanced {
        /// Bytes of the file.
        bytes: u64,
    },
    /// A stream ended well.
    Ended(StreamReport),
    /// A stream failed.
    Failed {
        /// The file.
        source: Arc<SourceFile>,
        /// Why, in words.
        what: String,
    },
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamReport {
    /// The file.
    pub path: PathBuf,
    /// Agent.
    pub agent: String,
    /// Stream.
    pub stream: String,
    /// Kind.
    pub kind: storage_format::Kind,
    /// Producer epoch of this edition of the file.
    pub epoch: u64,
    /// First sequence that was sent; those before were there already.
    pub resumed_at: u64,
    /// Packets sent.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// Packets of those that the server already had.
    pub duplicates: u64,
    /// Packets of those that the server did not promise to keep.
    pub not_durable: u64,
    /// Something worth telling about the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

/// Called from many tasks at once; must not block.
pub type Watch = Arc<dyn Fn(PushEvent) + Send + Sync>;
