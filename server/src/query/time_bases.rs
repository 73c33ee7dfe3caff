//! The current time bases of packets.

use std::collections::{BTreeMap, HashMap};

use io_trace::Cause;
use query_engine::{ReadError, Request, StorageSet, StreamDeclarations};
use query_language::Query;
use storage_core::{Engine, LeafBases, StorageError};
use storage_format::data_file::LeafPath;
use storage_format::{AgentId, Kind, LeafId, StorageId, StreamId, TimeBasis};

use super::question::AnswerError;
use crate::stored_leaves::leaves_among;

/// The time bases of the leaves of a storage whose paths are `wanted`. Leaves whose kind determines
/// the time basis are skipped.
///
/// # Errors
/// When the storage does not exist or cannot be read.
pub(crate) async fn time_bases(
    engine: &Engine,
    id: StorageId,
    wanted: impl Fn(&LeafPath) -> bool,
) -> Result<LeafBases, AnswerError> {
    let mut bases = of_metadata(engine, id, &wanted).await?;
    let is_dft = |path: &LeafPath| path.kind == Kind::Dft && wanted(path);
    let streams = leaves_among(engine, id, Cause::Query, is_dft).await?;
    if !streams.is_empty() {
        // The time unit of a stream is in its chunk index, or in its first packets.
        let read = move || StorageSet::open(streams, None).map(|set| set.time_bases().collect());
        let read = tokio::task::spawn_blocking(read).await;
        let units: Vec<_> = read.map_err(|_| StorageError::Stopping)??;
        bases.extend(units);
    }
    Ok(bases.into_iter().collect())
}

/// What each DFTracer stream of a storage declares; with names, those of all streams.
///
/// # Errors
/// When the storage does not exist or cannot be read.
pub(crate) async fn declarations(
    engine: &Engine,
    id: StorageId,
    with_names: bool,
    wanted: impl Fn(&LeafPath) -> bool,
) -> Result<BTreeMap<(AgentId, StreamId), StreamDeclarations>, AnswerError> {
    let is_dft = |path: &LeafPath| path.kind == Kind::Dft && (with_names || wanted(path));
    let streams = leaves_among(engine, id, Cause::Query, is_dft).await?;
    let read = move || StorageSet::open(streams, None)?.declarations(with_names);
    let read = tokio::task::spawn_blocking(read).await;
    Ok(read.map_err(|_| StorageError::Stopping)??)
}

/// Whether a copy, which reads each packet by itself, finds all events of a query in the `wanted`
/// streams of a storage.
///
/// # Errors
/// When a number in the query has no unit, and the streams have several; when the storage does not
/// exist or cannot be read.
pub(crate) async fn is_of_packets(
    engine: &Engine,
    id: StorageId,
    query: &str,
    wanted: impl Fn(&LeafPath) -> bool,
) -> Result<bool, AnswerError> {
    let leaves = leaves_among(engine, id, Cause::Query, wanted).await?;
    let request = Request {
        query: Some(Query::parse(query).map_err(ReadError::from)?),
        ..Request::default()
    };
    let check = move || StorageSet::open(leaves, None)?.is_of_packets(&request);
    let checked = tokio::task::spawn_blocking(check).await;
    Ok(checked.map_err(|_| StorageError::Stopping)??)
}

/// The time bases of leaves that depend on the trace metadata of their agent.
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
