//! The names of operations, their causes, files and blocks in traces and in the API.

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
