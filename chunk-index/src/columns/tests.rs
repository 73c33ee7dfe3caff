use query_language::{BareUnit, FieldTable, Query, Value};

use super::{ColumnFilter, Columns, ColumnsOpened, ColumnsWriter, Matches};
use crate::{Chunk, ChunkBuilder, Identity, Index, IndexConfig, SidecarError};

/// Columns of two chunks, and the index that they belong to.
fn sample() -> (Vec<u8>, Index) {
    let config = IndexConfig::new(["pid", "fhash"]);
    let dimensions = config.dimensions().iter().map(|field| field.as_str());
    let mut writer = ColumnsWriter::new(Vec::new(), dimensions).unwrap();
    let mut table = FieldTable::new();
    let mut builder = ChunkBuilder::new(config.clone(), &mut table);
    builder.keep_columns();
    let mut index = Index::new(&config);
    let identity = Identity {
        length: 1_000,
        modified: Some(7),
        checksum: Some(9),
    };
    index.set_identity(identity);
    for number in 0..2_u64 {
        for event in 0..300_i64 {
            let names: [&[u8]; 3] = [b"read", b"write", b"step"];
            let name = Value::Str(names[event as usize % 3]);
            let ts = Value::Int(1_000_000 * event + 5_000);
            let dur = (event % 7 > 0).then_some(Value::Int(event % 11 * 1_000));
            let hash = format!("{:016x}", event / 10);
            let hash = (event % 4 > 0).then_some(Value::Str(hash.as_bytes()));
            // In the order of the table: name, cat, pid, fhash, ts, dur.
            let row = [Some(name), None, Some(Value::Uint(7)), hash, Some(ts), dur];
            builder.add(&row[..]);
        }
        let chunk = Chunk {
            raw_offset: 50_000 * number,
            raw_length: 50_000,
            ..Chunk::default()
        };
        let columns = builder.finish_columns().expect("columns were requested");
        writer.chunk(&chunk, columns).unwrap();
        index.push(chunk, builder.finish());
    }
    (writer.finish(&identity).unwrap(), index)
}

fn open(file: &[u8]) -> Columns {
    match Columns::open(file, file.len() as u64) {
        Ok(ColumnsOpened::Columns(columns)) => columns,
        other => panic!("{other:?}"),
    }
}

fn ask(file: &[u8], query: &str) -> Result<Matches, SidecarError> {
    let columns = open(file);
    let query = Query::parse(query).unwrap().bind(BareUnit::NANOS).unwrap();
    let filter = ColumnFilter::new(&query);
    let bytes =
        |range: std::ops::Range<u64>| file[range.start as usize..range.end as usize].to_vec();
    let wanted = filter.wanted(&columns, 1).into_iter();
    let loaded: Vec<_> = wanted.map(|block| (block, bytes(block.range()))).collect();
    filter.matches(&columns, 1, &loaded)
}

#[test]
fn golden_bytes_of_version_1_are_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v1/sample.cidx");
    let (file, index) = sample();
    if !std::path::Path::new(path).exists() {
        std::fs::write(path, &file).unwrap();
    }
    let golden = std::fs::read(path).unwrap();
    assert_eq!(open(&golden), open(&file));
    assert!(open(&golden).belong_to(&index));
    let events = (0..300_i64).filter(|event| event % 7 > 0 && event % 11 > 4);
    let slow = Ok(Matches::Exactly(events.count() as u64));
    assert_eq!(ask(&golden, "dur > 4us"), slow);
    assert_eq!(ask(&golden, "pid == 7 and dur > 4us"), slow);
    let hash = "fhash == '0000000000000003'";
    assert_eq!(ask(&golden, hash), Ok(Matches::Exactly(8)));
    assert_eq!(ask(&golden, "not exists(cat)"), Ok(Matches::Exactly(300)));
}

#[test]
fn fields_without_columns_may_match() {
    let (file, _) = sample();
    let (known, unknown) = ("name == 'read'", "ret == 1");
    for (query, matches) in [
        (format!("{known} and {unknown}"), Matches::AtMost(100)),
        (format!("{known} and not ({unknown})"), Matches::AtMost(100)),
        (format!("{known} or {unknown}"), Matches::AtMost(300)),
        (format!("not ({known} or {unknown})"), Matches::AtMost(200)),
        (format!("name == 'x' and {unknown}"), Matches::AtMost(0)),
        (format!("ts >= 0 or {unknown}"), Matches::Exactly(300)),
    ] {
        let found = ask(&file, &query).unwrap();
        // "At most none" is as good as "exactly none".
        let none = [found, matches] == [Matches::Exactly(0), Matches::AtMost(0)];
        assert!(found == matches || none, "{query}: {found:?}");
    }
}

#[test]
fn damaged_bytes_are_refused() {
    let (file, index) = sample();
    let length = file.len() as u64;
    for offset in (0..48).map(|back| file.len() - 1 - back) {
        let mut damaged = file.clone();
        damaged[offset] ^= 1;
        assert!(Columns::open(&damaged, length).is_err(), "byte {offset}");
    }
    assert!(Columns::open(&file, length + 1).is_err());
    assert!(matches!(
        Columns::open(&file[file.len() - 60..], length),
        Ok(ColumnsOpened::More(_))
    ));
    let mut other = index;
    other.set_identity(Identity::default());
    assert!(!open(&file).belong_to(&other));
    let sound = ask(&file, "ts < 1000000");
    assert!(sound.is_ok());
    let columns_end = file.len() - 48 - 400;
    let noticed = (24..columns_end).filter(|offset| {
        let mut damaged = file.clone();
        damaged[*offset] ^= 1;
        let found = ask(&damaged, "ts < 1000000");
        assert!(found.is_err() || found == sound, "byte {offset}");
        found.is_err()
    });
    assert!(noticed.count() > 0, "those of the column");
}
