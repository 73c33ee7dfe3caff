//! The operations of the server as typed calls.
//!
//! A [`Client`] is cheap to clone and reuses its connections. Idempotent calls are retried
//! according to a [`Retry`] policy when the server is busy or unreachable. A permanent refusal is
//! returned as [`ClientError::Refused`](crate::ClientError).

mod agents;
mod archives;
mod bearer;
mod call;
mod files;
mod io_trace;
mod jobs;
mod labels;
mod multipart;
mod packets;
mod page;
mod problem;
mod query;
mod recordings;
mod retry;
mod server_url;
mod shares;
mod storages;
mod tiers;
mod tls;
mod tokens;
mod waits;

pub use agents::{Agent, AgentSpec, Stream, StreamSpec};
pub use archives::ArchiveProgress;
pub use bearer::Bearer;
pub use call::Client;
pub use files::{FileBytes, FileInfo, FileList};
pub use io_trace::{IoTraceStart, IoTraceStatus};
pub use jobs::Job;
pub use labels::{Label, LabelType, LabelTypeValue};
pub use packets::{
    GrownFrom, KeptProvenance, NextSequence, PacketInfo, PacketOrigin, PacketProvenance,
    ProvenanceReport, PushTarget, Receipt, Receipts,
};
pub use problem::Problem;
pub use query::{QueryRows, QuerySpec, SkippedData};
pub use recordings::{NewRecording, NewTrigger, Recording};
pub use retry::{Retry, RetryReason};
pub use server_url::{ServerUrl, StorageUrl};
pub use shares::{CreatedShare, NewShare, Share};
pub use storages::{
    Damage, Missing, NewStorage, RepairResult, Storage, StorageFilter, VerifyReport,
};
pub use tiers::{Adopted, Node, Nodes, Tier};
pub use tls::TlsFiles;
pub use tokens::{CreatedToken, NewToken, Token};

#[cfg(test)]
mod tests;
