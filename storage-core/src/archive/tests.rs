//! Archives of this server and of other tools: intact, damaged and hostile.

use std::{collections::BTreeMap, io::Write};

use flate2::{
    Compression, Crc,
    write::{DeflateEncoder, GzEncoder},
};

use proptest::{collection::vec, prelude::any, prop_assert, prop_assert_eq};

use super::{
    ArchivePlan, ArchiveSink, PlannedEntry,
    layout::{CENTRAL, DESCRIPTOR, END, LOCAL},
    read_archive,
};
use crate::StorageError;

/// Stores what it receives, by name.
#[derive(Default)]
struct Extracted {
    files: BTreeMap<String, Vec<u8>>,
    lengths: BTreeMap<String, u64>,
    current: String,
    ended: usize,
}

impl ArchiveSink for Extracted {
    fn begin(&mut self, name: &str) -> Result<Option<u64>, StorageError> {
        name.clone_into(&mut self.current);
        self.files.insert(name.to_owned(), Vec::new());
        Ok(self.lengths.get(name).copied())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let file = self.files.get_mut(&self.current).unwrap();
        file.extend_from_slice(bytes);
        Ok(())
    }

    fn end(&mut self) -> Result<(), StorageError> {
        self.ended += 1;
        Ok(())
    }
}

fn read(archive: &[u8], lengths: &[(&str, u64)]) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let lengths = lengths.iter();
    let mut extracted = Extracted {
        lengths: lengths
            .map(|(name, length)| ((*name).to_owned(), *length))
            .collect(),
        ..Extracted::default()
    };
    match read_archive(archive, &mut extracted) {
        Ok(()) => {
            assert_eq!(extracted.ended, extracted.files.len(), "every file ends");
            Ok(extracted.files)
        }
        Err(error) => Err(format!("{}: {error}", error.code())),
    }
}

/// An entry of an archive that somebody else may have made.
#[derive(Clone)]
struct Entry {
    name: &'static str,
    bytes: Vec<u8>,
    deflated: bool,
    descriptor: bool,
    flags: u16,
    mode: u32,
}

fn entry(name: &'static str, bytes: &[u8]) -> Entry {
    Entry {
        name,
        bytes: bytes.to_vec(),
        deflated: false,
        descriptor: false,
        flags: 0,
        mode: 0o100_644,
    }
}

fn archive(entries: &[Entry]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let mut crc = Crc::new();
        crc.update(&entry.bytes);
        let stored = if entry.deflated {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&entry.bytes).unwrap();
            encoder.finish().unwrap()
        } else {
            entry.bytes.clone()
        };
        let flags = entry.flags | if entry.descriptor { 8 } else { 0 };
        let numbers = [crc.sum(), stored.len() as u32, entry.bytes.len() as u32];
        let head = |stated: [u32; 3]| {
            let mut head = 20_u16.to_le_bytes().to_vec();
            head.extend(flags.to_le_bytes());
            head.extend((if entry.deflated { 8_u16 } else { 0 }).to_le_bytes());
            head.extend([0; 4]);
            stated
                .iter()
                .for_each(|number| head.extend(number.to_le_bytes()));
            head.extend((entry.name.len() as u16).to_le_bytes());
            head.extend([0; 2]);
            head
        };
        let offset = archive.len() as u32;
        archive.extend(LOCAL.to_le_bytes());
        archive.extend(head(if entry.descriptor { [0; 3] } else { numbers }));
        archive.extend(entry.name.as_bytes());
        archive.extend(&stored);
        if entry.descriptor {
            archive.extend(DESCRIPTOR.to_le_bytes());
            numbers
                .iter()
                .for_each(|number| archive.extend(number.to_le_bytes()));
        }
        directory.extend(CENTRAL.to_le_bytes());
        directory.extend([20, 3]);
        directory.extend(head(numbers));
        directory.extend([0; 6]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend(entry.name.as_bytes());
    }
    let begin = archive.len() as u32;
    archive.extend(&directory);
    archive.extend(END.to_le_bytes());
    archive.extend([0; 4]);
    archive.extend((entries.len() as u16).to_le_bytes());
    archive.extend((entries.len() as u16).to_le_bytes());
    archive.extend((directory.len() as u32).to_le_bytes());
    archive.extend(begin.to_le_bytes());
    archive.extend([0; 2]);
    archive
}

fn crc_of(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn written(files: &[(&str, &[u8])]) -> Vec<u8> {
    let entries: Vec<_> = files
        .iter()
        .map(|(name, bytes)| PlannedEntry {
            name: (*name).to_owned(),
            length: bytes.len() as u64,
            // One whose checksum is known beforehand among others.
            crc: name.starts_with('k').then(|| crc_of(bytes)),
        })
        .collect();
    let length = ArchivePlan::length(entries.iter());
    let (mut plan, mut archive) = (ArchivePlan::default(), Vec::new());
    for (entry, (_, bytes)) in entries.iter().zip(files) {
        archive.extend(plan.local(entry));
        archive.extend(*bytes);
        archive.extend(plan.descriptor(entry, crc_of(bytes)));
    }
    archive.extend(plan.end());
    assert_eq!(
        archive.len() as u64,
        length,
        "the length is known beforehand"
    );
    archive
}

#[test]
fn a_written_archive_is_read_back() {
    let files: [(&str, &[u8]); 4] = [
        ("k", b"known"),
        ("a", b"first"),
        ("b", b""),
        ("c", &[7; 300_000]),
    ];
    let archive = written(&files);
    let lengths = files.map(|(name, bytes)| (name, bytes.len() as u64));
    let found = read(&archive, &lengths).unwrap();
    let expected = files.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    assert_eq!(found, expected.into());
}

#[test]
fn lengths_beyond_32_bits_go_into_zip64() {
    const WIDE: u64 = 5 << 30;
    let entry = |name: &str, length| PlannedEntry {
        name: name.to_owned(),
        length,
        crc: None,
    };
    let entries = [entry("wide", WIDE), entry("second", 1)];
    let mut plan = ArchivePlan::default();
    let mut length = 0;
    for entry in &entries {
        let local = plan.local(entry);
        let descriptor = plan.descriptor(entry, 0x1234_5678);
        let is_wide = entry.length == WIDE;
        assert_eq!(descriptor.len(), if is_wide { 24 } else { 16 });
        length += local.len() as u64 + entry.length + descriptor.len() as u64;
    }
    let end = plan.end();
    assert_eq!(
        ArchivePlan::length(entries.iter()),
        length + end.len() as u64
    );
    // Both headers of the directory, one with its lengths, one with its offset next to it.
    let headers = 46 + "wide".len() + 20 + 46 + "second".len() + 12;
    assert_eq!(end.len(), headers + 56 + 20 + 22);
    assert_eq!(end[16..20], 0x1234_5678_u32.to_le_bytes());
    assert_eq!(end[46 + 4 + 4..46 + 4 + 12], WIDE.to_le_bytes());
}

#[test]
fn archives_of_others_are_read() {
    let text = b"some text, some text, some text".repeat(100);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&text).unwrap();
    let gzip = gzip.finish().unwrap();
    let deflated = |entry: Entry| Entry {
        deflated: true,
        ..entry
    };
    let streamed = |entry: Entry| Entry {
        descriptor: true,
        ..entry
    };
    let archive = archive(&[
        Entry {
            mode: 0o040_755,
            ..entry("folder/", b"")
        },
        entry("folder/stored", &text),
        deflated(entry("folder/deflated", &text)),
        streamed(deflated(entry("folder/streamed", &text))),
        entry("folder/gzip", &gzip),
        streamed(deflated(entry("folder/deflated_gzip", &gzip))),
        entry("folder/one", b"\x1f"),
        entry("folder/none", b""),
    ]);
    let found = read(&archive, &[]).unwrap();
    for (name, bytes) in &found {
        let expected: &[u8] = match name.as_str() {
            "none" => b"",
            "one" => b"\x1f",
            _ => &text,
        };
        assert_eq!(bytes, expected, "{name}");
    }
    assert_eq!(found.len(), 7);
    // With a comment, and without the signature that a descriptor may have.
    let mut commented = written(&[("a", b"x")]);
    let end = commented.len() - 2;
    commented[end] = 3;
    commented.extend(b"why");
    assert_eq!(read(&commented, &[("a", 1)]).unwrap()["a"], b"x");
}

#[test]
fn hostile_archives_are_refused_by_name() {
    let refused = |entries: &[Entry], what: &str| {
        let error = read(&archive(entries), &[]).unwrap_err();
        assert!(error.contains(what), "{error:?} does not say {what:?}");
    };
    for name in ["../x", "/x", "a/../x", "c:x", "..\\x", "./x", "a\u{1}b"] {
        refused(&[entry(name, b"x")], "archive_refused");
        refused(&[entry(name, b"x")], "points outside");
    }
    refused(&[entry("a/b/x", b"x")], "another folder");
    refused(&[entry("a/x", b"x"), entry("y", b"y")], "another folder");
    refused(&[entry("x", b"1"), entry("x", b"2")], "twice");
    let link = Entry {
        mode: 0o120_777,
        ..entry("x", b"/etc/passwd")
    };
    refused(&[link], "links");
    let encrypted = Entry {
        flags: 1,
        ..entry("x", b"x")
    };
    refused(&[encrypted], "encrypted");
    let patched = Entry {
        flags: 1 << 5,
        ..entry("x", b"x")
    };
    refused(&[patched], "unsupported");
    let untold = Entry {
        descriptor: true,
        ..entry("x", b"x")
    };
    refused(&[untold], "descriptor after it");
    refused(&[entry("x", b"\x1f\x8bnonsense")], "gzip member");
    refused(&[entry("folder/", b"bytes")], "folder with bytes");
    let mut doubled = GzEncoder::new(Vec::new(), Compression::fast());
    doubled.write_all(b"x").unwrap();
    let mut doubled = doubled.finish().unwrap();
    doubled.push(0);
    refused(&[entry("x", &doubled)], "after its gzip member");
}

#[test]
fn other_bytes_are_damaged_at_their_beginning() {
    for bytes in [
        &b"not a zip archive"[..],
        b"PK",
        b"",
        b"PK\x03\x04",
        b"\x1f\x8b\x08\x00xxxx",
    ] {
        let error = read(bytes, &[]).unwrap_err();
        assert!(error.starts_with("archive_damaged"), "{error}");
    }
}

#[test]
fn every_cut_is_noticed_and_no_flip_changes_a_file() {
    let deflated = Entry {
        deflated: true,
        descriptor: true,
        ..entry("c", &b"abc".repeat(40))
    };
    let ours = written(&[("k", b"known"), ("a", b"first"), ("b", b"second")]);
    let theirs = archive(&[entry("a", b"first"), entry("b", b"second"), deflated]);
    let lengths = [("a", 5), ("b", 6)];
    for archive in [ours, theirs] {
        let whole = read(&archive, &lengths).unwrap();
        for cut in 0..archive.len() {
            let error = read(&archive[..cut], &lengths).unwrap_err();
            assert!(
                error.starts_with("archive_damaged"),
                "cut at {cut}: {error}"
            );
        }
        for at in 0..archive.len() {
            for bit in 0..8 {
                let mut flipped = archive.clone();
                flipped[at] ^= 1 << bit;
                // Times and versions are of no concern, so that a flip may stay unnoticed.
                if let Ok(found) = read(&flipped, &lengths) {
                    assert_eq!(found, whole, "byte {at}, bit {bit}");
                }
            }
        }
        let mut longer = archive.clone();
        longer.push(0);
        assert!(
            read(&longer, &lengths)
                .unwrap_err()
                .contains("after the end")
        );
    }
}

proptest::proptest! {
    #[test]
    fn foreign_bytes_are_refused_without_a_panic(bytes in vec(any::<u8>(), 0..600)) {
        let behind_a_signature = [b"PK\x03\x04", &bytes[..]].concat();
        for bytes in [&bytes, &behind_a_signature] {
            prop_assert!(read(bytes, &[]).is_err());
        }
    }

    #[test]
    fn spliced_archives_never_give_other_files(
        at in any::<proptest::sample::Index>(),
        cut in 0_usize..40,
        bytes in vec(any::<u8>(), 0..40),
    ) {
        let whole = written(&[("k", b"known"), ("a", b"first"), ("b", &[7; 100])]);
        let lengths = [("a", 5), ("b", 100)];
        let begin = at.index(whole.len());
        let end = whole.len().min(begin + cut);
        let spliced = [&whole[..begin], &bytes, &whole[end..]].concat();
        if let Ok(found) = read(&spliced, &lengths) {
            prop_assert_eq!(found, read(&whole, &lengths).unwrap());
        }
    }
}
