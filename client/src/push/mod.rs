//! Pushing trace files: planning, resuming, cutting and sending.
//!
//! Streams are pushed in parallel. Within a stream, a thread cuts packets ahead of the batch that
//! is in flight; one limit in bytes applies to all streams together. See [`source_epoch`] for how a
//! file is identified when it is pushed again.

mod derived;
mod epoch;
mod feed;
mod finalized;
mod found;
mod journal;
mod metadata;
mod naming;
mod options;
mod plan;
mod provenance;
mod report;
mod stored;
mod stream;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::ClientError;
use crate::http::{AgentSpec, Client, StreamSpec};

pub use epoch::{Edition, source_epoch};
pub use naming::host_name;
pub use options::{Follow, PushOptions};
pub use plan::{CutMethod, Plan, PlanOptions, PlannedAgent, SourceFile};
pub use report::{PushEvent, StreamReport, Watch};

/// Registers the agents of a plan, declares its streams and pushes every file.
///
/// A failed stream does not stop the others. The result is then the first failure.
pub async fn push(
    client: &Client,
    plan: Plan,
    options: &PushOptions,
    watch: &Watch,
) -> Result<Vec<StreamReport>, ClientError> {
    announce(client, &plan, watch).await?;
    let renewing = options.follow.as_ref().map(|follow| {
        tokio::spawn(metadata::renew(
            client.clone(),
            plan.agents.clone(),
            follow.poll_every,
        ))
    });
    let agents = plan.agents;
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
    if let Some(renewing) = renewing {
        renewing.abort();
    }
    if let Some(error) = failure {
        return Err(error);
    }
    if let Some(storage) = options.storage {
        finalized::check_metadata(client, storage, &agents).await?;
    }
    Ok(reports)
}

async fn announce(client: &Client, plan: &Plan, watch: &Watch) -> Result<(), ClientError> {
    for agent in &plan.agents {
        let spec = AgentSpec {
            name: agent.id.to_string(),
            host: host_name(),
            ..AgentSpec::default()
        };
        client.register_agent(agent.id.as_str(), &spec).await?;
        if let Some(path) = &agent.metadata {
            let text = Bytes::from(plan::read_metadata(path)?);
            set_metadata(client, agent.id.as_str(), path, text, watch).await?;
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

/// Sends the metadata of an agent. Metadata that the server cannot parse is stored all the same, so
/// that no packet is lost; the reason is reported.
async fn set_metadata(
    client: &Client,
    agent: &str,
    path: &Path,
    text: Bytes,
    watch: &Watch,
) -> Result<(), ClientError> {
    let sent = client.set_agent_metadata(agent, text.clone(), false).await;
    let Err(error) = sent else { return Ok(()) };
    if !error.is_refused_as("metadata_invalid") {
        return Err(error);
    }
    client.set_agent_metadata(agent, text, true).await?;
    let reason = error.problem().map(|problem| problem.detail.clone());
    watch(PushEvent::MetadataInvalid {
        path: path.to_owned(),
        what: reason.unwrap_or_default(),
    });
    Ok(())
}

#[cfg(test)]
mod tests;
