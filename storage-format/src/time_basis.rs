//! What the times of packets rest on.
//!
//! Time spans in frames and index parts were read when the packet came. Those of some kinds rest on
//! more than the bytes of the packet, and that may have changed since: an agent sends other trace
//! metadata, or a DFTracer stream declares its unit behind its first packets. So the time basis
//! stands beside the span, a number for what the span was read with, and a span with another basis
//! than the present one is that of another reading of the same bytes.

use crate::{Kind, frame::Facts};

/// What the times in packets of a stream rest on at present, besides the bytes of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeBasis {
    /// Nothing.
    Bytes,
    /// What has this number: the CRC32C of the trace metadata (`ctf`), the nanoseconds of a unit
    /// of time (`dft`).
    Number(u32),
    /// What is not known here.
    Unknown,
}

impl TimeBasis {
    /// That of packets of `kind`, as far as the kind alone tells it.
    #[must_use]
    pub fn of_kind(kind: Kind) -> Self {
        match kind {
            Kind::Ctf | Kind::Dft => Self::Unknown,
            Kind::RocksdbIo | Kind::RocksdbBlockCache | Kind::Otlp | Kind::IoTrace | Kind::Raw => {
                Self::Bytes
            }
        }
    }

    /// Whether facts with the basis `of_facts` are those that would be read at present.
    #[must_use]
    pub fn is_of(self, of_facts: Option<u32>) -> bool {
        match self {
            Self::Bytes => true,
            Self::Number(number) => of_facts == Some(number),
            Self::Unknown => false,
        }
    }

    /// What is left of facts that were read when the packet came; nothing where they may be of
    /// another reading of its bytes.
    #[must_use]
    pub fn known(self, facts: &Facts) -> Facts {
        match self.is_of(facts.time_basis) {
            true => *facts,
            false => Facts::default(),
        }
    }
}
