//! What appears in the folders of a push that is followed: a tracer makes a file for each buffer of
//! each program, and a folder for each trace, whenever one starts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use storage_format::{AgentId, Kind, StreamId};

use super::found::{CTF_METADATA, CtfTrace, Found, file_word};
use super::options::Follow;
use super::plan::{CutMethod, Folders, Plan, PlannedAgent};
use crate::cutter::CtfCutter;

/// Nobody knows what a file will be whose first bytes are not written yet.
const NO_STREAM: &str = "only what belongs to a CTF trace is taken up later; run the command again \
                         to push it";
/// It would have another name if it was there from the beginning.
const NO_NAME: &str = "its agent has no name of its own, because --agent names the only trace that \
                       was there before; push it by itself, with another --agent";
const NO_ID: &str = "the name of its stream is that of another file, or not UTF-8; push it by \
                     itself, with --stream";

/// Finds what appears.
#[derive(Debug)]
pub(super) struct Growth {
    folders: Folders,
    agents: Vec<PlannedAgent>,
    seen: BTreeSet<PathBuf>,
    streams: BTreeSet<(AgentId, StreamId)>,
    looked: Instant,
}

/// What appeared since the last look.
#[derive(Debug, Default)]
pub(super) struct Appeared {
    /// Traces and their files, to be followed.
    pub(super) plan: Plan,
    /// What is not followed, and what to do about it.
    pub(super) left_out: Vec<(PathBuf, &'static str)>,
}

impl Growth {
    pub(super) fn of(plan: &Plan) -> Self {
        let streams = plan.sources.iter();
        Self {
            folders: plan.folders.clone(),
            agents: plan.agents.clone(),
            seen: plan.sources.iter().map(|it| it.path.clone()).collect(),
            streams: streams
                .map(|it| (it.agent.clone(), it.stream.clone()))
                .collect(),
            looked: Instant::now(),
        }
    }

    /// What appeared, if it is time to look. What cannot be read now is looked at the next time.
    pub(super) fn look(&mut self, follow: &Follow) -> Appeared {
        let mut appeared = Appeared::default();
        if self.looked.elapsed() < follow.look_every {
            return appeared;
        }
        self.looked = Instant::now();
        let Ok(found) = Found::under(&self.folders.paths) else {
            return appeared;
        };
        for trace in found.traces {
            self.add_trace(trace, &mut appeared);
        }
        for file in found.files {
            if self.seen.insert(file.path.clone()) {
                appeared.left_out.push((file.path, NO_STREAM));
            }
        }
        appeared
    }

    fn add_trace(&mut self, trace: CtfTrace, appeared: &mut Appeared) {
        let is_new = |path: &PathBuf| !self.seen.contains(path);
        let new: Vec<PathBuf> = trace
            .files
            .iter()
            .filter(|it| is_new(it))
            .cloned()
            .collect();
        let known = self.agent_of(&trace.folder);
        // Its packets cannot be told apart before its metadata is complete.
        if (new.is_empty() && known.is_some()) || !CtfCutter::has_metadata(&trace.folder) {
            return;
        }
        let agent = match known {
            Some(agent) => agent,
            None if self.has_one_name() => {
                if self.seen.insert(trace.folder.clone()) {
                    appeared.left_out.push((trace.folder, NO_NAME));
                }
                return;
            }
            None => match self.folders.agent_beside_others(&trace.word) {
                Ok(id) => {
                    let agent = PlannedAgent {
                        id: id.clone(),
                        metadata: Some(trace.folder.join(CTF_METADATA)),
                    };
                    self.agents.push(agent.clone());
                    appeared.plan.agents.push(agent);
                    id
                }
                Err(_) => return,
            },
        };
        for path in new {
            self.seen.insert(path.clone());
            let word = file_word(&path);
            let plan = &mut appeared.plan;
            let added = plan.add(&agent, path.clone(), &word, Kind::Ctf, CutMethod::Ctf);
            let stream = plan
                .sources
                .last()
                .map(|it| (agent.clone(), it.stream.clone()));
            if added.is_err() {
                self.seen.remove(&path);
            } else if path.to_str().is_none() || !stream.is_some_and(|it| self.streams.insert(it)) {
                plan.sources.pop();
                appeared.left_out.push((path, NO_ID));
            }
        }
    }

    /// Whether the only agent so far has the name that was given.
    fn has_one_name(&self) -> bool {
        let given = self.folders.options.agent.as_deref();
        given.is_some_and(|given| self.agents.iter().all(|agent| agent.id.as_str() == given))
    }

    /// The agent of the trace in a folder, if it is known.
    fn agent_of(&self, folder: &Path) -> Option<AgentId> {
        let is_it = |agent: &&PlannedAgent| {
            agent.metadata.as_deref().and_then(Path::parent) == Some(folder)
        };
        self.agents.iter().find(is_it).map(|agent| agent.id.clone())
    }
}
