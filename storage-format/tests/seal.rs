//! Seals: their bytes, their signatures, and what they prove.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use storage_format::{
    StorageId,
    seal::{
        Digest, FileHasher, GROUP_BYTES_MIN, PublicKey, Seal, SealedFile, SigningKey, packet_root,
    },
    storage_file::Totals,
};

fn key(seed: u8) -> SigningKey {
    SigningKey::from_pem(&SigningKey::pem_of(&[seed; 32])).unwrap()
}

fn storage() -> StorageId {
    "0193a2f0-7c1e-7b3a-9d2e-0123456789ab".parse().unwrap()
}

/// Bytes of three groups.
fn long() -> Vec<u8> {
    (0..150_000_u32)
        .map(|at| (at / 7).to_le_bytes()[0])
        .collect()
}

fn file(name: &str, bytes: &[u8]) -> SealedFile {
    let mut hasher = FileHasher::new(GROUP_BYTES_MIN);
    hasher.extend(bytes);
    SealedFile {
        name: name.to_owned(),
        hashes: hasher.finish(),
    }
}

fn seal() -> Seal {
    Seal {
        storage: storage(),
        created: -5,
        finalized: 1_700_000_000_000_000_001,
        totals: Totals {
            packets: 3,
            raw_bytes: 150_000,
            stored_bytes: 140_000,
            events: 9,
            lost: 1,
            time_span: Some((-7, 8)),
        },
        packets: packet_root(Vec::new()).1,
        group_bytes: GROUP_BYTES_MIN,
        files: vec![
            file("0000000000000000.itdata", &long()),
            file("00000000000000ab.index", b"short"),
            file("node-17.agent", b""),
        ],
        signature: None,
    }
}

#[test]
fn seals_keep_their_bytes() {
    let mut value = seal();
    value.sign(&key(7));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/v1/file.seal");
    if !path.exists() {
        std::fs::write(&path, value.encode()).unwrap();
    }
    let stored = std::fs::read(path).unwrap();
    assert_eq!(stored, value.encode(), "the bytes of a seal never change");
    assert_eq!(Seal::decode(&stored), Ok(value.clone()));
    assert!(value.is_signed());
    assert_eq!(value.check_id(storage()), Ok(()));
    assert!(value.check_id(StorageId::from_bytes([7; 16])).is_err());
    // What other programs compute: `b3sum` of the file, and of the statement.
    assert_eq!(value.files[0].hashes.hash, Digest::of(&long()));
    let statement = usize::try_from(u64::from_le_bytes(stored[40..48].try_into().unwrap()));
    assert_eq!(value.digest(), Digest::of(&stored[..statement.unwrap()]));
}

/// Of no bytes, by the authors of BLAKE3.
#[test]
fn a_hash_is_shown_as_other_programs_show_it() {
    let hash = Digest::of(b"");
    let expected = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    assert_eq!(hash.to_string(), expected);
    assert!(format!("{hash:?}").contains(expected));
}

#[test]
fn an_unsigned_seal_is_read_and_is_not_signed() {
    let value = seal();
    assert_eq!(Seal::decode(&value.encode()), Ok(value.clone()));
    assert!(!value.is_signed());
}

/// Whoever changes a seal can mend its checksum; only the key makes a signature.
#[test]
fn a_changed_statement_has_no_signature_even_with_the_right_checksum() {
    let mut value = seal();
    value.sign(&key(7));
    let (bytes, groups) = (value.encode(), 3 * 32);
    for at in 0..bytes.len() - 4 - groups {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let end = changed.len() - 4;
        let checksum = storage_format::checksum::crc32c(&changed[..end]);
        changed[end..].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(read) = Seal::decode(&changed) {
            assert!(!read.is_signed(), "byte {at}");
        }
    }
    for at in bytes.len() - 4 - groups..bytes.len() - 4 {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let end = changed.len() - 4;
        let checksum = storage_format::checksum::crc32c(&changed[..end]);
        changed[end..].copy_from_slice(&checksum.to_le_bytes());
        assert!(Seal::decode(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn a_truncated_seal_is_an_error() {
    let mut value = seal();
    value.sign(&key(7));
    let bytes = value.encode();
    for length in 0..bytes.len() {
        assert!(Seal::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
}

/// `bytes` with this value at `at`, and the checksum that belongs to them.
fn changed(bytes: &[u8], at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..][..value.len()].copy_from_slice(value);
    let end = bytes.len() - 4;
    let checksum = storage_format::checksum::crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Where a text begins in `bytes`.
fn place(bytes: &[u8], text: &str) -> usize {
    let mut places = bytes.windows(text.len());
    places.position(|part| part == text.as_bytes()).unwrap()
}

#[test]
fn impossible_fields_of_a_seal_are_errors() {
    let bytes = seal().encode();
    let sizes = [0, 1, GROUP_BYTES_MIN / 2, 3 * GROUP_BYTES_MIN, u64::MAX];
    let sizes = sizes.map(|size| (32, size.to_le_bytes().to_vec(), "bytes of a group"));
    let name = place(&bytes, "0000000000000000.itdata");
    let names = [
        (name, b"/".to_vec(), "name of a file"),
        (name, b"..".to_vec(), "name of a file"),
        // It is the name of a file, and after the next one.
        (name, b"f".to_vec(), "name of a file"),
    ];
    for (at, value, expected) in sizes.into_iter().chain(names) {
        let error = Seal::decode(&changed(&bytes, at, &value)).unwrap_err();
        let found = format!("{error}");
        assert!(found.contains(expected), "{at}, {value:?}: {found}");
    }
}

#[test]
fn the_end_of_the_statement_is_in_the_seal() {
    let bytes = seal().encode();
    let statement = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
    for length in (0..u64::try_from(bytes.len()).unwrap() + 9).chain([u64::MAX]) {
        let read = Seal::decode(&changed(&bytes, 40, &length.to_le_bytes()));
        assert_eq!(read.is_ok(), length == statement, "{length}");
    }
}

#[test]
fn a_seal_of_no_files_is_read() {
    let mut value = Seal {
        files: Vec::new(),
        ..seal()
    };
    assert_eq!(Seal::decode(&value.encode()), Ok(value.clone()));
    value.sign(&key(7));
    let read = Seal::decode(&value.encode()).unwrap();
    assert!(read.is_signed());
    assert_eq!(read, value);
}

/// Otherwise a forged seal would look like one that nobody signed, and keep its other half.
#[test]
fn half_of_a_signature_is_a_wrong_signature() {
    let mut value = seal();
    value.sign(&key(7));
    let bytes = value.encode();
    let statement = usize::try_from(u64::from_le_bytes(bytes[40..48].try_into().unwrap()));
    let at = statement.unwrap();
    for (at, length) in [(at, 32), (at + 32, 64)] {
        let bytes = changed(&bytes, at, &vec![0; length]);
        let read = Seal::decode(&bytes).unwrap();
        assert!(read.signature.is_some() && !read.is_signed());
        assert_eq!(read.encode(), bytes);
    }
}

#[test]
fn another_key_signs_otherwise() {
    let (mut one, mut other) = (seal(), seal());
    one.sign(&key(7));
    other.sign(&key(8));
    assert_eq!(one.digest(), other.digest());
    assert_ne!(one.signature, other.signature);
    // A signature under the name of another key is none.
    let mut forged = one.clone();
    forged.signature.as_mut().unwrap().key = key(8).public();
    assert!(!forged.is_signed());
    assert_ne!(key(7).public().id(), key(8).public().id());
    assert_eq!(key(7).public().id().to_string().len(), 16);
    assert!(!format!("{:?}", key(7)).contains("07070707"));
    assert!(key(7) == key(7) && key(7) != key(8));
}

#[test]
fn a_public_key_is_read_as_it_was_written() {
    let public = key(7).public();
    let text = public.to_pem();
    assert_eq!(PublicKey::from_pem(&text), Ok(public));
    assert_eq!(
        PublicKey::from_pem(&format!("a comment\n{text}")),
        Ok(public)
    );
    for wrong in ["", &text[..70], &SigningKey::pem_of(&[7; 32])] {
        assert!(PublicKey::from_pem(wrong).is_err(), "{wrong}");
    }
    assert!(SigningKey::from_pem(&text).is_err());
}

/// Keys that OpenSSL wrote (`openssl genpkey -algorithm ed25519`, `openssl pkey -pubout`).
#[test]
fn keys_of_openssl_are_read() {
    let private = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ5V4l+yERqJL2SvazSGOXwkhqpNxCB1LrLtfxeK2eM6\n-----END PRIVATE KEY-----\n";
    let public = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAJV+obt8HL44LN87KYyS5Sz4vkDXVprKReGnecLWqaSk=\n-----END PUBLIC KEY-----\n";
    let signing = SigningKey::from_pem(private).unwrap();
    assert_eq!(PublicKey::from_pem(public), Ok(signing.public()));
    assert_eq!(signing.public().to_pem(), public);
    let seed = [
        0x9e, 0x55, 0xe2, 0x5f, 0xb2, 0x11, 0x1a, 0x89, 0x2f, 0x64, 0xaf, 0x6b, 0x34, 0x86, 0x39,
        0x7c, 0x24, 0x86, 0xaa, 0x4d, 0xc4, 0x20, 0x75, 0x2e, 0xb2, 0xed, 0x7f, 0x17, 0x8a, 0xd9,
        0xe3, 0x3a,
    ];
    assert_eq!(SigningKey::pem_of(&seed), private);
}

#[test]
fn a_group_is_proven_without_the_rest() {
    let (value, bytes) = (seal(), long());
    let sealed = value.file("0000000000000000.itdata").unwrap();
    let group = usize::try_from(GROUP_BYTES_MIN).unwrap();
    for (number, part) in bytes.chunks(group).enumerate() {
        let offset = u64::try_from(number * group).unwrap();
        assert_eq!(value.proves(sealed, offset, part), Some(true));
        let mut wrong = part.to_vec();
        wrong[part.len() / 2] ^= 0x40;
        assert_eq!(value.proves(sealed, offset, &wrong), Some(false));
    }
    // A group in the place of another.
    assert_eq!(
        value.proves(sealed, 0, &bytes[group..2 * group]),
        Some(false)
    );
    // Not at the beginning of a group, too short, behind the end.
    assert_eq!(value.proves(sealed, 1, &bytes[1..=group]), None);
    assert_eq!(value.proves(sealed, 0, &bytes[..group - 1]), None);
    assert_eq!(value.proves(sealed, 1 << 20, b""), None);
    let short = value.file("00000000000000ab.index").unwrap();
    assert_eq!(value.proves(short, 0, b"short"), Some(true));
    assert_eq!(value.proves(short, 0, b"shore"), Some(false));
    assert_eq!(value.file("none.agent"), None);
}
