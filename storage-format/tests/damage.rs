//! Damaged and invalid bytes are errors with an offset, never a panic and never accepted.
#![expect(
    clippy::cast_possible_truncation,
    reason = "the numbers of tests are small"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use proptest::{collection::vec, prelude::*};
use storage_format::{
    AgentId, DataFileId, Descriptor, LeafId, StorageId, StreamId,
    agent_file::AgentFile,
    batch::RecordHeader,
    checksum_file::ChecksumFile,
    data_file::{self, DataFileHeader},
    frame::{FrameHeader, FrameLocation},
    index_part::{ArrayBlock, Footer, IndexPartHeader, TRAILER_BYTES, Trailer},
    label_file::LabelFile,
    local_file::LocalFile,
    paths::FileName,
    repair_file::RepairFile,
    ring_block::RingBlock,
    seal::Seal,
    storage_file::StorageFile,
};

fn storage() -> StorageId {
    "0193a2f0-7c1e-7b3a-9d2e-0123456789ab".parse().unwrap()
}

/// The golden bytes with this path below `golden/`.
fn golden(path: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    std::fs::read(folder.join(path)).unwrap()
}

/// Reads `bytes` as a complete data file of one frame.
fn read_data(bytes: &[u8]) -> Result<(), String> {
    DataFileHeader::decode(bytes).map_err(|error| error.to_string())?;
    let offset = data_file::HEADER_BYTES as u64;
    let place = FrameLocation {
        storage: storage(),
        leaf: LeafId(0x0123_4567_89ab_cdef),
        offset,
    };
    let frame = FrameHeader::decode(bytes.get(512..).unwrap_or_default(), place);
    let frame = frame.map_err(|error| error.to_string())?;
    let stored = bytes
        .get(600..600 + frame.stored_size as usize)
        .unwrap_or_default();
    frame
        .check_payload(stored, 600)
        .map_err(|error| error.to_string())
}

/// Reads `bytes` as a complete index part with all of its blocks.
fn read_index(bytes: &[u8]) -> Result<(), String> {
    let text = |error: storage_format::FormatError| error.to_string();
    let header = IndexPartHeader::decode(bytes).map_err(text)?;
    if header.storage != storage() {
        return Err("another storage".into());
    }
    let tail = bytes.len().saturating_sub(TRAILER_BYTES);
    let trailer = Trailer::decode(&bytes[tail..], bytes.len() as u64, storage()).map_err(text)?;
    let start = trailer.footer_offset as usize;
    let footer = bytes
        .get(start..start + trailer.footer_length as usize)
        .ok_or("short")?;
    let footer = Footer::decode(footer, &trailer).map_err(text)?;
    let bases = footer.time_bases(bytes).map_err(text)?;
    for leaf in footer.leaves {
        let range = leaf.block_range();
        let block = bytes
            .get(range.start as usize..range.end as usize)
            .ok_or("short")?;
        leaf.check_block(block).map_err(text)?;
        leaf.extents_in(block).map_err(text)?;
        let block = ArrayBlock::new(leaf.entries_in(block), &bases).map_err(text)?;
        for at in 0..block.len() {
            block.get(at).map_err(text)?;
        }
    }
    Ok(())
}

type Read = fn(&[u8]) -> Result<(), String>;

const FILES: [(&str, Read); 17] = [
    ("v1/labels.types", |bytes| {
        LabelFile::decode(bytes)
            .map(drop)
            .map_err(|e| e.to_string())
    }),
    ("v1/data.itdata", read_data),
    ("v1/segment.ring", |bytes| match RingBlock::split(bytes) {
        Ok((_, [])) => Ok(()),
        Ok(_) => Err("bytes follow it".into()),
        Err(error) => Err(error.to_string()),
    }),
    ("v1/part.index", read_index),
    ("v1/based.index", read_index),
    ("v2/part.index", read_index),
    ("v2/based.index", read_index),
    ("v1/based.itdata", read_data),
    ("v1/file.storage", |bytes| {
        StorageFile::decode(bytes)
            .map(drop)
            .map_err(|e| e.to_string())
    }),
    ("v2/file.storage", |bytes| {
        StorageFile::decode(bytes)
            .map(drop)
            .map_err(|e| e.to_string())
    }),
    ("v3/file.storage", |bytes| {
        StorageFile::decode(bytes)
            .map(drop)
            .map_err(|e| e.to_string())
    }),
    ("v1/file.repairs", |bytes| {
        RepairFile::decode(bytes)
            .map(drop)
            .map_err(|e| e.to_string())
    }),
    ("v1/file.checksums", |bytes| {
        ChecksumFile::decode(bytes)
            .map(drop)
            .map_err(|e| e.to_string())
    }),
    ("v4/file.storage", |bytes| {
        StorageFile::decode(bytes)
            .map(drop)
            .map_err(|e| e.to_string())
    }),
    ("v1/file.seal", |bytes| {
        Seal::decode(bytes).map(drop).map_err(|e| e.to_string())
    }),
    ("v1/file.agent", |bytes| {
        AgentFile::decode(bytes)
            .map(drop)
            .map_err(|e| e.to_string())
    }),
    ("v1/file.local", |bytes| {
        LocalFile::decode(bytes)
            .map(drop)
            .map_err(|e| e.to_string())
    }),
];

/// Zeros that align the next frame are covered only by the checksum of the file.
fn is_gap(name: &str, at: usize, length: usize) -> bool {
    name.ends_with(".itdata") && at >= length - 1
}

#[test]
fn every_flipped_bit_is_an_error() {
    for (name, read) in FILES {
        let bytes = golden(name);
        assert_eq!(read(&bytes), Ok(()), "{name}");
        for at in (0..bytes.len()).filter(|&at| !is_gap(name, at, bytes.len())) {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(read(&damaged).is_err(), "{name}: bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn every_truncation_and_every_extension_is_an_error() {
    for (name, read) in FILES {
        let bytes = golden(name);
        for length in 0..bytes.len() {
            let is_whole = is_gap(name, length, bytes.len());
            assert_eq!(
                read(&bytes[..length]).is_ok(),
                is_whole,
                "{name} cut to {length}"
            );
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(
            read(&longer).is_ok(),
            name.ends_with(".itdata"),
            "{name} with one more byte"
        );
    }
}

#[test]
fn a_frame_at_another_location_is_an_error() {
    let bytes = &golden("v1/data.itdata")[512..];
    let right = FrameLocation {
        storage: storage(),
        leaf: LeafId(0x0123_4567_89ab_cdef),
        offset: 512,
    };
    assert!(FrameHeader::decode(bytes, right).is_ok());
    let other = StorageId::from_bytes([7; 16]);
    for wrong in [
        FrameLocation {
            storage: other,
            ..right
        },
        FrameLocation {
            leaf: LeafId(1),
            ..right
        },
        FrameLocation {
            offset: 520,
            ..right
        },
    ] {
        assert!(FrameHeader::decode(bytes, wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn names_are_an_allow_list() {
    for good in ["a", "A-1", "_x", "rank_0.pfw.gz", &"x".repeat(128)] {
        assert_eq!(good.parse::<AgentId>().unwrap().as_str(), good);
        assert_eq!(good.parse::<StreamId>().unwrap().to_string(), good);
    }
    for bad in [
        "",
        ".",
        "..",
        ".x",
        "-x",
        "a/b",
        "a\\b",
        "a b",
        "a\0",
        "é",
        "a%2e",
        "../x",
        "/etc",
        &"x".repeat(129),
    ] {
        assert!(bad.parse::<AgentId>().is_err(), "{bad:?}");
        assert!(
            format!("{bad}.agent").parse::<FileName>().is_err(),
            "{bad:?}"
        );
    }
    let id = storage().to_string();
    for bad in [
        id.to_uppercase(),
        id.replace('-', ""),
        format!("{{{id}}}"),
        format!("{id} "),
    ] {
        assert!(bad.parse::<StorageId>().is_err(), "{bad:?}");
    }
    for bad in [
        "1.itdata",
        "0123456789ABCDEF.itdata",
        "0123456789abcdef.itdata.tmp",
        "itdata",
    ] {
        assert!(bad.parse::<FileName>().is_err(), "{bad:?}");
    }
}

#[test]
fn descriptors_never_overflow() {
    for (offset, size, is_right) in [
        (0, 1, true),
        (600, 256 << 20, true),
        (0, 0, false),
        (0, (256 << 20) + 1, false),
        (u64::MAX, 1, false),
        (i64::MAX as u64, 1, false),
    ] {
        assert_eq!(
            Descriptor::new(DataFileId(1), offset, size).is_ok(),
            is_right,
            "{offset} {size}"
        );
    }
}

proptest! {
    #[test]
    fn foreign_bytes_are_errors_and_never_a_panic(bytes in vec(any::<u8>(), 0..2000)) {
        for (_, read) in FILES {
            prop_assert!(read(&bytes).is_err());
        }
        if let Ok(header) = <[u8; 24]>::try_from(&bytes[..bytes.len().min(24)]) {
            let _ = RecordHeader::decode(&header);
        }
    }

    #[test]
    fn mutated_files_are_errors_and_never_a_panic(
        file in 0..FILES.len(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let (name, read) = FILES[file];
        let bytes = golden(name);
        let mut mutated = bytes.clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            mutated[at] = value;
        }
        let is_same = bytes.iter().zip(&mutated).enumerate().all(|(at, (a, b))| {
            a == b || is_gap(name, at, bytes.len())
        });
        prop_assert_eq!(read(&mutated).is_ok(), is_same);
    }

    #[test]
    fn file_names_read_back_as_they_were(text in "[a-zA-Z0-9._%/-]{0,40}") {
        if let Ok(name) = text.parse::<FileName>() {
            prop_assert_eq!(name.to_string(), text);
        }
    }
}
