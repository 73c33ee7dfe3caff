//! Request bodies in all forms: split, encoded, incomplete, too large, damaged.

use std::io::Write;
use storage_format::StreamPosition;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use storage_core::ByteBudget;
use storage_format::batch::RecordHeader;

use super::admission::Reservation;
use super::body::BodyReader;
use super::encoding::{ContentEncoding, DecoderMemory};
use super::error::IngestError;
use super::push::{is_batch, position, prefers_async};
use super::records::Records;

const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// A body of unknown length that arrives in pieces of `piece` bytes.
fn in_pieces(bytes: &[u8], piece: usize) -> Body {
    let pieces: Vec<_> = bytes
        .chunks(piece)
        .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
        .collect();
    Body::from_stream(stream::iter(pieces))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).unwrap()
}

/// Bytes that compress, but not completely.
fn sample(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at * at / 7 % 251).unwrap())
        .collect()
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

fn decode(encoding: ContentEncoding, body: Body, max: u64) -> Result<Vec<u8>, IngestError> {
    run(async {
        let mut body_reader = BodyReader::new(
            body,
            encoding,
            (WINDOW_BYTES_MAX, &DecoderMemory::new(1 << 30)),
            "body",
            max,
        )?;
        let mut complete = Vec::new();
        while let Some(piece) = body_reader.next().await? {
            assert!(!piece.is_empty());
            complete.extend_from_slice(&piece);
        }
        Ok(complete)
    })
}

#[test]
fn encodings_are_decoded_from_any_pieces() {
    for length in [0, 1, 1000, 65_535, 65_536, 65_537, 300_000] {
        let plain = sample(length);
        // Members and frames may be concatenated.
        let two = [&plain[..length / 2], &plain[length / 2..]];
        for (encoding, encoded) in [
            (ContentEncoding::Identity, plain.clone()),
            (ContentEncoding::Gzip, gzip(&plain)),
            (ContentEncoding::Gzip, two.map(gzip).concat()),
            (ContentEncoding::Zstd, zstd(&plain)),
            (ContentEncoding::Zstd, two.map(zstd).concat()),
        ] {
            for piece in [1, 7, 4096, usize::MAX] {
                if encoded.len() / piece > 100_000 {
                    continue;
                }
                let decoded = decode(encoding, in_pieces(&encoded, piece), length as u64);
                assert!(
                    decoded.unwrap() == plain,
                    "{encoding:?}, {length} bytes by {piece}"
                );
            }
        }
    }
}

#[test]
fn truncated_and_oversized_bodies_are_refused() {
    let plain = sample(100_000);
    for (encoding, encoded) in [
        (ContentEncoding::Gzip, gzip(&plain)),
        (ContentEncoding::Zstd, zstd(&plain)),
    ] {
        for cut in [1, 3, 9, encoded.len() / 2, encoded.len() - 1] {
            let body = in_pieces(&encoded[..encoded.len() - cut], 999);
            let refused = decode(encoding, body, 1 << 20).unwrap_err();
            assert!(
                matches!(refused, IngestError::EncodingDamaged(_)),
                "{encoding:?}: {refused}"
            );
        }
        let refused = decode(encoding, in_pieces(&encoded, 999), 99_999).unwrap_err();
        assert!(
            matches!(refused, IngestError::TooLarge { max: 99_999, .. }),
            "{refused}"
        );
        let refused = decode(encoding, in_pieces(&plain, 999), 1 << 20).unwrap_err();
        assert!(
            matches!(refused, IngestError::EncodingDamaged(_)),
            "{refused}"
        );
    }
    // A declared length above the limit is refused before a byte is read.
    let refused = decode(ContentEncoding::Identity, Body::from(plain), 99_999).unwrap_err();
    assert!(matches!(refused, IngestError::TooLarge { .. }), "{refused}");
}

#[test]
fn a_window_beyond_the_limit_is_refused() {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(24).unwrap();
    encoder.include_contentsize(false).unwrap();
    encoder.write_all(&sample(1 << 16)).unwrap();
    let encoded = encoder.finish().unwrap();
    let refused = decode(ContentEncoding::Zstd, Body::from(encoded), 1 << 30).unwrap_err();
    assert!(
        matches!(refused, IngestError::EncodingDamaged(_)),
        "{refused}"
    );
}

#[test]
fn content_encoding_is_parsed() {
    let check = |values: &[&str], wanted: Option<ContentEncoding>| {
        let mut headers = HeaderMap::new();
        for value in values {
            let name = HeaderName::from_static("content-encoding");
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        assert_eq!(ContentEncoding::of(&headers).ok(), wanted, "{values:?}");
    };
    check(&[], Some(ContentEncoding::Identity));
    check(&["identity"], Some(ContentEncoding::Identity));
    check(&["GZIP"], Some(ContentEncoding::Gzip));
    check(&["x-gzip"], Some(ContentEncoding::Gzip));
    check(&["identity, zstd"], Some(ContentEncoding::Zstd));
    check(&["br"], None);
    check(&["gzip, zstd"], None);
    check(&["gzip", "gzip"], None);
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let field = |(name, value): &(&'static str, &str)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        )
    };
    fields.iter().map(field).collect()
}

#[test]
fn header_fields_of_a_push_are_parsed() {
    let check = |fields: &[(&'static str, &str)], wanted: Option<(u64, u64)>| {
        let wanted = wanted.map(|(epoch, sequence)| StreamPosition::new(epoch, sequence));
        assert_eq!(position(&headers(fields)).ok(), wanted, "{fields:?}");
    };
    let (epoch, sequence) = ("tracehold-epoch", "tracehold-sequence");
    check(
        &[(epoch, "3"), (sequence, "18446744073709551615")],
        Some((3, u64::MAX)),
    );
    check(&[(epoch, "3")], None);
    check(&[(sequence, "3")], None);
    for wrong in ["", "x", "-1", "+1", "1.5", "18446744073709551616"] {
        check(&[(epoch, "0"), (sequence, wrong)], None);
    }

    let check = |media_type: &str, wanted: Option<bool>| {
        assert_eq!(
            is_batch(&headers(&[("content-type", media_type)])).ok(),
            wanted,
            "{media_type}"
        );
    };
    check("application/octet-stream", Some(false));
    check("Application/vnd.tracehold.Packets; v=1", Some(true));
    check("text/plain", None);
    check("", None);

    let check = |prefer: &str, wanted: bool| {
        assert_eq!(
            prefers_async(&headers(&[("prefer", prefer)])),
            wanted,
            "{prefer}"
        );
    };
    check("respond-async", true);
    check("wait=10, Respond-Async", true);
    check("respond-asynchronously", false);
}

fn record(epoch: u64, sequence: u64, payload: &[u8]) -> Vec<u8> {
    [
        &RecordHeader::of(payload, StreamPosition::new(epoch, sequence)).encode()[..],
        payload,
    ]
    .concat()
}

type Packet = (u64, u64, Vec<u8>);

/// The packets of a body, and the error after them.
fn cut(body: Body, packet_max: u64, count_max: u64) -> (Vec<Packet>, Option<IngestError>) {
    run(async {
        let identity = ContentEncoding::Identity;
        let body_reader = BodyReader::new(
            body,
            identity,
            (WINDOW_BYTES_MAX, &DecoderMemory::new(1 << 30)),
            "body",
            1 << 30,
        )
        .unwrap();
        let mut records = Records::new(body_reader, packet_max, count_max);
        let mut packets = Vec::new();
        let budget = ByteBudget::unlimited();
        let mut room = Reservation::try_new(&budget, "agent".into(), 1 << 30).unwrap();
        loop {
            let header = match records.head().await {
                Ok(Some(header)) => header,
                Ok(None) => return (packets, None),
                Err(error) => return (packets, Some(error)),
            };
            match records.payload(&header, &mut room).await {
                Ok(payload) => {
                    let StreamPosition { epoch, sequence } = header.position;
                    packets.push((epoch, sequence, payload.to_vec()));
                }
                Err(error) => return (packets, Some(error)),
            }
        }
    })
}

#[test]
fn batches_are_split_from_any_pieces() {
    let packets: Vec<Packet> = (0..20)
        .map(|at| (7, at, sample(1 + usize::try_from(at).unwrap() * 211)))
        .collect();
    let body: Vec<u8> = packets
        .iter()
        .flat_map(|(e, s, p)| record(*e, *s, p))
        .collect();
    for piece in [1, 23, 24, 25, 1000, usize::MAX] {
        let (found, wrong) = cut(in_pieces(&body, piece), 1 << 20, 20);
        assert!(found == packets && wrong.is_none(), "by {piece}: {wrong:?}");
    }
}

#[test]
fn errors_of_a_batch_name_their_location() {
    let good = record(1, 0, b"packet");
    let check = |tail: &[u8], wanted: &str| {
        let body = [&good[..], tail].concat();
        let (found, wrong) = cut(Body::from(body), 100, 2);
        assert_eq!(found.len(), 1, "{wanted}");
        let text = wrong.unwrap().to_string();
        assert!(text.contains(wanted), "{text:?} lacks {wanted:?}");
    };
    check(
        &good[..5],
        "record 1 at byte 30 of the decoded body: the body ends within the header",
    );
    check(&good[..29], "the body ends within a packet");
    let mut damaged = good.clone();
    damaged[24] ^= 1;
    check(
        &damaged,
        "record 1 at byte 30 of the decoded body: the checksum of the packet does not match",
    );
    check(
        &record(1, 1, &[1; 101]),
        "the packet has more than 100 bytes",
    );
    check(&[0; 24], "record 1 at byte 30");
}

#[test]
fn too_many_packets_are_refused() {
    let body = record(1, 0, b"x").repeat(3);
    let (found, wrong) = cut(Body::from(body), 100, 2);
    assert_eq!(found.len(), 2);
    assert!(
        matches!(wrong, Some(IngestError::TooManyPackets { max: 2 })),
        "{wrong:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_handled(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        piece in 1_usize..50,
    ) {
        for encoding in [ContentEncoding::Gzip, ContentEncoding::Zstd] {
            drop(decode(encoding, in_pieces(&bytes, piece), 1 << 16));
        }
        cut(in_pieces(&bytes, piece), 1 << 16, 100);
    }

    #[test]
    fn damaged_encodings_never_give_wrong_bytes_silently(
        at in 0_usize..400,
        flip in 1_u8..=255,
    ) {
        // Both formats end with a checksum of the content (zstd only on request).
        let plain = sample(5000);
        let mut encoded = gzip(&plain);
        // After the ten bytes of the header, which contain a time and the name of a system.
        let at = 10 + at % (encoded.len() - 10);
        encoded[at] ^= flip;
        let decoded = decode(ContentEncoding::Gzip, Body::from(encoded), 1 << 20);
        prop_assert!(decoded.is_err() || decoded.unwrap() == plain);
    }
}

#[tokio::test(start_paused = true)]
async fn decoders_share_their_memory() {
    // A frame whose window is 8 MiB, and whose length is not known.
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(23).unwrap();
    encoder.write_all(&vec![0; 1 << 20]).unwrap();
    let frame = encoder.finish().unwrap();
    let memory = DecoderMemory::new(20 << 20);
    let mut readers = Vec::new();
    for _ in 0..3 {
        let (body, limit) = (in_pieces(&frame, 1000), (WINDOW_BYTES_MAX, &memory));
        let encoding = ContentEncoding::Zstd;
        readers.push(BodyReader::new(body, encoding, limit, "body", 1 << 30).unwrap());
    }
    for reader in &mut readers[..2] {
        while reader
            .next()
            .await
            .unwrap()
            .is_some_and(|piece| piece.len() > 1 << 10)
        {
            if reader.decoded_bytes() > 200_000 {
                break;
            }
        }
    }
    let mut third = readers.pop().unwrap();
    let refused = loop {
        match third.next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the third window does not fit"),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, IngestError::NoRoom(_)), "{refused}");
    drop(readers);
    let mut next = BodyReader::new(
        in_pieces(&frame, 1000),
        ContentEncoding::Zstd,
        (WINDOW_BYTES_MAX, &memory),
        "body",
        1 << 30,
    )
    .unwrap();
    while next.next().await.unwrap().is_some() {}
}
