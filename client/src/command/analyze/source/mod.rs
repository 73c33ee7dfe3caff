//! The packets to analyze: of trace files, or of a storage.

mod files;
pub(in crate::command) mod stored;
mod trace_type;

use std::path::PathBuf;

use trace_kinds::DecodeError;

use self::files::Files;
use self::stored::StoredPackets;
use crate::command::{CommandError, Context, Exit};
pub(in crate::command) use trace_type::TraceType;

/// Where the trace is read from.
pub(super) enum Input<'a> {
    /// Trace files.
    Files(&'a [PathBuf]),
    /// Streams of a storage.
    Storage {
        storage: &'a str,
        agent: Option<&'a str>,
        stream: Option<&'a str>,
    },
}

enum Origin {
    Files(Box<Files>),
    StoredPackets(Box<StoredPackets>),
}

/// Returns packets that are each decodable alone, all of the same type of trace.
pub(super) struct PacketSource {
    origin: Origin,
    first: Option<Vec<u8>>,
    kind: Option<TraceType>,
    is_torn: bool,
}

impl PacketSource {
    pub(super) fn open(context: &Context, place: &Input<'_>) -> Result<Self, CommandError> {
        let origin = match *place {
            Input::Files(paths) => Origin::Files(Box::new(Files::new(paths))),
            Input::Storage {
                storage,
                agent,
                stream,
            } => Origin::StoredPackets(Box::new(StoredPackets::open(
                context, storage, agent, stream,
            )?)),
        };
        Ok(Self {
            origin,
            first: None,
            kind: None,
            is_torn: false,
        })
    }

    /// The type of the trace, by its first record.
    pub(super) fn kind(&mut self) -> Result<Option<TraceType>, CommandError> {
        if self.first.is_none() {
            self.first = self.read_packet()?;
        }
        Ok(self.kind)
    }

    /// The next packet with records.
    pub(super) fn next_packet(&mut self) -> Result<Option<Vec<u8>>, CommandError> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.read_packet(),
        }
    }

    fn read_packet(&mut self) -> Result<Option<Vec<u8>>, CommandError> {
        let packet = match &mut self.origin {
            Origin::Files(files) => files.next_packet()?,
            Origin::StoredPackets(stored) => stored.next_packet()?,
        };
        let Some((place, kind, bytes)) = packet else {
            return Ok(None);
        };
        if *self.kind.get_or_insert(kind) != kind {
            let what =
                "this trace is of another kind than the previous one; analyze them separately";
            return Err(CommandError::usage(format!("{place}: {what}")));
        }
        Ok(Some(bytes))
    }

    /// Reports that a packet is torn; what is before the tear is analyzed.
    pub(super) fn report_torn(&mut self, context: &Context, error: &DecodeError) {
        context.note(error.to_string());
        self.is_torn = true;
    }

    /// Reports the damage found, and returns the exit code.
    pub(super) fn finish(self, context: &Context) -> Exit {
        let damage = match &self.origin {
            Origin::Files(files) => files.damage(),
            Origin::StoredPackets(stored) => stored.damage(),
        };
        for damage in damage {
            context.note(damage);
        }
        Exit::of_integrity(damage.is_empty() && !self.is_torn)
    }
}
