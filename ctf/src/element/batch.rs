//! The fast loop of the machine.
//!
//! Elements are made in batches. The loop keeps the head and the address of the instruction in
//! registers and does only what is frequent and cannot fail; everything else goes through
//! [`Machine::execute`], which alone knows all instructions and all faults.

use super::execution::Step;
use super::machine::{Entry, Machine, Stop};
use super::position::Position;
use super::{Element, StreamInfo};
use crate::decoding::{DecodeError, DecodeFault};

/// Elements of a batch: enough to forget the cost of a call, few enough for the first-level cache.
pub(super) const BATCH: usize = 32;

impl<'a> Machine<'a> {
    /// Makes elements until `batch` is full; gives how many, and what stopped it before.
    ///
    /// A batch ends with the packet info and with the packet, so that what the machine knows of the
    /// packet is so for all elements of the batch.
    pub(super) fn fill(&mut self, batch: &mut [Entry<'a>]) -> (usize, Option<Stop>) {
        let mut filled = 0;
        while filled < batch.len() {
            filled += self.run(&mut batch[filled..]);
            if filled == batch.len() {
                break;
            }
            let instr = &self.code[self.position.at as usize];
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

    /// Goes to `position`.
    pub(super) fn move_to(&mut self, position: &Position) {
        self.position.clone_from(position);
        self.resume();
    }

    /// Makes everything that follows from the position.
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
            .and_then(|index| streams.get(index as usize));
        StreamInfo {
            class,
            id: self.position.stream_id,
        }
    }

    /// Bits from the beginning of the packet to the end of the data.
    pub(super) fn data_bits(&self) -> u64 {
        self.bytes.len() as u64 * 8
    }

    /// The head from the beginning of the data, in bits.
    pub(super) fn head_offset(&self) -> u64 {
        self.position.packet as u64 * 8 + self.position.head
    }

    #[cold]
    fn error(&self, fault: DecodeFault) -> DecodeError {
        DecodeError {
            offset: self.head_offset(),
            fault,
        }
    }
}
