use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use ::io_trace::{
    Access, Block, BlockType, Cause, Drained, FileClass, FileTag, Operation, Record, Tracer,
};
use query_language::FieldTable;

use super::{
    Anchor, Begin, Encoded, Encoder, End, IoTraceDecoder, Item, PREAMBLE_BYTES, each_item,
    is_io_trace, metadata, packet_bytes, put_io_trace_line, tsdl,
};
use crate::{DecodeError, Decoder};

const STORAGE: &str = "01a20035-d530-7bdc-a297-fda08774fad2";

fn begin() -> Begin {
    Begin {
        anchor: Anchor {
            clock: 500,
            wall: 1_795_240_026_000_000_000,
        },
        mode: "stop_at_limit".to_owned(),
        bytes_max: 1 << 20,
        blocks_one_in: 1,
        one_in: [1; Operation::COUNT],
        storages: Vec::new(),
    }
}

static FILE: LazyLock<FileTag> = LazyLock::new(|| {
    let tracer = Arc::new(Tracer::default());
    let path = format!("{STORAGE}/93224496ff98a4d8.itdata");
    FileTag::new(&tracer, path, FileClass::Data, Some([1; 16]))
});

fn record(operation: Operation, start: u64, latency: u64) -> Record<'static> {
    Record {
        start,
        latency,
        operation,
        cause: Cause::Ingest,
        thread: 17,
        file: &FILE,
        access: Access {
            offset: Some(4096),
            asked: 100,
            done: 100,
            ..Access::default()
        },
        request: None,
        requests: 0,
    }
}

fn look_up() -> Record<'static> {
    Record {
        cause: Cause::Query,
        request: Some("r-1"),
        requests: 3,
        access: Access {
            cache_hit: Some(false),
            block: Some(Block {
                block_type: BlockType::Index,
                size: 2000,
                not_inserted: true,
                leaf: 0x9322_4496_ff98_a4d8,
                entries: 15,
                immutable: true,
                found: Some(false),
            }),
            ..record(Operation::Lookup, 0, 0).access
        },
        ..record(Operation::Lookup, 2_000, 70)
    }
}

fn trace() -> [Encoded; 2] {
    let mut encoder = Encoder::new(&begin());
    encoder.put(&record(Operation::Write, 1_000, 38_208));
    let mut failed = record(Operation::Sync, 900, 10);
    failed.access = Access {
        errno: 28,
        ..Access::default()
    };
    encoder.put(&failed);
    encoder.put(&look_up());
    let mut drained = Drained {
        recorded: 3,
        ..Drained::default()
    };
    let first = encoder.finish(&drained);
    drained.dropped[Operation::Read as usize] = 4;
    let end = End {
        reason: "stopped",
        drained,
        overwritten: 0,
        clock: 100_000,
    };
    [first, encoder.end(&end)]
}

/// All items of `packets` as text, and the result of reading.
fn read_all(packets: &[u8]) -> (String, Result<(), DecodeError>) {
    let mut text = Vec::new();
    let ended = each_item(packets, |item| {
        match item {
            Item::Record(record) => put_io_trace_line(&mut text, &record),
            Item::Begin => text.extend_from_slice(b"begin\n"),
            Item::End {
                reason,
                recorded,
                dropped,
                overwritten,
            } => {
                let reason = String::from_utf8_lossy(reason);
                let end = format!("end {reason} {recorded} {dropped} {overwritten}\n");
                text.extend_from_slice(end.as_bytes());
            }
        }
        ControlFlow::Continue(())
    });
    (String::from_utf8_lossy(&text).into_owned(), ended)
}

#[test]
fn encoded_records_are_read_back() {
    let [first, last] = trace();
    let anchor = 1_795_240_026_000_000_000;
    assert_eq!(first.time_span, Some((anchor + 400, anchor + 38_708)));
    assert_eq!((first.events, first.dropped), (3, 0));
    assert_eq!((last.time_span, last.events, last.dropped), (None, 0, 4));
    assert_eq!(
        packet_bytes(&first.bytes[..PREAMBLE_BYTES]),
        Some(first.bytes.len() as u64)
    );
    assert_eq!(packet_bytes(&first.bytes[..39]), None);
    let (text, ended) = read_all(&[first.bytes, last.bytes].concat());
    assert_eq!(ended, Ok(()));
    expect_test::expect![[r#"
        begin
        1795240026000000500 +38208 write 4096+100 01a20035-d530-7bdc-a297-fda08774fad2/93224496ff98a4d8.itdata cause=ingest thread=17
        1795240026000000400 +10 sync 01a20035-d530-7bdc-a297-fda08774fad2/93224496ff98a4d8.itdata cause=ingest thread=17 errno=28
        1795240026000001500 +70 lookup 4096+100 01a20035-d530-7bdc-a297-fda08774fad2/93224496ff98a4d8.itdata cause=query thread=17 cache=miss block=index size=2000 leaf=93224496ff98a4d8 entries=15 not_inserted found=false request=r-1 and 2 more
        end stopped 3 4 0
    "#]]
    .assert_eq(&text);
}

#[test]
fn events_have_the_documented_fields() {
    let [first, _] = trace();
    let mut shown = String::new();
    let decoded = IoTraceDecoder::new(&FieldTable::new())
        .decode(&first.bytes, &mut |event| {
            event.each_field(&mut |path, value| {
                let value = match value {
                    query_language::Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
                    value => format!("{value:?}"),
                };
                shown += &format!("{path}={value} ");
            });
            shown.push('\n');
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((decoded.events, decoded.metadata), (3, 1));
    let last = shown.lines().last().unwrap();
    expect_test::expect![[r#"name=lookup cat=data ts=Int(1795240026000001500) dur=Uint(70) tid=Uint(17) args.cause=query args.path=01a20035-d530-7bdc-a297-fda08774fad2/93224496ff98a4d8.itdata args.file_name=93224496ff98a4d8.itdata args.storage=01a20035-d530-7bdc-a297-fda08774fad2 args.errno=Uint(0) args.offset=Uint(4096) args.len=Uint(100) args.done=Uint(100) args.is_cache_hit=Bool(false) args.request_id=r-1 args.requests=Uint(3) args.block_type=index args.block_size=Uint(2000) args.not_inserted=Bool(true) args.leaf=Uint(10602111888107545816) args.entries=Uint(15) args.immutable=Bool(true) args.found=Bool(false) "#]]
    .assert_eq(last);
}

#[test]
fn a_torn_trace_is_read_to_its_end() {
    let [first, last] = trace();
    let whole = [first.bytes, last.bytes].concat();
    let (all, _) = read_all(&whole);
    let mut lines = 0;
    for length in 1..whole.len() {
        let (text, ended) = read_all(&whole[..length]);
        assert!(all.starts_with(&text), "cut at {length}");
        assert!(text.lines().count() >= lines, "cut at {length}");
        lines = text.lines().count();
        let is_boundary = ended.is_ok();
        let at_boundary = lines == 4 && all.lines().count() == 5;
        assert!(!is_boundary || at_boundary, "cut at {length}: {ended:?}");
        if let Err(error) = ended {
            let is_cut = matches!(error, DecodeError::Truncated { .. });
            assert!(is_cut, "cut at {length}: {error}");
        }
    }
    assert_eq!(lines, 4);
}

#[test]
fn packets_of_another_schema_are_refused() {
    let [first, _] = trace();
    let mut bytes = first.bytes;
    assert!(is_io_trace(&bytes));
    bytes[10] ^= 1;
    assert!(!is_io_trace(&bytes));
    let (text, ended) = read_all(&bytes);
    assert_eq!(text, "");
    assert!(matches!(ended, Err(DecodeError::Unsupported { .. })));
}

#[test]
fn both_dialects_of_the_metadata_are_accepted() {
    for metadata in [metadata(), tsdl().into_bytes()] {
        let class = ctf::parse_metadata(&metadata).unwrap();
        let names: Vec<_> = class.stream_classes()[0]
            .event_classes()
            .iter()
            .filter_map(|class| class.identity.name.as_deref())
            .collect();
        assert_eq!(names[0], "open");
        assert_eq!(names[names.len() - 2..], ["trace_begin", "trace_end"]);
    }
}

#[test]
fn start_and_latency_are_exact_when_times_go_back() {
    let mut encoder = Encoder::new(&begin());
    encoder.put(&record(Operation::Read, 5_000, 1_000));
    encoder.put(&record(Operation::Read, 4_000, 1_000));
    let packet = encoder.finish(&Drained::default());
    let (text, ended) = read_all(&packet.bytes);
    assert_eq!(ended, Ok(()));
    let starts: Vec<_> = text.lines().skip(1).map(|line| &line[13..19]).collect();
    assert_eq!(starts, ["004500", "003500"]);
}

proptest::proptest! {
    /// Changed bytes are decoded or refused, and both ways of reading agree.
    #[test]
    fn damaged_packets_are_refused_or_decoded(
        changes in proptest::collection::vec((0_usize..4096, proptest::prelude::any::<u8>()), 1..8),
        length in 0_usize..4096,
    ) {
        let mut bytes: Vec<u8> = trace().into_iter().flat_map(|packet| packet.bytes).collect();
        let whole = bytes.len();
        for (at, value) in changes {
            bytes[at % whole] = value;
        }
        bytes.truncate(length.max(whole / 2));
        let (text, ended) = read_all(&bytes);
        let mut events = 0;
        let decoded = IoTraceDecoder::new(&FieldTable::new()).decode(&bytes, &mut |event| {
            event.each_field(&mut |_, _| {});
            events += 1;
            ControlFlow::Continue(())
        });
        proptest::prop_assert_eq!(decoded.map(|_| ()), ended);
        // Text of a damaged trace may contain line ends.
        proptest::prop_assert!(events <= text.lines().count());
    }
}
