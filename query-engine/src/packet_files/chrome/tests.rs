//! The same answers from every container and with an index.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use query_language::{FieldPath, Query};
use row_formats::{Columns, Ndjson};

use crate::{
    GroupSpec, IndexOptions, Limits, Report, Request, Scratch, Update, group_by, index_files,
    open_paths, write_rows,
};

/// Rows and groups as text.
fn answers(path: &PathBuf, query: &str, use_sidecars: bool) -> (String, Report) {
    let request = Request {
        query: (!query.is_empty()).then(|| Query::parse(query).unwrap()),
        ..Request::default()
    };
    let limits = Limits::default();
    let mut rows = Vec::new();
    let paths = std::slice::from_ref(path);
    let sources = open_paths(paths, use_sidecars, &request, &[])
        .unwrap()
        .sources;
    let report = write_rows(
        &sources,
        &request,
        &Columns::All,
        &mut Ndjson::default(),
        limits,
        &mut |row: &[u8]| {
            rows.extend_from_slice(row);
            Ok(())
        },
    );
    let mut text = String::from_utf8(rows).unwrap().replace(".gz", "");
    text = text.replace(".zst", "");
    for field in ["ph", "args.step"] {
        let spec = GroupSpec::by(field);
        let field = FieldPath::new(field);
        let wanted = std::slice::from_ref(&field);
        let sources = open_paths(paths, use_sidecars, &request, wanted)
            .unwrap()
            .sources;
        let (groups, _) = group_by(&sources, &request, &spec, limits).unwrap();
        writeln!(text, "{groups:?}").unwrap();
    }
    (text, report.unwrap())
}

/// A trace of about 1.9 MB, so of two packets; its begins end at once, except the first.
fn trace() -> String {
    let mut text = "{\"traceEvents\":[".to_owned();
    let mut put = |event: String| writeln!(text, "{event},").unwrap();
    put("{\"ph\":\"B\",\"name\":\"main\",\"ts\":0,\"pid\":1,\"tid\":1}".to_owned());
    for step in 0..6_000 {
        let ts = step * 10;
        let phase = ["X", "i", "C"][step % 3];
        put(format!(
            "{{\"ph\":\"{phase}\",\"name\":\"step\",\"ts\":{ts}.5,\"dur\":{}.25,\"pid\":1,\"tid\":\
             2,\"args\":{{\"step\":{step},\"pad\":\"{}\"}}}}",
            step % 50,
            "x".repeat(200)
        ));
        if step % 10 == 0 {
            put(format!(
                "{{\"ph\":\"B\",\"name\":\"inner\",\"ts\":{ts},\"pid\":1,\"tid\":1}},{{\"ph\":\
                 \"E\",\"ts\":{}.125,\"pid\":1,\"tid\":1}}",
                ts + 3
            ));
        }
    }
    let end = "{\"ph\":\"E\",\"name\":\"main\",\"ts\":999999,\"pid\":1,\"tid\":1}],\"a\":{}}";
    text + end
}

fn index(path: &std::path::Path) -> Vec<Update> {
    let files = index_files(path, &mut Vec::new()).unwrap();
    let mut scratch = Scratch::default();
    files
        .iter()
        .map(|file| file.update(&IndexOptions::default(), &mut scratch))
        .map(|indexed| indexed.unwrap().update)
        .collect()
}

#[test]
fn every_container_and_an_index_give_the_same_answers() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let trace = trace();
    fs::write(at("trace.json"), &trace).unwrap();
    let file = fs::File::create(at("trace.json.gz")).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    gzip.write_all(trace.as_bytes()).unwrap();
    gzip.finish().unwrap();
    fs::write(
        at("trace.json.zst"),
        zstd::encode_all(trace.as_bytes(), 1).unwrap(),
    )
    .unwrap();
    // A compressed trace in a folder is left without an index.
    assert_eq!(index(folder.path()), [Update::Built]);
    assert_eq!(index(folder.path()), [Update::Fresh]);
    let error = index_files(&at("trace.json.gz"), &mut Vec::new())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("a compressed Chrome trace has no index"),
        "{error}"
    );
    // Queries, and how many events match.
    let queries = [
        ("", 7_202),
        ("ph == 'X' and dur > 49us", 40),
        ("name == 'inner' and dur == 3125ns", 600),
        // Its end is in another packet.
        ("name == 'main' and dur == 999999us", 1),
        ("step == 5777", 1),
        ("ts > 59990 or ph == 'C' and step < 100", 33 + 2),
    ];
    for (query, count) in queries {
        let (expected, report) = answers(&at("trace.json"), query, false);
        assert_eq!(report.matched, count, "{query}");
        assert!(report.is_complete(), "{query} {report:?}");
        for (name, use_sidecars) in [
            ("trace.json", true),
            ("trace.json.gz", true),
            ("trace.json.zst", false),
        ] {
            let (found, report) = answers(&at(name), query, use_sidecars);
            assert!(found == expected, "{name} {query}: {report:?}");
        }
    }
    let (_, report) = answers(&at("trace.json"), "ts < 1 and ph == 'B'", true);
    assert_eq!(
        (report.indexed, report.chunks, report.read),
        (1, 2, 1),
        "{report:?}"
    );
    assert!(report.notes.is_empty(), "{:?}", report.notes);
}

#[test]
fn a_begin_without_an_end_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let trace = trace().replace(
        "\"ph\":\"E\",\"name\":\"main\"",
        "\"ph\":\"E\",\"name\":\"other\"",
    );
    fs::write(&path, trace).unwrap();
    index(&path);
    for use_sidecars in [false, true] {
        let (_, report) = answers(&path, "ts < 1 and ph == 'B'", use_sidecars);
        let note = "1 begin events have no duration: their end is missing";
        assert_eq!(report.notes, [note], "{use_sidecars}");
        // Summaries answer for the chunks, and nothing is read.
        let (_, report) = groups(&path, use_sidecars);
        assert_eq!(
            report.summarized > 0 && report.read == 0,
            use_sidecars,
            "{report:?}"
        );
        assert_eq!(report.notes, [note], "{use_sidecars}");
    }
}

/// Groups by name, with sums of durations.
fn groups(path: &PathBuf, use_sidecars: bool) -> (String, Report) {
    let (request, limits) = (Request::default(), Limits::default());
    let paths = std::slice::from_ref(path);
    let sources = open_paths(paths, use_sidecars, &request, &[])
        .unwrap()
        .sources;
    let (groups, report) = group_by(&sources, &request, &GroupSpec::by("name"), limits).unwrap();
    (format!("{groups:?}"), report)
}

#[test]
fn ends_that_are_not_remembered_are_not_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let missing = "\"ph\":\"E\",\"name\":\"other\"";
    fs::write(
        &path,
        trace().replace("\"ph\":\"E\",\"name\":\"main\"", missing),
    )
    .unwrap();
    index(&path);
    let sidecar = crate::sidecar_path(&path);
    let mut cut = chunk_index::Sidecar::read(&fs::read(&sidecar).unwrap()).unwrap();
    let marks = cut.attachment(chunk_index::ChromeUnpaired::NAME).unwrap();
    let mut marks = chunk_index::ChromeUnpaired::decode(marks).unwrap();
    marks.is_cut = true;
    cut.attach(chunk_index::ChromeUnpaired::NAME, marks.encode());
    fs::write(&sidecar, cut.encode().unwrap()).unwrap();
    let (_, read) = answers(&path, "ts < 1 and ph == 'B'", true);
    let (_, summarized) = groups(&path, true);
    assert!(summarized.summarized > 0, "{summarized:?}");
    for notes in [read.notes, summarized.notes] {
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("than are remembered"), "{notes:?}");
    }
}

/// Texts of begins that are more than are remembered, behind slices that are all paired.
#[test]
fn begins_behind_what_is_remembered_are_told_with_and_without_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let mark = |phase: &str, ts: usize, name: &str| {
        format!("{{\"ph\":\"{phase}\",\"ts\":{ts},\"name\":\"{name}\",\"pid\":1,\"tid\":1}}")
    };
    let long = "x".repeat(17 << 20);
    let names = [format!("{long}1"), format!("{long}2")];
    let [first, second] = names.each_ref();
    let marks = [
        mark("B", 0, first),
        mark("E", 5, ""),
        mark("B", 10, second),
        mark("E", 15, ""),
    ];
    fs::write(&path, format!("[{}]", marks.join(",\n"))).unwrap();
    index(&path);
    for use_sidecars in [false, true] {
        let (_, report) = groups(&path, use_sidecars);
        assert_eq!(report.indexed, usize::from(use_sidecars));
        assert_eq!(report.notes.len(), 1, "{use_sidecars} {:?}", report.notes);
        assert!(report.notes[0].contains("than are remembered"));
    }
}

#[test]
fn an_index_without_slices_between_packets_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    fs::write(&path, trace()).unwrap();
    assert_eq!(index(&path), [Update::Built]);
    let sidecar = crate::sidecar_path(&path);
    let mut old = chunk_index::Sidecar::read(&fs::read(&sidecar).unwrap()).unwrap();
    old.attach(chunk_index::ChromeUnpaired::NAME, vec![0]);
    fs::write(&sidecar, old.encode().unwrap()).unwrap();
    let query = "name == 'main' and dur == 999999us";
    let (_, report) = answers(&path, query, true);
    assert_eq!((report.matched, report.indexed), (1, 0), "{report:?}");
    assert_eq!(index(&path), [Update::Built]);
    let (_, report) = answers(&path, query, true);
    assert_eq!((report.matched, report.indexed), (1, 1), "{report:?}");
}

#[test]
fn damage_is_reported_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let event = "{\"ph\":\"X\",\"ts\":1}";
    let cases = [
        (
            format!("{{\"traceEvents\":[{event},{event}"),
            2,
            Some("ends at byte 51"),
        ),
        (
            format!("{{\"traceEvents\":[{event}]}} x"),
            1,
            Some("byte 36"),
        ),
        (
            format!("[{event},{event},{{\"ph\":"),
            2,
            Some("inside the record at byte 37"),
        ),
        (format!("[{event},{{}},{event},\n"), 2, None),
        (
            format!("[{event},{{\"ph\":\"X\"}},{event}]"),
            2,
            Some("1 record cannot be read"),
        ),
    ];
    for (trace, events, reason) in cases {
        fs::write(&path, &trace).unwrap();
        let (_, report) = answers(&path, "", false);
        assert_eq!(report.matched, events, "{trace}");
        assert_eq!(report.is_complete(), reason.is_none(), "{trace} {report:?}");
        let reasons: Vec<_> = report.skipped_reasons().collect();
        let reason = reason.unwrap_or_default();
        assert_eq!(reasons.is_empty(), reason.is_empty(), "{trace} {reasons:?}");
        assert!(
            reasons.iter().all(|found| found.contains(reason)),
            "{reasons:?}"
        );
        index(&path);
        let (_, indexed) = answers(&path, "", true);
        assert_eq!((indexed.indexed, indexed.matched), (1, events), "{trace}");
        assert_eq!(
            indexed.is_complete(),
            report.is_complete(),
            "{trace} {indexed:?}"
        );
    }
}

#[test]
fn events_before_one_that_is_too_long_are_read_with_and_without_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let mut trace = String::from("[");
    // A slice that ends in what is read before the event that is too long.
    trace.push_str("{\"ph\":\"B\",\"name\":\"main\",\"ts\":0,\"pid\":1,\"tid\":1},");
    for ts in 0..15_000 {
        write!(
            trace,
            "{{\"ph\":\"i\",\"ts\":{ts},\"args\":{{\"pad\":\"{:0>60}\"}}}},",
            ts
        )
        .unwrap();
    }
    trace.push_str("{\"ph\":\"E\",\"name\":\"main\",\"ts\":20000,\"pid\":1,\"tid\":1},");
    let start = trace.len() - 1;
    trace.push_str("{\"ph\":\"i\",\"ts\":1,\"args\":{\"long\":\"");
    trace.push_str(&"x".repeat(33 << 20));
    trace.push_str("\"}},{\"ph\":\"i\",\"ts\":2}]");
    fs::write(&path, trace).unwrap();
    index(&path);
    let found = [false, true].map(|use_sidecars| {
        let (rows, report) = answers(&path, "", use_sidecars);
        assert_eq!(report.indexed, usize::from(use_sidecars), "{report:?}");
        let reasons: Vec<String> = report.skipped_reasons().map(str::to_owned).collect();
        let parts: Vec<u64> = report.skipped.iter().map(|skipped| skipped.parts).collect();
        let reason = format!("what starts at byte {start} is longer than");
        assert!(reasons[0].contains(&reason), "{start} {reasons:?}");
        assert!(rows.contains("\"dur\":20000000"), "{reasons:?}");
        assert_eq!(report.matched, 15_002, "{reasons:?}");
        (rows, report.notes, parts, reasons)
    });
    assert!(found[0] == found[1], "{:?}", found.map(|found| found.3));
}
