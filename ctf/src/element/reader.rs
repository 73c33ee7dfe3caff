//! The reader of elements: batches, positions, and seeking.

use super::batch::BATCH;
use super::machine::{Entry, Machine, Stop};
use super::position::Position;
use super::{Element, PacketInfo};
use crate::decoding::DecodeError;
use crate::integer::usize_from;
use crate::procedure::Procedure;

/// Most elements that are replayed to compute a position.
const ANCHOR_DISTANCE: usize = 1024;

/// Reads the elements of the packets in `data`.
///
/// ```
/// use ctf::{Element, ElementReader};
/// # fn read(procedure: &ctf::Procedure, stream: &[u8]) -> Result<u64, ctf::DecodeError> {
/// let mut reader = ElementReader::new(procedure, stream);
/// let mut records = 0;
/// while let Some(element) = reader.next_element()? {
///     if let Element::RecordBegin = element {
///         records += 1;
///     }
/// }
/// # Ok(records)
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ElementReader<'a> {
    machine: Machine<'a>,
    batch: Box<[Entry<'a>; BATCH]>,
    /// Number of elements in the batch, and how many of them were returned.
    filled: usize,
    returned: usize,
    /// Why the batch ended early.
    stop: Option<Stop>,
    /// An earlier state of the machine, and the number of elements from there to the end of the
    /// batch.
    anchor: Position,
    since_anchor: usize,
    /// Offset of the element before the batch.
    last_offset: u64,
}

impl<'a> ElementReader<'a> {
    /// A reader at the beginning of `data`.
    pub fn new(procedure: &'a Procedure, data: &'a [u8]) -> Self {
        let machine = Machine::new(procedure, data);
        let none = Entry {
            offset: 0,
            element: Element::PacketBegin,
        };
        Self {
            anchor: machine.position.clone(),
            machine,
            batch: Box::new([none; BATCH]),
            filled: 0,
            returned: 0,
            stop: None,
            since_anchor: 0,
            last_offset: 0,
        }
    }

    /// Splits [`Element::RawData`] at multiples of `window` bytes of the data.
    ///
    /// With the same window, a reader that receives its data in blocks produces the same elements
    /// as one that has all of it; without a window, raw data is never split. A string that is not
    /// terminated in its window is then checked against the content of the packet as one piece.
    #[must_use]
    pub fn with_window(mut self, window: u64) -> Self {
        self.machine.window = window.max(1);
        self
    }

    /// The next element; `None` at the end of the data.
    ///
    /// # Errors
    ///
    /// A [`DecodeError`] when the packet cannot be decoded any further. The reader does not
    /// advance: it returns the same error again until it is moved by [`Self::seek_packet`] or
    /// [`Self::restore`].
    #[inline]
    pub fn next_element(&mut self) -> Result<Option<&Element<'a>>, DecodeError> {
        if self.returned == self.filled {
            self.fill()?;
            if self.filled == 0 {
                return Ok(None);
            }
        }
        let entry = &self.batch[self.returned];
        self.returned += 1;
        Ok(Some(&entry.element))
    }

    #[inline(never)]
    fn fill(&mut self) -> Result<(), DecodeError> {
        if let Some(Stop::Error(error)) = self.stop {
            return Err(error);
        }
        if self.since_anchor >= ANCHOR_DISTANCE {
            self.anchor.clone_from(&self.machine.position);
            self.since_anchor = 0;
        }
        self.last_offset = self.offset();
        let (filled, stop) = self.machine.fill(&mut self.batch[..]);
        (self.filled, self.returned, self.stop) = (filled, 0, stop);
        self.since_anchor += filled;
        match stop {
            Some(Stop::Error(error)) if filled == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Offset of the last element that was returned, in bits from the beginning of the data.
    pub fn offset(&self) -> u64 {
        self.returned
            .checked_sub(1)
            .map_or(self.last_offset, |last| self.batch[last].offset)
    }

    /// Lengths, end time and counters of the current packet; complete from [`Element::PacketInfo`]
    /// to
    /// [`Element::PacketEnd`].
    pub fn packet_info(&self) -> &PacketInfo {
        &self.machine.position.info
    }

    /// The state of the reader after the last element that was returned, as a plain value.
    ///
    /// This costs as much as reading up to a thousand elements: the reader decodes ahead, and the
    /// state is recomputed from the last one that it stored.
    pub fn position(&self) -> Position {
        let mut position = if self.returned == self.filled && self.stop.is_none() {
            self.machine.position.clone()
        } else {
            self.replay()
        };
        position.offset = self.offset();
        position
    }

    fn replay(&self) -> Position {
        let mut machine = self.machine.clone();
        machine.move_to(&self.anchor);
        let mut left = self.since_anchor - (self.filled - self.returned);
        let mut batch = *self.batch;
        while left > 0 {
            let (filled, _) = machine.fill(&mut batch[..left.min(BATCH)]);
            debug_assert!(
                filled > 0,
                "instructions that were executed once can be executed again"
            );
            left -= filled.clamp(1, left);
        }
        machine.position
    }

    /// Moves to a saved position; the next element is the one that follows it.
    pub fn restore(&mut self, position: &Position) {
        self.machine.move_to(position);
        self.anchor.clone_from(position);
        self.since_anchor = 0;
        self.last_offset = position.offset;
        (self.filled, self.returned, self.stop) = (0, 0, None);
    }

    /// Moves to the packet at `offset` of the data, in bytes.
    pub fn seek_packet(&mut self, offset: usize) {
        let slots = usize_from(self.machine.procedure.trace_class().slot_count());
        self.restore(&Position::new(offset, slots));
    }
}
