//! Records read back as written, and nothing else passes for one.

use bytes::Bytes;
use uuid::Uuid;

use super::*;

fn location() -> Location {
    Location {
        storage: StorageId::from_bytes([9; 16]),
        number: 77,
    }
}

fn encoded(kind: RecordKind, payload: &[&'static str]) -> Result<Bytes, TierError> {
    let node = NodeName::new("node-1").unwrap();
    let author = Author {
        epoch: 0x0102_0304_0506_0708,
        nonce: Uuid::from_bytes([5; 16]),
        node: &node,
    };
    let pieces: Vec<_> = payload.iter().map(|piece| Bytes::from(*piece)).collect();
    encode(location(), kind, author, &pieces)
}

#[test]
fn what_was_written_is_read() {
    let bytes = encoded(RecordKind::Packets, &["pack", "", "ets"]).unwrap();
    let record = decode(&bytes, location()).unwrap();
    assert_eq!(record.payload, "packets");
    assert_eq!(record.epoch, 0x0102_0304_0506_0708);
    assert_eq!((record.number, record.node.as_str()), (77, "node-1"));
    assert_eq!(record.nonce, Uuid::from_bytes([5; 16]));
    for kind in [RecordKind::Own, RecordKind::Close] {
        let bytes = encoded(kind, &[]).unwrap();
        assert_eq!(bytes.len(), RECORD_HEADER_BYTES);
        assert_eq!(decode(&bytes, location()).unwrap().kind, kind);
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_found() {
    let bytes = encoded(RecordKind::Packets, &["packets"]).unwrap();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.to_vec();
            changed[place] ^= 1 << bit;
            decode(&changed.into(), location()).unwrap_err();
        }
        decode(&bytes.slice(..place), location()).unwrap_err();
    }
}

#[test]
fn a_record_elsewhere_is_damaged() {
    let bytes = encoded(RecordKind::Own, &[]).unwrap();
    let elsewhere = Location {
        number: 78,
        ..location()
    };
    let error = decode(&bytes, elsewhere).unwrap_err().to_string();
    assert!(error.contains("00000000000000000078"), "{error}");
    let elsewhere = Location {
        storage: StorageId::from_bytes([8; 16]),
        ..location()
    };
    decode(&bytes, elsewhere).unwrap_err();
}

#[test]
fn payloads_of_other_lengths_are_refused() {
    encoded(RecordKind::Packets, &[]).unwrap_err();
    encoded(RecordKind::Close, &["packets"]).unwrap_err();
    let node = NodeName::new("node-1").unwrap();
    let author = Author {
        epoch: 1,
        nonce: Uuid::nil(),
        node: &node,
    };
    let piece = Bytes::from(vec![0; PAYLOAD_BYTES_MAX]);
    let encode = |pieces: &[Bytes]| encode(location(), RecordKind::Packets, author, pieces);
    let bytes = encode(std::slice::from_ref(&piece)).unwrap();
    assert_eq!(bytes.len() as u64, RECORD_BYTES_MAX);
    decode(&bytes, location()).unwrap();
    encode(&[piece, Bytes::from_static(b"x")]).unwrap_err();
}
