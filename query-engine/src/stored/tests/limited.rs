//! The first rows in order of time are found without reading what comes later.

use query_language::FieldTable;
use row_formats::{RowFormat, RowSink, SinkOptions};
use trace_kinds::Event;

use super::*;

const PACKETS: u64 = 128;
const EVENTS: u64 = 10;

/// Streams whose packets cover the same times, and are in chunks of at least `chunk_bytes`.
fn streams(batch: u64, chunk_bytes: u64) -> (Vec<StoredLeaf>, Vec<Arc<Memory>>) {
    let stream = |number: u64| {
        let packet = |packet: u64| {
            let lines = (0..EVENTS).map(|event| {
                let ts = packet * 100 + event * 4 + number;
                format!("{{\"name\":\"read\",\"ph\":\"X\",\"pid\":1,\"ts\":{ts},\"dur\":1}}\n")
            });
            lines.collect::<String>().into_bytes()
        };
        let packets: Vec<Vec<u8>> = (0..PACKETS).map(packet).collect();
        let (leaf, bytes, _) = leaf_of(number, &packets, Codec::None);
        let data = Arc::new(Memory {
            bytes,
            batch,
            ..Memory::default()
        });
        let index = index(stored(&leaf, &data, None), chunk_bytes);
        data.moved.store(0, Ordering::Relaxed);
        (stored(&leaf, &data, Some(index)), data)
    };
    (0..4).map(stream).unzip()
}

/// The rows, and the bytes that were read for them.
fn first_rows(order: &ResultOrder, batch: u64) -> (Vec<String>, u64) {
    let (leaves, data) = streams(batch, 1);
    let request = Request {
        order: order.clone(),
        ..Request::default()
    };
    let columns = Columns::Fields(vec!["ts".to_owned()]);
    let set = StorageSet::open(leaves, None).unwrap();
    let sources = set.sources(&request, &columns.fields()).unwrap();
    let mut rows = Vec::new();
    let mut out = |row: &[u8]| {
        rows.extend_from_slice(row);
        Ok(())
    };
    let limits = Limits {
        threads: 1,
        ..Limits::default()
    };
    let mut format = Ndjson::default();
    write_rows(&sources, &request, &columns, &mut format, limits, &mut out).unwrap();
    let text = String::from_utf8(rows).unwrap();
    let moved = data.iter().map(|data| data.moved.load(Ordering::Relaxed));
    (text.lines().map(str::to_owned).collect(), moved.sum())
}

#[test]
fn a_report_says_how_often_rows_were_spilled() {
    let (leaves, _) = streams(1 << 20, 1);
    for keys in ["", "name"] {
        let order = ResultOrder {
            keys: OrderKey::parse_list(keys).unwrap_or_default(),
            ..ResultOrder::default()
        };
        let request = Request {
            order,
            ..Request::default()
        };
        // Each run of rows that a task or a thread delivers is spilled, or none.
        for (waiting_bytes_max, is_spilled) in [(0, true), (1 << 20, false)] {
            let set = StorageSet::open(leaves.clone(), None).unwrap();
            let sources = set.sources(&request, &request.order.fields()).unwrap();
            let limits = Limits {
                threads: 1,
                waiting_bytes_max,
                ..Limits::default()
            };
            let columns = Columns::All;
            let mut format = Ndjson::default();
            let mut out = |_: &[u8]| Ok(());
            let report = write_rows(&sources, &request, &columns, &mut format, limits, &mut out);
            let report = report.unwrap();
            assert_eq!(report.rows, 4 * PACKETS * EVENTS);
            assert_eq!(report.spills > 0, is_spilled, "{keys} {report:?}");
            let said = format!("\"spills\":{},", report.spills);
            assert!(report.json().contains(&said), "{}", report.json());
        }
    }
}

#[test]
fn few_rows_cost_few_chunks_however_many_are_read_together() {
    let of = |limit: Option<u64>, offset: u64, keys: &str| ResultOrder {
        keys: OrderKey::parse_list(keys).unwrap_or_default(),
        limit,
        offset,
    };
    let (all, whole) = first_rows(&of(None, 0, ""), 1 << 20);
    assert_eq!(all.len() as u64, 4 * PACKETS * EVENTS);
    for (limit, offset, keys, share) in [
        (5, 0, "", 4),
        (5, 30, "", 4),
        // All of them have to be seen.
        (5, 0, "ts", 1),
        // So many are read as others are.
        (100_000, 0, "", 1),
    ] {
        for batch in [1, 1 << 20] {
            let (rows, moved) = first_rows(&of(Some(limit), offset, keys), batch);
            let end = usize::try_from(offset + limit).unwrap().min(all.len());
            assert_eq!(rows, all[usize::try_from(offset).unwrap()..end]);
            assert!(
                moved * share <= whole,
                "{moved} of {whole} bytes for {limit}"
            );
            assert!(
                share > 1 || moved == whole,
                "{moved} of {whole} bytes for {limit}"
            );
        }
    }
}

/// Rows that are counted when they are made.
#[derive(Default)]
struct Counted {
    format: Ndjson,
    made: AtomicU64,
}

impl RowFormat for Counted {
    fn prepare(&mut self, columns: &Columns, table: &mut FieldTable) {
        self.format.prepare(columns, table);
    }

    fn row(&self, event: &dyn Event, out: &mut Vec<u8>) {
        self.made.fetch_add(1, Ordering::Relaxed);
        self.format.row(event, out);
    }

    fn sink(&self, options: SinkOptions) -> Box<dyn RowSink + '_> {
        self.format.sink(options)
    }
}

#[test]
fn rows_that_cannot_be_among_the_first_are_not_made() {
    // A chunk of each stream has all of its events.
    let (leaves, _) = streams(1 << 20, 1 << 20);
    let ask = |limit: Option<u64>, offset: u64| {
        let request = Request {
            order: ResultOrder {
                limit,
                offset,
                ..ResultOrder::default()
            },
            ..Request::default()
        };
        let set = StorageSet::open(leaves.clone(), None).unwrap();
        let sources = set.sources(&request, &[]).unwrap();
        let limits = Limits {
            threads: 2,
            ..Limits::default()
        };
        let (mut format, mut rows) = (Counted::default(), Vec::new());
        let mut out = |row: &[u8]| {
            rows.extend_from_slice(row);
            Ok(())
        };
        let columns = Columns::All;
        let report = write_rows(&sources, &request, &columns, &mut format, limits, &mut out);
        let text = String::from_utf8(rows).unwrap();
        let rows: Vec<String> = text.lines().map(str::to_owned).collect();
        report.unwrap();
        (rows, format.made.into_inner())
    };
    let (all, made) = ask(None, 0);
    assert_eq!(made, 4 * PACKETS * EVENTS);
    for (limit, offset) in [(5, 0), (5, 30), (5, 3 * PACKETS * EVENTS), (1, 0), (0, 0)] {
        let (rows, made) = ask(Some(limit), offset);
        let number = |number: u64| usize::try_from(number).unwrap();
        assert_eq!(rows, all[number(offset)..number(offset + limit)]);
        assert!(
            made <= 4 * (limit + offset),
            "{made} for {limit} at {offset}"
        );
    }
}
