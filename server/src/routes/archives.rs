//! Export and import of storages as ZIP archives.

use std::io::{self, Read};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use serde::Serialize;
use storage_core::{Export, Progress, StorageError};
use storage_format::StorageId;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::jobs::job_field;
use super::json::with_location;
use super::refusals::{
    BadRequest, Conflict, InsufficientStorage, NotFound, PreconditionFailed, RangeNotSatisfiable,
    UnprocessableEntity,
};
use super::storages::StorageDocument;
use crate::app_state::AppState;
use crate::clock;
use crate::derived_files::check_derived;
use crate::ingest::IngestError;
use crate::jobs::{JobHandle, JobKind};
use crate::problem::Problem;
use crate::range::{Plan, Validators, not_satisfiable, plan, precondition_failed};

/// Maximum number of pieces of an archive that wait for the disk.
const PIECES_WAITING_MAX: usize = 16;

/// Exports a finalized storage as a ZIP archive. Archives of any size are streamed. A disk error
/// aborts the response. An interrupted transfer continues with `Range` and `If-Range`; of several
/// ranges none is taken.
#[utoipa::path(
    get, operation_id = "export_storage",
    path = "/storages/{id}/export", tag = "archives",
    params(
        ("id" = String, Path),
        ("Range" = Option<String>, Header, description = "As in RFC 9110; one range"),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/zip",
         description = "The archive"),
        (status = 206, body = Vec<u8>, content_type = "application/zip",
         description = "The requested range"),
        (status = 304, description = "If-None-Match matched"),
        NotFound, Conflict, PreconditionFailed, RangeNotSatisfiable,
    ),
)]
pub(super) async fn export(
    State(app): State<Arc<AppState>>,
    Path(id): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id: StorageId = id.parse()?;
    let (export, job) = match method {
        Method::HEAD => {
            let export = app.engine.transfer().export(id, Arc::default()).await?;
            (export, None)
        }
        _ => {
            let job = app.jobs.start(JobKind::Export, Some(id))?;
            match app.engine.transfer().export(id, job.progress()).await {
                Ok(export) => (export, Some(job)),
                Err(error) => return job.end(None, Err::<(), _>(error.into())).map(|()| unsent()),
            }
        }
    };
    let etag = format!("\"{}\"", export.identity());
    let mut response = planned(&method, &headers, &etag, ExportBody::new(export, job));
    let fields = response.headers_mut();
    // A strong tag is visible ASCII.
    fields.extend(HeaderValue::try_from(etag).map(|etag| (header::ETAG, etag)));
    fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if response.status().is_success() {
        let name = format!("attachment; filename=\"{id}.zip\"");
        let name = HeaderValue::try_from(name).expect("ids of storages are visible ASCII");
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_DISPOSITION, name);
        let zip = HeaderValue::from_static("application/zip");
        fields.insert(header::CONTENT_TYPE, zip);
    }
    Ok(response)
}

/// The response with the archive, or the part of it that the request asks for.
fn planned(method: &Method, headers: &HeaderMap, etag: &str, mut body: ExportBody) -> Response {
    let validators = Validators {
        etag: etag.as_bytes(),
        modified: None,
    };
    let length = body.length;
    let now = clock::since_epoch().as_secs();
    let field = body.job.as_ref().map(job_field);
    let mut response = match plan(method, headers, length, &validators, now) {
        // Several ranges would be built several times.
        Plan::Full | Plan::Parts(_) => Response::new(Body::new(body)),
        Plan::Part(range) => {
            body.cut(range.first, range.length());
            let part = format!("bytes {}-{}/{length}", range.first, range.last);
            let mut response = Response::new(Body::new(body));
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let part = HeaderValue::try_from(part).map(|part| (header::CONTENT_RANGE, part));
            response.headers_mut().extend(part);
            response
        }
        other => {
            body.end(Ok(()));
            match other {
                Plan::PreconditionFailed => precondition_failed(),
                Plan::NotSatisfiable => not_satisfiable(length),
                _ => StatusCode::NOT_MODIFIED.into_response(),
            }
        }
    };
    response.headers_mut().extend(field);
    response
}

/// A placeholder for a response that an error replaces.
fn unsent() -> Response {
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

enum Exporting {
    Idle(Export),
    Reading(BoxFuture<'static, (Export, Option<Result<Bytes, StorageError>>)>),
    Ended,
}

/// An archive as the body of a response.
struct ExportBody {
    export: Exporting,
    /// Bytes of the whole archive.
    length: u64,
    job: Option<JobHandle>,
}

impl ExportBody {
    fn new(export: Export, job: Option<JobHandle>) -> Self {
        Self {
            length: export.length(),
            export: Exporting::Idle(export),
            job,
        }
    }

    /// Sends only these bytes of the archive.
    fn cut(&mut self, first: u64, length: u64) {
        if let Exporting::Idle(export) = &mut self.export {
            export.cut(first, length);
        }
    }

    fn end(&mut self, outcome: Result<(), Problem>) {
        self.export = Exporting::Ended;
        if let Some(job) = self.job.take() {
            // The client learns the outcome from the end of the body: complete or aborted.
            let _ = job.end(None, outcome);
        }
    }
}

impl http_body::Body for ExportBody {
    type Data = Bytes;
    type Error = StorageError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StorageError>>> {
        if let Exporting::Idle(_) = self.export {
            let Exporting::Idle(mut export) = std::mem::replace(&mut self.export, Exporting::Ended)
            else {
                return Poll::Ready(None);
            };
            self.export = Exporting::Reading(Box::pin(async move {
                let piece = export.next().await;
                (export, piece)
            }));
        }
        let Exporting::Reading(reading) = &mut self.export else {
            return Poll::Ready(None);
        };
        let (export, piece) = ready!(reading.as_mut().poll(context));
        match piece {
            Some(Ok(piece)) if export.left() == 0 => {
                // The response has its length: nothing polls for the end of the body.
                self.end(Ok(()));
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Some(Ok(piece)) => {
                self.export = Exporting::Idle(export);
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            None => {
                self.end(Ok(()));
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                tracing::error!(%error, "an export was aborted; the archive is incomplete");
                let imported = match &error {
                    StorageError::Cancelled => StorageError::Cancelled.into(),
                    other => Problem::new(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        other.code(),
                        "the export was aborted",
                    )
                    .detail(other.to_string()),
                };
                self.end(Err(imported));
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.export {
            Exporting::Idle(export) => SizeHint::with_exact(export.left()),
            _ => SizeHint::default(),
        }
    }
}

/// An imported storage.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ImportedDocument {
    #[serde(flatten)]
    storage: StorageDocument,
    /// Derived files of the archive that do not match their data files; they are rebuilt where
    /// possible.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_taken: Vec<NotTakenDocument>,
}

/// A derived file that is not used.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NotTakenDocument {
    name: String,
    reason: String,
}

/// Imports a storage from a ZIP archive that was exported, or that has the same files. The storage
/// retains its id and labels. Nothing remains of an archive that is refused.
#[utoipa::path(
    post, operation_id = "import_storage", path = "/storages/import", tag = "archives",
    request_body(content = Vec<u8>, content_type = "application/zip"),
    responses(
        (status = 201, body = ImportedDocument, description = "Complete, checked and durable"),
        BadRequest, Conflict, UnprocessableEntity, InsufficientStorage,
    ),
)]
pub(super) async fn import(
    State(app): State<Arc<AppState>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(Problem::from(IngestError::EncodingUnsupported)
            .cause("an archive is imported without decoding")
            .remedy("send the ZIP archive without Content-Encoding")
            .closing());
    }
    let job = app.jobs.start(JobKind::Import, None)?;
    let field = job_field(&job);
    let imported = import_body(&app, &job, body).await;
    let id = imported
        .as_ref()
        .ok()
        .map(|imported| imported.storage.id.clone());
    let imported = job.end(id, imported)?;
    let location = format!("/api/v1/storages/{}", imported.storage.id);
    let mut response = (StatusCode::CREATED, Json(imported)).into_response();
    response.headers_mut().extend([field]);
    Ok(with_location(response, location))
}

async fn import_body(
    app: &AppState,
    job: &JobHandle,
    body: Body,
) -> Result<ImportedDocument, Problem> {
    let length = http_body::Body::size_hint(&body).exact();
    let (sender, pieces) = mpsc::channel(PIECES_WAITING_MAX);
    let source = Pieces {
        pieces,
        current: Bytes::new(),
    };
    let progress: Arc<Progress> = job.progress();
    let mut import = pin!(app.engine.transfer().import(source, length, progress));
    let mut feed = Box::pin(feed(body, sender));
    let mut broken = None;
    let imported = tokio::select! {
        // If the archive is refused early, the rest of the body is not read.
        imported = &mut import => imported,
        fed = &mut feed => {
            broken = fed.err();
            import.await
        }
        () = job.cancelled() => {
            // Without its source the import ends at once; it is rolled back before the response.
            drop(feed);
            import.await.map_err(|_| StorageError::Cancelled)
        }
    };
    match (imported, broken) {
        (Ok(info), _) => {
            let id = info.id;
            let not_taken = check_derived(&app.engine, &app.provenances, id).await;
            // Missing indexes are built now.
            app.indexes.check(id);
            app.open_files.close(id);
            app.event_files.close(id).await;
            let not_taken = not_taken.unwrap_or_else(|error| {
                // The storage is imported; readers check again whether an index matches its file.
                tracing::warn!(
                    storage = %id,
                    %error,
                    "cannot check the derived files of an import"
                );
                Vec::new()
            });
            let not_taken = not_taken.into_iter().map(|file| NotTakenDocument {
                name: file.name.to_string(),
                reason: file.reason,
            });
            Ok(ImportedDocument {
                storage: info.into(),
                not_taken: not_taken.collect(),
            })
        }
        (Err(_), Some(broken)) => Err(broken),
        (Err(error), None) => Err(Problem::from(error).closing()),
    }
}

/// Forwards the body to the import; an error of the body is reported to both sides.
async fn feed(mut body: Body, sender: mpsc::Sender<io::Result<Bytes>>) -> Result<(), Problem> {
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                if sender.send(Ok(data)).await.is_err() {
                    // The import has ended and has its own error.
                    return std::future::pending().await;
                }
            }
            Err(error) => {
                let broken = io::Error::from(io::ErrorKind::ConnectionAborted);
                // The import may have ended by itself.
                let _ = sender.send(Err(broken)).await;
                return Err(IngestError::of_body(error).into());
            }
        }
    }
    Ok(())
}

/// The pieces of a body as a blocking reader.
struct Pieces {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.current = piece?,
            }
        }
        let count = buffer.len().min(self.current.len());
        buffer[..count].copy_from_slice(&self.current.split_to(count));
        Ok(count)
    }
}
