//! A small storage for tests: files on a node, and their upload.

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;
use storage_format::{StorageId, checksum::crc32c};
use tempfile::TempDir;

use crate::{Bucket, LocalFile, Seal, Upload, upload};

/// When it was uploaded: 2025-11-24 16:00 UTC.
pub(crate) const NOW: i64 = 1_764_000_000_000_000_000;

/// Bytes that differ everywhere, so that a wrong range shows.
pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ (state >> 32)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub(crate) fn storage() -> StorageId {
    StorageId::new(1_764_000_000_000, [3; 10])
}

fn local(folder: &Path, name: &str, body: &[u8]) -> LocalFile {
    let path = folder.join(name);
    std::fs::write(&path, body).unwrap();
    LocalFile {
        name: name.into(),
        path,
        length: body.len() as u64,
        checksum: Some(crc32c(body)),
    }
}

/// A storage on a node: its files, and the upload of them.
pub(crate) struct Node {
    _folder: TempDir,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) upload: Upload,
}

pub(crate) fn node(name: &str, lengths: &[usize]) -> Node {
    let folder = tempfile::tempdir().unwrap();
    let mut files = BTreeMap::new();
    let large = lengths.iter().zip(0_u64..).map(|(length, n)| {
        let body = bytes(n + 1, *length);
        let name = format!("{n:016x}.itdata");
        let file = local(folder.path(), &name, &body);
        files.insert(name, body);
        file
    });
    let large = large.collect();
    let agent = bytes(99, 777);
    let small = vec![
        local(folder.path(), "node_1.agent", &agent),
        local(folder.path(), "00000000000000aa.index", &[]),
    ];
    files.insert("node_1.agent".into(), agent);
    files.insert("00000000000000aa.index".into(), Vec::new());
    let storage_file = Bytes::from_static(b"the storage file");
    files.insert(format!("{}.storage", storage()), storage_file.to_vec());
    let upload = Upload {
        storage: storage(),
        node: name.into(),
        now: NOW,
        storage_file,
        small,
        large,
        journal: folder.path().join("journal"),
    };
    Node {
        _folder: folder,
        files,
        upload,
    }
}

/// Uploads it and returns its seal.
pub(crate) async fn sealed(bucket: &Bucket, lengths: &[usize]) -> Seal {
    let node = node("a", lengths);
    upload(bucket, node.upload, |_| ()).await.unwrap();
    Seal::get(bucket, storage()).await.unwrap().expect("a seal")
}
