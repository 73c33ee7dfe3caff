use io_trace::FileClass;
use trace_kinds::io_trace::metadata;

use super::*;

const STORAGE: &str = "01a20035-d530-7bdc-a297-fda08774fad2";
const PATH: &str = "01a20035-d530-7bdc-a297-fda08774fad2/93224496ff98a4d8.itdata";

fn record(operation: Operation, cause: Cause) -> IoTraceRecord<'static> {
    IoTraceRecord {
        operation,
        start: 1_795_240_026_000_000_999,
        latency: 70,
        class: FileClass::Data,
        cause,
        path: PATH.as_bytes(),
        thread: 17,
        errno: 0,
        offset: Some(4_000),
        asked: 9_000,
        done: 9_000,
        cache_hit: Some(true),
        request: Some(b"r-1"),
        requests: 1,
        block: None,
    }
}

/// The records with their keys.
fn records(
    record: &IoTraceRecord<'_>,
    lookups: &mut CacheLookups,
) -> Vec<(Vec<u8>, Vec<u8>, u64, u64)> {
    let mut records = Vec::new();
    let ended = lookups.each(record, |block| {
        let keys = (block.block_key.to_vec(), block.referenced_key.to_vec());
        records.push((keys.0, keys.1, block.block_size, block.referenced_data_size));
        Ok::<(), ()>(())
    });
    assert_eq!(ended, Ok(()));
    records
}

/// If a column is added to RocksDB's record, this test does not compile; if a field of the schema
/// is renamed, it fails.
#[test]
fn every_column_of_a_block_cache_record_has_a_counterpart() {
    let look_up = IoTraceRecord {
        block: Some(Block {
            block_type: ServerBlock::Filter,
            size: 2_000,
            not_inserted: true,
            leaf: 7,
            entries: 15,
            immutable: true,
            found: Some(true),
        }),
        ..record(Operation::Lookup, Cause::Query)
    };
    let schema = String::from_utf8(metadata()).unwrap();
    let names: Vec<&str> = schema.split('"').collect();
    let counterpart = |field: &str| assert!(names.contains(&field), "{field} in {schema}");
    let mut seen = 0;
    let ended = CacheLookups::new(PAGE_BYTES, Vec::new()).each(&look_up, |block| {
        let BlockRecord {
            time,
            block_type,
            block_key,
            block_size,
            cf_id,
            cf_name,
            level,
            sst_number,
            caller,
            is_cache_hit,
            no_insert,
            get_id,
            from_snapshot,
            referenced_key,
            referenced_data_size,
            num_keys_in_block,
            referenced_key_exists,
        } = *block;
        seen += 1;
        counterpart("start");
        assert_eq!(time, 1_795_240_026_000_000);
        counterpart("block_type");
        assert_eq!(block_type, BlockType::FILTER);
        counterpart("offset");
        assert_eq!(
            block_key,
            [PATH.as_bytes(), &4_000_u64.to_le_bytes()].concat()
        );
        counterpart("block_size");
        assert_eq!(block_size, 2_000);
        counterpart("path");
        assert_eq!((cf_id, cf_name), (0, STORAGE.as_bytes()));
        assert_eq!(sst_number, number(PATH.as_bytes()));
        counterpart("file_class");
        assert_eq!(level, 1);
        counterpart("cause");
        assert_eq!(caller, Caller::from_name("Get").unwrap());
        counterpart("cache");
        assert!(is_cache_hit);
        counterpart("not_inserted");
        assert!(no_insert);
        counterpart("request_id");
        assert_eq!(get_id, number(b"r-1"));
        counterpart("immutable");
        assert!(from_snapshot);
        counterpart("leaf");
        assert_eq!(referenced_key, [&7_u64.to_be_bytes()[..], &[0; 8]].concat());
        counterpart("done");
        assert_eq!(referenced_data_size, 9_000);
        counterpart("entries");
        assert_eq!(num_keys_in_block, 15);
        counterpart("found");
        assert!(referenced_key_exists);
        Ok::<(), ()>(())
    });
    assert_eq!((ended, seen), (Ok(()), 1));
}

#[test]
fn a_read_of_a_data_file_is_a_lookup_of_its_pages() {
    let mut lookups = CacheLookups::new(4_096, Vec::new());
    let read = record(Operation::Read, Cause::Range);
    let pages = records(&read, &mut lookups);
    // Bytes 4,000 to 13,000: the end of the first page, two complete ones, the beginning of the
    // fourth.
    let bytes: Vec<u64> = pages.iter().map(|page| page.3).collect();
    assert_eq!(bytes, [96, 4_096, 4_096, 712]);
    assert!(pages.iter().all(|page| page.2 == 4_096));
    let at = |page: usize| u64::from_le_bytes(pages[page].0[PATH.len()..].try_into().unwrap());
    assert_eq!((at(0), at(1), at(3)), (0, 4_096, 12_288));
    let leaf = u64::from_be_bytes(pages[0].1[..8].try_into().unwrap());
    assert_eq!(leaf, 0x9322_4496_ff98_a4d8);
    let unknown = IoTraceRecord {
        cache_hit: None,
        ..read
    };
    assert!(records(&unknown, &mut lookups).is_empty());
    let of_index = IoTraceRecord {
        class: FileClass::Index,
        ..read
    };
    assert!(
        records(&of_index, &mut lookups).is_empty(),
        "recorded as lookups of blocks"
    );
    let mut filters = CacheLookups::new(4_096, vec![ServerBlock::Filter]);
    assert!(records(&read, &mut filters).is_empty());
    let absurd = IoTraceRecord {
        offset: Some(u64::MAX - 5),
        done: u64::MAX,
        ..read
    };
    assert_eq!(records(&absurd, &mut lookups).len(), 1);
}
