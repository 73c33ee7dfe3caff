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
mod growth;
mod journal;
mod metadata;
mod naming;
mod options;
mod plan;
mod provenance;
mod report;
mod stored;
mod stream;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::growth::{Appeared, Growth};
use self::metadata::Renewal;
use crate::ClientError;
use crate::http::{AgentSpec, Client, StreamSpec};

pub use epoch::{Edition, source_epoch};
pub use naming::host_name;
pub use options::{Follow, PushOptions};
pub use plan::{CutMethod, Folders, Plan, PlanOptions, PlannedAgent, SourceFile};
pub use report::{PushEvent, StreamReport, Watch};

/// Registers the agents of a plan, declares its streams and pushes every file.
///
/// A failed stream does not stop the others. The result is then the first failure. A followed
/// folder is searched again and again, so that nothing that appears in it is lost.
pub async fn push(
    client: &Client,
    plan: Plan,
    options: &PushOptions,
    watch: &Watch,
) -> Result<Vec<StreamReport>, ClientError> {
    announce(client, &plan, watch).await?;
    let mut pushing = Pushing {
        client,
        options,
        watch,
        budget: Arc::new(Semaphore::new(options.in_flight_bytes_max as usize)),
        waiting: VecDeque::new(),
        running: JoinSet::new(),
        reports: Vec::new(),
        failure: None,
        renewal: Renewal::default(),
    };
    let mut growth = Growth::of(&plan);
    pushing.renewal.add(&plan.agents);
    pushing
        .waiting
        .extend(plan.sources.into_iter().map(Arc::new));
    match &options.follow {
        None => while pushing.end_one().await {},
        Some(follow) => pushing.follow(follow, &mut growth).await,
    }
    if let Some(error) = pushing.failure {
        return Err(error);
    }
    if let Some(storage) = options.storage {
        finalized::check_metadata(client, storage, &plan.agents).await?;
    }
    Ok(pushing.reports)
}

/// A push that is under way.
struct Pushing<'a> {
    client: &'a Client,
    options: &'a PushOptions,
    watch: &'a Watch,
    budget: Arc<Semaphore>,
    waiting: VecDeque<Arc<SourceFile>>,
    running: JoinSet<Result<StreamReport, ClientError>>,
    reports: Vec<StreamReport>,
    failure: Option<ClientError>,
    renewal: Renewal,
}

impl Pushing<'_> {
    /// Starts what may run, and waits until a stream has ended; false if none is left.
    async fn end_one(&mut self) -> bool {
        self.start_waiting(self.options.streams_max.max(1));
        match self.running.join_next().await {
            None => return false,
            Some(Ok(Ok(report))) => {
                (self.watch)(PushEvent::Ended(report.clone()));
                self.reports.push(report);
            }
            Some(Ok(Err(error))) => self.fail(error),
            Some(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
        }
        true
    }

    /// Follows the files until it is stopped, and what appears in their folders meanwhile.
    async fn follow(&mut self, follow: &Follow, growth: &mut Growth) {
        loop {
            // A followed file does not end, so all of them are pushed at the same time.
            self.start_waiting(usize::MAX);
            let is_stopped = follow.stop.load(Ordering::Relaxed);
            if self.running.is_empty() && (is_stopped || self.failure.is_some()) {
                break;
            }
            tokio::select! {
                _ = self.end_one(), if !self.running.is_empty() => {}
                () = tokio::time::sleep(follow.poll_every) => {
                    // The last pass says what could not be sent.
                    let _later = self.renewal.pass(self.client).await;
                    if !is_stopped {
                        self.take_up(growth.look(follow)).await;
                    }
                }
            }
        }
        if let Err(error) = self.renewal.pass(self.client).await {
            self.fail(error);
        }
    }

    /// Pushes what appeared, too.
    async fn take_up(&mut self, appeared: Appeared) {
        let Appeared { plan, left_out } = appeared;
        for (path, what) in left_out {
            (self.watch)(PushEvent::LeftOut { path, what });
        }
        let sources = plan.sources.iter().cloned().map(Arc::new);
        match announce(self.client, &plan, self.watch).await {
            Ok(()) => {
                self.renewal.add(&plan.agents);
                self.waiting.extend(sources);
            }
            Err(error) => {
                for source in sources {
                    let what = error.to_string();
                    (self.watch)(PushEvent::Failed { source, what });
                }
                self.fail(error);
            }
        }
    }

    fn start_waiting(&mut self, streams_max: usize) {
        while self.running.len() < streams_max {
            let Some(source) = self.waiting.pop_front() else {
                break;
            };
            let stream = stream::StreamPush {
                client: self.client.clone(),
                source,
                options: self.options.clone(),
                budget: Arc::clone(&self.budget),
                watch: Arc::clone(self.watch),
            };
            self.running.spawn(stream.run());
        }
    }

    fn fail(&mut self, error: ClientError) {
        self.failure.get_or_insert(error);
    }
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
