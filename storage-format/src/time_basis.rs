//! The time basis of packets: what their times were decoded with in addition to their bytes.
//!
//! Time spans in frames and index parts are decoded when a packet arrives. For some kinds they
//! depend on more than the bytes of the packet, and this may change later: an agent sends new trace
//! metadata, or a DFTracer stream declares its time unit after its first packets. Therefore the
//! time basis is stored next to the span, as a number that identifies what the span was decoded
//! with. A span whose basis is not the current one is stale and must not be used.

use crate::{Kind, frame::Facts};

/// The current time basis of the packets of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeBasis {
    /// The bytes of the packets alone.
    Bytes,
    /// The number of the basis: the CRC32C of the trace metadata (`ctf`), or the time unit in
    /// nanoseconds (`dft`).
    Number(u32),
    /// An unknown basis.
    Unknown,
}

impl TimeBasis {
    /// The basis of packets of `kind`, as far as it follows from the kind.
    #[must_use]
    pub fn of_kind(kind: Kind) -> Self {
        match kind {
            Kind::Ctf | Kind::Dft => Self::Unknown,
            Kind::RocksdbIo
            | Kind::RocksdbBlockCache
            | Kind::Otlp
            | Kind::IoTrace
            | Kind::Chrome
            | Kind::Raw => Self::Bytes,
        }
    }

    /// Whether facts with the basis `of_facts` are current.
    #[must_use]
    pub fn is_of(self, of_facts: Option<u32>) -> bool {
        match self {
            Self::Bytes => true,
            Self::Number(number) => of_facts == Some(number),
            Self::Unknown => false,
        }
    }

    /// The facts that were decoded when the packet arrived; none of them if they may be stale.
    #[must_use]
    pub fn known(self, facts: &Facts) -> Facts {
        if self.is_of(facts.time_basis) {
            *facts
        } else {
            Facts::default()
        }
    }
}
