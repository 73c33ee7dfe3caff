use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::plan::SourceFile;

/// Progress of a push.
#[derive(Debug, Clone)]
pub enum PushEvent {
    /// The metadata of a trace cannot be parsed. Its packets are stored as they are.
    MetadataInvalid {
        /// The file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// The server has an earlier version of this file, which stays beside the new one.
    NewVersion(Arc<SourceFile>),
    /// A stream starts at this packet; an earlier push sent those before it.
    Begun {
        /// The file.
        source: Arc<SourceFile>,
        /// First sequence to send.
        sequence: u64,
    },
    /// More of a file has been acknowledged.
    Advanced {
        /// Bytes of the file.
        bytes: u64,
    },
    /// A stream is complete.
    Ended(StreamReport),
    /// What appeared in a followed folder, and is not followed.
    LeftOut {
        /// The file or the folder.
        path: PathBuf,
        /// Why, and what to do about it.
        what: &'static str,
    },
    /// A stream failed.
    Failed {
        /// The file.
        source: Arc<SourceFile>,
        /// The reason.
        what: String,
    },
}

/// The result for one file.
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
    /// Producer epoch of this version of the file.
    pub epoch: u64,
    /// First sequence that was sent; the server already had those before it.
    pub resumed_at: u64,
    /// Packets sent.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// Events of those packets by their receipts, if the server could count those of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// Records of those packets that queries will skip, as far as the server has read them.
    #[serde(skip_serializing_if = "is_zero")]
    pub unreadable_records: u64,
    /// Packets of those that the server already had.
    pub duplicates: u64,
    /// Packets of those that were not durable when acknowledged.
    pub not_durable: u64,
    /// Packets of those that no recording took: they are in the memory of the server only.
    #[serde(skip_serializing_if = "is_zero")]
    pub not_recorded: u64,
    /// What of the file is damaged; its bytes are stored all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// A note about the file for the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Called from many tasks at once; must not block.
pub type Watch = Arc<dyn Fn(PushEvent) + Send + Sync>;
