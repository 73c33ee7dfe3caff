//! Formats of releases of RocksDB of which the corpus has no file.

use super::*;

#[test]
fn io_records_of_the_first_releases() {
    let n = |value: u64| value.to_le_bytes();
    let (op, ok, name) = (prefixed("Read"), prefixed("OK"), prefixed("1.sst"));
    let cases: [(u8, Vec<u8>, &str); 5] = [
        (12, payload(&[&op, &n(5), &ok]), ""),
        (13, payload(&[&op, &n(5), &ok, &name]), ""),
        (
            14,
            payload(&[&op, &n(5), &ok, &n(9), &name]),
            ", File Size: 9",
        ),
        (15, payload(&[&op, &n(5), &ok, &n(77)]), ", Length: 77"),
        (
            16,
            payload(&[&op, &n(5), &ok, &n(4096), &n(77)]),
            ", Length: 77, Offset: 4096",
        ),
    ];
    for (record_type, payload, suffix) in cases {
        let mut file = Vec::new();
        header(6, 12).put(&mut file);
        put_envelope(&mut file, 100, record_type, &payload);
        assert_eq!(header(6, 12).kind(record_type), Some(TraceKind::Io));
        let (text, end) = io_text(&file);
        assert_eq!(end, None);
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().last().unwrap();
        assert!(
            line.ends_with(&format!("IO Status: OK{suffix}")),
            "{record_type}: {line}"
        );
    }
}

#[test]
fn io_records_lack_trace_data_in_old_releases_only() {
    let n = |value: u64| value.to_le_bytes();
    let short = payload(&[
        &n(2),
        &prefixed("Append"),
        &n(5),
        &prefixed("OK"),
        &prefixed("1.log"),
        &n(8),
    ]);
    for (minor, expected) in [
        (18, None),
        (19, None),
        (
            20,
            Some(RocksdbError::MissingField {
                offset: 38,
                field: "trace_data",
            }),
        ),
    ] {
        let mut file = Vec::new();
        header(6, minor).put(&mut file);
        put_envelope(&mut file, 100, 12, &short);
        assert_eq!(io_text(&file).1, expected, "6.{minor}");
    }
    let mut file = Vec::new();
    header(11, 9).put(&mut file);
    put_envelope(
        &mut file,
        100,
        12,
        &payload(&[&short, &n(1), &prefixed("req-7")]),
    );
    let (text, end) = io_text(&file);
    assert_eq!(end, None);
    assert!(
        String::from_utf8(text)
            .unwrap()
            .ends_with("Length: 8, Request Id: req-7\n")
    );
}

#[test]
fn block_records_of_the_first_releases() {
    let n = |value: u64| value.to_le_bytes();
    let start = payload(&[
        &prefixed("key"),
        &n(4096),
        &n(3),
        &prefixed("cf"),
        &[2, 0, 0, 0],
        &n(12),
    ]);
    let data = payload(&[
        &start,
        &[1, 1, 0],
        &prefixed("abcdefghXXXXXXXX"),
        &n(20),
        &n(8),
        &[1],
    ]);
    let index = payload(&[&start, &[1, 0, 1]]);
    let mut file = Vec::new();
    header(6, 3).put(&mut file);
    put_envelope(&mut file, 5, 9, &data);
    put_envelope(&mut file, 6, 7, &index);
    let (csv, end) = block_csv(&file);
    assert_eq!(end, None);
    assert_eq!(
        String::from_utf8(csv).unwrap(),
        "5,1,9,4096,3,cf,2,12,1,0,0,0,20,1,1,8,1684234850,0,3,16,121\n\
         6,2,7,4096,3,cf,2,12,1,1,0,0,0,0,0,0,0,0,3,0,121\n"
    );
    let mut newer = Vec::new();
    header(6, 4).put(&mut newer);
    put_envelope(&mut newer, 6, 7, &index);
    assert_eq!(
        block_csv(&newer).1,
        Some(RocksdbError::MissingField {
            offset: 38,
            field: "get_id"
        })
    );
}

#[test]
fn a_length_above_the_limit_is_damage() {
    let mut file = Vec::new();
    header(7, 8).put(&mut file);
    file.extend([0; 8]);
    file.push(12);
    file.extend(u32::MAX.to_le_bytes());
    let expected = RocksdbError::TooLong {
        offset: 38,
        length: u32::MAX,
        limit: PAYLOAD_BYTES_MAX,
    };
    assert_eq!(io_text(&file).1, Some(expected.clone()));
    assert_eq!(Cutter::new(100).push(&file), Err(expected));
}
