//! An index: the chunks of a file and their summaries, any of which may be absent.

use std::sync::Arc;

use query_language::FieldPath;

use crate::checkpoint::Checkpoint;
use crate::chunk::{Chunk, Identity};
use crate::chunk_summary::ChunkSummary;
use crate::config::IndexConfig;
use crate::dictionary::Dictionary;
use crate::file_dictionary::FileDictionary;
use crate::filter::ChunkFilter;
use crate::slowest::Slowest;
use crate::statistics::ChunkStatistics;
use crate::zone::Zone;

/// Chunks whose summaries are in one block of a sidecar, and are fetched together.
pub const BLOCK_CHUNKS: usize = 64;

/// The chunks of a file with what is known about them.
///
/// An index under construction is complete; one that was opened from a sidecar has the chunks and
/// the blocks that were loaded so far. Absent parts never lead to a wrong answer: the pruner
/// assumes that they may match.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Index {
    pub(crate) identity: Identity,
    pub(crate) config_hash: u64,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) statistics: Column<ChunkStatistics>,
    /// Whether the loaded statistics have their sketches.
    pub(crate) sketches: Vec<bool>,
    pub(crate) slowest: Column<Slowest>,
    pub(crate) dimensions: Vec<Dimension>,
    pub(crate) checkpoints: Vec<Checkpoint>,
    pub(crate) attachments: Vec<Attachment>,
}

/// A dimension over all chunks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dimension {
    pub(crate) path: FieldPath,
    pub(crate) limits: Column<(Zone, Option<Dictionary>)>,
    pub(crate) filters: Column<Option<ChunkFilter>>,
    pub(crate) file_dictionary: DictionaryState,
}

/// The file dictionary of a dimension.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DictionaryState {
    /// There is none.
    Absent,
    /// It is in the sidecar and not loaded.
    Stored,
    Loaded(Arc<FileDictionary>),
}

impl Dimension {
    fn new(path: FieldPath) -> Dimension {
        Dimension {
            path,
            limits: Column::default(),
            filters: Column::default(),
            file_dictionary: DictionaryState::Absent,
        }
    }
}

/// Bytes that the indexer of a kind stores in the index, such as the names of DFTracer's hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its name.
    pub name: String,
    /// Its bytes; `None` while they are not loaded.
    pub bytes: Option<Arc<[u8]>>,
}

/// The filters of one block.
pub type FilterBlock = Arc<Vec<Option<ChunkFilter>>>;

/// One value per chunk, in blocks that may be absent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column<T> {
    pub(crate) blocks: Vec<Option<Arc<Vec<T>>>>,
}

impl<T> Default for Column<T> {
    fn default() -> Column<T> {
        Column { blocks: Vec::new() }
    }
}

impl<T: Clone> Column<T> {
    pub(crate) fn absent(chunks: usize) -> Column<T> {
        Column {
            blocks: vec![None; chunks.div_ceil(BLOCK_CHUNKS)],
        }
    }

    pub(crate) fn get(&self, chunk: usize) -> Option<&T> {
        let block = self.blocks.get(chunk / BLOCK_CHUNKS)?.as_ref()?;
        block.get(chunk % BLOCK_CHUNKS)
    }

    pub(crate) fn has_block(&self, block: usize) -> bool {
        self.blocks.get(block).is_some_and(Option::is_some)
    }

    fn truncate(&mut self, values: usize) {
        self.blocks.truncate(values.div_ceil(BLOCK_CHUNKS));
        let rest = values % BLOCK_CHUNKS;
        if let Some(Some(block)) = self.blocks.last_mut().filter(|_| rest > 0) {
            Arc::make_mut(block).truncate(rest);
        }
    }

    pub(crate) fn push(&mut self, value: T) {
        match self.blocks.last_mut() {
            Some(Some(block)) if block.len() < BLOCK_CHUNKS => Arc::make_mut(block).push(value),
            _ => self.blocks.push(Some(Arc::new(vec![value]))),
        }
    }
}

impl Index {
    /// An empty index for the dimensions of `config`.
    pub fn new(config: &IndexConfig) -> Index {
        Index {
            config_hash: config.hash(),
            dimensions: config
                .dimensions()
                .iter()
                .map(|path| Dimension::new(path.clone()))
                .collect(),
            ..Index::default()
        }
    }

    /// An index without summaries: only what the chunks themselves contain, counts and times.
    pub fn of_chunks(chunks: Vec<Chunk>) -> Index {
        Index {
            chunks,
            ..Index::default()
        }
    }

    /// Adds a chunk and takes its counts and times from `summary`, which was made with the
    /// configuration of this index.
    pub fn push(&mut self, mut chunk: Chunk, summary: ChunkSummary) {
        assert_eq!(
            summary.dimensions.len(),
            self.dimensions.len(),
            "a summary has the dimensions of its index"
        );
        chunk.summarize(&summary.statistics);
        self.chunks.push(chunk);
        self.statistics.push(summary.statistics);
        self.sketches.resize(self.statistics.blocks.len(), true);
        self.slowest.push(summary.slowest);
        for (dimension, summary) in self.dimensions.iter_mut().zip(summary.dimensions) {
            dimension.limits.push((summary.zone, summary.dictionary));
            dimension.filters.push(summary.filter);
        }
    }

    /// Removes the chunks from number `chunks` on. All blocks must be loaded.
    pub fn truncate(&mut self, chunks: usize) {
        self.chunks.truncate(chunks);
        self.statistics.truncate(chunks);
        self.sketches.truncate(self.statistics.blocks.len());
        self.slowest.truncate(chunks);
        for dimension in &mut self.dimensions {
            dimension.limits.truncate(chunks);
            dimension.filters.truncate(chunks);
        }
    }

    /// Adds the dimensions of `config` that this index lacks, from `summaries` of the same chunks
    /// made with `config`. Changes nothing else.
    ///
    /// # Errors
    /// When the summaries are of other chunks: their number or their events differ.
    pub fn extend(
        &mut self,
        config: &IndexConfig,
        summaries: &[ChunkSummary],
    ) -> Result<(), ChunkMismatch> {
        let events = summaries.iter().map(|summary| summary.statistics.events());
        if !events.eq(self.chunks.iter().map(|chunk| chunk.events)) {
            return Err(ChunkMismatch);
        }
        for (at, path) in config.dimensions().iter().enumerate() {
            if self.dimension(path).is_some() {
                continue;
            }
            let mut dimension = Dimension::new(path.clone());
            for summary in summaries {
                let added = summary.dimensions.get(at).ok_or(ChunkMismatch)?;
                dimension
                    .limits
                    .push((added.zone.clone(), added.dictionary.clone()));
                dimension.filters.push(added.filter.clone());
            }
            self.dimensions.push(dimension);
        }
        Ok(())
    }

    /// The identity of the indexed file.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Sets the identity of the indexed file.
    pub fn set_identity(&mut self, identity: Identity) {
        self.identity = identity;
    }

    /// [`IndexConfig::hash`] of the configuration of the index.
    pub fn config_hash(&self) -> u64 {
        self.config_hash
    }

    /// The chunks in the order of the file.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// The indexed fields.
    pub fn dimensions(&self) -> Vec<FieldPath> {
        self.dimensions
            .iter()
            .map(|dimension| dimension.path.clone())
            .collect()
    }

    /// The statistics of a chunk, if they are loaded. Their sketches may be empty until they are
    /// loaded, too.
    pub fn statistics(&self, chunk: usize) -> Option<&ChunkStatistics> {
        self.statistics.get(chunk)
    }

    /// The limits and the dictionary of a field in a chunk, if they exist and are loaded.
    pub fn limits(&self, field: &FieldPath, chunk: usize) -> Option<(&Zone, Option<&Dictionary>)> {
        let (zone, dictionary) = self.dimension(field)?.limits.get(chunk)?;
        Some((zone, dictionary.as_ref()))
    }

    /// The filter of a field in a chunk, if it exists and is loaded.
    pub fn filter(&self, field: &FieldPath, chunk: usize) -> Option<&ChunkFilter> {
        self.dimension(field)?.filters.get(chunk)?.as_ref()
    }

    /// The file dictionary of a field, if it exists and is loaded.
    pub fn file_dictionary(&self, field: &FieldPath) -> Option<&Arc<FileDictionary>> {
        match &self.dimension(field)?.file_dictionary {
            DictionaryState::Loaded(file_dictionary) => Some(file_dictionary),
            DictionaryState::Absent | DictionaryState::Stored => None,
        }
    }

    /// Sets the file dictionary that the filters of a dimension refer to; does nothing if `field`
    /// is not a dimension.
    pub fn set_file_dictionary(&mut self, field: &FieldPath, file_dictionary: FileDictionary) {
        let mut dimensions = self.dimensions.iter_mut();
        if let Some(dimension) = dimensions.find(|dimension| dimension.path == *field) {
            dimension.file_dictionary = DictionaryState::Loaded(Arc::new(file_dictionary));
        }
    }

    /// The slowest events of a chunk, if they are loaded.
    pub fn slowest(&self, chunk: usize) -> Option<&Slowest> {
        self.slowest.get(chunk)
    }

    /// Where decoding can begin inside the compressed file.
    pub fn checkpoints(&self) -> &[Checkpoint] {
        &self.checkpoints
    }

    /// Sets the checkpoints, in the order of the file.
    pub fn set_checkpoints(&mut self, checkpoints: Vec<Checkpoint>) {
        self.checkpoints = checkpoints;
    }

    /// All attachments.
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// Attaches `bytes`, instead of those that had this name.
    pub fn attach(&mut self, name: &str, bytes: Vec<u8>) {
        self.attachments
            .retain(|attachment| attachment.name != name);
        self.attachments.push(Attachment {
            name: name.to_owned(),
            bytes: Some(bytes.into()),
        });
    }

    /// Removes an attachment.
    pub fn detach(&mut self, name: &str) {
        self.attachments
            .retain(|attachment| attachment.name != name);
    }

    /// The bytes of an attachment, if it exists and is loaded.
    pub fn attachment(&self, name: &str) -> Option<&Arc<[u8]>> {
        let found = self
            .attachments
            .iter()
            .find(|attachment| attachment.name == name);
        found?.bytes.as_ref()
    }

    pub(crate) fn dimension(&self, path: &FieldPath) -> Option<&Dimension> {
        self.dimensions
            .iter()
            .find(|dimension| dimension.path == *path)
    }
}

/// The summaries are not those of the chunks of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the summaries are of other chunks than those of the index; index the file again")]
pub struct ChunkMismatch;
