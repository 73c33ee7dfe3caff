//! Requests of spans: admitted, and passed to the recordings.

use std::slice::Iter;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Extensions, StatusCode};
use recording::{Packet, Recorder, RecordingError, stream_spec};
use storage_core::{AgentSpec, BytePermit, Engine, Holder, StorageError};
use storage_format::{Kind, StreamId};
use trace_kinds::StreamContext;
use trace_kinds::otlp::{JSON_MEMORY_RATIO, RESOURCE_MEMORY_BYTES, RequestLimits};

use super::admission::Reservation;
use super::body::BodyReader;
use super::encoding::{ContentEncoding, DecoderMemory};
use super::error::IngestError;
use super::otlp_request::{
    ExportOutcome, OtlpEncoding, Part, ValidRequest, resources_of, validate,
};
use super::shares::ProtocolShares;
use crate::access::Caller;
use crate::config::IngestConfig;
use crate::metrics::Metrics;
use crate::problem::Problem;

/// The stream that stores an agent's requests.
const STREAM: &str = "traces";
/// Memory reserved for JSON at first, as a multiple of its length.
const JSON_RATIO_USUAL: usize = 3;
/// Requests of this size and above are validated on the blocking pool, in bytes.
const LONG_BYTES: usize = 256 << 10;

/// Pauses before attempts to store a part when others of its request are stored already: what
/// refuses it may end soon.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
];

/// `Retry-After` up to which a refusal is one that passes.
const RETRY_SOON_SECONDS: u64 = 1;

/// What became of the spans of an agent.
enum Recorded {
    /// Every recording that wants them has them.
    Whole,
    /// A recording has them, and another one refused them.
    Partly(Problem),
    /// No recording wants them.
    Nowhere,
}

/// Accepts OTLP requests.
pub(crate) struct TraceRequests {
    engine: Engine,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    limits: IngestConfig,
    request_limits: RequestLimits,
    shares: ProtocolShares,
    decoders: DecoderMemory,
    stream: StreamId,
    context: Arc<StreamContext>,
}

impl TraceRequests {
    pub(crate) fn new(
        engine: Engine,
        recorder: Recorder,
        metrics: Arc<Metrics>,
        (limits, request_limits): (IngestConfig, RequestLimits),
    ) -> Self {
        Self {
            engine,
            recorder,
            metrics,
            shares: ProtocolShares::new("requests of spans", &limits),
            decoders: DecoderMemory::new(limits.decoder_bytes_max()),
            limits,
            request_limits,
            stream: STREAM.parse().expect("the name is an id"),
            context: Arc::default(),
        }
    }

    /// Accepts the body of one request, whose agents `caller` may know. When this returns, every
    /// recording that accepts the spans has made them durable, unless the sender does not wait for
    /// that. Spans that no recording accepts are only in the buffer; the outcome counts them.
    pub(crate) async fn accept(
        &self,
        encoding: OtlpEncoding,
        content_encoding: ContentEncoding,
        (caller, waits, extensions): (&Caller, bool, &Extensions),
        body: Body,
    ) -> Result<ExportOutcome, Problem> {
        let window = (self.limits.zstd_window_bytes_max, &self.decoders);
        let max = self.limits.packet_bytes_max;
        let body_reader = BodyReader::new(body, content_encoding, window, "packet", max)?;
        let shares = self.shares.of(extensions);
        // The agents are known only after the body has been read, so the connections have turns.
        // Ids of agents contain no slash.
        let sender = format!("/v1/traces/{}", shares.connection);
        let holder = shares.holder(&sender);
        let reserved = body_reader.reserved_bytes();
        let budget = self.engine.budget();
        let mut reservation = Reservation::wait_for_packet(budget, holder, reserved).await?;
        let body = body_reader.read_all(&mut reservation, holder).await?;
        let (parts, mut outcome) = self.read(encoding, body, &mut reservation).await?;
        // Of a request with spans of others, nothing is stored: its sender is not who it says.
        if let Some(other) = parts.iter().find(|part| !caller.sees_agent(&part.agent.id)) {
            return Err(IngestError::AgentOutOfScope(other.agent.id.clone()).into());
        }
        // Nothing of a request is stored if not all of it may be: its sender sends all of it again.
        for part in &parts {
            self.engine.quotas().check(&part.agent.id)?;
        }
        if parts.len() > 1 {
            self.register_all(&parts).await?;
        }
        let mut permit = reservation.into_permit();
        let count = parts.len() as u64;
        let mut is_begun = false;
        for part in parts {
            let bytes = part.payload.len() as u64;
            self.metrics.ingest_bytes.inc_by(bytes);
            let part_permit = permit.split(bytes);
            let spans = u64::from(part.facts.events.unwrap_or_default());
            let agent = part.agent.id.clone();
            let recorded = if is_begun {
                self.record_in_time(part, (part_permit, holder), waits)
                    .await
            } else {
                self.record_part(part, part_permit, waits).await
            };
            let refused = match recorded {
                Ok(Recorded::Whole) => {
                    is_begun = true;
                    self.metrics.spans.accepted.inc_by(spans);
                    continue;
                }
                Ok(Recorded::Nowhere) => {
                    outcome.unrecorded += spans;
                    continue;
                }
                Ok(Recorded::Partly(problem)) => problem,
                // Sent again, what is stored would be stored twice.
                Err(problem) if is_begun => problem,
                Err(problem) => return Err(problem),
            };
            is_begun = true;
            outcome.refused += spans;
            tracing::warn!(
                %agent, spans, problem = refused.code(),
                "spans are not stored, and are not sent again: others of their request are stored"
            );
        }
        let spans = &self.metrics.spans;
        spans.invalid_id.inc_by(outcome.rejected);
        spans.refused.inc_by(outcome.refused);
        spans.not_recorded.inc_by(outcome.unrecorded);
        self.metrics.ingest_packets.inc_by(count);
        Ok(outcome)
    }

    /// Validates a request and divides it by agent, with memory reserved for what it takes in
    /// addition to its body: the tree that JSON is parsed into, its resources, and copies for
    /// several agents. JSON is first given what it usually needs, and more if that is not enough.
    async fn read(
        &self,
        encoding: OtlpEncoding,
        body: Bytes,
        reservation: &mut Reservation,
    ) -> Result<(Vec<Part>, ExportOutcome), Problem> {
        if body.is_empty() {
            return Ok(Default::default());
        }
        let limits = self.request_limits;
        let request = match encoding {
            OtlpEncoding::Protobuf => {
                let resources = resources_of(&body, &limits)?;
                reservation.grow(resources.saturating_mul(RESOURCE_MEMORY_BYTES as u64))?;
                on_this_or_blocking(body.len(), move || {
                    validate(encoding, body, usize::MAX, &limits)
                })
                .await?
            }
            OtlpEncoding::Json => self.read_json(&body, reservation).await?,
        };
        let Some(request) = request else {
            let max = reservation.left();
            return Err(IngestError::TooLarge {
                what: "request in memory",
                max,
            }
            .into());
        };
        if encoding == OtlpEncoding::Protobuf {
            reservation.grow(request.copied_bytes())?;
        }
        on_this_or_blocking(request.length(), move || Ok(request.into_parts())).await
    }

    /// `None` if it takes more memory than any request of its length may.
    async fn read_json(
        &self,
        body: &Bytes,
        reservation: &mut Reservation,
    ) -> Result<Option<ValidRequest>, Problem> {
        let length = body.len() as u64;
        let limits = self.request_limits;
        let max = self.limits.in_flight_bytes_max.saturating_sub(2 * length);
        let mut reserved = 0;
        for ratio in [JSON_RATIO_USUAL, JSON_MEMORY_RATIO] {
            // Two lengths are for texts with escapes and for the request in protobuf; lists get the
            // rest.
            let needed = max.min(length.saturating_mul(ratio as u64 + 2));
            reservation.grow(needed - reserved)?;
            reserved = needed;
            let lists = usize::try_from(reserved.saturating_sub(2 * length)).unwrap_or(usize::MAX);
            let body = body.clone();
            let length = body.len();
            let read = move || validate(OtlpEncoding::Json, body, lists, &limits);
            if let Some(request) = on_this_or_blocking(length, read).await? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// Registers all agents of a request before the first one's spans are stored. What a repetition
    /// of the request may help refuses all of it; what it does not is found again when that part is
    /// recorded, and concerns that part alone.
    async fn register_all(&self, parts: &[Part]) -> Result<(), Problem> {
        for part in parts {
            if let Err(error) = self.ensure_registered(&part.agent).await {
                let problem = Problem::from(registered_again(error));
                if is_transient(&problem) {
                    return Err(problem);
                }
            }
        }
        Ok(())
    }

    /// Records a part of which the sender may not send a repetition: it is tried again here.
    async fn record_in_time(
        &self,
        part: Part,
        (permit, holder): (BytePermit, Holder<'_>),
        waits: bool,
    ) -> Result<Recorded, Problem> {
        let bytes = part.payload.len() as u64;
        let (mut permit, mut pauses) = (permit, PAUSES.iter());
        loop {
            let outcome = self.record_part(part.clone(), permit, waits).await;
            let Some(pause) = pause_after(&outcome, &mut pauses) else {
                return outcome;
            };
            tokio::time::sleep(pause).await;
            let budget = self.engine.budget();
            let reserved = Reservation::wait_for_packet(budget, holder, bytes).await?;
            permit = reserved.into_permit();
        }
    }

    /// Records the spans of an agent. An error means that they are nowhere.
    async fn record_part(
        &self,
        part: Part,
        permit: BytePermit,
        waits: bool,
    ) -> Result<Recorded, Problem> {
        let registered = self.ensure_registered(&part.agent).await;
        registered.map_err(registered_again)?;
        let packet = Packet {
            agent: part.agent.id,
            stream: self.stream.clone(),
            kind: Kind::Otlp,
            position: None,
            payload: part.payload,
            facts: part.facts,
            arrival: storage_core::clock::now_ns(),
            context: Arc::clone(&self.context),
        };
        let delivered = match self.recorder.push(packet, permit, waits).await {
            Err(RecordingError::Storage(error)) => return Err(registered_again(error).into()),
            delivered => delivered?,
        };
        let mut refused = delivered.refused;
        let mut is_stored = delivered.is_accepted && delivered.recorded.is_empty();
        for recorded in delivered.recorded {
            match recorded.pending.await.refused {
                Some(error) => refused = Some(error),
                None => is_stored = true,
            }
        }
        match refused {
            Some(error) if is_stored => Ok(Recorded::Partly(error.into())),
            Some(error) => Err(registered_again(error).into()),
            None if delivered.is_accepted => Ok(Recorded::Whole),
            None => Ok(Recorded::Nowhere),
        }
    }

    /// Registers an agent that is unknown and declares the stream of its requests. Agents that are
    /// already registered are not changed.
    async fn ensure_registered(&self, agent: &AgentSpec) -> Result<(), StorageError> {
        let known = match self.engine.agents().get(&agent.id) {
            Ok(known) => known,
            Err(StorageError::AgentNotFound(_)) => {
                self.engine.agents().register(agent.clone()).await?
            }
            Err(error) => return Err(error),
        };
        let stream = known.stream(&self.stream);
        if stream.is_none_or(|stream| stream.kind != Kind::Otlp) {
            let spec = stream_spec(self.stream.clone(), Kind::Otlp);
            self.engine.agents().declare_stream(&agent.id, spec).await?;
        }
        Ok(())
    }
}

/// An agent that is deleted while its spans are stored is registered by their repetition, so the
/// sender is told to repeat them, as it is while the agent is being deleted.
fn registered_again(error: StorageError) -> StorageError {
    match error {
        StorageError::AgentNotFound(agent) | StorageError::StreamNotFound { agent, .. } => {
            StorageError::AgentBeingDeleted(agent)
        }
        error => error,
    }
}

/// Whether the same may be accepted a moment later. A disk that is low and a server that stops stay
/// so for longer.
fn is_transient(problem: &Problem) -> bool {
    let status = problem.status();
    let is_refused_now =
        status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS;
    let is_soon = problem
        .retry_after_seconds()
        .is_some_and(|seconds| seconds <= RETRY_SOON_SECONDS);
    is_refused_now && is_soon && problem.code() != StorageError::Stopping.code()
}

/// How long to wait before another attempt; `None` if there is to be none.
fn pause_after<T>(
    outcome: &Result<T, Problem>,
    pauses: &mut Iter<'_, Duration>,
) -> Option<Duration> {
    let is_transient = outcome.as_ref().is_err_and(is_transient);
    is_transient.then(|| pauses.next().copied()).flatten()
}

/// Runs `read` at once for a short request, and elsewhere for one that would hold up others.
async fn on_this_or_blocking<T: Send + 'static>(
    length: usize,
    read: impl FnOnce() -> Result<T, IngestError> + Send + 'static,
) -> Result<T, Problem> {
    if length < LONG_BYTES {
        return Ok(read()?);
    }
    let reading = tokio::task::spawn_blocking(read).await;
    Ok(reading.map_err(|_| StorageError::Stopping)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_attempted_again_and_nothing_else_is() {
        let attempts_after = |error: StorageError| {
            let (outcome, mut pauses) = (Err::<(), _>(error.into()), PAUSES.iter());
            std::iter::from_fn(|| pause_after(&outcome, &mut pauses)).count()
        };
        let deleted = StorageError::AgentBeingDeleted("a".parse().expect("an id"));
        assert_eq!(attempts_after(deleted), PAUSES.len());
        assert_eq!(attempts_after(StorageError::PacketEmpty), 0);
        assert_eq!(attempts_after(StorageError::Stopping), 0);
        assert_eq!(pause_after(&Ok(()), &mut PAUSES.iter()), None);
    }

    #[test]
    fn spans_of_an_agent_that_is_deleted_meanwhile_are_sent_again() {
        let agent = || "shop".parse().expect("an id");
        let stream = STREAM.parse().expect("an id");
        let gone = [
            StorageError::AgentNotFound(agent()),
            StorageError::StreamNotFound {
                agent: agent(),
                stream,
            },
        ];
        for error in gone {
            let problem = Problem::from(registered_again(error));
            assert_eq!(problem.status(), http::StatusCode::SERVICE_UNAVAILABLE);
        }
        let other = registered_again(StorageError::PacketEmpty);
        assert_eq!(other.code(), "packet_empty");
    }
}
