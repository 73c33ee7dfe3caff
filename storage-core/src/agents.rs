//! The agents of the server: one agent file each, in the folder of the agents.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use storage_format::{
    AgentId, StreamId,
    agent_file::{AgentFile, StreamSpec},
    checksum::crc32c,
    limits::{
        AGENT_ATTRIBUTE_COUNT_MAX, AGENT_METADATA_BYTES_MAX, ENVELOPE_BODY_BYTES_MAX,
        LABEL_BYTES_MAX,
    },
    paths::FileName,
};

use crate::{
    StorageError,
    io::{remove_file, sync_folder},
    io_thread::{Hold, IoThread},
    read::read_small,
};

/// Wait before the agents are read again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The description of an agent, as it registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSpec {
    /// The agent.
    pub id: AgentId,
    /// Name for people.
    pub name: String,
    /// The machine on which it runs.
    pub host: String,
    /// Other attributes.
    pub attributes: BTreeMap<String, String>,
}

/// An agent of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its description.
    pub spec: AgentSpec,
    /// Its streams, sorted by id.
    pub streams: Vec<StreamSpec>,
    /// CRC32C of its trace metadata, if it sent any.
    pub metadata_checksum: Option<u32>,
}

impl Agent {
    /// The stream with this id.
    #[must_use]
    pub fn stream(&self, id: &StreamId) -> Option<&StreamSpec> {
        let at = self
            .streams
            .binary_search_by(|stream| stream.id.cmp(id))
            .ok()?;
        self.streams.get(at)
    }

    /// Its file, as far as it is known.
    fn without_metadata(&self) -> AgentFile {
        AgentFile {
            id: self.spec.id.clone(),
            name: self.spec.name.clone(),
            host: self.spec.host.clone(),
            attributes: self.spec.attributes.clone(),
            streams: self.streams.clone(),
            metadata: None,
        }
    }

    fn of(file: &AgentFile) -> Self {
        Self {
            spec: AgentSpec {
                id: file.id.clone(),
                name: file.name.clone(),
                host: file.host.clone(),
                attributes: file.attributes.clone(),
            },
            streams: file.streams.clone(),
            metadata_checksum: file.metadata.as_deref().map(crc32c),
        }
    }
}

/// The agents of an engine.
#[derive(Debug)]
pub struct Agents {
    folder: PathBuf,
    known: RwLock<BTreeMap<AgentId, Arc<Agent>>>,
    /// One change of a file at a time.
    changing: Arc<tokio::sync::Mutex<()>>,
    /// The agent that is being deleted: nothing of it is accepted until it is known whether it is.
    deleting: Mutex<Option<AgentId>>,
    io_thread: IoThread,
    count_max: usize,
}

impl Agents {
    /// Reads every agent file of `folder`; blocks the thread. As long as the operating system lacks
    /// what that takes, it is tried again, as the recovery of a storage is: an agent that is not
    /// read would be unknown.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(crate) fn load(
        folder: &Path,
        io_thread: &IoThread,
        count_max: usize,
    ) -> Result<Self, StorageError> {
        loop {
            match Self::try_load(folder.to_owned(), io_thread.clone(), count_max) {
                Err(error @ StorageError::Exhausted { .. }) => {
                    tracing::warn!(
                        %error, "the agents cannot be read now; the start tries again and waits"
                    );
                    std::thread::sleep(RETRY_INTERVAL);
                }
                loaded => return loaded,
            }
        }
    }

    fn try_load(
        folder: PathBuf,
        io_thread: IoThread,
        count_max: usize,
    ) -> Result<Self, StorageError> {
        std::fs::create_dir_all(&folder).map_err(StorageError::io("create", &folder))?;
        let mut known = BTreeMap::new();
        let names = std::fs::read_dir(&folder).map_err(StorageError::io("list", &folder))?;
        for name in names {
            let path = name.map_err(StorageError::io("list", &folder))?.path();
            let text = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            let Ok(FileName::Agent(id)) = text.parse() else {
                continue;
            };
            match read_agent(&path, &id) {
                Ok(file) => drop(known.insert(id, Arc::new(Agent::of(&file)))),
                // Whether it is damaged is not known.
                Err(error @ StorageError::Exhausted { .. }) => return Err(error),
                // One damaged agent file must not prevent the server from starting.
                Err(error) => {
                    tracing::error!(
                        %error,
                        "an agent file cannot be read; the agent is unknown until it registers again"
                    )
                }
            }
        }
        Ok(Self {
            folder,
            known: RwLock::new(known),
            changing: Arc::default(),
            deleting: Mutex::default(),
            io_thread,
            count_max,
        })
    }

    /// The agent with this id.
    ///
    /// # Errors
    /// When there is none.
    pub fn get(&self, id: &AgentId) -> Result<Arc<Agent>, StorageError> {
        let known = self.known.read();
        known
            .get(id)
            .cloned()
            .ok_or_else(|| StorageError::AgentNotFound(id.clone()))
    }

    /// All agents, sorted by id.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Agent>> {
        self.known.read().values().cloned().collect()
    }

    pub(crate) fn stream(
        &self,
        agent: &AgentId,
        stream: &StreamId,
    ) -> Result<StreamSpec, StorageError> {
        if self.deleting.lock().as_ref() == Some(agent) {
            return Err(StorageError::AgentBeingDeleted(agent.clone()));
        }
        self.get(agent)?
            .stream(stream)
            .cloned()
            .ok_or_else(|| StorageError::StreamNotFound {
                agent: agent.clone(),
                stream: stream.clone(),
            })
    }

    /// The trace metadata of an agent, if it sent any.
    ///
    /// # Errors
    /// When there is no such agent, or its file cannot be read.
    pub async fn metadata(&self, id: &AgentId) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(self.file(id).await?.metadata)
    }

    /// The complete agent file.
    pub(crate) async fn file(&self, id: &AgentId) -> Result<AgentFile, StorageError> {
        self.get(id)?;
        self.read(id).await
    }

    /// The file of an agent that is known, to be written again: without its trace metadata if it
    /// is lost.
    async fn file_to_change(&self, id: &AgentId) -> Result<AgentFile, StorageError> {
        let known = self.get(id)?;
        match self.read(id).await {
            Err(error) if is_lost(&error) => {
                tracing::warn!(
                    agent = %id, %error,
                    "the file of an agent is lost and is written again; if the agent had trace \
                     metadata, it has to send it again"
                );
                Ok(known.without_metadata())
            }
            read => read,
        }
    }

    async fn read(&self, id: &AgentId) -> Result<AgentFile, StorageError> {
        let (path, id) = (self.path(id), id.clone());
        blocking(move || read_agent(&path, &id)).await
    }

    /// The agent file, for a storage that is finalized; `None` if the agent was deleted. One that
    /// is lost and had nothing that is not known is written again.
    ///
    /// # Errors
    /// When the file cannot be read. The trace metadata of a lost one comes back when the agent
    /// registers again, and would be lost to a finalized storage. [`StorageError::is_loss`] says
    /// whether it is lost.
    pub(crate) async fn file_or_deleted(
        &self,
        id: &AgentId,
    ) -> Result<Option<AgentFile>, StorageError> {
        let known = self.get(id).ok();
        let is_known = known.is_some();
        match self.read(id).await {
            Ok(file) => Ok(Some(file)),
            Err(error)
                if is_lost(&error)
                    && known.is_some_and(|known| known.metadata_checksum.is_none()) =>
            {
                let changing = self.change().await;
                let file = self.file_to_change(id).await?;
                self.put(&file, &changing).await?;
                Ok(Some(file))
            }
            Err(error) if !is_known && is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Registers an agent, or updates its description.
    ///
    /// # Errors
    /// When the description exceeds a limit or cannot be written.
    pub async fn register(&self, spec: AgentSpec) -> Result<Arc<Agent>, StorageError> {
        check_spec(&spec)?;
        let changing = self.change().await;
        let known = self.get(&spec.id).ok();
        if let Some(known) = &known
            && known.spec == spec
            && !self
                .read(&spec.id)
                .await
                .is_err_and(|error| is_lost(&error))
        {
            return Ok(Arc::clone(known));
        }
        if known.is_none() && self.known.read().len() >= self.count_max {
            return Err(StorageError::LimitReached {
                what: "agents",
                max: self.count_max,
            });
        }
        let mut file = match known {
            Some(_) => self.file_to_change(&spec.id).await?,
            None => match self.read(&spec.id).await {
                // It could not be read at the start.
                Ok(file) => file,
                Err(error) if error.is_loss() => AgentFile {
                    id: spec.id,
                    name: String::new(),
                    host: String::new(),
                    attributes: BTreeMap::new(),
                    streams: Vec::new(),
                    metadata: None,
                },
                Err(error) => return Err(error),
            },
        };
        file.name = spec.name;
        file.host = spec.host;
        file.attributes = spec.attributes;
        self.put(&file, &changing).await
    }

    /// Stores the trace metadata of an agent as it was sent.
    ///
    /// # Errors
    /// When there is no such agent, or the metadata is too long or cannot be written.
    pub async fn set_metadata(&self, id: &AgentId, metadata: Bytes) -> Result<(), StorageError> {
        if metadata.len() > AGENT_METADATA_BYTES_MAX {
            let problem = format!("has more than {AGENT_METADATA_BYTES_MAX} bytes");
            return Err(StorageError::Invalid {
                what: "trace metadata",
                problem,
            });
        }
        let changing = self.change().await;
        let mut file = self.file_to_change(id).await?;
        if file.metadata.as_deref() == Some(&metadata[..]) {
            return Ok(());
        }
        file.metadata = Some(metadata.to_vec());
        self.put(&file, &changing).await.map(drop)
    }

    /// Declares a stream, or changes its leaf type and codec for later packets.
    ///
    /// # Errors
    /// When there is no such agent, or the stream has another kind.
    pub async fn declare_stream(
        &self,
        id: &AgentId,
        spec: StreamSpec,
    ) -> Result<StreamSpec, StorageError> {
        let changing = self.change().await;
        let known = self.get(id)?;
        if known.stream(&spec.id) == Some(&spec) {
            return Ok(spec);
        }
        let mut file = self.file(id).await?;
        match file
            .streams
            .binary_search_by(|stream| stream.id.cmp(&spec.id))
        {
            Ok(at) => {
                let declared = &mut file.streams[at];
                if declared.kind != spec.kind {
                    return Err(StorageError::StreamKindConflict {
                        agent: id.clone(),
                        stream: spec.id,
                        declared: declared.kind,
                        wanted: spec.kind,
                    });
                }
                *declared = spec.clone();
            }
            Err(_) if file.streams.len() >= self.count_max => {
                let what = "streams of this agent";
                return Err(StorageError::LimitReached {
                    what,
                    max: self.count_max,
                });
            }
            Err(at) => file.streams.insert(at, spec.clone()),
        }
        self.put(&file, &changing).await.map(|_| spec)
    }

    /// Removes an agent that `check` does not refuse, durably. Nothing registers or changes it
    /// meanwhile. An agent that is refused stays known all the time.
    pub(crate) async fn remove(
        &self,
        id: &AgentId,
        check: impl Fn() -> Result<(), StorageError> + Clone + Send + 'static,
    ) -> Result<(), StorageError> {
        let _changing = self.change().await;
        self.get(id)?;
        // Most are refused here, and their producers do not notice.
        blocking(check.clone()).await?;
        *self.deleting.lock() = Some(id.clone());
        let _deleting = Deleting(self);
        // Packets may have come before that.
        blocking(check).await?;
        let (path, folder) = (self.path(id), self.folder.clone());
        let removed = blocking(move || {
            remove_file(&path).map_err(StorageError::io("remove", &path))?;
            Ok(sync_folder(&folder))
        });
        let synced = removed.await?;
        // What is not on the disk any more is not put back: a server that starts would not know it.
        self.known.write().remove(id);
        crate::fault_point!(async "agents.removed");
        synced
    }

    /// Waits until no other change is under way.
    async fn change(&self) -> Hold {
        Arc::new(Arc::clone(&self.changing).lock_owned().await)
    }

    /// Publishes an agent file. No other change begins before its end, even if this future is
    /// dropped, as it is when the client of spans hangs up.
    async fn put(&self, file: &AgentFile, changing: &Hold) -> Result<Arc<Agent>, StorageError> {
        let path = self.path(&file.id);
        let bytes = file.encode().map_err(StorageError::damaged(&path))?;
        let name = FileName::Agent(file.id.clone()).to_string();
        let published = self
            .io_thread
            .publish_holding(self.folder.clone(), name, bytes.into(), changing)
            .await;
        published.map_err(StorageError::io("write", path))?;
        crate::fault_point!(async "agents.durable");
        let agent = Arc::new(Agent::of(file));
        self.known
            .write()
            .insert(file.id.clone(), Arc::clone(&agent));
        Ok(agent)
    }

    fn path(&self, id: &AgentId) -> PathBuf {
        self.folder.join(FileName::Agent(id.clone()).to_string())
    }
}

/// Until this is dropped, nothing of an agent is accepted.
struct Deleting<'a>(&'a Agents);

impl Drop for Deleting<'_> {
    fn drop(&mut self) {
        *self.0.deleting.lock() = None;
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| StorageError::Stopping)?
}

/// Whether the file is gone or damaged: it does not come back by itself.
fn is_lost(error: &StorageError) -> bool {
    is_gone(error) || matches!(error, StorageError::Damaged { .. })
}

fn is_gone(error: &StorageError) -> bool {
    matches!(error, StorageError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn read_agent(path: &Path, id: &AgentId) -> Result<AgentFile, StorageError> {
    let max = u64::from(ENVELOPE_BODY_BYTES_MAX);
    let bytes = read_small(path, max).map_err(StorageError::io("read", path))?;
    let file = AgentFile::decode(&bytes).map_err(StorageError::damaged(path))?;
    file.check_id(id).map_err(StorageError::damaged(path))?;
    Ok(file)
}

fn check_spec(spec: &AgentSpec) -> Result<(), StorageError> {
    let refuse = |what, problem: String| Err(StorageError::Invalid { what, problem });
    if spec.attributes.len() > AGENT_ATTRIBUTE_COUNT_MAX {
        return refuse(
            "attributes",
            format!("are more than {AGENT_ATTRIBUTE_COUNT_MAX}"),
        );
    }
    let texts = spec.attributes.iter().flat_map(|(key, value)| [key, value]);
    let mut texts = texts.chain([&spec.name, &spec.host]);
    if texts.any(|text| text.len() > LABEL_BYTES_MAX) {
        refuse(
            "a text of the agent",
            format!("has more than {LABEL_BYTES_MAX} bytes"),
        )
    } else {
        Ok(())
    }
}
