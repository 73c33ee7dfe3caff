//! Files in the folder of a finalized storage that are held against what lists them.

use storage_format::{
    AgentId, FormatError, FormatErrorKind, agent_file::AgentFile, checksum::crc32c,
    limits::ENVELOPE_BODY_BYTES_MAX, paths::FileName,
};

use crate::{StorageError, read::read_small, storage::Storage};

impl Storage {
    /// The agent file of a finalized storage; blocks the thread. The same agent has other streams
    /// and trace metadata in another storage, so the file must be the one that was published here.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or is that of another storage or agent.
    pub(crate) fn agent_file(&self, agent: &AgentId) -> Result<AgentFile, StorageError> {
        let name = FileName::Agent(agent.clone());
        let path = self.path(&name);
        let bytes = read_small(&path, u64::from(ENVELOPE_BODY_BYTES_MAX));
        let bytes = bytes.map_err(StorageError::io("read", &path))?;
        let damaged = |error| StorageError::damaged(&path)(error);
        let file = AgentFile::decode(&bytes).map_err(damaged)?;
        file.check_id(agent).map_err(damaged)?;
        let own = self.info();
        let name = name.to_string();
        let listed = own.files.iter().find(|listed| listed.name == name);
        let computed = crc32c(&bytes);
        match listed.map(|listed| listed.checksum) {
            Some(stored) if stored != computed => {
                let what = "agent file";
                let offset = 0;
                let kind = FormatErrorKind::Checksum { stored, computed };
                Err(damaged(FormatError { what, offset, kind }))
            }
            Some(_) => Ok(file),
            None => Err(StorageError::AgentNotFound(agent.clone())),
        }
    }
}
