//! Names, ids and messages, as programs and people read them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use storage_format::{
    AgentId, DataFileId, Descriptor, FormatErrorKind, LeafId, StorageId, StreamPosition,
    cached_file, paths::FileName, storage_file::StorageFile,
};

const ID: &str = "0193a2f0-7c1e-7b3a-9d2e-0123456789ab";

fn storage() -> StorageId {
    ID.parse().unwrap()
}

#[test]
fn a_file_has_one_name_and_a_role() {
    let leaf = LeafId(0x0123_4567_89ab_cdef);
    for (name, text, role) in [
        (
            FileName::Storage(storage()),
            format!("{ID}.storage"),
            "storage",
        ),
        (FileName::Local(storage()), format!("{ID}.local"), "local"),
        (
            FileName::Checksums(storage()),
            format!("{ID}.checksums"),
            "checksums",
        ),
        (
            FileName::Repairs(storage()),
            format!("{ID}.repairs"),
            "repairs",
        ),
        (FileName::Seal(storage()), format!("{ID}.seal"), "seal"),
        (FileName::Tier(storage()), format!("{ID}.tier"), "tier"),
        (
            FileName::TierSums(storage()),
            format!("{ID}.tier-sums"),
            "tier_sums",
        ),
        (
            FileName::StorageCopy(storage()),
            format!("{ID}.storage-copy"),
            "storage_copy",
        ),
        (
            FileName::Agent("host-1.agent".parse::<AgentId>().unwrap()),
            "host-1.agent.agent".into(),
            "agent",
        ),
        (
            FileName::Index(0xab),
            "00000000000000ab.index".into(),
            "index",
        ),
        (
            FileName::Data(DataFileId(2)),
            "0000000000000002.itdata".into(),
            "data",
        ),
        (
            FileName::ChunkIndex(leaf),
            "0123456789abcdef.idx".into(),
            "chunk_index",
        ),
        (
            FileName::Provenance(leaf),
            "0123456789abcdef.pidx".into(),
            "provenance",
        ),
        (
            FileName::ChunkIndexes(DataFileId(2)),
            "0000000000000002.idx".into(),
            "chunk_index",
        ),
        (
            FileName::Provenances(DataFileId(0x10_0000)),
            "0000000000100000.pidx".into(),
            "provenance",
        ),
        (
            FileName::ChunkIndex(LeafId(0x20_0000)),
            "0000000000200000.idx".into(),
            "chunk_index",
        ),
    ] {
        assert_eq!(name.to_string(), text);
        assert_eq!(text.parse::<FileName>(), Ok(name.clone()), "{text}");
        assert_eq!(name.role().as_str(), role);
        let serialized = format!("{:?}", name.role());
        assert_eq!(serialized.to_lowercase(), role.replace('_', ""));
    }
    assert_eq!(LeafId::of_random(0x1f_ffff), None);
    assert_eq!(LeafId::of_random(0x20_0000), Some(LeafId(0x20_0000)));
    for text in [
        "",
        "storage",
        ".storage",
        "x.storage",
        "ab.index",
        "00000000000000AB.index",
        "0000000000000002.itdata.tmp",
        "../0000000000000002.itdata",
        "a/b.agent",
        "0123456789abcdef.cidx",
    ] {
        let error = text.parse::<FileName>().unwrap_err();
        let expected = format!("`{text}` is not the name of a file of a storage");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_storage_file_belongs_to_one_storage() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1/file.storage");
    let file = StorageFile::decode(&std::fs::read(golden).unwrap()).unwrap();
    assert_eq!(file.check_id(file.id), Ok(()));
    let other = StorageId::from_bytes([9; 16]);
    let kind = file.check_id(other).unwrap_err().kind;
    assert_eq!(kind, FormatErrorKind::Foreign);
}

#[test]
fn a_refused_id_is_shown_bounded_and_without_control_characters() {
    let long = "\u{1b}[31m".to_owned() + &"x".repeat(1000);
    let shown = format!("\u{fffd}[31m{}", "x".repeat(59));
    assert_eq!(
        long.parse::<AgentId>().unwrap_err().to_string(),
        format!(
            "`{shown}` is not a valid id: use 1 to 128 of the characters A-Z a-z 0-9 . _ - \
             and begin with a letter, a digit or _"
        )
    );
    assert_eq!(
        long.parse::<StorageId>().unwrap_err().to_string(),
        format!("`{shown}` is not a storage id: use a UUID in lower case")
    );
    assert_eq!(
        ID.to_uppercase()
            .parse::<StorageId>()
            .unwrap_err()
            .to_string(),
        format!(
            "`{}` is not a storage id: use a UUID in lower case",
            ID.to_uppercase()
        )
    );
}

#[test]
fn a_storage_id_says_when_the_storage_was_created() {
    let id = StorageId::new(1_732_000_000_123, [7; 10]);
    assert_eq!(id.unix_millis(), 1_732_000_000_123);
    assert_eq!(format!("{:?}", storage()), ID);
    assert_eq!(StreamPosition::new(3, 4).to_string(), "epoch 3, sequence 4");
}

#[test]
fn a_descriptor_says_what_it_was_made_of() {
    let descriptor = Descriptor::new(DataFileId(7), 4096, 100).unwrap();
    assert_eq!(descriptor.file(), DataFileId(7));
    let found = (descriptor.offset(), descriptor.size(), descriptor.end());
    assert_eq!(found, (4096, 100, 4196));
}

#[test]
fn an_error_says_what_was_found() {
    for (kind, text) in [
        (
            FormatErrorKind::Truncated {
                needed: 64,
                available: 3,
            },
            "64 bytes are needed, 3 are there",
        ),
        (FormatErrorKind::Magic, "the magic number is wrong"),
        (
            FormatErrorKind::Version {
                found: 9,
                newest: 2,
            },
            "format version 9 is not supported (newest supported: 2)",
        ),
        (
            FormatErrorKind::Checksum {
                stored: 1,
                computed: 0xab,
            },
            "checksum 0x000000ab does not match the stored 0x00000001",
        ),
        (
            FormatErrorKind::Field { name: "codec" },
            "field `codec` has an invalid value",
        ),
        (
            FormatErrorKind::Limit {
                name: "length",
                found: 2,
                max: 1,
            },
            "`length` is 2, the limit is 1",
        ),
        (
            FormatErrorKind::Order { name: "number" },
            "`number` does not follow the packet before",
        ),
        (
            FormatErrorKind::Foreign,
            "the file belongs to another storage, leaf or agent",
        ),
    ] {
        assert_eq!(kind.to_string(), text);
    }
}

#[test]
fn a_cached_result_is_recognized_by_its_first_bytes() {
    let file = cached_file::encode("count", b"7");
    assert!(cached_file::is_cached_file(&file));
    for other in [&b""[..], b"{\"count\":7}", &file[1..], &file[..4]] {
        assert!(!cached_file::is_cached_file(other), "{other:?}");
    }
}
