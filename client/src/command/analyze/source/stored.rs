//! Packets of the streams of a storage that can be analysed, fetched from the server one by one.

use std::collections::VecDeque;

use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use crate::command::{CommandError, Context};
use crate::http::{Client, PacketInfo};

use super::trace_type::TraceType;

/// A packet that is yet to be fetched.
struct PendingPacket {
    number: u64,
    raw_size: u64,
    kind: TraceType,
    stream: String,
}

/// The packets of a storage in the order of their streams.
pub(in crate::command) struct StoredPackets {
    client: Client,
    /// Lives as long as the client's connections, which it drives.
    runtime: Runtime,
    storage: Uuid,
    pending: VecDeque<PendingPacket>,
}

impl StoredPackets {
    /// Finds such packets of the storage, of one agent or stream where that is given.
    pub(in crate::command) fn open(
        context: &Context,
        storage: &str,
        agent: Option<&str>,
        stream: Option<&str>,
    ) -> Result<Self, CommandError> {
        let client = context.client()?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| CommandError::io("async runtime", error))?;
        let mut found: Vec<PacketInfo> = Vec::new();
        let storage = runtime.block_on(async {
            let storage = client.find_storage(storage).await?.id;
            let add = |packet: PacketInfo| {
                found.extend(kind_of(&packet).is_some().then_some(packet));
                Ok(())
            };
            client.each_descriptor(storage, agent, stream, add).await?;
            Ok::<Uuid, CommandError>(storage)
        })?;
        found.sort_by(|a, b| place(a).cmp(&place(b)));
        let pending = found.into_iter().filter_map(|packet| {
            Some(PendingPacket {
                number: packet.number,
                raw_size: packet.raw_size,
                kind: kind_of(&packet)?,
                stream: format!("stream {} of {}", packet.stream, packet.agent),
            })
        });
        Ok(Self {
            client,
            runtime,
            storage,
            pending: pending.collect(),
        })
    }

    /// Leaves out what is no trace of a server's own I/O.
    pub(in crate::command) fn retain_server_io(&mut self) {
        self.pending
            .retain(|packet| packet.kind == TraceType::ServerIo);
    }

    /// Whether no packet is left.
    pub(in crate::command) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The next packet, its stream and kind.
    pub(in crate::command) fn next_packet(
        &mut self,
    ) -> Result<Option<(String, TraceType, Vec<u8>)>, CommandError> {
        let Some(PendingPacket {
            number,
            raw_size,
            kind,
            stream,
        }) = self.pending.pop_front()
        else {
            return Ok(None);
        };
        let fetch = self.client.packet(self.storage, number, raw_size);
        let bytes = self.runtime.block_on(fetch)?;
        Ok(Some((stream, kind, bytes)))
    }
}

/// Streams one after another, each in the order in which it was sent.
fn place(packet: &PacketInfo) -> (&str, &str, u64, u64) {
    (&packet.agent, &packet.stream, packet.epoch, packet.sequence)
}

fn kind_of(packet: &PacketInfo) -> Option<TraceType> {
    TraceType::of_kind(&packet.kind)
}
