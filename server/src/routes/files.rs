//! Files of a storage: list and content.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use http::HeaderName;
use serde::Serialize;
use storage_core::{FileInfo, ServedBytes, StorageError};
use storage_format::StorageId;
use storage_format::paths::{FileName, FileRole};
use storage_format::storage_file::StorageState;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use super::refusals::{NotFound, PreconditionFailed, RangeNotSatisfiable};
use crate::access::{Caller, Role};
use crate::app_state::AppState;
use crate::chunk_indexes::IndexState;
use crate::error::index_in_progress;
use crate::problem::Problem;
use crate::range::{Content, RangeFile, Resource, respond};

/// Names the reader of a storage, if the reader wants that.
pub(super) const TRACEHOLD_READER: HeaderName = HeaderName::from_static("tracehold-reader");

/// The files of a storage.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FilesDocument {
    files: Vec<FileDocument>,
    /// Of a finalized storage: whether it has its chunk indexes.
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk_indexes: Option<IndexState>,
}

/// A file.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FileDocument {
    /// Name under `/storage/{id}/`.
    name: String,
    /// `storage`, `agent`, `index`, `data`, `chunk_index`, `provenance`, `checksums`, `repairs`,
    /// `seal` or `local`.
    role: String,
    /// Number of bytes that can be read.
    length: u64,
    /// CRC32C of the complete file, 8 hexadecimal digits; known once the storage is finalized.
    checksum: Option<String>,
}

impl From<FileInfo> for FileDocument {
    fn from(file: FileInfo) -> Self {
        Self {
            name: file.name,
            role: file.role.as_str().to_owned(),
            length: file.length,
            checksum: file.checksum.map(|checksum| format!("{checksum:08x}")),
        }
    }
}

/// Lists the files of a storage with lengths, checksums and roles.
#[utoipa::path(
    get, operation_id = "list_files",
    path = "/storages/{id}/files", tag = "files", params(("id" = String, Path)),
    responses(
        (status = 200, body = FilesDocument, description = "The files of the storage"),
        NotFound,
    ),
)]
pub(super) async fn list(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
) -> Result<Json<FilesDocument>, Problem> {
    let id: StorageId = id.parse()?;
    // Before the list is made: it has all of them if they are complete.
    let chunk_indexes = index_state(&app, id)?;
    let files = app.engine.reading().files(id).await?;
    Ok(Json(FilesDocument {
        files: files.into_iter().map(FileDocument::from).collect(),
        chunk_indexes,
    }))
}

/// Whether a finalized storage has its chunk indexes; `None` of another.
fn index_state(app: &AppState, id: StorageId) -> Result<Option<IndexState>, Problem> {
    let state = app.engine.storages().get(id)?.state;
    Ok((state == StorageState::Finalized).then(|| app.indexes.state_of(id)))
}

/// Returns the bytes of a file: all of them, one range, or several as multipart/byteranges.
#[utoipa::path(
    get, operation_id = "read_file", path = "/storage/{id}/{file}", tag = "files",
    params(
        ("id" = String, Path), ("file" = String, Path),
        ("Range" = Option<String>, Header, description = "As in RFC 9110"),
        (
            "Tracehold-Reader" = Option<String>, Header,
            description = "With the storage file: labels the storage as explored by this reader",
        ),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream",
         description = "All bytes"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream",
         description = "The requested ranges"),
        (status = 304, description = "If-None-Match or If-Modified-Since matched"),
        NotFound, PreconditionFailed, RangeNotSatisfiable,
    ),
)]
pub(super) async fn read(
    State(app): State<Arc<AppState>>,
    Path((id, name)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    if let Some(reader) = request.headers().get(TRACEHOLD_READER) {
        let reader = match request.extensions().get() {
            // A share changes nothing, labels included.
            Some(Caller::Token(token)) if token.role == Role::Share => None,
            // Whoever has a token has its name.
            Some(Caller::Token(token)) => Some(token.name.as_str()),
            Some(Caller::User(user)) => Some(user.name.as_str()),
            _ => reader.to_str().ok(),
        };
        note_reader(&app, id, &name, reader).await;
    }
    let open_file = app.open_files.get(id, &name);
    // A damaged file may have been replaced by an intact one.
    let resource = match open_file.filter(|file| !file.is_damaged() && !file.is_given_up()) {
        Some(resource) => resource,
        None => open(&app, id, &name).await?,
    };
    let (method, headers) = (request.method(), request.headers());
    let files = request.extensions().get();
    Ok(respond(method, headers, &resource, &app.buffers, files).await)
}

/// Records who reads the storage file, which is the first request of a mount. A failure does not
/// affect the read.
async fn note_reader(app: &AppState, id: StorageId, name: &str, reader: Option<&str>) {
    let is_storage_file = name.parse() == Ok(FileName::Storage(id));
    let Some(reader) = reader.filter(|_| is_storage_file) else {
        return;
    };
    let (engine, reader) = (app.engine.clone(), reader.trim().to_owned());
    let (noted, done) = oneshot::channel::<()>();
    // A change of labels runs to its end, also if the client hangs up.
    app.jobs.detach(async move {
        if let Err(error) = engine.labels().note_reader(id, &reader).await {
            tracing::debug!(%error, storage = %id, "cannot record the reader of a storage");
        }
        drop(noted);
    });
    drop(done.await);
}

/// Opens a file, and keeps it open for later readers if it never changes.
async fn open(app: &AppState, id: StorageId, name: &str) -> Result<Arc<Resource>, Problem> {
    let ticket = app.open_files.ticket();
    let is_index = matches!(
        name.parse(),
        Ok(FileName::ChunkIndex(_) | FileName::ChunkIndexes(_))
    );
    let state = index_state(app, id)?;
    let served = match app.engine.reading().open_file(id, name).await {
        Ok(served) => served,
        // It may have been published after it was looked for, and before the others.
        Err(StorageError::FileNotFound { .. })
            if is_index && state == Some(IndexState::InProgress) =>
        {
            return Err(index_in_progress(name));
        }
        Err(error) => {
            if is_index && matches!(error, StorageError::Damaged { .. }) {
                app.indexes.rebuild(id);
            }
            return Err(error.into());
        }
    };
    // Labels change the storage file, and a chunk index may be rebuilt.
    let immutable = matches!(
        served.role,
        FileRole::Agent
            | FileRole::Index
            | FileRole::Data
            | FileRole::Checksums
            | FileRole::Repairs
            | FileRole::Seal
    );
    let etag = format!("{:08x}-{:x}", served.checksum, served.length);
    let modified = u64::try_from(served.modified / 1_000_000_000).ok();
    let content = match served.bytes {
        ServedBytes::InMemory(bytes) => Content::Memory(bytes),
        ServedBytes::InFile { file, tag, checked } => Content::File {
            file: Arc::new(RangeFile::new(file, tag, checked)),
            length: served.length,
        },
    };
    let resource = Resource::new(content, &etag, modified, immutable);
    let resource = if immutable {
        resource.with_checksum(served.checksum)
    } else {
        resource
    };
    let resource = Arc::new(resource);
    if served.role != FileRole::Storage {
        app.open_files.insert(ticket, id, name, &resource);
    }
    Ok(resource)
}
