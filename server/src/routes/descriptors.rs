//! Descriptors: the packets of a storage and the location of their bytes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use http::{HeaderName, HeaderValue, Uri};
use query_engine::Request;
use query_language::Query;
use serde::{Deserialize, Serialize};
use storage_core::{LeafBases, PacketInfo, Selection};
use storage_format::StorageId;
use storage_format::data_file::LeafPath;
use storage_format::paths::FileName;
use utoipa::{IntoParams, ToSchema};

use super::agents::parse_name;
use super::instant;
use super::page::{Page, limit_of, malformed, query};
use super::provenance::ProvenanceDocument;
use super::query::SKIPPED;
use super::refusals::{BadRequest, NotFound};
use crate::app_state::AppState;
use crate::problem::Problem;
use crate::provenance;
use crate::query::{AnswerError, time_bases};

/// Selection of packets.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DescriptorsQuery {
    /// Only packets of this agent.
    agent: Option<String>,
    /// Only packets of streams with this id.
    stream: Option<String>,
    /// Only packets of this kind.
    kind: Option<String>,
    /// Only packets that can contain events at or after this time: RFC 3339 or nanoseconds since
    /// the epoch.
    from: Option<String>,
    /// Only packets that can contain events before this time.
    to: Option<String>,
    /// Only packets that can contain events matching this query, according to the chunk indexes.
    query: Option<String>,
    /// The `next` of the previous page.
    cursor: Option<String>,
    /// Include the provenance of each packet, if it is known.
    #[serde(default)]
    provenance: bool,
    /// Maximum number of items, up to 1000; 100 by default.
    limit: Option<usize>,
}

/// A packet and the location of its stored bytes.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DescriptorDocument {
    /// Number of the packet in the storage.
    number: u64,
    agent: String,
    kind: String,
    stream: String,
    epoch: u64,
    sequence: u64,
    /// The leaf of the index tree; its chunk index and provenance have its name.
    leaf: String,
    /// Name of the data file.
    file: String,
    /// Offset of the stored payload in the file.
    offset: u64,
    /// Bytes of the stored payload.
    size: u64,
    /// Bytes of the packet as the agent sent it.
    raw_size: u64,
    /// `zstd` or `none`.
    codec: String,
    /// First and last time in the packet, nanoseconds since the epoch, if known. Times read with
    /// trace metadata or a time unit that has changed since are omitted.
    begin: Option<i64>,
    end: Option<i64>,
    /// Number of events, if known.
    events: Option<u32>,
    /// Number of events lost before or within the packet, if known.
    lost: Option<u32>,
    /// Its provenance, if requested and known.
    #[serde(skip_serializing_if = "Option::is_none")]
    provenance: Option<ProvenanceDocument>,
}

/// Says that packets behind a damage are not listed.
type SkippedField = [(HeaderName, HeaderValue); 1];

/// Lists the packets that the index cannot rule out, by number.
#[utoipa::path(
    get, operation_id = "list_descriptors", path = "/storages/{id}/descriptors", tag = "packets",
    params(("id" = String, Path), DescriptorsQuery),
    responses(
        (status = 200, body = Page<DescriptorDocument>, description = "A page of packets", headers(
            ("Tracehold-Skipped" = Option<u64>, description = "1 for a storage that is damaged: \
             packets behind the damage are not listed"),
        )),
        BadRequest, NotFound,
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<(Option<SkippedField>, Json<Page<DescriptorDocument>>), Problem> {
    let id: StorageId = id.parse()?;
    let parameters: DescriptorsQuery = query(&uri)?;
    let limit = limit_of(parameters.limit)?;
    let selection = Selection {
        agent: parameters.agent.map(|agent| agent.parse()).transpose()?,
        stream: parameters.stream.map(|stream| stream.parse()).transpose()?,
        kind: parameters.kind.as_deref().map(parse_name).transpose()?,
        from: time(parameters.from, "from")?,
        to: time(parameters.to, "to")?,
        bases: LeafBases::default(),
        after: parameters
            .cursor
            .map(|cursor| {
                cursor
                    .parse()
                    .map_err(|_| malformed("cursor is invalid".to_owned()))
            })
            .transpose()?,
        limit,
    };
    let (found, bases) = match parameters.query {
        None => candidates_of_tree(&app, id, selection).await?,
        Some(query) => candidates_of_query(&app, id, selection, &query).await?,
    };
    let known = if parameters.provenance {
        let leaves = found.items.iter().map(|packet| packet.leaf);
        provenance::load(&app.engine, id, leaves).await?
    } else {
        BTreeMap::new()
    };
    let items = found.items.into_iter().map(|packet| {
        let known = known.get(&packet.leaf);
        let number = packet.entry.number;
        DescriptorDocument {
            provenance: known.and_then(|known| ProvenanceDocument::of_packet(known, number)),
            ..DescriptorDocument::new(packet, &bases)
        }
    });
    let unknown = app.engine.storages().unknown(id)?;
    let page = Page {
        items: items.collect(),
        next: found.next.map(|number| number.to_string()),
    };
    Ok((unknown.map(|_| [(SKIPPED, 1.into())]), Json(page)))
}

/// Packets, and the time bases of their leaves.
type Found = (storage_core::Page<PacketInfo>, LeafBases);

/// A page of the packets that the index tree cannot rule out.
async fn candidates_of_tree(
    app: &AppState,
    id: StorageId,
    mut selection: Selection,
) -> Result<Found, Problem> {
    let engine = &app.engine;
    if selection.from.is_some() || selection.to.is_some() {
        selection.bases = time_bases(engine, id, |path| selection.matches_path(path)).await?;
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

/// A page of the packets that neither the index tree nor the chunk indexes can rule out.
async fn candidates_of_query(
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
            let at = packet.entry.offset;
            // Leaves without candidates, such as those of kind `raw`, contain no events.
            let leaf = left.iter().find(|leaf| leaf.leaf == packet.leaf);
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
        let basis = bases.of(packet.leaf, packet.kind);
        let facts = basis.known(&packet.entry.facts);
        Self {
            number: packet.entry.number,
            agent: packet.agent.to_string(),
            kind: packet.kind.to_string(),
            stream: packet.stream.to_string(),
            epoch: packet.entry.position.epoch,
            sequence: packet.entry.position.sequence,
            leaf: packet.leaf.to_string(),
            file: FileName::Data(packet.descriptor.file()).to_string(),
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
