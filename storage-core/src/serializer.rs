//! The serializer pool: threads that compress payloads and compute checksums.

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

/// A numbered packet to be serialized.
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

    /// Sends `packets` to the next free serializer; waits while all queues are full.
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
        // The threads live as long as this handle, so one of them receives the job.
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
        // A writer that has ended needs no frames.
        let _ = reply.send(frames);
    }
}

/// Turns a packet into a frame. With codec `none` only the header is filled in, which the writer
/// does itself instead of the pool.
pub(crate) fn serialize(packet: Numbered, codec: Codec, level: i32) -> Frame {
    let raw_checksum = packet.raw_checksum;
    let (codec, payload) = codec::store(&packet.raw, codec, level);
    assert!(
        !payload.is_empty() && payload.len() <= packet.raw.len(),
        "a stored payload is not longer than the packet"
    );
    let stored_checksum = match codec {
        Codec::None => raw_checksum,
        Codec::Zstd => crc32c(&payload),
    };
    let header = FrameHeader {
        codec,
        stored_size: u32::try_from(payload.len())
            .expect("a stored payload is not longer than the packet"),
        raw_size: u32::try_from(packet.raw.len())
            .expect("the size of a packet is checked when it is accepted"),
        number: packet.number,
        position: packet.position,
        arrival: packet.arrival,
        facts: packet.facts,
        stored_checksum,
        raw_checksum,
    };
    Frame { header, payload }
}
