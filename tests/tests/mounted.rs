//! A reader that has only a mounted folder and byte ranges of the data files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use harness::{Api, Connection};
use storage_format::index_part::{
    ArrayBlock, Footer, HEADER_BYTES, IndexPartHeader, PacketEntry, TRAILER_BYTES, Trailer,
};
use storage_format::{Codec, LeafId};

/// The packets of each stream, named `agent/stream`, in order.
pub(crate) type Streams = BTreeMap<String, Vec<Vec<u8>>>;

/// Reads every index part of a mounted folder, requests all packets of a data file in one
/// multi-range request, and reassembles the streams.
pub(crate) fn read_streams(server: &harness::Server, storage: &str, mount: &Path) -> Streams {
    let mut api = Api::new(Connection::open(server.address()).unwrap());
    let mut packets: Vec<(String, (u64, u64), Vec<u8>)> = Vec::new();
    for (leaf, (stream, entries)) in leaves(mount) {
        let ranges: Vec<(u64, u64)> = entries
            .iter()
            .map(|entry| (entry.offset, entry.offset + u64::from(entry.stored_size)))
            .collect();
        let found = api.ranges(storage, &format!("{leaf}.itdata"), &ranges);
        for entry in &entries {
            // Adjacent ranges may arrive in one part: only the position of the bytes counts.
            let stored = cut(&found, entry.offset, entry.stored_size);
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

type Leaves = BTreeMap<LeafId, (String, Vec<PacketEntry>)>;

/// All packets of all leaves in the index parts of the folder.
fn leaves(mount: &Path) -> Leaves {
    let mut leaves = Leaves::new();
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
            let block = ArrayBlock::new(block, &bases).unwrap();
            let stream = format!("{}/{}", leaf.path.agent, leaf.path.stream);
            let (_, entries) = leaves.entry(leaf.leaf).or_insert((stream, Vec::new()));
            entries.extend((0..block.len()).map(|index| block.get(index).unwrap()));
        }
    }
    assert!(parts > 0, "a storage has an index part, even an empty one");
    leaves
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
