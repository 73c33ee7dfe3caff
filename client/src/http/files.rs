use std::ops::Range;

use bytes::Bytes;
use reqwest::header::{CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE};
use reqwest::{Method, Response, StatusCode};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::call::{Call, Client, causes};
use super::multipart::{Multipart, Piece, content_range};
use super::server_url::StorageUrl;
use crate::ClientError;

/// A file of a storage as the server lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileInfo {
    /// Name in the storage.
    pub name: String,
    /// Role, such as `data` or `chunk_index`.
    pub role: String,
    /// Length in bytes.
    pub length: u64,
    /// CRC32C, if known.
    #[serde(default)]
    pub checksum: Option<serde_json::Value>,
}

/// The files of a storage as the server lists them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FileList {
    /// The files.
    pub files: Vec<FileInfo>,
    /// Of a finalized storage: whether its chunk indexes are `complete`, `in_progress` or `failed`.
    /// Earlier servers do not say it.
    #[serde(default)]
    pub chunk_indexes: Option<String>,
}

/// The bytes of a file as they arrive from the server.
///
/// For any form of response (complete file, one range, several parts) this returns `(offset,
/// bytes)` with absolute offsets. Only the most recent bytes are in memory.
#[derive(Debug)]
pub struct FileBytes {
    response: Response,
    url: String,
    body: Body,
    etag: Option<String>,
}

#[derive(Debug)]
enum Body {
    /// Consecutive bytes: the next offset, and the expected end.
    Run {
        at: u64,
        end: Option<u64>,
    },
    Parts(Multipart),
}

impl Client {
    /// The files of a storage.
    pub async fn files(&self, storage: Uuid) -> Result<FileList, ClientError> {
        let url = self
            .server()
            .api(&["storages", &storage.to_string(), "files"]);
        self.json(Call::new(Method::GET, url)).await
    }

    /// Requests ranges of a file in one request, or the complete file if `ranges` is empty.
    ///
    /// Ranges are half-open, not empty, ascending and not adjacent, so each is one part of the
    /// response. With the `etag` of an earlier response, a file that has changed is refused (412).
    pub async fn file(
        &self,
        storage: &StorageUrl,
        name: &str,
        ranges: &[Range<u64>],
        etag: Option<&str>,
    ) -> Result<FileBytes, ClientError> {
        let id = storage.id.to_string();
        let url = storage.server.at(&["storage", &id, name]);
        let mut call = Call::new(Method::GET, url);
        if !ranges.is_empty() {
            call = call.header(RANGE.as_str(), range_header(ranges));
        }
        if let Some(etag) = etag {
            call = call.header("if-match", etag.to_owned());
        }
        FileBytes::new(self.send(call).await?)
    }

    /// Requests a file from `start` to its end.
    pub async fn file_from(
        &self,
        storage: &StorageUrl,
        name: &str,
        start: u64,
    ) -> Result<FileBytes, ClientError> {
        let id = storage.id.to_string();
        let url = storage.server.at(&["storage", &id, name]);
        let mut call = Call::new(Method::GET, url);
        if start > 0 {
            call = call.header(RANGE.as_str(), format!("bytes={start}-"));
        }
        FileBytes::new(self.send(call).await?)
    }
}

/// The `Range` header of half-open ranges.
pub(crate) fn range_header(ranges: &[Range<u64>]) -> String {
    let specs = ranges
        .iter()
        .map(|range| format!("{}-{}", range.start, range.end - 1));
    format!("bytes={}", specs.collect::<Vec<_>>().join(","))
}

impl FileBytes {
    fn new(response: Response) -> Result<Self, ClientError> {
        let url = response.url().to_string();
        let header = |name| response.headers().get(name)?.to_str().ok();
        let wrong = |what: &str| ClientError::Answer {
            url: url.clone(),
            what: what.to_owned(),
        };
        let body = if response.status() == StatusCode::PARTIAL_CONTENT {
            match header(CONTENT_TYPE).and_then(Multipart::boundary) {
                Some(boundary) => Body::Parts(Multipart::new(boundary)),
                None => {
                    let range = header(CONTENT_RANGE).and_then(content_range);
                    let range = range.ok_or_else(|| wrong("206 without a Content-Range"))?;
                    Body::Run {
                        at: range.start,
                        end: Some(range.end),
                    }
                }
            }
        } else {
            Body::Run {
                at: 0,
                end: response.content_length(),
            }
        };
        Ok(Self {
            etag: header(ETAG).map(str::to_owned),
            url,
            body,
            response,
        })
    }

    /// The strong entity tag of the file, if the server sent one.
    pub fn etag(&self) -> Option<&str> {
        self.etag.as_deref()
    }

    /// Whether the server sends the complete file, ignoring the requested ranges.
    pub fn is_whole_file(&self) -> bool {
        self.response.status() != StatusCode::PARTIAL_CONTENT
    }

    /// The next bytes and their offset; `None` if the response is complete.
    pub async fn next(&mut self) -> Result<Option<(u64, Bytes)>, ClientError> {
        loop {
            if let Body::Parts(parts) = &mut self.body {
                match parts.next() {
                    Ok(Some(Piece::Data { offset, bytes })) => return Ok(Some((offset, bytes))),
                    Ok(Some(Piece::End)) => return Ok(None),
                    Ok(None) => {}
                    Err(what) => return Err(self.wrong(what)),
                }
            }
            let chunk = self.response.chunk().await;
            let chunk = chunk.map_err(|error| self.cut(causes(&error)))?;
            match (&mut self.body, chunk) {
                (Body::Parts(parts), Some(chunk)) => parts.feed(chunk),
                (Body::Parts(_), None) => return Err(self.cut("between parts".to_owned())),
                (Body::Run { at, .. }, Some(chunk)) => {
                    let offset = *at;
                    *at += chunk.len() as u64;
                    return Ok(Some((offset, chunk)));
                }
                (Body::Run { at, end }, None) if end.is_none_or(|end| *at == end) => {
                    return Ok(None);
                }
                (Body::Run { at, .. }, None) => {
                    let place = format!("at offset {at}");
                    return Err(self.cut(place));
                }
            }
        }
    }

    fn cut(&self, place: String) -> ClientError {
        ClientError::Cut {
            url: self.url.clone(),
            place,
        }
    }

    fn wrong(&self, what: String) -> ClientError {
        ClientError::Answer {
            url: self.url.clone(),
            what,
        }
    }
}
