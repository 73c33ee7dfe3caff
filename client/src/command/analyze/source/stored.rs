//! Packets of a storage that can be analyzed, fetched from the server one by one.

use std::collections::VecDeque;

use tokio::runtime::{Builder, Runtime};
use trace_kinds::DamagedBytes;
use uuid::Uuid;

use crate::command::{CommandError, Context};
use crate::http::{Client, PacketInfo};

use super::trace_type::TraceType;

/// Damaged packets of which it is told what is wrong.
const DAMAGE_MAX: usize = 100;

/// A packet to fetch.
struct PendingPacket {
    number: u64,
    raw_size: u64,
    kind: TraceType,
    stream: String,
}

/// The packets of a storage, stream by stream.
pub(in crate::command) struct StoredPackets {
    client: Client,
    /// Drives the client's connections, so it must outlive them.
    runtime: Runtime,
    storage: Uuid,
    pending: VecDeque<PendingPacket>,
    damage: Vec<String>,
    more_damage: u64,
}

impl StoredPackets {
    /// Finds the packets of the storage, optionally of one agent or stream.
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
            client
                .each_descriptor(storage, (agent, stream), false, add)
                .await?;
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
            damage: Vec::new(),
            more_damage: 0,
        })
    }

    /// Keeps only I/O traces of a server.
    pub(in crate::command) fn retain_server_io(&mut self) {
        self.pending
            .retain(|packet| packet.kind == TraceType::ServerIo);
    }

    /// Whether there are no more packets.
    pub(in crate::command) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The next packet, with its stream and type.
    pub(in crate::command) fn next_packet(
        &mut self,
    ) -> Result<Option<(String, TraceType, Vec<u8>)>, CommandError> {
        while let Some(pending) = self.pending.pop_front() {
            let PendingPacket {
                number,
                raw_size,
                kind,
                stream,
            } = pending;
            let fetch = self.client.packet(self.storage, number, raw_size);
            let bytes = self.runtime.block_on(fetch)?;
            match DamagedBytes::decode(&bytes) {
                None => return Ok(Some((stream, kind, bytes))),
                Some(damaged) => self.note(|| format!("{stream}: {}", damaged.reason())),
            }
        }
        Ok(None)
    }

    /// Takes note of a damaged packet: of the first ones, what is wrong, and of all, how many.
    fn note(&mut self, what: impl FnOnce() -> String) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(what());
            return;
        }
        self.more_damage += 1;
        self.damage.truncate(DAMAGE_MAX);
        let more = self.more_damage;
        self.damage
            .push(format!("{more} more packets cannot be read"));
    }

    /// What of the streams was damaged when it was pushed, as far as they were read.
    pub(in crate::command) fn damage(&self) -> &[String] {
        &self.damage
    }
}

/// Sort key: one stream after another, each in the order in which it was sent.
fn place(packet: &PacketInfo) -> (&str, &str, u64, u64) {
    (&packet.agent, &packet.stream, packet.epoch, packet.sequence)
}

fn kind_of(packet: &PacketInfo) -> Option<TraceType> {
    TraceType::of_kind(&packet.kind)
}
