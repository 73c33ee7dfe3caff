//! Traces that are pushed again into a storage that is finalized by now.

use std::path::Path;

use ctf::{Leniency, Procedure, parse_metadata_with};
use storage_format::AgentId;
use storage_format::agent_file::AgentFile;
use storage_format::paths::FileName;
use uuid::Uuid;

use super::plan::{PlannedAgent, read_metadata};
use crate::ClientError;
use crate::http::{Client, StorageUrl};
use crate::mount::fetch_whole;

/// The state of a storage that takes no more packets.
pub(super) const FINALIZED: &str = "FINALIZED";

/// Checks that a finalized storage has the metadata that was pushed: it retains what its agents had
/// when it was finalized, and its packets are read with that.
///
/// # Errors
/// If it has other metadata, or none that can be read.
pub(super) async fn check_metadata(
    client: &Client,
    storage: Uuid,
    agents: &[PlannedAgent],
) -> Result<(), ClientError> {
    let traces = || {
        agents
            .iter()
            .filter_map(|it| Some((&it.id, it.metadata.as_deref()?)))
    };
    if traces().next().is_none() || client.storage(storage).await?.state != FINALIZED {
        return Ok(());
    }
    for (agent, path) in traces() {
        let what = match retained(client, storage, agent).await {
            Ok(retained) => difference(retained.as_deref(), &read_metadata(path)?),
            Err(error) => Some(format!("which cannot be compared with this: {error}")),
        };
        if let Some(what) = what {
            return Err(refused(storage, agent, path, &what));
        }
    }
    Ok(())
}

/// The metadata of an agent in a finalized storage.
async fn retained(
    client: &Client,
    storage: Uuid,
    agent: &AgentId,
) -> Result<Option<Vec<u8>>, ClientError> {
    let name = FileName::Agent(agent.clone()).to_string();
    let storage = StorageUrl {
        server: client.server().clone(),
        id: storage,
    };
    let bytes = fetch_whole(client, &storage, &name).await?;
    let file = AgentFile::decode(&bytes);
    let file = file.map_err(|error| ClientError::damaged(name, error.to_string()))?;
    Ok(file.metadata)
}

/// What is wrong with the metadata in a storage, if anything is.
fn difference(retained: Option<&[u8]>, pushed: &[u8]) -> Option<String> {
    let Some(retained) = retained else {
        return Some("which is none".to_owned());
    };
    let parsed = parse_metadata_with(retained, Leniency::Lenient);
    let reason = match parsed.map(|parsed| Procedure::new(parsed.trace)) {
        Ok(Ok(_)) => return (retained != pushed).then(|| "which differs from this".to_owned()),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "which cannot be read ({reason}), so queries skip its streams"
    ))
}

fn refused(storage: Uuid, agent: &AgentId, path: &Path, what: &str) -> ClientError {
    ClientError::damaged(
        path.display().to_string(),
        format!(
            "storage {storage} is finalized and retains the metadata that agent {agent} had then, \
             {what}; nothing was stored. Push the folder into another storage"
        ),
    )
}
