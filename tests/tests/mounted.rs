//! A reader that has only a mounted folder and byte ranges of the data files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use harness::{Api, Connection};
use storage_format::index_part::{
    ArrayBlock, Extent, Footer, HEADER_BYTES, IndexPartHeader, PacketEntry, TRAILER_BYTES, Trailer,
};
use storage_format::paths::FileName;
use storage_format::{Codec, DataFileId, Descriptor};

/// The packets of each stream, named `agent/stream`, in order.
pub(crate) type Streams = BTreeMap<String, Vec<Vec<u8>>>;

/// Reads every index part of a mounted folder, requests all packets of a data file in one
/// multi-range request, and reassembles the streams.
pub(crate) fn read_streams(server: &harness::Server, storage: &str, mount: &Path) -> Streams {
    let mut api = Api::new(Connection::open(server.address()).unwrap());
    let mut packets: Vec<(String, (u64, u64), Vec<u8>)> = Vec::new();
    for (file, mut entries) in data_files(mount) {
        entries.sort_by_key(|(_, _, descriptor)| descriptor.offset());
        let ranges: Vec<(u64, u64)> = entries
            .iter()
            .map(|(_, _, descriptor)| (descriptor.offset(), descriptor.end()))
            .collect();
        let found = api.ranges(storage, &FileName::Data(file).to_string(), &ranges);
        for (stream, entry, descriptor) in &entries {
            // Adjacent ranges may arrive in one part: only the position of the bytes counts.
            let stored = cut(&found, descriptor.offset(), descriptor.size());
            packets.push((
                stream.clone(),
                (entry.position.epoch, entry.position.sequence),
                decoded(entry, stored),
            ));
        }
    }
    packets.sort();
    let mut streams = Streams::new();
    for (stream, _, bytes) in packets {
        streams.entry(stream).or_default().push(bytes);
    }
    streams
}

/// The packets in each data file, with the name of the stream.
type DataFiles = BTreeMap<DataFileId, Vec<(String, PacketEntry, Descriptor)>>;

/// All packets in the index parts of the folder.
fn data_files(mount: &Path) -> DataFiles {
    let mut files = DataFiles::new();
    let mut parts = 0;
    for entry in fs::read_dir(mount).unwrap() {
        let path = entry.unwrap().path();
        let ending = path.extension().unwrap_or_default().to_str().unwrap();
        assert_ne!(ending, "itdata", "a mount contains no data");
        if ending != "index" {
            continue;
        }
        parts += 1;
        let bytes = fs::read(&path).unwrap();
        let header = IndexPartHeader::decode(&bytes[..HEADER_BYTES]).unwrap();
        let length = u64::try_from(bytes.len()).unwrap();
        let trailer = &bytes[bytes.len() - TRAILER_BYTES..];
        let trailer = Trailer::decode(trailer, length, header.storage).unwrap();
        let begin = usize::try_from(trailer.footer_offset).unwrap();
        let footer = &bytes[begin..][..usize::try_from(trailer.footer_length).unwrap()];
        let footer = Footer::decode(footer, &trailer).unwrap();
        let bases = footer.time_bases(&bytes).unwrap();
        for leaf in footer.leaves {
            let range = leaf.block_range();
            let block = &bytes[usize::try_from(range.start).unwrap()..];
            let block = &block[..usize::try_from(range.end - range.start).unwrap()];
            leaf.check_block(block).unwrap();
            let entries = ArrayBlock::new(leaf.entries_in(block), &bases).unwrap();
            let extents = leaf.extents_in(block).unwrap();
            let stream = format!("{}/{}", leaf.path.agent, leaf.path.stream);
            for index in 0..entries.len() {
                let entry = entries.get(index).unwrap();
                let contains = |extent: &&Extent| entry.offset < extent.leaf_end();
                let extent = extents.iter().find(contains).unwrap();
                let descriptor = entry.descriptor(extent).unwrap();
                let of_file = files.entry(descriptor.file()).or_default();
                of_file.push((stream.clone(), entry, descriptor));
            }
        }
    }
    assert!(parts > 0, "a storage has an index part, even an empty one");
    files
}

fn cut(parts: &[harness::Part], offset: u64, size: u32) -> &[u8] {
    let end = offset + u64::from(size);
    let contains = |part: &&harness::Part| part.range.start <= offset && end <= part.range.end;
    let part = parts.iter().find(contains).unwrap();
    let begin = usize::try_from(offset - part.range.start).unwrap();
    &part.bytes[begin..][..usize::try_from(size).unwrap()]
}

fn decoded(entry: &PacketEntry, stored: &[u8]) -> Vec<u8> {
    let raw_size = usize::try_from(entry.raw_size).unwrap();
    let raw = match entry.codec {
        Codec::None => stored.to_vec(),
        Codec::Zstd => zstd::bulk::decompress(stored, raw_size).unwrap(),
    };
    assert_eq!(raw.len(), raw_size);
    raw
}
