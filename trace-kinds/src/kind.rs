//! Decoders and properties by kind.
//!
//! A new kind needs an adapter and a line in [`decoder_for`], [`bare_unit`] and [`dimensions`];
//! ingest, indexes, queries and mounts then support it.

use std::sync::Arc;

use ctf::Procedure;
use query_language::{BareUnit, FieldTable};
use storage_format::Kind;

use crate::chrome::{self, ChromeDecoder, OutsideDurations};
use crate::ctf::CtfDecoder;
use crate::dft::{Names, PacketDecoder, TimeUnit};
use crate::io_trace::IoTraceDecoder;
use crate::otlp::OtlpDecoder;
use crate::rocksdb::{RocksdbDecoder, TraceKind};
use crate::{DecodeError, Decoder};

/// What decoding needs in addition to the bytes of a packet.
#[derive(Debug, Clone, Default)]
pub struct StreamContext {
    /// The compiled trace metadata of the agent (`ctf`).
    pub procedure: Option<Arc<Procedure>>,
    /// The texts of hashes (`dft`); needed only where fields with these texts are requested.
    pub names: Names,
    /// Unit of the stream's times (`dft`).
    pub unit: TimeUnit,
    /// Durations of events that begin and end in different packets (`chrome`).
    pub outside: Option<Arc<dyn OutsideDurations>>,
}

/// A decoder of packets of `kind` for the fields of `table`; `None` for kinds without events.
///
/// # Errors
///
/// When the context lacks something that the kind needs.
pub fn decoder_for(
    kind: Kind,
    context: &StreamContext,
    table: &FieldTable,
) -> Result<Option<Box<dyn Decoder>>, DecodeError> {
    Ok(Some(match kind {
        Kind::Ctf => match &context.procedure {
            Some(procedure) => Box::new(CtfDecoder::new(procedure, table)),
            None => {
                return Err(DecodeError::Unsupported {
                    format: "ctf",
                    reason: "its agent sent no trace metadata; send it with PUT \
                             /api/v1/agents/{agent}/metadata"
                        .to_owned(),
                });
            }
        },
        Kind::Dft => Box::new(PacketDecoder::new(
            table,
            context.names.clone(),
            context.unit,
        )),
        Kind::RocksdbIo => Box::new(RocksdbDecoder::new(TraceKind::Io, table)),
        Kind::RocksdbBlockCache => Box::new(RocksdbDecoder::new(TraceKind::BlockCache, table)),
        Kind::IoTrace => Box::new(IoTraceDecoder::new(table)),
        Kind::Otlp => Box::new(OtlpDecoder::new(table)),
        Kind::Chrome => {
            let outside = context.outside.clone();
            Box::new(ChromeDecoder::new(table).with_outside(outside))
        }
        Kind::Raw => return Ok(None),
    }))
}

/// Whether packets of `kind` contain events.
pub fn has_events(kind: Kind) -> bool {
    kind != Kind::Raw
}

/// The unit of a number without one that a query over a stream of `kind` compares with `ts` or
/// `dur`.
pub fn bare_unit(kind: Kind, context: &StreamContext) -> BareUnit {
    match kind {
        Kind::Dft => BareUnit::Nanos(u32::try_from(context.unit.nanoseconds()).unwrap_or(1)),
        Kind::Chrome => BareUnit::Nanos(chrome::UNIT_NANOS),
        _ => BareUnit::NANOS,
    }
}

/// Fields of `kind` that are indexed by default, in addition to `name` and `cat`.
pub fn dimensions(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Dft => &crate::dft::DIMENSIONS,
        Kind::Ctf => &["pid", "tid"],
        Kind::RocksdbIo => &["file_name", "io_status"],
        Kind::RocksdbBlockCache => &["cf_name", "level", "sst_fd_number", "is_cache_hit"],
        Kind::IoTrace => &crate::io_trace::DIMENSIONS,
        Kind::Otlp => &["status", "trace_id", "ctx.service.name"],
        Kind::Chrome => &chrome::DIMENSIONS,
        Kind::Raw => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_decoder_or_no_events() {
        let table = FieldTable::new();
        let context = StreamContext::default();
        for kind in Kind::ALL {
            let made = decoder_for(*kind, &context, &table);
            match kind {
                Kind::Ctf => assert!(matches!(made, Err(DecodeError::Unsupported { .. }))),
                _ => assert_eq!(made.map(|d| d.is_some()), Ok(has_events(*kind)), "{kind}"),
            }
        }
    }

    #[test]
    fn dft_and_chrome_have_units_other_than_nanoseconds() {
        let context = StreamContext {
            unit: TimeUnit::Millisecond,
            ..StreamContext::default()
        };
        assert_eq!(bare_unit(Kind::Dft, &context), BareUnit::Nanos(1_000_000));
        assert_eq!(bare_unit(Kind::Chrome, &context), BareUnit::Nanos(1_000));
        assert_eq!(bare_unit(Kind::Ctf, &context), BareUnit::NANOS);
    }
}
