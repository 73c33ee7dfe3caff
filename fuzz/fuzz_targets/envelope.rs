//! Storage, agent and local files, and seals: the input is the body, to which a matching envelope
//! is added.
#![no_main]

use libfuzzer_sys::fuzz_target;
use storage_format::agent_file::AgentFile;
use storage_format::checksum::crc32c;
use storage_format::local_file::LocalFile;
use storage_format::repair_file::RepairFile;
use storage_format::seal::Seal;
use storage_format::storage_file::StorageFile;

fn wrapped(magic: &[u8; 8], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("libFuzzer's inputs are small");
    let mut bytes = magic.to_vec();
    bytes.extend_from_slice(&storage_format::FORMAT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&[0; 2]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&crc32c(body).to_le_bytes());
    bytes.extend_from_slice(&crc32c(&bytes.clone()).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fuzz_target!(|body: &[u8]| {
    if let Ok(file) = StorageFile::decode(&wrapped(b"THSTORAG", body)) {
        assert_eq!(StorageFile::decode(&file.encode().unwrap()), Ok(file));
    }
    if let Ok(file) = AgentFile::decode(&wrapped(b"THAGENT\0", body)) {
        assert_eq!(AgentFile::decode(&file.encode().unwrap()), Ok(file));
    }
    if let Ok(file) = RepairFile::decode(&wrapped(b"THREPAIR", body)) {
        assert_eq!(RepairFile::decode(&file.encode().unwrap()), Ok(file));
    }
    let mut seal = [&b"THSEAL\0\0\x01\0\0\0"[..], body].concat();
    seal.extend(crc32c(&seal).to_le_bytes());
    if let Ok(read) = Seal::decode(&seal) {
        assert_eq!(read.encode(), seal);
    }
    if let Ok(file) = LocalFile::decode(&wrapped(b"THLOCAL\0", body)) {
        assert_eq!(LocalFile::decode(&file.encode().unwrap()), Ok(file));
    }
});
