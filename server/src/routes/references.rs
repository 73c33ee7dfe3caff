//! Where the packets of a finalized storage are, in the form of kerchunk.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::json;
use storage_core::{Engine, PacketInfo, Selection, StorageError};
use storage_format::paths::FileName;
use storage_format::storage_file::StorageState;
use storage_format::{Codec, StorageId};

use super::query::SKIPPED;
use super::refusals::{Conflict, NotFound};
use crate::app_state::AppState;
use crate::authority::authority;
use crate::problem::Problem;
use crate::query::missing;

/// Packets that are looked up together.
const PAGE: usize = 1000;

/// Lists where the packets of a finalized storage are, as references of kerchunk (version 1).
///
/// The keys are `AGENT/KIND/STREAM/NUMBER`, with `.zst` at the end for packets that are stored
/// compressed by zstd. `fsspec` reads them as files: `fsspec.filesystem("reference", fo=URL)`.
#[utoipa::path(
    get, operation_id = "read_references", path = "/storage/{id}/references.json", tag = "files",
    params(("id" = String, Path)),
    responses(
        (status = 200, body = Object, description = "References: `templates.u` is the URL of the \
            storage, as the request named the server",
         headers(("Tracehold-Skipped" = u64, description = "Number of packets that are missing \
            since the storage was repaired"))),
        Conflict, NotFound,
    ),
)]
pub(super) async fn read(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let storages = app.engine.storages();
    let storage = storages.get(id)?;
    if storage.state != StorageState::Finalized {
        // As for every file of it.
        let own = FileName::Storage(id).to_string();
        app.engine.reading().open_file(id, &own).await?;
    }
    let missing = missing(&app.engine, &[id]);
    let missing: u64 = missing.iter().map(|found| found.parts).sum();
    let host = host_of(&request);
    let scheme = if app.config.tls.is_on() {
        "https"
    } else {
        "http"
    };
    let templates = json!({ "u": format!("{scheme}://{host}/storage/{id}") });
    let head = format!("{{\"version\":1,\"templates\":{templates},\"refs\":{{");
    let first = Listing {
        engine: app.engine.clone(),
        id,
        after: Some(None),
        has_items: false,
    };
    let body = if request.method() == Method::HEAD {
        Body::from_stream(futures_util::stream::empty::<Result<Bytes, StorageError>>())
    } else {
        let pages = unfold(first, Listing::page);
        let head = futures_util::stream::once(async move { Ok(Bytes::from(head)) });
        Body::from_stream(head.chain(pages))
    };
    let mut response = Response::new(body);
    let fields: &mut HeaderMap = response.headers_mut();
    let media_type = HeaderValue::from_static("application/json");
    fields.insert(header::CONTENT_TYPE, media_type);
    // The name of the server is in it.
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(SKIPPED, missing.into());
    Ok(response)
}

/// The name under which a request knows the server.
fn host_of(request: &Request) -> String {
    let field = request.headers().get(header::HOST);
    let field = field.and_then(|host| authority(host.as_bytes()));
    let named = field.or_else(|| request.uri().authority().cloned());
    named.map_or_else(|| "localhost".to_owned(), |host| host.to_string())
}

/// The packets that are not listed yet.
struct Listing {
    engine: Engine,
    id: StorageId,
    /// The number of the last packet before; `None` at the end.
    after: Option<Option<u64>>,
    has_items: bool,
}

impl Listing {
    /// The next packets; an error aborts the body.
    async fn page(mut self) -> Option<(Result<Bytes, StorageError>, Self)> {
        let after = self.after.take()?;
        let selection = Selection {
            after,
            limit: PAGE,
            ..Selection::default()
        };
        let page = match self.engine.reading().descriptors(self.id, selection).await {
            Ok(page) => page,
            Err(error) => return Some((Err(error), self)),
        };
        let mut text = String::new();
        for packet in &page.items {
            let separator = if self.has_items { ",\n" } else { "\n" };
            self.has_items = true;
            // Writing to memory does not fail.
            let _ = write!(text, "{separator}{}", reference(packet));
        }
        self.after = page.next.map(Some);
        if self.after.is_none() {
            text.push_str("\n}}\n");
        }
        Some((Ok(text.into()), self))
    }
}

/// The reference of a packet: a key and a place. Names of agents, streams and files are safe.
fn reference(packet: &PacketInfo) -> String {
    let PacketInfo {
        agent,
        kind,
        stream,
        descriptor,
        entry,
        ..
    } = packet;
    let ending = match entry.codec {
        Codec::Zstd => ".zst",
        Codec::None => "",
    };
    let (number, file) = (entry.number, FileName::Data(descriptor.file()));
    let (offset, size) = (descriptor.offset(), descriptor.size());
    format!("\"{agent}/{kind}/{stream}/{number}{ending}\":[\"{{{{u}}}}/{file}\",{offset},{size}]")
}
