//! Drains the tracer into packets; before the engine is there, into memory.

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

/// How often buffers are drained.
pub(super) const DRAIN_INTERVAL: Duration = Duration::from_millis(50);

/// A packet that is not full is ended after this long: what a crash may cost.
const PACKET_AGE_MAX: Duration = Duration::from_secs(1);

/// Bytes of packets that wait for the engine; then the buffers of the threads fill, and count what
/// they drop.
const EARLY_BYTES_MAX: usize = 32 << 20;

/// Makes packets of what the tracer recorded.
pub(super) struct Drainer {
    tracer: Arc<Tracer>,
    encoder: Encoder,
    packet_bytes: usize,
    last_packet: Instant,
    /// The storage of the trace, where it was made while the trace was running.
    own: Option<[u8; 16]>,
    /// Records of that storage, which were left out.
    left_out: u64,
    drained: Drained,
    /// What was drained last; its memory is used again.
    records: Records,
}

impl Drainer {
    /// Packets have about `packet_bytes`.
    pub(super) fn new(tracer: &Arc<Tracer>, begin: &Begin, packet_bytes: usize) -> Self {
        Self {
            tracer: Arc::clone(tracer),
            encoder: Encoder::new(begin),
            packet_bytes,
            last_packet: Instant::now(),
            own: None,
            left_out: 0,
            drained: Drained::default(),
            records: Records::default(),
        }
    }

    /// Leaves the storage of the trace out from now on.
    pub(super) fn leave_out(&mut self, own: [u8; 16]) {
        self.tracer.leave_out(own);
        self.own = Some(own);
    }

    /// What was recorded and dropped so far.
    pub(super) fn drained(&self) -> Drained {
        Drained {
            recorded: self.drained.recorded - self.left_out,
            ..self.drained
        }
    }

    /// Bytes of a packet that is full.
    pub(super) fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    /// Drains the buffers; gives the packets that are full or old, or all of it when it `is_last`.
    pub(super) fn gather(&mut self, is_last: bool) -> Vec<Encoded> {
        let mut records = std::mem::take(&mut self.records);
        self.drained = self.tracer.drain(&mut records);
        let mut packets = Vec::new();
        for record in records.iter() {
            let storage = record.file.storage();
            if storage.is_some() && storage == self.own {
                self.left_out += 1;
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

    /// The packet that tells how the trace ended.
    pub(super) fn end(&mut self, reason: &'static str, overwritten: u64) -> Encoded {
        self.encoder.end(&End {
            reason,
            drained: self.drained(),
            overwritten,
            clock: self.tracer.now(),
        })
    }
}

/// A trace of the start of the server, before there is a storage for it.
pub(crate) struct EarlyTrace {
    pub(super) begin: Begin,
    pub(super) mode: Mode,
    stop: oneshot::Sender<()>,
    draining: JoinHandle<(Drainer, Vec<Encoded>)>,
}

impl EarlyTrace {
    /// Turns the tracer on when the configuration wants the start to be traced.
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

    /// What was gathered so far, to be gone on with.
    pub(super) async fn hand_over(self) -> Option<(Begin, Mode, Drainer, Vec<Encoded>)> {
        // It only ends on our word.
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
            let gathered = drainer.gather(false);
            bytes += gathered
                .iter()
                .map(|packet| packet.bytes.len())
                .sum::<usize>();
            packets.extend(gathered);
        }
    }
}
