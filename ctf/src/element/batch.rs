//! Batches of elements.
//!
//! Elements are produced in batches. The fast path executes frequent instructions that cannot fail,
//! with the head and the instruction address in registers. All other cases go through
//! [`Machine::execute`], which alone implements all instructions and all faults.

use super::execution::Step;
use super::machine::{Entry, Machine, Stop};
use super::position::Position;
use super::{Element, StreamInfo};
use crate::decoding::{DecodeError, DecodeFault};
use crate::integer::{u64_from, usize_from};

/// Elements of a batch: enough to amortize a call, few enough for the first-level cache.
pub(super) const BATCH: usize = 32;

impl<'a> Machine<'a> {
    /// Produces elements until `batch` is full; returns their number, and the reason when it
    /// stopped early.
    ///
    /// A batch ends at the packet info and at the end of a packet, so that the machine's packet
    /// info applies to all elements of the batch.
    pub(super) fn fill(&mut self, batch: &mut [Entry<'a>]) -> (usize, Option<Stop>) {
        let mut filled = 0;
        while filled < batch.len() {
            filled += self.run(&mut batch[filled..]);
            if filled == batch.len() {
                break;
            }
            let instr = &self.code[usize_from(self.position.at)];
            match self.execute(instr) {
                Ok(Some(Step::Element)) => {
                    let offset = self.position.offset;
                    batch[filled] = Entry {
                        offset,
                        element: self.element,
                    };
                    filled += 1;
                    if matches!(self.element, Element::PacketInfo | Element::PacketEnd) {
                        break;
                    }
                }
                Ok(Some(Step::End)) => return (filled, Some(Stop::End)),
                Ok(None) => {}
                Err(fault) => return (filled, Some(Stop::Error(self.error(fault)))),
            }
        }
        (filled, None)
    }

    /// Moves to `position`.
    pub(super) fn move_to(&mut self, position: &Position) {
        self.position.clone_from(position);
        self.resume();
    }

    /// Recomputes the state that is derived from the position.
    pub(super) fn resume(&mut self) {
        self.bytes = self.data.get(self.position.packet..).unwrap_or_default();
        self.limit = self.position.content.min(self.data_bits());
        self.stream_info = self.current_stream();
    }

    pub(super) fn current_stream(&self) -> StreamInfo<'a> {
        let streams = self.procedure.trace_class().stream_classes();
        let class = self
            .position
            .stream
            .and_then(|index| streams.get(usize_from(index)));
        StreamInfo {
            class,
            id: self.position.stream_id,
        }
    }

    /// Bits from the beginning of the packet to the end of the data.
    pub(super) fn data_bits(&self) -> u64 {
        u64_from(self.bytes.len()) * 8
    }

    /// Offset of the head in the data, in bits.
    pub(super) fn head_offset(&self) -> u64 {
        u64_from(self.position.packet) * 8 + self.position.head
    }

    #[cold]
    fn error(&self, fault: DecodeFault) -> DecodeError {
        DecodeError {
            offset: self.head_offset(),
            fault,
        }
    }
}
