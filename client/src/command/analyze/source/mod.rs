//! The packets of trace files, one file after another, or those of a storage.

mod files;
pub(in crate::command) mod stored;
mod trace_type;

use std::path::PathBuf;

use self::files::Files;
use self::stored::StoredPackets;
use crate::command::{CommandError, Context, Exit};
pub(in crate::command) use trace_type::TraceType;

/// Where a trace is analysed from.
pub(super) enum Input<'a> {
    /// Trace files.
    Files(&'a [PathBuf]),
    /// The streams of a storage, or one of them.
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

/// Gives packets that are each decodable alone, all of one kind of trace.
pub(super) struct PacketSource {
    origin: Origin,
    first: Option<Vec<u8>>,
    kind: Option<TraceType>,
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
        })
    }

    /// The kind of the trace, by its first record.
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
            let what = "this trace is of another kind than the one before it; analyse I/O and \
                        block cache traces apart";
            return Err(CommandError::usage(format!("{place}: {what}")));
        }
        Ok(Some(bytes))
    }

    /// Says what was damaged; the exit code that the verb ends with.
    pub(super) fn finish(self, context: &Context) -> Exit {
        let damage = match &self.origin {
            Origin::Files(files) => files.damage(),
            Origin::StoredPackets(_) => &[],
        };
        for damage in damage {
            context.note(damage);
        }
        Exit::of_integrity(damage.is_empty())
    }
}
