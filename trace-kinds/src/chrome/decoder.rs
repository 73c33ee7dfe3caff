//! Packets of the kind `chrome` as events.

use std::cell::OnceCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use query_language::FieldTable;

use super::event::{ChromeEvent, InPacket, Values, Wanted};
use super::found::{Damage, Found};
use super::pairs::{Pairs, slice};
use super::record::{NotAnEvent, Timed};
use super::scanner::Scanner;
use super::unpaired::OutsideDurations;
use super::{FORMAT, packet_text};
use crate::{DecodeError, Decoded, Decoder, EachEvent};

/// Decodes packets of Chrome traces.
#[derive(Debug)]
pub struct ChromeDecoder {
    wanted: Wanted,
    values: Values,
    unpaired: u64,
    outside: Option<Arc<dyn OutsideDurations>>,
    /// Where the next packet is in its stream.
    position: Option<u64>,
}

impl ChromeDecoder {
    /// A decoder for the fields of `table`.
    pub fn new(table: &FieldTable) -> Self {
        Self {
            wanted: Wanted::new(table),
            values: Values::default(),
            unpaired: 0,
            outside: None,
            position: None,
        }
    }

    /// The same decoder with the durations of begins whose ends are in other packets. They are used
    /// for packets whose [position](Decoder::set_position) is known.
    pub fn with_outside(mut self, outside: Option<Arc<dyn OutsideDurations>>) -> Self {
        self.outside = outside;
        self
    }

    /// As [`Decoder::decode`]; `damaged` is called for each broken event.
    ///
    /// # Errors
    ///
    /// As [`Decoder::decode`].
    pub fn decode_with(
        &mut self,
        packet: &[u8],
        damaged: &mut dyn FnMut(Damage),
        each: &mut EachEvent<'_>,
    ) -> Result<Decoded, DecodeError> {
        let text = packet_text(packet)?;
        let packet = &*text;
        let outside = self.position.take().zip(self.outside.as_deref());
        let context = InPacket {
            packet,
            outside,
            pairs: OnceCell::new(),
        };
        let mut slots = Vec::new();
        let (wanted, values) = (&self.wanted, &mut self.values);
        let (mut decoded, mut ended) = (Decoded::default(), None);
        let mut scanner = Scanner::new();
        let mut visit = |found| match found {
            Found::Record(range) => {
                match Timed::parse(slice(packet, &range).unwrap_or_default()) {
                    Ok(Some(event)) => {
                        decoded.events += 1;
                        let offset = range.start;
                        let event =
                            ChromeEvent::new(&event, offset, &context, wanted, &mut slots, values);
                        return each(&event);
                    }
                    Ok(None) => decoded.metadata += 1,
                    Err(NotAnEvent) => {
                        decoded.broken += 1;
                        damaged(Damage {
                            offset: range.start,
                            reason: "not an event: an object with `ph` and a time `ts` is expected",
                            is_end: false,
                        });
                    }
                }
                ControlFlow::Continue(())
            }
            Found::Damage(damage) if damage.is_end => {
                ended = Some(damage);
                ControlFlow::Continue(())
            }
            Found::Damage(damage) => {
                decoded.broken += 1;
                damaged(damage);
                ControlFlow::Continue(())
            }
            Found::Boundary(_) | Found::Lenient { .. } => ControlFlow::Continue(()),
        };
        let flow = scanner.scan(packet, &mut visit);
        let torn = match flow {
            ControlFlow::Continue(()) => scanner.finish(&mut visit),
            ControlFlow::Break(()) => None,
        };
        if wanted.has_duration() {
            // Whether or not somebody asked for that of an event: what is said of a packet does not
            // depend on the other conditions of a query.
            context.pairs();
        }
        self.unpaired += context.pairs.get().map_or(0, Pairs::unpaired);
        ended_with(ended, torn).map(|()| decoded)
    }
}

/// Whether a packet was read to its end: damage ended it, or it is torn at an offset.
fn ended_with(damage: Option<Damage>, torn: Option<u64>) -> Result<(), DecodeError> {
    match (damage, torn) {
        (Some(Damage { offset, reason, .. }), _) => Err(DecodeError::Damaged {
            format: FORMAT,
            offset,
            reason: reason.to_owned(),
        }),
        (None, Some(offset)) => Err(DecodeError::Truncated {
            format: FORMAT,
            offset,
        }),
        (None, None) => Ok(()),
    }
}

impl Decoder for ChromeDecoder {
    fn decode(&mut self, packet: &[u8], each: &mut EachEvent<'_>) -> Result<Decoded, DecodeError> {
        self.decode_with(packet, &mut |_| {}, each)
    }

    fn set_position(&mut self, position: u64) {
        self.position = Some(position);
    }

    fn unpaired(&self) -> u64 {
        self.unpaired
    }
}
