//! Receipts of all kinds: what is sent is their JSON, whatever their number.

use http_body_util::BodyExt;
use serde_json::{Value, json};
use storage_format::DataFileId;

use super::*;

fn id(byte: u8) -> StorageId {
    StorageId::from_bytes([byte; 16])
}

fn document(entry: &Entry) -> Value {
    let mut document = json!({
        "epoch": entry.position.epoch,
        "sequence": entry.position.sequence,
        "durable": entry.stored.is_some(),
        "duplicate": entry.is_duplicate,
    });
    if let Some(stored) = &entry.stored {
        document["number"] = stored.number.into();
        document["file"] = format!("{}.itdata", stored.file).into();
        document["offset"] = stored.offset.into();
        document["size"] = stored.size.into();
        if let Some(events) = stored.events {
            document["events"] = events.into();
        }
    }
    if let Some(storage) = entry.storage {
        document["storage"] = storage.to_string().into();
    }
    document
}

fn receipts(entries: &[Entry], memory: &ReceiptMemory) -> Receipts {
    let mut receipts = Receipts::new(true, memory);
    entries
        .iter()
        .for_each(|entry| receipts.encoded.push(entry));
    receipts
}

async fn check(entries: &[Entry]) {
    let receipts = receipts(entries, &ReceiptMemory::new(0));
    let response = receipts.into_response();
    let length = http_body::Body::size_hint(response.body()).exact();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(length, Some(text.len() as u64));
    let wanted: Vec<_> = entries.iter().map(document).collect();
    let found: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(found, json!({ "receipts": wanted }));
}

fn stored(number: u64, file: u64, offset: u64, size: u32) -> Option<Stored> {
    Some(Stored {
        number,
        file: DataFileId(file),
        offset,
        size,
        events: (size > 1 && !number.is_multiple_of(3))
            .then(|| size - u32::from(number.is_multiple_of(2))),
    })
}

/// Receipts in which everything changes, at the limits of all numbers.
fn varied(count: u64) -> Vec<Entry> {
    let extremes = [0, 1, 9, 10, 127, 128, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    let at = |index: u64| extremes[usize::try_from(index).unwrap() % extremes.len()];
    (0..count)
        .map(|index| Entry {
            position: StreamPosition::new(at(index / 3), at(index)),
            is_duplicate: index % 2 == 0,
            stored: match index % 4 {
                0 => None,
                _ => stored(at(index + 1), at(index / 2), at(index + 5), u32::MAX),
            },
            storage: (index % 5 > 2).then(|| id(u8::try_from(index / 7 % 3).unwrap())),
        })
        .collect()
}

/// Receipts of a batch of small packets.
fn regular(count: u64) -> Vec<Entry> {
    (0..count)
        .map(|index| Entry {
            position: StreamPosition::new(1, index),
            is_duplicate: false,
            stored: stored(index, 0, 4096 + index * 104, 1),
            storage: None,
        })
        .collect()
}

#[tokio::test]
async fn receipts_are_sent_as_json() {
    check(&[]).await;
    for count in [1, 2, 200, 5000] {
        check(&varied(count)).await;
        check(&regular(count)).await;
    }
}

/// A list that is nearly as long as a piece is in two: the first ends where a receipt of any length
/// fits no more.
#[tokio::test]
async fn receipts_around_the_size_of_a_piece_are_all_sent() {
    for count in 180..420 {
        check(&regular(count)).await;
    }
}

#[test]
fn receipts_of_small_packets_take_a_few_bytes() {
    let receipts = receipts(&regular(65_536), &ReceiptMemory::new(0));
    assert!(receipts.encoded.capacity() <= 6 * 65_536);
}

#[tokio::test]
async fn receipts_wait_for_memory_and_are_refused_without_it() {
    let memory = ReceiptMemory {
        wait: Duration::from_millis(10),
        ..ReceiptMemory::new(0)
    };
    let entries = varied(20_000);
    let mut held = Vec::new();
    let refused = loop {
        let mut more = receipts(&entries, &memory);
        match more.reserve().await {
            Ok(()) => held.push(more),
            Err(error) => break error,
        }
        let reserved = held
            .iter()
            .map(|each| each.encoded.capacity())
            .sum::<usize>() as u64;
        assert!(reserved <= memory.bytes + held.len() as u64 * FREE_BYTES as u64);
    };
    assert!(matches!(refused, StorageError::Busy { .. }), "{refused}");
    held.pop();
    receipts(&entries, &memory).reserve().await.unwrap();
}
