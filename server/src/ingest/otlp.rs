//! OTLP/HTTP requests: validated, split by agent, and passed to the recordings.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use query_language::FieldTable;
use recording::{Packet, Recorder, stream_spec};
use storage_core::{AgentSpec, BytePermit, Engine, StorageError};
use storage_format::frame::Facts;
use storage_format::{AgentId, Kind, StreamId};
use trace_kinds::otlp::{
    JSON_MEMORY_RATIO, OtlpDecoder, RequestBuilder, ResourcePart, check, is_json,
    to_protobuf_within,
};
use trace_kinds::{DecodeError, StreamContext};

use super::admission::Reservation;
use super::body::BodyReader;
use super::encoding::ContentEncoding;
use super::error::IngestError;
use super::identity::agent_of;
use crate::access::Caller;
use crate::config::IngestConfig;
use crate::media_type::{self, media_type};
use crate::metrics::Metrics;
use crate::problem::Problem;

/// The stream that stores an agent's requests.
const STREAM: &str = "traces";
/// The queue in which requests of spans wait for admission; ids of agents contain no slash.
const SENDERS: &str = "/v1/traces";
/// Memory reserved for JSON at first, as a multiple of its length.
const JSON_RATIO_USUAL: usize = 2;
/// Maximum number of agents remembered as registered.
const KNOWN_MAX: usize = 65_536;
/// Requests of this size and above are validated on the blocking pool, in bytes.
const LONG_BYTES: usize = 256 << 10;

/// The encoding of a request and of its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtlpEncoding {
    Protobuf,
    Json,
}

impl OtlpEncoding {
    /// Reads `Content-Type`.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        if media_type(headers).eq_ignore_ascii_case(b"application/x-protobuf") {
            Some(Self::Protobuf)
        } else if media_type::is_json(headers) {
            Some(Self::Json)
        } else {
            None
        }
    }
}

/// The result of an accepted request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ExportOutcome {
    /// Spans that can never be accepted because their ids are invalid.
    pub(crate) rejected: u64,
    /// Spans that no recording accepts.
    pub(crate) unrecorded: u64,
}

/// Accepts OTLP requests.
pub(crate) struct TraceRequests {
    engine: Engine,
    recorder: Recorder,
    metrics: Arc<Metrics>,
    limits: IngestConfig,
    known: Mutex<HashSet<AgentId>>,
    stream: StreamId,
    context: Arc<StreamContext>,
}

/// The spans of one agent in a request.
struct Part {
    agent: AgentSpec,
    payload: Bytes,
    facts: Facts,
}

impl TraceRequests {
    pub(crate) fn new(
        engine: Engine,
        recorder: Recorder,
        metrics: Arc<Metrics>,
        limits: IngestConfig,
    ) -> Self {
        Self {
            engine,
            recorder,
            metrics,
            limits,
            known: Mutex::default(),
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
        (caller, waits): (&Caller, bool),
        body: Body,
    ) -> Result<ExportOutcome, Problem> {
        let window = self.limits.zstd_window_bytes_max;
        let max = self.limits.packet_bytes_max;
        let body_reader = BodyReader::new(body, content_encoding, window, "packet", max)?;
        // The agents are known only after the body has been read, so all senders of spans share one
        // queue.
        let mut reservation = Reservation::wait_for_packet(
            self.engine.budget(),
            SENDERS,
            body_reader.reserved_bytes(),
        )
        .await?;
        let body = body_reader.read_all(&mut reservation, SENDERS).await?;
        let (parts, mut outcome) = self.read(encoding, body, &mut reservation).await?;
        // Of a request with spans of others, nothing is stored: its sender is not who it says.
        if let Some(other) = parts.iter().find(|part| !caller.sees_agent(&part.agent.id)) {
            return Err(IngestError::AgentOutOfScope(other.agent.id.clone()).into());
        }
        let mut permit = reservation.into_permit();
        let count = parts.len() as u64;
        for part in parts {
            let bytes = part.payload.len() as u64;
            self.metrics.ingest_bytes.inc_by(bytes);
            let part_permit = permit.split(bytes);
            let spans = u64::from(part.facts.events.unwrap_or_default());
            if self.record_part(part, part_permit, waits).await? {
                self.metrics.spans.accepted.inc_by(spans);
            } else {
                outcome.unrecorded += spans;
            }
        }
        let spans = &self.metrics.spans;
        spans.invalid_id.inc_by(outcome.rejected);
        spans.not_recorded.inc_by(outcome.unrecorded);
        self.metrics.ingest_packets.inc_by(count);
        Ok(outcome)
    }

    /// Parses a request and reserves memory for what is needed in addition to its body: copies for
    /// several agents, and the tree that JSON is parsed into. JSON is first given what it usually
    /// needs, and more if that is not enough.
    async fn read(
        &self,
        encoding: OtlpEncoding,
        body: Bytes,
        reservation: &mut Reservation,
    ) -> Result<(Vec<Part>, ExportOutcome), Problem> {
        if body.is_empty() {
            return Ok(Default::default());
        }
        let length = body.len() as u64;
        // Memory that a request may need in addition to its body and the packets made of it.
        let max = self.limits.in_flight_bytes_max.saturating_sub(2 * length);
        let ratios = match encoding {
            OtlpEncoding::Json => [JSON_RATIO_USUAL, JSON_MEMORY_RATIO].as_slice(),
            OtlpEncoding::Protobuf => &[0],
        };
        let mut reserved = 0;
        for ratio in ratios {
            let needed = max.min(length.saturating_mul(*ratio as u64 + 1));
            reservation.grow(needed - reserved)?;
            reserved = needed;
            // One length is for the copy; lists get the rest, and no more than was reserved.
            let lists = usize::try_from(reserved.saturating_sub(length)).unwrap_or(usize::MAX);
            let body = body.clone();
            let read = match body.len() {
                0..LONG_BYTES => read(encoding, body, lists)?,
                _ => {
                    let reading = tokio::task::spawn_blocking(move || read(encoding, body, lists));
                    reading.await.map_err(|_| StorageError::Stopping)??
                }
            };
            if let Some(read) = read {
                return Ok(read);
            }
        }
        let (what, max) = ("request in memory", reserved);
        Err(IngestError::TooLarge { what, max }.into())
    }

    /// Whether a recording accepts it.
    async fn record_part(
        &self,
        part: Part,
        permit: BytePermit,
        waits: bool,
    ) -> Result<bool, Problem> {
        self.ensure_registered(&part.agent).await?;
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
        let delivered = self.recorder.push(packet, permit, waits).await?;
        let mut refused = None;
        for recorded in delivered.recorded {
            if let Some(error) = recorded.pending.await.refused {
                refused = Some(error);
            }
        }
        match refused {
            Some(error) => Err(error.into()),
            None => Ok(delivered.is_accepted),
        }
    }

    /// Registers an agent that is unknown and declares the stream of its requests. Agents that are
    /// already registered are not changed.
    async fn ensure_registered(&self, agent: &AgentSpec) -> Result<(), StorageError> {
        if self.known.lock().contains(&agent.id) {
            return Ok(());
        }
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
        let mut all = self.known.lock();
        if all.len() >= KNOWN_MAX {
            all.clear();
        }
        all.insert(agent.id.clone());
        Ok(())
    }
}

/// Validates a request and splits it by agent; `None` when the lists of JSON need more than
/// `memory` bytes.
fn read(
    encoding: OtlpEncoding,
    body: Bytes,
    memory: usize,
) -> Result<Option<(Vec<Part>, ExportOutcome)>, IngestError> {
    let body = match encoding {
        OtlpEncoding::Protobuf => body,
        OtlpEncoding::Json => {
            // Leading white space is insignificant, and without it the first byte identifies the
            // encoding.
            let blank = body
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace())
                .count();
            body.slice(blank..)
        }
    };
    if is_json(&body) != (encoding == OtlpEncoding::Json) {
        return Err(IngestError::Request(
            "the encoding of the body is not the one in Content-Type".to_owned(),
        ));
    }
    let invalid = |error: DecodeError| IngestError::Request(error.to_string());
    let request = match encoding {
        OtlpEncoding::Protobuf => Cow::Borrowed(&body[..]),
        OtlpEncoding::Json => match to_protobuf_within(&body, memory).map_err(invalid)? {
            Some(request) => Cow::Owned(request),
            None => return Ok(None),
        },
    };
    let resources = check(&request).map_err(invalid)?;
    let rejected = resources.iter().map(|part| part.invalid).sum();
    let agents = by_agent(resources);
    let is_single = agents.len() == 1 && rejected == 0;
    let mut parts = Vec::with_capacity(agents.len());
    for (agent, resources) in agents {
        let spans: u64 = resources.iter().map(|part| part.spans - part.invalid).sum();
        if spans == 0 {
            continue;
        }
        let spanned = resources.iter().filter_map(|part| part.time_span);
        let time_span = spanned.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let payload = if is_single {
            body.clone()
        } else {
            part_of(&request, &body, encoding, &resources)
        };
        parts.push(Part {
            agent,
            payload,
            facts: Facts {
                time_span,
                events: u32::try_from(spans).ok(),
                ..Facts::default()
            },
        });
    }
    let outcome = ExportOutcome {
        rejected,
        unrecorded: 0,
    };
    Ok(Some((parts, outcome)))
}

/// The resources of each agent, in order of the agents' first occurrence.
fn by_agent(resources: Vec<ResourcePart>) -> Vec<(AgentSpec, Vec<ResourcePart>)> {
    let mut agents: Vec<(AgentSpec, Vec<ResourcePart>)> = Vec::new();
    let mut indexes: HashMap<AgentId, usize> = HashMap::new();
    for resource in resources {
        let agent = agent_of(&resource.identity);
        let index = *indexes.entry(agent.id.clone()).or_insert_with(|| {
            agents.push((agent, Vec::new()));
            agents.len() - 1
        });
        agents[index].1.push(resource);
    }
    agents
}

/// The resources of one agent as a request: their bytes concatenated, without spans that cannot be
/// accepted.
fn part_of(
    request: &[u8],
    body: &Bytes,
    encoding: OtlpEncoding,
    resources: &[ResourcePart],
) -> Bytes {
    if let ([resource], OtlpEncoding::Protobuf) = (resources, encoding)
        && resource.invalid == 0
    {
        return body.slice(resource.range.clone());
    }
    let mut out = Vec::new();
    for resource in resources {
        let bytes = &request[resource.range.clone()];
        if resource.invalid == 0 {
            out.extend_from_slice(bytes);
            continue;
        }
        let mut builder = RequestBuilder::new();
        let walked = OtlpDecoder::new(&FieldTable::new()).walk(bytes, &mut |event| {
            if event.span().has_valid_ids() {
                builder.add(event.resource(), event.scope(), &event.span());
            }
            ControlFlow::Continue(())
        });
        debug_assert!(walked.is_ok(), "a validated request can be parsed");
        out.extend_from_slice(&builder.finish());
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use trace_kinds::otlp::to_protobuf;

    use super::*;

    fn read(
        encoding: OtlpEncoding,
        body: Bytes,
    ) -> Result<(Vec<Part>, ExportOutcome), IngestError> {
        let memory = body.len() * JSON_RATIO_USUAL;
        let read = super::read(encoding, body, memory)?;
        Ok(read.expect("it takes no more than usual"))
    }

    const JSON: &str = r#" {"resourceSpans":[
        {"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"a"}}]},
         "scopeSpans":[{"spans":[
            {"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","name":"x"},
            {"traceId":"00","spanId":"eee19b7ec3c1b174","name":"bad"}]}]},
        {"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"b"}}]},
         "scopeSpans":[{"spans":[
            {"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b175","name":"y"}]}]},
        {"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"a"}}]},
         "scopeSpans":[{"spans":[
            {"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b176","name":"z"}]}]}]}"#;

    fn names(payload: &[u8]) -> Vec<String> {
        let mut names = Vec::new();
        let walked = OtlpDecoder::new(&FieldTable::new()).walk(payload, &mut |event| {
            names.push(String::from_utf8_lossy(event.span().name).into_owned());
            ControlFlow::Continue(())
        });
        walked.unwrap();
        names
    }

    #[test]
    fn spans_are_split_by_agent_and_validity() {
        let body = Bytes::from_static(JSON.as_bytes());
        let protobuf = Bytes::from(to_protobuf(JSON.trim_start().as_bytes()).unwrap());
        for (encoding, body) in [
            (OtlpEncoding::Json, body),
            (OtlpEncoding::Protobuf, protobuf),
        ] {
            let (parts, outcome) = read(encoding, body).unwrap();
            assert_eq!(outcome.rejected, 1);
            let found: Vec<_> = (parts.iter())
                .map(|part| {
                    (
                        part.agent.id.as_str(),
                        names(&part.payload),
                        part.facts.events,
                    )
                })
                .collect();
            let wanted = [
                ("a", vec!["x".to_owned(), "z".to_owned()], Some(2)),
                ("b", vec!["y".to_owned()], Some(1)),
            ];
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_request_of_one_agent_is_stored_as_sent() {
        let json = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[
            {"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174"}]}]}]}"#;
        let (parts, outcome) =
            read(OtlpEncoding::Json, Bytes::from_static(json.as_bytes())).unwrap();
        assert_eq!(
            (&parts[0].payload[..], outcome.rejected),
            (json.as_bytes(), 0)
        );
        let protobuf = Bytes::from(to_protobuf(json.as_bytes()).unwrap());
        let (parts, _) = read(OtlpEncoding::Protobuf, protobuf.clone()).unwrap();
        assert_eq!(parts[0].payload, protobuf);
    }

    #[test]
    fn invalid_requests_are_refused() {
        for (encoding, body) in [
            (OtlpEncoding::Json, "{"),
            (OtlpEncoding::Json, "  "),
            (OtlpEncoding::Json, "[]"),
            (OtlpEncoding::Json, "\n\x02ab"),
            (OtlpEncoding::Protobuf, "{}"),
            (OtlpEncoding::Protobuf, "\n\x05ab"),
        ] {
            let refused = read(encoding, Bytes::from_static(body.as_bytes()));
            assert!(matches!(refused, Err(IngestError::Request(_))), "{body:?}");
        }
        for (encoding, body) in [
            (OtlpEncoding::Json, "{}"),
            (OtlpEncoding::Json, r#"{"resourceSpans":[]}"#),
        ] {
            let (parts, outcome) = read(encoding, Bytes::from_static(body.as_bytes())).unwrap();
            assert!(parts.is_empty() && outcome == ExportOutcome::default());
        }
    }

    #[test]
    fn lists_of_empty_objects_are_limited_in_memory() {
        let empty = vec!["{}"; 100_000].join(",");
        let spans = format!(r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{empty}]}}]}}]}}"#);
        for ratio in [JSON_RATIO_USUAL, JSON_MEMORY_RATIO] {
            let memory = spans.len() * ratio;
            let read = super::read(OtlpEncoding::Json, spans.clone().into(), memory).unwrap();
            assert!(read.is_none(), "{ratio}");
        }
    }
}
