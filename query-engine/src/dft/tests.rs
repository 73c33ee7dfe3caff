//! The same answers with and without an index, plain and compressed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use query_language::{FieldPath, FieldTable, Program, Query};
use row_formats::{Columns, Csv, Ndjson, RowFormat, Text};
use trace_kinds::Decoder;
use trace_kinds::dft::{DftDecoder, Names};

use super::DftSet;
use crate::indexing::{self, BuildOptions, Built, Indexed, Update, write_sidecar};
use crate::sidecar_file::sidecar_path;
use crate::{GroupSpec, Limits, ReadError, Report, Request, Scratch, count, group_by, write_rows};

mod columns;
mod corpus;
mod damage;
mod growth;
mod hashes;
mod summaries;
mod updates;

fn build(path: &Path, options: &BuildOptions) -> Result<Built, ReadError> {
    indexing::build(path, options, &mut Scratch::default())
}

fn update_sidecar(path: &Path, options: &BuildOptions, anew: bool) -> Result<Indexed, ReadError> {
    indexing::update_sidecar(path, options, anew, &mut Scratch::default())
}

/// Small enough that every file has many chunks and entries.
fn options(chunk_bytes: u64) -> BuildOptions {
    BuildOptions {
        chunk_bytes,
        spacing_bytes: chunk_bytes * 2,
        ..BuildOptions::default()
    }
}

fn request(query: &str) -> Request {
    let query = (!query.is_empty()).then(|| Query::parse(query).unwrap());
    Request {
        query,
        ..Request::default()
    }
}

fn ask_count(paths: &[PathBuf], request: &Request, indexed: bool) -> (u64, Report) {
    let sources = DftSet::sources(paths, indexed, request, &[]).unwrap();
    count(&sources, request, Limits::default()).unwrap()
}

fn ask_rows(paths: &[PathBuf], request: &Request, columns: &Columns, indexed: bool) -> String {
    let sources = DftSet::sources(paths, indexed, request, &columns.fields()).unwrap();
    let mut rows = Vec::new();
    let mut out = |row: &[u8]| {
        rows.extend_from_slice(row);
        Ok(())
    };
    let limits = Limits {
        threads: 3,
        waiting_bytes_max: 100_000,
        ..Limits::default()
    };
    write_rows(
        &sources,
        request,
        columns,
        &mut Ndjson::default(),
        limits,
        &mut out,
    )
    .unwrap();
    String::from_utf8(rows).unwrap()
}

fn ask_groups(paths: &[PathBuf], request: &Request, field: &str, indexed: bool) -> String {
    let sources = DftSet::sources(paths, indexed, request, &[FieldPath::new(field)]).unwrap();
    let aggregates = "count, sum:dur, min:dur, max:dur, min:ts, max:ts, p90:dur";
    let spec = GroupSpec {
        aggregates: query_language::Aggregate::parse_list(aggregates).unwrap(),
        ..GroupSpec::by(field)
    };
    let (rows, _) = group_by(&sources, request, &spec, Limits::default()).unwrap();
    let mut text = String::new();
    for row in rows {
        writeln!(text, "{row:?}").unwrap();
    }
    text
}

/// Counts by decoding complete texts and evaluating the query for every event, without the engine.
fn scan_count(texts: &[Vec<u8>], query: &str) -> Option<u64> {
    let names = |text: &[u8]| {
        struct Declared(trace_kinds::dft::HashNames);
        impl trace_kinds::dft::DftVisitor for Declared {
            fn event<E: trace_kinds::Event>(
                &mut self,
                _: &E,
                _: std::ops::Range<usize>,
            ) -> ControlFlow<()> {
                ControlFlow::Continue(())
            }
            fn metadata(&mut self, metadata: trace_kinds::dft::Metadata) {
                metadata.apply(&mut self.0, &mut Default::default());
            }
        }
        let mut declared = Declared(Default::default());
        DftDecoder::new(&FieldTable::new(), Names::default(), Default::default())
            .walk(text, &mut declared);
        declared.0
    };
    if query.contains("hash ") {
        // The engine rewrites comparisons of hashes with text.
        return None;
    }
    let own: Vec<_> = texts.iter().map(|text| Arc::new(names(text))).collect();
    let mut set = trace_kinds::dft::HashNames::default();
    own.iter().for_each(|own| set.merge(own));
    let set = Arc::new(set);
    let mut matches = 0;
    for (text, own) in texts.iter().zip(own) {
        let mut table = FieldTable::new();
        let filter = Query::parse(query)
            .unwrap()
            .bind(query_language::BareUnit::MICROS)
            .unwrap();
        let program = Program::compile(&filter, &mut table);
        let names = Names {
            own,
            set: Arc::clone(&set),
        };
        DftDecoder::new(&table, names, Default::default())
            .decode(text, &mut |event| {
                matches += u64::from(program.matches(event));
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    Some(matches)
}

/// The same texts as files: plain, one member, many members that end inside lines; each with a
/// sidecar, and some with columns as well.
struct Forms {
    _folder: tempfile::TempDir,
    forms: Vec<(&'static str, Vec<PathBuf>)>,
    texts: Vec<Vec<u8>>,
}

fn gzip(text: &[u8], member_bytes: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for part in text.chunks(member_bytes.max(1)) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(part).unwrap();
        file.extend(encoder.finish().unwrap());
    }
    file
}

fn forms(texts: Vec<Vec<u8>>, chunk_bytes: u64) -> Forms {
    let folder = tempfile::tempdir().unwrap();
    let mut forms = Vec::new();
    for (form, member_bytes, columns) in [
        ("plain", 0, false),
        ("one", usize::MAX, false),
        ("many", 12_345, false),
        ("plain, columns", 0, true),
        ("many, columns", 12_345, true),
    ] {
        let mut paths = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            let path = folder.path().join(format!("{form}-{number}.pfw"));
            let bytes = if member_bytes == 0 {
                text.clone()
            } else {
                gzip(text, member_bytes)
            };
            std::fs::write(&path, bytes).unwrap();
            let options = BuildOptions {
                columns,
                ..options(chunk_bytes)
            };
            let built = update_sidecar(&path, &options, true).unwrap();
            assert_eq!((built.text_bytes, built.fault), (text.len() as u64, None));
            let has_columns = columns && !text.is_empty();
            assert_eq!(built.columns_bytes.is_some(), has_columns);
            paths.push(path);
        }
        forms.push((form, paths));
    }
    Forms {
        _folder: folder,
        forms,
        texts,
    }
}

impl Forms {
    /// The number of events that match, the same in every form and on every path.
    #[track_caller]
    fn check(&self, query: &str) -> u64 {
        let request = request(query);
        let (expected, _) = ask_count(&self.forms[0].1, &request, false);
        if let Some(scanned) = scan_count(&self.texts, query) {
            assert_eq!(scanned, expected, "{query}: scan and engine");
        }
        for (form, paths) in &self.forms {
            for indexed in [false, true] {
                let (counted, report) = ask_count(paths, &request, indexed);
                assert_eq!(counted, expected, "{query}: {form} indexed {indexed}");
                // Files without content have no index.
                let with_index = self.texts.iter().filter(|text| !text.is_empty()).count();
                assert_eq!(report.indexed, if indexed { with_index } else { 0 });
            }
        }
        expected
    }

    /// As `check`, of rows as well.
    #[track_caller]
    fn check_rows(&self, query: &str, columns: &Columns) -> String {
        let request = request(query);
        let expected = ask_rows(&self.forms[0].1, &request, columns, false);
        assert_eq!(
            expected.lines().count() as u64,
            self.check(query),
            "{query}"
        );
        for (form, paths) in &self.forms {
            for indexed in [false, true] {
                let rows = ask_rows(paths, &request, columns, indexed);
                assert!(
                    rows == expected,
                    "{query}: rows of {form} indexed {indexed}"
                );
            }
        }
        expected
    }

    #[track_caller]
    fn check_groups(&self, query: &str, field: &str) -> String {
        let request = request(query);
        let expected = ask_groups(&self.forms[0].1, &request, field, false);
        for (form, paths) in &self.forms {
            for indexed in [false, true] {
                let groups = ask_groups(paths, &request, field, indexed);
                assert_eq!(
                    groups, expected,
                    "{query}: groups of {form} indexed {indexed}"
                );
            }
        }
        expected
    }
}

/// A trace of the first dialect with hashes, as numbers beyond 2^63.
fn version_1(process: u64, events: u64) -> Vec<u8> {
    let mut text = String::from("[\n");
    let hash = |file: u64| u64::MAX - file;
    for id in 0..events {
        let file = id / 50 % 20 + process;
        if id % 50 == 0 && id < 1000 {
            writeln!(
                text,
                "{{\"id\":{id},\"name\":\"FH\",\"cat\":\"dftracer\",\"pid\":{process},\"tid\":1,\
                 \"ph\":\"M\",\"args\":{{\"hhash\":77,\"name\":\"/p/file-{file}\",\"value\":{}}}}}",
                hash(file)
            )
            .unwrap();
        }
        let (name, cat) = [("read", "POSIX"), ("write", "POSIX"), ("step", "app")]
            [usize::try_from(id).unwrap() % 3];
        let dur = if id % 997 == 13 { 6_000_000 } else { id % 90 };
        writeln!(
            text,
            "{{\"id\":{id},\"name\":\"{name}\",\"cat\":\"{cat}\",\"pid\":{process},\"tid\":{},\
             \"ts\":{},\"dur\":{dur},\"ph\":\"X\",\"args\":{{\"hhash\":77,\"ret\":{},\"epoch\":{},\
             \"fhash\":{}}}}}",
            id % 4,
            1_700_000_000_000_000 + id * 1000 + process,
            id % 7,
            id / 600,
            hash(file)
        )
        .unwrap();
        if id == events / 2 {
            text.push_str("{\"id\":1,\"name\":\"cut\",\"args\":{\"fname\":\"/eag\n");
        }
    }
    text.push(']');
    text.into_bytes()
}

const QUERIES: &[&str] = &[
    "name == 'read'",
    "not (name == 'read')",
    "not (cat == 'POSIX')",
    "dur > 5000000",
    "dur > 5s",
    "not (dur > 80)",
    "pid == 1.0",
    "epoch == 3",
    "args.epoch == 3",
    "epoch in [1, 3] and name != 'write'",
    "fhash == 18446744073709551610",
    "not (fhash == 18446744073709551610)",
    "fname == '/p/file-5'",
    "not (fname == '/p/file-5')",
    "fname != '/p/file-5'",
    "fname contains 'file-1'",
    "fname ~ 'file-(3|7)$'",
    "exists(fname)",
    "nosuch == 1",
    "not (nosuch == 1)",
    "nosuch != 1",
    "level not in [1]",
    "tid == 3 and ret >= 5",
    "ts < 1700000001000000",
    "name == 'step' or dur >= 89",
];

#[test]
fn indexed_and_full_reads_give_the_same_result() {
    let forms = forms(
        vec![version_1(1, 5_000), version_1(2, 3_000), Vec::new()],
        60_000,
    );
    for query in QUERIES {
        forms.check(query);
    }
    assert_eq!(forms.check("dur > 5000000"), 9);
    assert_eq!(forms.check("nosuch != 1"), 0);
    assert_eq!(forms.check("not (nosuch == 1)"), 8_000);
    assert!(forms.check("fname == '/p/file-5'") > 0);
}

#[test]
fn rows_are_ordered_by_time_and_identical() {
    let forms = forms(vec![version_1(1, 3_000), version_1(2, 2_000)], 50_000);
    let rows = forms.check_rows("name == 'read' and tid == 1", &Columns::All);
    let times: Vec<i64> = rows
        .lines()
        .map(|line| serde_json_number(line, "\"ts\":"))
        .collect();
    assert!(times.is_sorted() && times.len() > 200);
    let columns = Columns::Fields(vec!["ts".into(), "fname".into(), "epoch".into()]);
    let rows = forms.check_rows("fname == '/p/file-5'", &columns);
    assert!(
        rows.lines()
            .all(|row| row.contains("\"fname\":\"/p/file-5\"")),
        "{rows}"
    );
}

fn serde_json_number(line: &str, key: &str) -> i64 {
    let at = line.find(key).unwrap() + key.len();
    line[at..]
        .split([',', '}'])
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn groups_are_identical_with_and_without_an_index() {
    let forms = forms(vec![version_1(1, 3_000), version_1(2, 2_000)], 50_000);
    for field in ["name", "cat", "tid", "fname", "nosuch"] {
        for query in ["", "name == 'read'", "dur > 40", "not (tid == 2)"] {
            forms.check_groups(query, field);
        }
    }
}

#[test]
fn different_units_are_refused_for_numbers_without_a_unit() {
    let folder = tempfile::tempdir().unwrap();
    let metric = |unit: &str| {
        format!(
            "{{\"name\":\"CM\",\"cat\":\"dftracer\",\"type\":1,\"pid\":7,\"tid\":7,\"ph\":4,\
             \"args\":{{\"name\":\"time_metric\",\"value\":\"{unit}\"}}}}\n\
             {{\"id\":1,\"name\":\"a\",\"cat\":\"b\",\"type\":1,\"pid\":7,\"tid\":7,\"ts\":5,\
             \"dur\":5000,\"ph\":1,\"args\":{{}}}}\n"
        )
    };
    let mut paths = Vec::new();
    for unit in ["NS", "US"] {
        let path = folder.path().join(unit);
        std::fs::write(&path, metric(unit)).unwrap();
        write_sidecar(&path, &build(&path, &options(1 << 20)).unwrap().index).unwrap();
        paths.push(path);
    }
    for indexed in [false, true] {
        assert_eq!(ask_count(&paths, &request("dur >= 5ms"), indexed).0, 1);
        assert_eq!(
            ask_count(&paths[..1], &request("dur == 5000"), indexed).0,
            1
        );
        assert_eq!(
            ask_count(&paths[1..], &request("dur == 5000"), indexed).0,
            1
        );
        let refused = DftSet::sources(&paths, indexed, &request("dur == 5000"), &[]);
        assert!(refused.is_err());
    }
}

/// A record that declares something.
fn declaration(record: &str, name: &str, value: &str) -> String {
    format!(
        "{{\"name\":\"{record}\",\"ph\":\"M\",\"args\":{{\"name\":\"{name}\",\"value\":\"{value}\"}}}}\n"
    )
}

/// An event of a file, at 5,000 units.
const HASHED: &str = "{\"name\":\"a\",\"pid\":7,\"tid\":7,\"ts\":5000,\"dur\":7,\"ph\":\"X\",\
                      \"args\":{\"fhash\":\"aa\"}}\n";

#[test]
fn the_first_unit_of_a_file_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("units.pfw");
    let unit = |unit| declaration("CM", "time_metric", unit);
    std::fs::write(&path, unit("NS") + HASHED + &unit("MS") + HASHED).unwrap();
    let paths = [path];
    for indexed in [false, true] {
        let counted = ask_count(&paths, &request("dur == 7ns"), indexed);
        assert_eq!(counted.0, 2, "{indexed}");
        write_sidecar(
            &paths[0],
            &build(&paths[0], &options(1 << 20)).unwrap().index,
        )
        .unwrap();
    }
}

/// A hash with several names has the same one in a file that declares none, however the files are
/// named and whatever is asked.
#[test]
fn names_do_not_depend_on_the_order_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for (name, declared, events) in [("1", "/a", 10), ("2", "", 7), ("3", "/z", 5)] {
        let path = folder.path().join(name);
        let mut text = HASHED.repeat(events);
        if !declared.is_empty() {
            text.insert_str(0, &declaration("FH", declared, "aa"));
        }
        std::fs::write(&path, text).unwrap();
        paths.push(path);
    }
    for indexed in [false, true] {
        for _ in 0..2 {
            paths.reverse();
            for (query, expected) in [
                ("fname == '/a'", 17),
                ("fhash == '/a'", 17),
                ("fname == '/z'", 5),
                ("fhash == '/z'", 5),
            ] {
                let counted = ask_count(&paths, &request(query), indexed).0;
                assert_eq!(counted, expected, "{query} {indexed} {paths:?}");
            }
        }
        for path in &paths {
            write_sidecar(path, &build(path, &options(1 << 20)).unwrap().index).unwrap();
        }
    }
}

#[test]
fn damage_at_the_start_of_a_file_may_have_been_its_unit() {
    let folder = tempfile::tempdir().unwrap();
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let unit = declaration("CM", "time_metric", "NS");
    let told = "it may have declared the unit of times, which are read as microseconds";
    for (name, later, is_told) in [
        ("lost", HASHED.to_owned(), true),
        ("there", unit.clone() + HASHED, false),
    ] {
        let path = folder.path().join(name);
        let mut bytes = gzip(&(unit.clone() + HASHED));
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        bytes.extend(gzip(&later));
        std::fs::write(&path, bytes).unwrap();
        for indexed in [false, true] {
            let request = request("exists(ts)");
            let sources =
                DftSet::sources(std::slice::from_ref(&path), indexed, &request, &[]).unwrap();
            let (_, report) = count(&sources, &request, Limits::default()).unwrap();
            let reasons: Vec<&str> = report.skipped_reasons().collect();
            assert!(!reasons.is_empty(), "{name} {indexed}");
            let says = reasons.iter().any(|reason| reason.ends_with(told));
            assert_eq!(says, is_told, "{name} {indexed}: {reasons:?}");
            write_sidecar(&path, &build(&path, &options(1 << 20)).unwrap().index).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn generated_queries_give_the_same_result(
        picks in proptest::collection::vec(any::<prop::sample::Index>(), 3),
        shape in 0..4_u8,
        events in 1..500_u64,
        chunk_bytes in 500..40_000_u64,
    ) {
        let forms = forms(vec![version_1(3, events)], chunk_bytes);
        let [a, b, c] = [0, 1, 2].map(|i| QUERIES[picks[i].index(QUERIES.len())]);
        let query = match shape {
            0 => format!("({a}) and ({b})"),
            1 => format!("({a}) or not ({b})"),
            2 => format!("not (({a}) and ({b}) or ({c}))"),
            _ => format!("({a}) and not (({b}) or not ({c}))"),
        };
        forms.check(&query);
    }
}

#[test]
fn formats_write_expected_rows() {
    let forms = forms(vec![version_1(1, 20)], 1 << 20);
    let request = request("name == 'read' and ret == 6");
    let mut texts = String::new();
    let formats: [Box<dyn RowFormat>; 3] = [
        Box::new(Text::default()),
        Box::new(Ndjson::default()),
        Box::new(Csv::default()),
    ];
    for mut format in formats {
        for columns in [
            Columns::All,
            Columns::Fields(vec!["name".into(), "x".into(), "ts".into()]),
        ] {
            let fields = columns.fields();
            let sources = DftSet::sources(&forms.forms[1].1, true, &request, &fields).unwrap();
            let mut out = |row: &[u8]| {
                texts.push_str(std::str::from_utf8(row).unwrap());
                Ok(())
            };
            let limits = Limits::default();
            write_rows(&sources, &request, &columns, &mut *format, limits, &mut out).unwrap();
        }
    }
    expect_test::expect![[r#"
        2023-11-14T22:13:20.006001000Z id=6 name=read cat=POSIX pid=1 tid=2 dur=6000 ph=X args.hhash=77 args.ret=6 args.epoch=0 args.fhash=18446744073709551614
        read	-	1700000000006001000
        {"id":6,"name":"read","cat":"POSIX","pid":1,"tid":2,"ts":1700000000006001000,"dur":6000,"ph":"X","args.hhash":77,"args.ret":6,"args.epoch":0,"args.fhash":18446744073709551614}
        {"name":"read","x":null,"ts":1700000000006001000}
        ts,dur,name,cat,pid,tid,rest
        1700000000006001000,6000,read,POSIX,1,2,"{""id"":6,""ph"":""X"",""args.hhash"":77,""args.ret"":6,""args.epoch"":0,""args.fhash"":18446744073709551614}"
        name,x,ts
        read,,1700000000006001000
    "#]].assert_eq(&texts);
}
