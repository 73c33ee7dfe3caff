//! Pushing trace files: what to push as what, from where on, and the pushing itself.
//!
//! Streams are pushed side by side; within a stream a thread cuts ahead while a batch is on its
//! way, within one bound in bytes for all streams together. See [`epoch`](source_epoch) for how a
//! file is recognised when it is pushed again.

mod epoch;
mod feed;
mod journal;
mod naming;
mod plan;
mod provenance;
mod stream;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::ClientError;
use crate::http::{AgentSpec, Client, StreamSpec};

pub use epoch::{Edition, source_epoch};
pub use naming::host_name;
pub use plan::{CutMethod, Plan, PlanOptions, PlannedAgent, SourceFile};

/// How to push.
#[derive(Debug, Clone)]
pub struct PushOptions {
    /// Straight into this storage, or to the buffer and the recordings.
    pub storage: Option<Uuid>,
    /// Length that packets have about, in bytes.
    pub packet_bytes: usize,
    /// Streams pushed side by side.
    pub streams_max: usize,
    /// Packets in memory, in bytes over all streams.
    pub in_flight_bytes_max: u32,
    /// Go on when a file grows, until the flag is set; its folder is where resume points are kept.
    pub follow: Option<Follow>,
}

/// How to follow growing files.
#[derive(Debug, Clone)]
pub struct Follow {
    /// Set it to end.
    pub stop: Arc<AtomicBool>,
    /// Folder for what is needed to resume.
    pub journals: PathBuf,
    /// A growing file is looked at this often.
    pub poll_every: Duration,
    /// What it has of a packet is sent when nothing was cut for this long.
    pub flush_after: Duration,
    /// Where packets came from is told this often, and at the end.
    pub report_every: Duration,
}

impl Follow {
    /// Following at the usual pace.
    pub fn new(stop: Arc<AtomicBool>, journals: PathBuf) -> Self {
        Self {
            stop,
            journals,
            poll_every: Duration::from_millis(200),
            flush_after: Duration::from_secs(1),
            report_every: Duration::from_secs(30),
        }
    }
}

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

/// Registers the agents of a plan, declares its streams and pushes every file.
///
/// A stream that fails does not stop the others; the first failure is the result then.
pub async fn push(
    client: &Client,
    plan: Plan,
    options: &PushOptions,
    watch: &Watch,
) -> Result<Vec<StreamReport>, ClientError> {
    announce(client, &plan).await?;
    let budget = Arc::new(Semaphore::new(options.in_flight_bytes_max as usize));
    let mut waiting = plan.sources.into_iter().map(Arc::new);
    let mut running = JoinSet::new();
    let mut reports = Vec::new();
    let mut failure = None;
    loop {
        while running.len() < options.streams_max.max(1) {
            let Some(source) = waiting.next() else { break };
            let stream = stream::StreamPush {
                client: client.clone(),
                source,
                options: options.clone(),
                budget: Arc::clone(&budget),
                watch: Arc::clone(watch),
            };
            running.spawn(stream.run());
        }
        match running.join_next().await {
            None => break,
            Some(Ok(Ok(report))) => {
                watch(PushEvent::Ended(report.clone()));
                reports.push(report);
            }
            Some(Ok(Err(error))) => failure = failure.or(Some(error)),
            Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(reports),
    }
}

async fn announce(client: &Client, plan: &Plan) -> Result<(), ClientError> {
    for agent in &plan.agents {
        let spec = AgentSpec {
            name: agent.id.to_string(),
            host: host_name(),
            ..AgentSpec::default()
        };
        client.register_agent(agent.id.as_str(), &spec).await?;
        if let Some(path) = &agent.metadata {
            let text = plan::read_metadata(path)?;
            let sent = client.set_agent_metadata(agent.id.as_str(), Bytes::from(text));
            sent.await?;
        }
    }
    for source in &plan.sources {
        let spec = StreamSpec {
            kind: source.kind.to_string(),
            leaf: None,
            codec: None,
        };
        let (agent, stream) = (source.agent.as_str(), source.stream.as_str());
        client.declare_stream(agent, stream, &spec).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
