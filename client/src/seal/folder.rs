use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use query_engine::each_raw_packet;
use storage_format::paths::FileName;
use storage_format::seal::{LeafHasher, Seal, packet_root};
use storage_format::storage_file::StorageFile;
use tokio::runtime::Handle;

use super::bytes::hashes_of;
use super::{SealReport, Trust, read_seal};
use crate::ClientError;
use crate::http::{Client, Retry, StorageUrl, TlsFiles};
use crate::mount::{leaves, names_in};

/// Compares all files of the storage in a folder, and all of its packets, with its seal. `runtime`
/// is not used unless files are missing.
///
/// # Errors
/// If the folder has no storage or no seal, or cannot be read.
pub fn verify_sealed_folder(
    folder: &Path,
    trust: &Trust,
    runtime: &Handle,
) -> Result<SealReport, ClientError> {
    let (storage, seal, name) = description(folder)?;
    let mut report = SealReport::new(&seal, &name, trust);
    report.compare_description(&seal, &storage);
    for sealed in &seal.files {
        let path = folder.join(&sealed.name);
        match File::open(&path) {
            Ok(file) => {
                let found = hashes_of(file, seal.group_bytes);
                let found = found.map_err(|error| ClientError::file(&path, error))?;
                report.compare_file(seal.group_bytes, sealed, &found);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                report.add(&sealed.name, None, "it is missing");
            }
            Err(error) => return Err(ClientError::file(&path, error)),
        }
    }
    // Nothing is fetched, because nothing is missing.
    if report.damage.is_empty() {
        compare_packets(folder, &seal, &mut report, runtime);
    }
    Ok(report)
}

/// The storage file, the seal and its name.
fn description(folder: &Path) -> Result<(StorageFile, Seal, String), ClientError> {
    let names = names_in(folder)?;
    let id = names.iter().find_map(|name| match name {
        FileName::Storage(id) => Some(*id),
        _ => None,
    });
    let Some(id) = id else {
        return Err(ClientError::input(format!(
            "{} has no storage: give the folder of a download, an export archive, or a file with \
             --seal",
            folder.display()
        )));
    };
    let path = folder.join(FileName::Storage(id).to_string());
    let bytes = std::fs::read(&path).map_err(|error| ClientError::file(&path, error))?;
    let storage = StorageFile::decode(&bytes)
        .map_err(|error| ClientError::damaged(path.display().to_string(), error.to_string()))?;
    let name = FileName::Seal(id).to_string();
    let seal = match read_seal(&folder.join(&name)) {
        Err(ClientError::File { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Err(ClientError::damaged(
                folder.display().to_string(),
                "it has no seal: it was finalized without one (seal.at_finalization), it is a mount, or \
                 somebody removed it; `tracehold storage verify --dir` compares checksums only",
            ));
        }
        read => read?,
    };
    Ok((storage, seal, name))
}

/// Computes the root over all packets, as a reader with the index finds them.
fn compare_packets(folder: &Path, seal: &Seal, report: &mut SealReport, runtime: &Handle) {
    let unused = |origin: &StorageUrl| {
        let tls = TlsFiles::default();
        Client::with_tls(origin.server.clone(), None, Retry::default(), &tls)
    };
    let own = FileName::Storage(seal.storage).to_string();
    let hashed = leaves(folder, runtime, unused).and_then(|mounted| {
        let mut hashes = Vec::with_capacity(mounted.leaves.len());
        for stored in &mounted.leaves {
            let mut hasher = LeafHasher::new(stored.leaf.leaf, &stored.leaf.path);
            each_raw_packet(stored, &mut |header, raw| {
                hasher.add(header.number, header.position, raw);
            })
            .map_err(|error| ClientError::damaged(own.as_str(), error.to_string()))?;
            hashes.push(hasher.finish());
        }
        Ok(packet_root(hashes))
    });
    match hashed {
        Ok((packets, root)) => {
            report.packets = Some(packets);
            if (packets, root) != (seal.totals.packets, seal.packets) {
                let what = format!(
                    "the root over its {packets} packets is not that over the {} sealed ones",
                    seal.totals.packets
                );
                report.add(&own, None, &what);
            }
        }
        Err(error) => report.add(&own, None, &format!("its packets cannot be read: {error}")),
    }
}
