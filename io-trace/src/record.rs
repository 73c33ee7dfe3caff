//! What is recorded of one operation.

use crate::FileName;

macro_rules! names {
    (
        $(#[$meta:meta])* $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_meta])* $variant),*
        }

        impl $name {
            /// Every variant, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The word for it in traces and in the API.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// The variant with this word.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|variant| variant.name() == name)
            }
        }
    };
}

names! {
    /// What is done.
    Operation {
        /// A file is opened or made.
        Open = "open",
        /// Bytes of a file are read.
        Read = "read",
        /// Bytes of a file are written.
        Write = "write",
        /// What was written to a file is made durable.
        Sync = "sync",
        /// The names in a folder are made durable.
        SyncFolder = "sync_folder",
        /// Space is reserved for a file.
        Allocate = "allocate",
        /// A file is cut or extended.
        SetLength = "set_length",
        /// A file is closed.
        Close = "close",
        /// A file or folder gets another name.
        Rename = "rename",
        /// A file or folder is removed.
        Unlink = "unlink",
        /// A block is looked for in a cache.
        Lookup = "lookup",
    }
}

impl Operation {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
}

names! {
    /// Why an operation is done.
    Cause {
        /// Nobody said.
        Unknown = "unknown",
        /// Packets are made durable.
        Ingest = "ingest",
        /// The live index is written out.
        Flush = "flush",
        /// A storage becomes immutable.
        Finalize = "finalize",
        /// Packets or descriptors are looked for.
        Query = "query",
        /// Byte ranges of a file are served.
        Range = "range",
        /// A storage is rebuilt from its frames.
        Recovery = "recovery",
        /// A storage is read again to find damage.
        Verify = "verify",
        /// Storages and agents are made, changed and removed.
        Manage = "manage",
        /// A storage is sent as an archive.
        Export = "export",
        /// A storage is taken out of an archive.
        Import = "import",
        /// What chunks hold is found out and written beside their data file.
        Index = "index",
    }
}

names! {
    /// What a file is.
    FileClass {
        /// Anything else.
        Other = "other",
        /// Frames of packets.
        Data = "data",
        /// An index part.
        Index = "index",
        /// A storage file.
        Storage = "storage",
        /// An agent file.
        Agent = "agent",
        /// Chunk summaries.
        ChunkIndex = "chunk_index",
        /// Provenance of a data file.
        Provenance = "provenance",
        /// The catalog.
        Catalog = "catalog",
        /// A folder.
        Folder = "folder",
        /// A kept answer of a query.
        Answer = "answer",
    }
}

names! {
    /// What a cache keeps in a block.
    BlockType {
        /// Entries of an index.
        Index = "index",
        /// A filter.
        Filter = "filter",
        /// Bytes of packets.
        Data = "data",
        /// A dictionary: the values of a field, or what numbers stand for.
        Dictionary = "dictionary",
        /// An answer of a query.
        Answer = "answer",
    }
}

/// A block of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// What it holds.
    pub block_type: BlockType,
    /// Bytes it takes in the cache.
    pub size: u64,
    /// It was not kept although it was missing, because the cache has no room for it.
    pub not_inserted: bool,
    /// The leaf it belongs to.
    pub leaf: u64,
    /// Entries in it.
    pub entries: u64,
    /// Whether the block can no longer change.
    pub immutable: bool,
    /// Whether the one entry that was wanted is in it; `None` when several may be.
    pub found: Option<bool>,
}

impl Block {
    /// A block of `block_type` that takes `size` bytes, of the file of `tag`: kept by its cache,
    /// and of nothing that can change.
    #[must_use]
    pub fn of(tag: &FileName, block_type: BlockType, size: u64) -> Self {
        Self {
            block_type,
            size,
            not_inserted: false,
            leaf: tag.leaf(),
            entries: 0,
            immutable: true,
            found: None,
        }
    }
}

/// What an operation touched and how it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// Where in the file; `None` for an operation without a place.
    pub offset: Option<u64>,
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes done.
    pub done: u64,
    /// The system's error number, 0 for none.
    pub errno: u16,
    /// Whether a cache had it: for a read, that of the system.
    pub cache_hit: Option<bool>,
    /// The block, when it is one of a cache.
    pub block: Option<Block>,
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub struct Record<'r> {
    /// When it began, ns since the tracer was made.
    pub start: u64,
    /// How long it took, ns.
    pub latency: u64,
    /// What was done.
    pub operation: Operation,
    /// Why.
    pub cause: Cause,
    /// The system's number of the thread that ended it.
    pub thread: u32,
    /// The file.
    pub file: &'r FileName,
    /// What was touched.
    pub access: Access,
    /// The request it was done for; the first one, when there were several.
    pub request: Option<&'r str>,
    /// How many requests it was done for: 0 for none that is known.
    pub requests: u32,
}

impl Record<'_> {
    /// When it ended, ns since the tracer was made.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.latency)
    }
}

/// The error number of a result; 5 (`EIO`) for an error that did not come from the system.
pub fn errno<T>(result: &std::io::Result<T>) -> u16 {
    const EIO: i32 = 5;
    match result {
        Ok(_) => 0,
        Err(error) => u16::try_from(error.raw_os_error().unwrap_or(EIO)).unwrap_or(u16::MAX),
    }
}
