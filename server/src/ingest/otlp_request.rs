//! A request of spans: validated within its limits, and divided by agent.

use std::collections::HashMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use http::HeaderMap;
use query_language::FieldTable;
use storage_core::AgentSpec;
use storage_format::AgentId;
use storage_format::frame::Facts;
use trace_kinds::otlp::{
    Counted, OtlpDecoder, RequestBuilder, RequestError, RequestLimits, ResourcePart, check,
    is_json, resource_count, to_protobuf_within,
};

use super::error::IngestError;
use super::identity::agent_of;
use crate::media_type::{self, media_type};

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
    /// Spans that could not be stored after others of their request were.
    pub(crate) refused: u64,
}

/// The spans of one agent in a request.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) agent: AgentSpec,
    pub(super) payload: Bytes,
    pub(super) facts: Facts,
}

/// A request in which everything can be read.
pub(super) struct ValidRequest {
    encoding: OtlpEncoding,
    /// As it was sent, without white space before it.
    body: Bytes,
    /// In protobuf.
    request: Bytes,
    /// The resources of each agent.
    agents: Vec<(AgentSpec, Vec<ResourcePart>)>,
    /// Spans with invalid ids.
    rejected: u64,
}

/// The number of resources of a request in protobuf.
pub(super) fn resources_of(request: &[u8], limits: &RequestLimits) -> Result<u64, IngestError> {
    let (counted, max) = (Counted::Resources, limits.resources);
    match resource_count(request) as u64 {
        count if count > u64::from(max) => Err(RequestError::Exceeded { counted, max }.into()),
        count => Ok(count),
    }
}

/// Validates a request; `None` when the lists of JSON need more than `memory` bytes.
pub(super) fn validate(
    encoding: OtlpEncoding,
    body: Bytes,
    memory: usize,
    limits: &RequestLimits,
) -> Result<Option<ValidRequest>, IngestError> {
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
        return Err(IngestError::Request {
            what: "the encoding of the body is not the one in Content-Type".to_owned(),
            field: None,
        });
    }
    let request = match encoding {
        OtlpEncoding::Protobuf => body.clone(),
        OtlpEncoding::Json => match to_protobuf_within(&body, memory, limits)? {
            Some(request) => request.into(),
            None => return Ok(None),
        },
    };
    let resources = check(&request, limits)?;
    let rejected = resources.iter().map(|part| part.invalid).sum();
    Ok(Some(ValidRequest {
        encoding,
        body,
        request,
        agents: by_agent(resources),
        rejected,
    }))
}

impl ValidRequest {
    /// Bytes of the request as it was sent.
    pub(super) fn length(&self) -> usize {
        self.body.len()
    }

    /// Bytes that are copied to divide it; without spans that are rejected, they are put together
    /// twice.
    pub(super) fn copied_bytes(&self) -> u64 {
        match (self.agents.len(), self.rejected) {
            (0 | 1, 0) => 0,
            (_, 0) => self.request.len() as u64,
            _ => 3 * self.request.len() as u64,
        }
    }

    /// The spans of each agent, without those that cannot be accepted.
    pub(super) fn into_parts(self) -> (Vec<Part>, ExportOutcome) {
        let is_single = self.agents.len() == 1 && self.rejected == 0;
        let mut parts = Vec::with_capacity(self.agents.len());
        for (agent, resources) in self.agents {
            let spans: u64 = resources.iter().map(|part| part.spans - part.invalid).sum();
            if spans == 0 {
                continue;
            }
            let spanned = resources.iter().filter_map(|part| part.time_span);
            let time_span = spanned.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
            let payload = if is_single {
                self.body.clone()
            } else {
                part_of(&self.request, &self.body, self.encoding, &resources)
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
            rejected: self.rejected,
            unrecorded: 0,
            refused: 0,
        };
        (parts, outcome)
    }
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
    use trace_kinds::otlp::{JSON_MEMORY_RATIO, to_protobuf};

    use super::*;

    fn read(
        encoding: OtlpEncoding,
        body: Bytes,
    ) -> Result<(Vec<Part>, ExportOutcome), IngestError> {
        let memory = body.len() * 3;
        let read = validate(encoding, body, memory, &RequestLimits::READABLE)?;
        Ok(read.expect("it takes no more than usual").into_parts())
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
            assert!(
                matches!(refused, Err(IngestError::Request { .. })),
                "{body:?}"
            );
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
        for ratio in [3, JSON_MEMORY_RATIO] {
            let (memory, limits) = (spans.len() * ratio, RequestLimits::READABLE);
            let body = spans.clone().into();
            let read = validate(OtlpEncoding::Json, body, memory, &limits).unwrap();
            assert!(read.is_none(), "{ratio}");
        }
    }
}
