//! The messages of a request, as their JSON names them.

use serde::Deserialize;

use super::bounded_list::BoundedList;
use super::value::{Hex, Integer, KeyValue, Text};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct Request<'a> {
    pub(super) resource_spans: Option<BoundedList<ResourceSpans<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct ResourceSpans<'a> {
    pub(super) resource: Option<Resource<'a>>,
    pub(super) scope_spans: Option<BoundedList<ScopeSpans<'a>>>,
    pub(super) schema_url: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct Resource<'a> {
    pub(super) attributes: Option<BoundedList<KeyValue<'a>>>,
    pub(super) dropped_attributes_count: Option<Integer<u32>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct ScopeSpans<'a> {
    pub(super) scope: Option<Scope<'a>>,
    pub(super) spans: Option<BoundedList<Span<'a>>>,
    pub(super) schema_url: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct Scope<'a> {
    pub(super) name: Option<Text<'a>>,
    pub(super) version: Option<Text<'a>>,
    pub(super) attributes: Option<BoundedList<KeyValue<'a>>>,
    pub(super) dropped_attributes_count: Option<Integer<u32>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct Span<'a> {
    pub(super) trace_id: Option<Hex>,
    pub(super) span_id: Option<Hex>,
    pub(super) trace_state: Option<Text<'a>>,
    pub(super) parent_span_id: Option<Hex>,
    pub(super) flags: Option<Integer<u32>>,
    pub(super) name: Option<Text<'a>>,
    pub(super) kind: Option<Integer<i32>>,
    pub(super) start_time_unix_nano: Option<Integer<u64>>,
    pub(super) end_time_unix_nano: Option<Integer<u64>>,
    pub(super) attributes: Option<BoundedList<KeyValue<'a>>>,
    pub(super) dropped_attributes_count: Option<Integer<u32>>,
    pub(super) events: Option<BoundedList<SpanEvent<'a>>>,
    pub(super) dropped_events_count: Option<Integer<u32>>,
    pub(super) links: Option<BoundedList<Link<'a>>>,
    pub(super) dropped_links_count: Option<Integer<u32>>,
    pub(super) status: Option<Status<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct SpanEvent<'a> {
    pub(super) time_unix_nano: Option<Integer<u64>>,
    pub(super) name: Option<Text<'a>>,
    pub(super) attributes: Option<BoundedList<KeyValue<'a>>>,
    pub(super) dropped_attributes_count: Option<Integer<u32>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct Link<'a> {
    pub(super) trace_id: Option<Hex>,
    pub(super) span_id: Option<Hex>,
    pub(super) trace_state: Option<Text<'a>>,
    pub(super) attributes: Option<BoundedList<KeyValue<'a>>>,
    pub(super) dropped_attributes_count: Option<Integer<u32>>,
    pub(super) flags: Option<Integer<u32>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
pub(super) struct Status<'a> {
    pub(super) message: Option<Text<'a>>,
    pub(super) code: Option<Integer<i32>>,
}
