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

            /// Its name in traces and in the API.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// The variant with this name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|variant| variant.name() == name)
            }
        }
    };
}

names! {
    /// What an operation does.
    Operation {
        /// Opens or creates a file.
        Open = "open",
        /// Reads bytes of a file.
        Read = "read",
        /// Writes bytes of a file.
        Write = "write",
        /// Makes the writes to a file durable.
        Sync = "sync",
        /// Makes the names in a folder durable.
        SyncFolder = "sync_folder",
        /// Reserves space for a file.
        Allocate = "allocate",
        /// Truncates or extends a file.
        SetLength = "set_length",
        /// Closes a file.
        Close = "close",
        /// Renames a file or folder.
        Rename = "rename",
        /// Removes a file or folder.
        Unlink = "unlink",
        /// Looks up a block in a cache.
        Lookup = "lookup",
    }
}

impl Operation {
    /// The number of variants.
    pub const COUNT: usize = Self::ALL.len();
}

names! {
    /// Why an operation is done.
    Cause {
        /// Unknown.
        Unknown = "unknown",
        /// To make packets durable.
        Ingest = "ingest",
        /// To save the live tree.
        Flush = "flush",
        /// To finalize a storage.
        Finalize = "finalize",
        /// To find packets or descriptors.
        Query = "query",
        /// To serve byte ranges of a file.
        Range = "range",
        /// To rebuild a storage from its frames.
        Recovery = "recovery",
        /// To verify a storage.
        Verify = "verify",
        /// To create, change and remove storages and agents.
        Manage = "manage",
        /// To export a storage.
        Export = "export",
        /// To import a storage.
        Import = "import",
        /// To index data files.
        Index = "index",
    }
}

names! {
    /// The class of a file.
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
        /// A cached result.
        Answer = "answer",
    }
}

names! {
    /// What a block of a cache contains.
    BlockType {
        /// Entries of an index.
        Index = "index",
        /// A filter.
        Filter = "filter",
        /// Bytes of packets.
        Data = "data",
        /// A dictionary: the values of a field, or what numbers represent.
        Dictionary = "dictionary",
        /// The result of a query.
        Answer = "answer",
    }
}
