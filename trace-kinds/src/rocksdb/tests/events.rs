//! Records as events.

use super::*;

/// The fields of every event: all, and those of the table.
fn events(kind: TraceKind, packet: &[u8], wanted: &[&str]) -> Vec<String> {
    let mut table = FieldTable::new();
    for path in wanted {
        table.insert(&FieldPath::new(path));
    }
    let mut shown = Vec::new();
    let mut decoder = RocksdbDecoder::new(kind, &table);
    let decoded = decoder.decode(packet, &mut |event| {
        let mut text = String::new();
        event.each_field(&mut |path, value| text.push_str(&format!("{path}={} ", print(value))));
        for (id, path) in table.iter() {
            let value = event.field(id).map(print);
            text.push_str(&format!("[{path}={}]", value.unwrap_or_default()));
        }
        shown.push(text);
        ControlFlow::Continue(())
    });
    assert_eq!(decoded.unwrap().events, shown.len() as u64);
    shown
}

fn print(value: Value<'_>) -> String {
    match value {
        Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Bool(value) => value.to_string(),
    }
}

#[test]
fn records_as_events() {
    let [io, blocks] = small_traces();
    let shown = events(TraceKind::Io, &io, &["cat", "offset", "no_such"]);
    assert_eq!(
        shown[1],
        "name=Read cat=sst ts=999999996 dur=5 args.end=1001 args.io_status=OK \
         args.file_name=1.sst args.file_size=1 args.len=2 args.offset=3 args.request_id=r \
         [cat=sst][args.offset=3][args.no_such=]"
    );
    let shown = events(
        TraceKind::BlockCache,
        &blocks,
        &["ts", "is_cache_hit", "block_key"],
    );
    assert_eq!(
        shown[3],
        "name=Data cat=Get ts=3000 args.block_key=30313233343536373839616263646566 \
         args.block_size=4096 args.cf_id=0 args.cf_name=default args.level=1 \
         args.sst_fd_number=9 args.is_cache_hit=true args.no_insert=false args.get_id=3 \
         args.get_from_user_specified_snapshot=true \
         args.referenced_key=757365726b65792d53455155454e4345 args.user_key=userkey- \
         args.referenced_data_size=100 args.num_keys_in_block=7 \
         args.referenced_key_exist_in_block=true \
         [ts=3000][args.is_cache_hit=true][args.block_key=30313233343536373839616263646566]"
    );
}

#[test]
fn offsets_of_errors_count_from_the_start_of_the_packet() {
    let [io, _] = small_traces();
    let packets = cut(&io, 1, 100);
    let mut torn = packets[2].bytes.clone();
    torn.pop();
    let mut decoder = RocksdbDecoder::new(TraceKind::Io, &FieldTable::new());
    let error = decoder
        .decode(&torn, &mut |_| ControlFlow::Continue(()))
        .unwrap_err();
    let offset = CONTINUATION_BYTES as u64;
    assert_eq!(
        error,
        DecodeError::Truncated {
            format: "rocksdb-io",
            offset
        }
    );
}

/// A damaged record costs itself: the records of a packet say where the next one begins. The first
/// one is the anchor of the times even if it is damaged.
#[test]
fn records_behind_a_damaged_one_are_read() {
    let [io, blocks] = small_traces();
    for (kind, trace) in [(TraceKind::Io, io), (TraceKind::BlockCache, blocks)] {
        let intact = events(kind, &trace, &["ts"]);
        let mut at = HEADER_BYTES;
        for number in 0..intact.len() {
            let mut damaged = trace.clone();
            damaged[at + 8] = 99;
            let mut shown = Vec::new();
            let mut table = FieldTable::new();
            let ts = table.insert(&FieldPath::new("ts"));
            let mut decoder = RocksdbDecoder::new(kind, &table);
            let decoded = decoder.decode(&damaged, &mut |event| {
                shown.push(event.field(ts).map(print).unwrap_or_default());
                ControlFlow::Continue(())
            });
            let decoded = decoded.unwrap();
            let read = (decoded.events, decoded.broken);
            assert_eq!(read, (intact.len() as u64 - 1, 1), "{kind:?} {number}");
            let mut expected = intact.clone();
            expected.remove(number);
            for (line, ts) in expected.iter().zip(&shown) {
                assert!(line.contains(&format!("[ts={ts}]")), "{line} at {ts}");
            }
            let length = trace[at + 9..at + ENVELOPE_BYTES].try_into().unwrap();
            at += ENVELOPE_BYTES + u32::from_le_bytes(length) as usize;
        }
    }
}
