//! Descriptors: which packets a storage has, and where their bytes are.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::Uri;
use query_engine::Request;
use query_language::Query;
use serde::{Deserialize, Serialize};
use storage_core::{LeafBases, PacketInfo, Selection};
use storage_format::StorageId;
use storage_format::data_file::LeafPath;
use utoipa::{IntoParams, ToSchema};

use super::agents::word;
use super::instant;
use super::page::{Page, limit_of, malformed, query};
use super::provenance::ProvenanceDocument;
use super::refusals::{BadRequest, NotFound};
use crate::app_state::AppState;
use crate::problem::Problem;
use crate::provenance;
use crate::query::{AnswerError, time_bases};

/// Which packets.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DescriptorsQuery {
    /// Only those of this agent.
    agent: Option<String>,
    /// Only those of streams with this id.
    stream: Option<String>,
    /// Only those of this kind.
    kind: Option<String>,
    /// Only those that may hold events at or after this instant: nanoseconds since the epoch, or
    /// RFC 3339.
    from: Option<String>,
    /// Only those that may hold events before this instant.
    to: Option<String>,
    /// Only those in which events that this query asks for may be, as far as the chunk indexes
    /// know.
    query: Option<String>,
    /// Where the previous page ended.
    cursor: Option<String>,
    /// Tell of each packet where it came from, where that is known.
    #[serde(default)]
    provenance: bool,
    /// At most so many items, up to 1000; 100 by default.
    limit: Option<usize>,
}

/// A packet and where its stored bytes are.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DescriptorDocument {
    /// Number of the packet in the storage.
    number: u64,
    agent: String,
    kind: String,
    stream: String,
    epoch: u64,
    sequence: u64,
    /// Name of the data file.
    file: String,
    /// Offset of the stored payload in the file.
    offset: u64,
    /// Bytes of the stored payload.
    size: u64,
    /// Bytes as the agent sent them.
    raw_size: u64,
    /// `zstd` or `none`.
    codec: String,
    /// First and last instant, nanoseconds since the epoch, where the packet tells them. What was
    /// read of it with trace metadata or a unit of time that was replaced since is not told.
    begin: Option<i64>,
    end: Option<i64>,
    /// Events, where the packet tells them.
    events: Option<u32>,
    /// Events lost before or within it, where the packet tells them.
    lost: Option<u32>,
    /// Where it was cut from, where that is asked for and known.
    #[serde(skip_serializing_if = "Option::is_none")]
    provenance: Option<ProvenanceDocument>,
}

/// Lists the packets that the index cannot rule out, by number.
#[utoipa::path(
    get, path = "/storages/{id}/descriptors", tag = "packets",
    params(("id" = String, Path), DescriptorsQuery),
    responses(
        (status = 200, body = Page<DescriptorDocument>),
        BadRequest, NotFound,
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Json<Page<DescriptorDocument>>, Problem> {
    let id: StorageId = id.parse()?;
    let asked: DescriptorsQuery = query(&uri)?;
    let limit = limit_of(asked.limit)?;
    let selection = Selection {
        agent: asked.agent.map(|agent| agent.parse()).transpose()?,
        stream: asked.stream.map(|stream| stream.parse()).transpose()?,
        kind: asked.kind.as_deref().map(word).transpose()?,
        from: time(asked.from, "from")?,
        to: time(asked.to, "to")?,
        bases: LeafBases::default(),
        after: asked
            .cursor
            .map(|cursor| {
                cursor
                    .parse()
                    .map_err(|_| malformed("cursor is none".to_owned()))
            })
            .transpose()?,
        limit,
    };
    let (found, bases) = match asked.query {
        None => left_by_tree(&app, id, selection).await?,
        Some(query) => left_by_query(&app, id, selection, &query).await?,
    };
    let known = if asked.provenance {
        let leaves = found.items.iter().map(|packet| packet.descriptor.leaf());
        provenance::known(&app.engine, id, leaves).await?
    } else {
        BTreeMap::new()
    };
    let items = found.items.into_iter().map(|packet| {
        let known = known.get(&packet.descriptor.leaf());
        let number = packet.entry.number;
        DescriptorDocument {
            provenance: known.and_then(|known| ProvenanceDocument::of_packet(known, number)),
            ..DescriptorDocument::new(packet, &bases)
        }
    });
    Ok(Json(Page {
        items: items.collect(),
        next: found.next.map(|number| number.to_string()),
    }))
}

/// Packets, and what their times rest on.
type Found = (storage_core::Page<PacketInfo>, LeafBases);

/// A page of the packets that the tree cannot rule out.
async fn left_by_tree(
    app: &AppState,
    id: StorageId,
    mut selection: Selection,
) -> Result<Found, Problem> {
    let engine = &app.engine;
    if selection.from.is_some() || selection.to.is_some() {
        selection.bases = time_bases(engine, id, |path| selection.takes_path(path)).await?;
        let bases = selection.bases.clone();
        return Ok((engine.reading().descriptors(id, selection).await?, bases));
    }
    let page = engine.reading().descriptors(id, selection).await?;
    let shown = page.items.iter();
    let streams: HashSet<_> = shown
        .map(|packet| (&packet.agent, &packet.stream))
        .collect();
    let shown = |path: &LeafPath| streams.contains(&(&path.agent, &path.stream));
    let bases = time_bases(engine, id, shown).await?;
    Ok((page, bases))
}

/// A page of the packets that the tree and the chunk indexes cannot rule out.
async fn left_by_query(
    app: &AppState,
    id: StorageId,
    mut selection: Selection,
    query: &str,
) -> Result<Found, Problem> {
    let query = Query::parse(query).map_err(AnswerError::from)?;
    let request = Request {
        query: Some(query),
        from: selection.from,
        to: selection.to,
        ..Request::default()
    };
    let (left, bases) = app.queries.candidates(id, request).await?;
    selection.bases = bases.clone();
    let limit = selection.limit;
    let mut items = Vec::new();
    loop {
        let page = app
            .engine
            .reading()
            .descriptors(id, selection.clone())
            .await?;
        for packet in page.items {
            let at = packet.descriptor.offset();
            // Leaves of which nothing is known, such as those of kind raw, hold no events.
            let leaf = left
                .iter()
                .find(|leaf| leaf.leaf == packet.descriptor.leaf());
            if leaf.is_some_and(|leaf| leaf.contains(at)) {
                let number = packet.entry.number;
                items.push(packet);
                if items.len() >= limit {
                    let next = Some(number);
                    return Ok((storage_core::Page { items, next }, bases));
                }
            }
        }
        match page.next {
            None => return Ok((storage_core::Page { items, next: None }, bases)),
            Some(number) => selection.after = Some(number),
        }
    }
}

fn time(text: Option<String>, name: &str) -> Result<Option<i64>, Problem> {
    text.map(|text| instant::parse(&text, name)).transpose()
}

impl DescriptorDocument {
    fn new(packet: PacketInfo, bases: &LeafBases) -> Self {
        let basis = bases.of(packet.descriptor.leaf(), packet.kind);
        let facts = basis.known(&packet.entry.facts);
        Self {
            number: packet.entry.number,
            agent: packet.agent.to_string(),
            kind: packet.kind.to_string(),
            stream: packet.stream.to_string(),
            epoch: packet.entry.position.epoch,
            sequence: packet.entry.position.sequence,
            file: format!("{}.itdata", packet.descriptor.leaf()),
            offset: packet.descriptor.offset(),
            size: u64::from(packet.descriptor.size()),
            raw_size: u64::from(packet.entry.raw_size),
            codec: packet.entry.codec.to_string(),
            begin: facts.time_span.map(|(begin, _)| begin),
            end: facts.time_span.map(|(_, end)| end),
            events: facts.events,
            lost: facts.lost,
            provenance: None,
        }
    }
}
