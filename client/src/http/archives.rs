use std::path::Path;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use reqwest::{Method, Response};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};
use uuid::Uuid;

use super::call::{Call, Client, causes, read_bounded};
use super::storages::Storage;
use crate::ClientError;

/// Bytes read from a file at a time.
const PIECE_BYTES: usize = 256 << 10;
/// Maximum size of the response that describes an imported storage.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// Called with the number of bytes just transferred, and the total if it is known.
pub type ArchiveProgress<'a> = &'a (dyn Fn(u64, Option<u64>) + Send + Sync);

impl Client {
    /// Writes a finalized storage as a ZIP archive to `path` and returns its length in bytes. On an
    /// error, `path` is left unchanged.
    pub async fn export_storage(
        &self,
        id: Uuid,
        path: &Path,
        progress: ArchiveProgress<'_>,
    ) -> Result<u64, ClientError> {
        let url = self.server().api(&["storages", &id.to_string(), "export"]);
        let response = self.send(Call::new(Method::GET, url)).await?;
        let mut unpublished = path.as_os_str().to_owned();
        unpublished.push(storage_format::paths::UNPUBLISHED_ENDING);
        let unpublished = Path::new(&unpublished);
        let written = write_body(response, unpublished, progress).await;
        let published = match written {
            Ok(length) => tokio::fs::rename(unpublished, path)
                .await
                .map(|()| length)
                .map_err(|error| ClientError::file(path, error)),
            Err(error) => Err(error),
        };
        if published.is_err() {
            // The first error is the one to report.
            let _ = tokio::fs::remove_file(unpublished).await;
        }
        published
    }

    /// Uploads the ZIP archive at `path` and returns the imported storage.
    pub async fn import_storage(
        &self,
        path: &Path,
        progress: impl Fn(u64, Option<u64>) + Send + Sync + 'static,
    ) -> Result<Storage, ClientError> {
        let failed = |error| ClientError::file(path, error);
        let file = File::open(path).await.map_err(failed)?;
        let length = file.metadata().await.map_err(failed)?.len();
        progress(0, Some(length));
        let pieces = stream::try_unfold((file, progress), move |(mut file, progress)| async move {
            let mut piece = BytesMut::with_capacity(PIECE_BYTES);
            let count = file.read_buf(&mut piece).await?;
            progress(count as u64, Some(length));
            let more = (count > 0).then(|| (piece.freeze(), (file, progress)));
            std::io::Result::<Option<(Bytes, _)>>::Ok(more)
        });
        let call = Call::new(Method::POST, self.server().api(&["storages", "import"]));
        let body = reqwest::Body::wrap_stream(pieces);
        let response = self.send_streamed(&call, "application/zip", body).await?;
        let body = read_bounded(response, RESPONSE_BYTES_MAX).await?;
        serde_json::from_slice(&body).map_err(|error| ClientError::Answer {
            url: call.url,
            what: format!("unexpected JSON: {error}"),
        })
    }
}

async fn write_body(
    mut response: Response,
    path: &Path,
    progress: ArchiveProgress<'_>,
) -> Result<u64, ClientError> {
    let failed = |error| ClientError::file(path, error);
    let (url, wanted) = (response.url().to_string(), response.content_length());
    progress(0, wanted);
    let mut file = BufWriter::with_capacity(PIECE_BYTES, File::create(path).await.map_err(failed)?);
    let mut length = 0;
    loop {
        let piece = response.chunk().await.map_err(|error| ClientError::Cut {
            url: url.clone(),
            place: format!("after {length} bytes: {}", causes(&error)),
        })?;
        let Some(piece) = piece else { break };
        file.write_all(&piece).await.map_err(failed)?;
        length += piece.len() as u64;
        progress(piece.len() as u64, wanted);
    }
    if wanted.is_some_and(|wanted| wanted != length) {
        let place = format!("after {length} bytes");
        return Err(ClientError::Cut { url, place });
    }
    file.flush().await.map_err(failed)?;
    file.get_ref().sync_all().await.map_err(failed)?;
    Ok(length)
}
