//! Events of packets, from the decoder to the engine.

use std::ops::ControlFlow;
use std::sync::Arc;

use query_language::FieldTable;
use storage_format::Kind;
use trace_kinds::chrome::OutsideDurations;
use trace_kinds::{Decoder, EachEvent, Event, Origin, OriginFields, StreamContext, decoder_for};

use crate::ReadError;
use crate::source::Counters;

/// Errors that one task reports.
const FAULTS_MAX: usize = 16;

/// Decodes the packets of one stream, passes their events on and counts their records. A packet
/// that cannot be decoded to its end is reported, and reading continues with the next one.
pub(crate) struct PacketEvents<'e, 'f> {
    decoder: Box<dyn Decoder>,
    origin: OriginFields,
    each: &'e mut EachEvent<'f>,
    /// Durations of slices that end in other packets (`chrome`).
    outside: Option<Arc<dyn OutsideDurations>>,
    /// Whether the begins without an end are counted here, and not by the index.
    counts_unpaired: bool,
    pub(crate) counters: Counters,
}

impl<'e, 'f> PacketEvents<'e, 'f> {
    /// `None` for kinds without events.
    pub(crate) fn new(
        kind: Kind,
        context: &StreamContext,
        origin: &Origin,
        fields: &FieldTable,
        (each, is_indexed): (&'e mut EachEvent<'f>, bool),
    ) -> Result<Option<Self>, ReadError> {
        let decoder = decoder_for(kind, context, fields).map_err(|source| ReadError::Decode {
            place: format!(
                "stream {} of {}",
                origin.stream.as_deref().unwrap_or("-"),
                origin.agent.as_deref().unwrap_or("-")
            ),
            source,
        })?;
        Ok(decoder.map(|decoder| PacketEvents {
            decoder,
            origin: OriginFields::new(origin, fields),
            each,
            outside: context.outside.clone(),
            counts_unpaired: !is_indexed,
            counters: Counters::default(),
        }))
    }

    /// Passes on the events of the packet at `position` in its file or leaf; `place` describes it
    /// in messages.
    pub(crate) fn packet(
        &mut self,
        position: u64,
        packet: &[u8],
        place: &dyn Fn() -> String,
    ) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        let (each, origin) = (&mut *self.each, &self.origin);
        self.decoder.set_position(position);
        let decoded = self.decoder.decode(packet, &mut |event: &dyn Event| {
            flow = if origin.is_empty() {
                each(event)
            } else {
                each(&origin.with(event))
            };
            flow
        });
        self.counters.decoded_bytes += packet.len() as u64;
        let outside = self.outside.as_deref();
        if self.counts_unpaired {
            let pairing = &mut self.counters.pairing;
            pairing.unpaired = self.decoder.unpaired();
            if let Some(outside) = outside {
                pairing.is_cut |= pairing.unpaired > 0 && outside.is_cut();
                pairing.is_disordered |= outside.is_disordered();
            }
        }
        if let Some(outside) = outside {
            self.counters.slice_faults.extend(outside.faults());
        }
        match decoded {
            Ok(decoded) => self.counters.decoded += decoded,
            Err(error) => self.fault(format!("{}: {error}", place())),
        }
        flow
    }

    /// Counts something that cannot be read, and reports it unless there are many reports already.
    pub(crate) fn fault(&mut self, what: String) {
        self.counters.decoded.broken += 1;
        if self.counters.faults.len() < FAULTS_MAX {
            self.counters.faults.push(what);
        }
    }
}
