//! The serializer pool: compresses and sums payloads on threads of its own.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use bytes::Bytes;
use storage_format::{
    Codec, StreamPosition,
    checksum::crc32c,
    frame::{Facts, FrameHeader},
};
use tokio::sync::{mpsc, oneshot};

use crate::{codec, counters::Counters, io_thread::Frame};

/// Jobs that may wait for each serializer.
const WAITING_JOBS_PER_SERIALIZER: usize = 8;

/// A packet that has its number and is to be serialized.
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) position: StreamPosition,
    pub(crate) arrival: i64,
    pub(crate) facts: Facts,
    pub(crate) raw: Bytes,
    /// CRC32C of the raw bytes.
    pub(crate) raw_checksum: u32,
}

struct Job {
    packets: Vec<Numbered>,
    codec: Codec,
    reply: oneshot::Sender<Vec<Frame>>,
}

/// A bounded pool of serializer threads.
#[derive(Debug, Clone)]
pub(crate) struct SerializerPool {
    jobs: mpsc::Sender<Job>,
    counters: Arc<Counters>,
}

impl SerializerPool {
    /// Starts `count` threads; they end when the last handle of the pool is dropped.
    pub(crate) fn start(count: usize, level: i32, counters: Arc<Counters>) -> io::Result<Self> {
        let count = count.max(1);
        let (jobs, inbox) = mpsc::channel(count * WAITING_JOBS_PER_SERIALIZER);
        let inbox = Arc::new(Mutex::new(inbox));
        for index in 0..count {
            let inbox = Arc::clone(&inbox);
            let counters = Arc::clone(&counters);
            thread::Builder::new()
                .name(format!("serializer-{index}"))
                .spawn(move || serve(&inbox, level, &counters))?;
        }
        Ok(Self { jobs, counters })
    }

    /// Hands `packets` to the next free serializer; waits while none has room.
    pub(crate) async fn submit(
        &self,
        packets: Vec<Numbered>,
        codec: Codec,
    ) -> oneshot::Receiver<Vec<Frame>> {
        let (reply, frames) = oneshot::channel();
        self.counters.serializer_jobs.add(1);
        let sent = self
            .jobs
            .send(Job {
                packets,
                codec,
                reply,
            })
            .await;
        // The threads live as long as this handle, so the job is on its way.
        debug_assert!(sent.is_ok(), "serializers outlive the pool");
        frames
    }
}

fn serve(inbox: &Mutex<mpsc::Receiver<Job>>, level: i32, counters: &Counters) {
    loop {
        let next = inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .blocking_recv();
        let Some(Job {
            packets,
            codec,
            reply,
        }) = next
        else {
            return;
        };
        let frames = packets
            .into_iter()
            .map(|packet| serialize(packet, codec, level))
            .collect();
        counters.serializer_jobs.sub(1);
        // A writer that is gone needs no frames.
        let _ = reply.send(frames);
    }
}

/// Makes a frame of a packet. With codec `none` there is nothing to do but to fill in a header, so
/// that is done where the packet is and not in the pool.
pub(crate) fn serialize(packet: Numbered, codec: Codec, level: i32) -> Frame {
    let raw_checksum = packet.raw_checksum;
    let (codec, payload) = codec::store(&packet.raw, codec, level);
    let stored_checksum = match codec {
        Codec::None => raw_checksum,
        Codec::Zstd => crc32c(&payload),
    };
    let header = FrameHeader {
        codec,
        stored_size: u32::try_from(payload.len()).expect("not longer than the packet"),
        raw_size: u32::try_from(packet.raw.len()).expect("checked when the packet was taken"),
        number: packet.number,
        position: packet.position,
        arrival: packet.arrival,
        facts: packet.facts,
        stored_checksum,
        raw_checksum,
    };
    Frame { header, payload }
}
