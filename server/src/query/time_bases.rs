//! What the times of packets rest on at present.

use std::collections::HashMap;

use io_trace::Cause;
use query_engine::StorageSet;
use storage_core::{Engine, LeafBases, StorageError};
use storage_format::data_file::LeafPath;
use storage_format::{AgentId, Kind, LeafId, StorageId, TimeBasis};

use super::question::AnswerError;
use crate::stored_leaves::leaves_among;

/// What the times in packets of those leaves of a storage rest on whose paths are `wanted`. Where
/// their kind alone tells it, they are left out.
///
/// # Errors
/// When the storage is not there, or cannot be read.
pub(crate) async fn time_bases(
    engine: &Engine,
    id: StorageId,
    wanted: impl Fn(&LeafPath) -> bool,
) -> Result<LeafBases, AnswerError> {
    let mut bases = of_metadata(engine, id, &wanted).await?;
    let is_dft = |path: &LeafPath| path.kind == Kind::Dft && wanted(path);
    let streams = leaves_among(engine, id, Cause::Query, is_dft).await?;
    if !streams.is_empty() {
        // The unit of a stream stands in its chunk index, or in its first packets.
        let read = move || StorageSet::open(streams, None).map(|set| set.time_bases().collect());
        let read = tokio::task::spawn_blocking(read).await;
        let units: Vec<_> = read.map_err(|_| StorageError::Stopping)??;
        bases.extend(units);
    }
    Ok(bases.into_iter().collect())
}

/// Those of leaves that are read with the trace metadata of their agent.
async fn of_metadata(
    engine: &Engine,
    id: StorageId,
    wanted: impl Fn(&LeafPath) -> bool,
) -> Result<HashMap<LeafId, TimeBasis>, AnswerError> {
    let mut of_agents: HashMap<AgentId, TimeBasis> = HashMap::new();
    let mut bases = HashMap::new();
    for leaf in engine.reading().leaves(id).await?.leaves {
        let agent = &leaf.path.agent;
        if leaf.path.kind != Kind::Ctf || !wanted(&leaf.path) {
            continue;
        }
        let basis = match of_agents.get(agent) {
            Some(basis) => *basis,
            None => {
                let checksum = engine.reading().metadata_checksum(id, agent).await?;
                let basis = checksum.map_or(TimeBasis::Unknown, TimeBasis::Number);
                of_agents.insert(agent.clone(), basis);
                basis
            }
        };
        bases.insert(leaf.leaf, basis);
    }
    Ok(bases)
}
