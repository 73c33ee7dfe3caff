//! The machine of the element reader: program, data and position.

use super::position::Position;
use super::{Element, StreamInfo};
use crate::decoding::DecodeError;
use crate::integer::usize_from;
use crate::procedure::{Instr, Procedure};

/// An element and its bit offset in the data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) offset: u64,
    pub(super) element: Element<'a>,
}

/// Why a batch ended before it was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    End,
    Error(DecodeError),
}

/// The machine: program, data and position.
#[derive(Clone, Debug)]
pub(super) struct Machine<'a> {
    pub(super) procedure: &'a Procedure,
    pub(super) code: &'a [Instr],
    pub(super) data: &'a [u8],
    /// `data` from the beginning of the packet.
    pub(super) bytes: &'a [u8],
    /// Bits of the packet that may be read: the end of the content or of the data.
    pub(super) limit: u64,
    pub(super) window: u64,
    pub(super) position: Position,
    pub(super) stream_info: StreamInfo<'a>,
    /// The element that `execute` produced.
    pub(super) element: Element<'a>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(procedure: &'a Procedure, data: &'a [u8]) -> Self {
        let slots = usize_from(procedure.trace_class().slot_count());
        Self {
            procedure,
            code: procedure.code(),
            data,
            bytes: data,
            limit: 0,
            window: u64::MAX,
            position: Position::new(0, slots),
            stream_info: StreamInfo {
                class: None,
                id: None,
            },
            element: Element::PacketBegin,
        }
    }
}
