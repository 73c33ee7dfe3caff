//! Drains the tracer into packets, which stay in memory until the engine is open.

use std::sync::Arc;
use std::time::Duration;

use io_trace::{Drained, Records, Settings, Tracer};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};
use trace_kinds::io_trace::{Anchor, Begin, Encoded, Encoder, End};

use super::error::IoTraceError;
use super::request::bytes_max;
use super::status::Mode;
use crate::clock;
use crate::config::IoTraceConfig;

/// Interval between drains of the buffers.
pub(super) const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum age of a packet that is not full: what a crash can lose.
const PACKET_AGE_MAX: Duration = Duration::from_secs(1);

/// Maximum size of packets that wait for the engine. Beyond it, the buffers of the threads fill up
/// and count the operations they drop.
const EARLY_BYTES_MAX: usize = 32 << 20;

/// Encodes recorded operations into packets.
pub(super) struct Drainer {
    tracer: Arc<Tracer>,
    encoder: Encoder,
    packet_bytes: usize,
    last_packet: Instant,
    /// The storage of the trace, if it was created while the trace was running.
    trace_storage: Option<[u8; 16]>,
    /// Records of that storage, which were skipped.
    skipped: u64,
    drained: Drained,
    /// The last drained records, whose memory is reused.
    records: Records,
}

impl Drainer {
    /// Packets have about `packet_bytes` bytes.
    pub(super) fn new(tracer: &Arc<Tracer>, begin: &Begin, packet_bytes: usize) -> Self {
        Self {
            tracer: Arc::clone(tracer),
            encoder: Encoder::new(begin),
            packet_bytes,
            last_packet: Instant::now(),
            trace_storage: None,
            skipped: 0,
            drained: Drained::default(),
            records: Records::default(),
        }
    }

    /// Skips operations of the trace's own storage from now on.
    pub(super) fn skip_storage(&mut self, storage: [u8; 16]) {
        self.tracer.exclude(storage);
        self.trace_storage = Some(storage);
    }

    /// Operations recorded and dropped so far.
    pub(super) fn drained(&self) -> Drained {
        Drained {
            recorded: self.drained.recorded - self.skipped,
            ..self.drained
        }
    }

    /// Size of a full packet, in bytes.
    pub(super) fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    /// Drains the buffers; returns the packets that are full or old, or everything if `is_last`.
    pub(super) fn drain(&mut self, is_last: bool) -> Vec<Encoded> {
        let mut records = std::mem::take(&mut self.records);
        self.drained = self.tracer.drain(&mut records);
        let mut packets = Vec::new();
        for record in records.iter() {
            let storage = record.file.storage();
            if storage.is_some() && storage == self.trace_storage {
                self.skipped += 1;
                continue;
            }
            self.encoder.put(&record);
            if self.encoder.bytes() >= self.packet_bytes {
                packets.push(self.end_packet());
            }
        }
        self.records = records;
        let is_old = is_last || self.last_packet.elapsed() >= PACKET_AGE_MAX;
        if is_old && self.encoder.bytes() > 0 {
            packets.push(self.end_packet());
        }
        packets
    }

    fn end_packet(&mut self) -> Encoded {
        self.last_packet = Instant::now();
        self.encoder.finish(&self.drained)
    }

    /// The packet that describes the end of the trace.
    pub(super) fn end(&mut self, reason: &'static str, overwritten: u64) -> Encoded {
        self.encoder.end(&End {
            reason,
            drained: self.drained(),
            overwritten,
            clock: self.tracer.now(),
        })
    }
}

/// A trace of the server's startup, before there is a storage for it.
pub(crate) struct EarlyTrace {
    pub(super) begin: Begin,
    pub(super) mode: Mode,
    stop: oneshot::Sender<()>,
    draining: JoinHandle<(Drainer, Vec<Encoded>)>,
}

impl EarlyTrace {
    /// Starts the tracer if the configuration requires that startup is traced.
    ///
    /// # Errors
    /// When the configuration would record nothing.
    pub(crate) fn start(
        tracer: &Arc<Tracer>,
        config: &IoTraceConfig,
    ) -> Result<Option<Self>, IoTraceError> {
        let Some(mode) = Mode::at_start(config.at_start) else {
            return Ok(None);
        };
        let settings = Settings {
            thread_records_max: config.thread_records_max as usize,
            ..Settings::default()
        };
        let bytes_max = bytes_max(config, mode, None)?;
        let begin = Begin {
            anchor: Anchor {
                clock: tracer.now(),
                wall: clock::now_ns(),
            },
            mode: mode.name().to_owned(),
            bytes_max,
            blocks_one_in: settings.blocks_one_in,
            one_in: settings.one_in,
            storages: Vec::new(),
        };
        let drainer = Drainer::new(tracer, &begin, mode.packet_bytes(bytes_max));
        tracer
            .start(settings)
            .map_err(|error| IoTraceError::Invalid {
                problem: error.to_string(),
            })?;
        let (stop, stopped) = oneshot::channel();
        Ok(Some(Self {
            begin,
            mode,
            stop,
            draining: tokio::spawn(drain_early(drainer, stopped)),
        }))
    }

    /// Stops the task and returns what it drained, to be continued by the collector.
    pub(super) async fn stop(self) -> Option<(Begin, Mode, Drainer, Vec<Encoded>)> {
        // The task ends only on this signal.
        let _ = self.stop.send(());
        let (drainer, packets) = self.draining.await.ok()?;
        Some((self.begin, self.mode, drainer, packets))
    }
}

async fn drain_early(
    mut drainer: Drainer,
    mut stopped: oneshot::Receiver<()>,
) -> (Drainer, Vec<Encoded>) {
    let mut ticks = interval(DRAIN_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut packets, mut bytes) = (Vec::new(), 0);
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => return (drainer, packets),
            _ = ticks.tick() => {}
        }
        if bytes < EARLY_BYTES_MAX {
            let drained = drainer.drain(false);
            bytes += drained
                .iter()
                .map(|packet| packet.bytes.len())
                .sum::<usize>();
            packets.extend(drained);
        }
    }
}
