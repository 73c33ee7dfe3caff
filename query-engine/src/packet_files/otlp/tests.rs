//! The same answers from every form and container, and with an index.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use query_language::Query;
use row_formats::{Columns, Ndjson};
use trace_kinds::otlp::to_protobuf;

use crate::{
    IndexOptions, Limits, Report, Request, Scratch, Update, index_files, open_paths, write_rows,
};

fn answers(path: &Path, query: &str, use_sidecars: bool) -> (String, Report) {
    let request = Request {
        query: (!query.is_empty()).then(|| Query::parse(query).unwrap()),
        ..Request::default()
    };
    let mut rows = Vec::new();
    let sources = open_paths(&[path.to_owned()], use_sidecars, &request, &[])
        .unwrap()
        .sources;
    let report = write_rows(
        &sources,
        &request,
        &Columns::All,
        &mut Ndjson::default(),
        Limits::default(),
        &mut |row: &[u8]| {
            rows.extend_from_slice(row);
            Ok(())
        },
    );
    (String::from_utf8(rows).unwrap(), report.unwrap())
}

/// Requests of one span each, about 1 MB.
fn requests() -> Vec<String> {
    let request = |number: u64| {
        format!(
            "{{\"resourceSpans\":[{{\"resource\":{{\"attributes\":[{{\"key\":\"service.name\",\
             \"value\":{{\"stringValue\":\"shop\"}}}}]}},\"scopeSpans\":[{{\"spans\":[{{\
             \"traceId\":\"{:032x}\",\"spanId\":\"{:016x}\",\"name\":\"step {}\",\"kind\":2,\
             \"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\",\"attributes\":[{{\"key\":\
             \"pad\",\"value\":{{\"stringValue\":\"{}\"}}}}]}}]}}]}}]}}",
            number + 1,
            number + 1,
            number % 7,
            number * 1_000,
            number * 1_000 + number % 50,
            "x".repeat(300)
        )
    };
    (0..2_000).map(request).collect()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    file.write_all(content).unwrap();
    file.finish().unwrap()
}

const QUERIES: [&str; 4] = [
    "",
    "name == 'step 3' and dur > 40ns",
    "ts >= 1970-01-01T00:00:00.001900Z",
    "ctx.service.name == 'shop' and cat != 'server'",
];

fn index(path: &Path) -> Vec<Update> {
    let options = IndexOptions {
        chunk_bytes: Some(64 << 10),
        ..IndexOptions::default()
    };
    let files = index_files(path, &mut Vec::new()).unwrap();
    let updates = files.iter();
    let updates = updates.map(|file| file.update(&options, &mut Scratch::default()).unwrap());
    updates.map(|indexed| indexed.update).collect()
}

#[test]
fn every_form_gives_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spans");
    let documents = requests();
    let messages = documents
        .iter()
        .map(|text| to_protobuf(text.as_bytes()).unwrap());
    let messages: Vec<Vec<u8>> = messages.collect();
    let lengths = messages.iter();
    let lengths = lengths.flat_map(|message| {
        let length = u32::try_from(message.len()).unwrap();
        [&length.to_be_bytes()[..], message].concat()
    });
    let forms = [
        documents.join("\n").into_bytes(),
        lengths.collect(),
        messages.concat(),
    ];
    fs::write(&path, &forms[0]).unwrap();
    let expected = QUERIES.map(|query| answers(&path, query, false).0);
    let counts = expected.each_ref().map(|rows| rows.lines().count());
    assert_eq!(counts, [2_000, 52, 100, 0]);
    for form in forms {
        for file in [gzip(&form), zstd::encode_all(&form[..], 1).unwrap()] {
            fs::write(&path, file).unwrap();
            let found = QUERIES.map(|query| answers(&path, query, false).0);
            assert_eq!(found, expected);
            let error = index_files(&path, &mut Vec::new())
                .err()
                .unwrap()
                .to_string();
            assert!(
                error.contains("file of OpenTelemetry spans has no index"),
                "{error}"
            );
        }
        fs::write(&path, form).unwrap();
        let found = QUERIES.map(|query| answers(&path, query, false).0);
        assert_eq!(found, expected);
        assert_eq!(index(&path), [Update::Built]);
        assert_eq!(index(&path), [Update::Fresh]);
        let indexed = QUERIES.map(|query| answers(&path, query, true));
        assert_eq!(indexed.each_ref().map(|(rows, _)| rows.clone()), expected);
        let (_, report) = &indexed[2];
        assert!(report.ruled_out.iter().sum::<usize>() > 0, "{report:?}");
    }
}

#[test]
fn damage_is_told_with_and_without_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spans");
    let mut documents = requests();
    documents.truncate(10);
    documents[3].truncate(50);
    documents[5] = documents[5].replace("traceId\":\"", "traceId\":\"x");
    documents[7] = "noise".to_owned();
    fs::write(&path, documents.join("\n")).unwrap();
    let (rows, plain) = answers(&path, "", false);
    assert_eq!(rows.lines().count(), 7);
    assert_eq!(plain.skipped.len(), 1);
    assert_eq!(plain.skipped[0].parts, 3);
    assert_eq!(plain.skipped[0].reasons.len(), 3, "{plain:?}");
    index(&path);
    let (indexed_rows, indexed) = answers(&path, "", true);
    assert_eq!(indexed_rows, rows);
    assert_eq!(indexed.skipped[0].parts, 3, "{indexed:?}");
    // What an index rules out is not read, but its damage is told.
    let (none, indexed) = answers(&path, "name == 'none'", true);
    assert_eq!((none.as_str(), indexed.skipped[0].parts), ("", 3));
}
