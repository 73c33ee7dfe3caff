//! The serializer pool: threads that compress payloads and compute checksums.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
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

use crate::{codec, counters::Counters, io_thread::Frame, panic::panic_message};

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

/// The frames of a job, or why there are none.
pub(crate) type SerializedFrames = Result<Vec<Frame>, String>;

struct Job {
    packets: Vec<Numbered>,
    codec: Codec,
    reply: oneshot::Sender<SerializedFrames>,
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
        let (jobs, inbox) = mpsc::channel(count.saturating_mul(WAITING_JOBS_PER_SERIALIZER));
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
    ) -> oneshot::Receiver<SerializedFrames> {
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
        let serialize_all = || -> Vec<Frame> {
            let packets = packets.into_iter();
            packets
                .map(|packet| serialize(packet, codec, level))
                .collect()
        };
        let frames = catch_unwind(AssertUnwindSafe(serialize_all));
        let frames = frames.map_err(|panic| {
            let message = panic_message(&*panic);
            format!("a serializer stopped unexpectedly: {message}")
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(raw: &'static [u8]) -> Numbered {
        Numbered {
            number: 0,
            position: StreamPosition::default(),
            arrival: 0,
            facts: Facts::default(),
            raw: Bytes::from_static(raw),
            raw_checksum: crc32c(raw),
        }
    }

    #[tokio::test]
    async fn a_panic_fails_its_job_and_no_other() {
        let pool = SerializerPool::start(1, 1, Arc::default()).unwrap();
        for _ in 0..2 {
            let empty = pool.submit(vec![numbered(b"")], Codec::Zstd).await;
            let reason = empty.await.unwrap().unwrap_err();
            assert!(
                reason.contains("a stored payload is not longer"),
                "{reason}"
            );
            let valid = pool.submit(vec![numbered(b"packet")], Codec::Zstd).await;
            assert_eq!(valid.await.unwrap().unwrap().len(), 1);
        }
        assert_eq!(pool.counters.serializer_jobs.get(), 0);
    }
}
