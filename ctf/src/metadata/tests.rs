//! Verdicts and positions of faults for the metadata of the corpus, and for mutated metadata.

use super::{Leniency, parse_metadata, parse_metadata_with};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

mod nesting;

fn corpus() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora/ctf");
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: ../shared/corpora is not here");
    None
}

fn cases(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

/// `line:col` of the innermost frame of an expected diagnostic; `None` for an accepted text.
fn expected_position(expect: &str) -> Option<(usize, usize)> {
    let position = expect
        .lines()
        .last()?
        .strip_prefix('[')?
        .split(']')
        .next()?;
    let (line, column) = position.split_once(':')?;
    Some((line.parse().unwrap(), column.parse().unwrap()))
}

fn check_metadata_text(folder: &str) {
    let Some(corpus) = corpus() else { return };
    let mut wrong = Vec::new();
    for case in cases(&corpus.join("yactfr/metadata-text").join(folder)) {
        let text = fs::read(case.join("metadata")).unwrap();
        let expected = expected_position(&fs::read_to_string(case.join("expect")).unwrap());
        let result = parse_metadata(&text);
        let found = result.as_ref().err().map(|error| {
            let at = error.location();
            (at.line, at.column)
        });
        if found != expected {
            let name = case.file_name().unwrap().to_string_lossy().into_owned();
            let message = result
                .err()
                .map_or("accepted".to_owned(), |error| error.to_string());
            wrong.push(format!(
                "{name}: expected {expected:?}, found {found:?}: {message}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn ctf_1_texts() {
    check_metadata_text("ctf-1");
}

#[test]
fn ctf_2_texts() {
    check_metadata_text("ctf-2");
}

#[test]
fn packetized_metadata() {
    let offsets = [
        ("fail-ends-magic", 90112),
        ("fail-ends-uuid", 90116),
        ("fail-ends-checksum", 90132),
        ("fail-ends-pkt-content-size", 90136),
        ("fail-ends-pkt-total-size", 90140),
        ("fail-ends-compression-scheme", 90144),
        ("fail-ends-encryption-scheme", 90145),
        ("fail-ends-checksum-scheme", 90146),
        ("fail-ends-major-version", 90147),
        ("fail-ends-minor-version", 90148),
        ("fail-ends-content", 90149),
        ("fail-ends-padding", 90511),
        ("fail-ends-one-header", 37),
        ("fail-uuid-mismatch", 4096),
    ];
    let Some(corpus) = corpus() else { return };
    for case in cases(&corpus.join("yactfr/metadata-stream")) {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let bytes = fs::read(&case).unwrap();
        let found = super::metadata_text(&bytes)
            .err()
            .map(|error| error.location().offset);
        let known = offsets
            .iter()
            .find(|(fail, _)| *fail == name)
            .map(|(_, offset)| *offset);
        let expected = name.starts_with("fail-").then(|| known.unwrap_or(0));
        assert_eq!(found, expected, "{name}");
    }
}

/// Folders below `folder` that contain a file named `metadata`.
fn traces(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    if folder.join("metadata").is_file() {
        found.push(folder.to_owned());
    }
    for entry in entries.iter().filter(|path| path.is_dir()) {
        traces(entry, found);
    }
}

#[test]
fn metadata_of_traces_that_babeltrace_reads_is_accepted() {
    let Some(corpus) = corpus() else { return };
    let index = fs::read_to_string(corpus.join("expected/index.tsv")).unwrap();
    let mut wrong = Vec::new();
    for line in index.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let mut found = Vec::new();
        traces(&corpus.join(fields[0]), &mut found);
        for trace in found.iter().filter(|_| fields[1] == "0") {
            let text = fs::read(trace.join("metadata")).unwrap();
            if let Err(error) = parse_metadata_with(&text, Leniency::Lenient) {
                wrong.push(format!("{}: {error}", trace.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Checks that a text is read as Babeltrace reads it: with an error that contains `expected`, or
/// without one if that is empty.
#[track_caller]
fn check_lenient(text: &str, expected: &str) {
    let text = format!(
        "/* CTF 1.8 */ typealias integer {{ size = 8; }} := u8; trace {{ major = 1; minor = 8; \
         byte_order = le; packet.header := struct {{ u8 stream_id; }}; }}; {text}"
    );
    match parse_metadata_with(text.as_bytes(), Leniency::Lenient) {
        Ok(_) => assert_eq!(expected, "", "{text}"),
        Err(error) => {
            let told = error.to_string();
            assert!(
                !expected.is_empty() && told.contains(expected),
                "{text}: {told}"
            );
        }
    }
}

#[test]
fn what_babeltrace_reads_and_refuses_is_read_and_refused() {
    let event =
        |stream: &str| format!("event {{ id = 0; {stream} fields := struct {{ u8 a; }}; }};");
    let undescribed = "needs the stream class 1, which does not exist";
    check_lenient(&event("stream_id = 1;"), undescribed);
    check_lenient(
        &format!("stream {{ id = 2; }}; {}", event("stream_id = 1;")),
        undescribed,
    );
    check_lenient(
        &format!("{} stream {{ id = 1; }};", event("stream_id = 1;")),
        "",
    );
    check_lenient(&format!("stream {{ }}; {}", event("stream_id = 0;")), "");
    check_lenient(&event(""), "");
    // A declaration ends before the next one.
    for next in [
        "struct y { u8 b; };",
        "enum y : u8 { B };",
        "variant y { u8 b; };",
        "typedef u8 y;",
        "typealias u8 := y;",
    ] {
        check_lenient(&format!("struct x {{ u8 a; }} {next} {}", event("")), "");
    }
    check_lenient("struct x { u8 a; } u8 y;", "is a `;` missing");
    for (base, expected) in [
        ("\"hex\"", ""),
        ("hex", ""),
        ("\"odd\"", "invalid display base"),
    ] {
        check_lenient(
            &format!("typealias integer {{ size = 8; base = {base}; }} := h;"),
            expected,
        );
    }
}

const TSDL: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; } := u8;
env { n = 3; s = "x"; };
clock { name = c; freq = 1000; offset_s = 5; };
trace { major = 1; minor = 8; byte_order = le; uuid = "2a6422d0-6cee-11e0-8c08-cb07d7b3a564";
  packet.header := struct { integer { size = 32; } magic; u8 uuid[16]; u8 stream_id; }; };
stream { id = 0; packet.context := struct { u8 packet_size; u8 content_size; };
  event.header := struct { enum : u8 { a = 0 ... 3, b } id;
    variant <id> { struct { integer { size = 27; map = clock.c.value; } timestamp; } a; u8 b; } v; };
};
event { name = "e"; id = 1; stream_id = 0; loglevel = -1; fields := struct {
  u8 len; u8 seq[len]; struct { u8 l; string s[l]; } align(16) inner[env.n]; floating_point {
  exp_dig = 8; mant_dig = 24; } f; string { encoding = UTF8; } text; }; };
"#;

const CTF2: &str = "\u{1e}{\"type\":\"preamble\",\"version\":2}\u{1e}{\"type\":\"data-stream-class\"}\u{1e}\
{\"type\":\"event-record-class\",\"payload-field-class\":{\"type\":\"structure\",\"member-classes\":[\
{\"name\":\"n\",\"field-class\":{\"type\":\"fixed-length-unsigned-integer\",\"length\":8,\
\"byte-order\":\"big-endian\",\"mappings\":{\"m\":[[1,2]]}}},{\"name\":\"o\",\"field-class\":{\
\"type\":\"optional\",\"selector-field-location\":{\"path\":[\"n\"]},\"selector-field-ranges\":[[1,1]],\
\"field-class\":{\"type\":\"dynamic-length-blob\",\"length-field-location\":{\"path\":[\"n\"]}}}}]}}";

/// A valid text with some bytes replaced, which can be truncated.
fn mutated(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let change = (
        0..text.len(),
        prop_oneof![
            any::<u8>(),
            (0..text.len()).prop_map(|at| text.as_bytes()[at])
        ],
    );
    (prop::collection::vec(change, 0..6), 0..=text.len()).prop_map(move |(changes, end)| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes.truncate(if end.is_multiple_of(3) {
            end
        } else {
            text.len()
        });
        bytes
    })
}

#[test]
fn the_texts_are_valid_before_mutation() {
    for text in [TSDL, CTF2] {
        parse_metadata(text.as_bytes()).unwrap();
    }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _verdict = parse_metadata(&bytes);
    }

    #[test]
    fn faults_of_mutated_texts_are_inside_the_text(
        bytes in prop_oneof![mutated(TSDL), mutated(CTF2)],
    ) {
        if let Err(error) = parse_metadata(&bytes) {
            prop_assert!(error.location().offset <= bytes.len());
        }
    }
}

#[test]
fn deep_and_multiplying_metadata_is_rejected_in_bounded_time() {
    let trace = "trace { major = 1; minor = 8; byte_order = le; };";
    let deep = format!(
        "{trace} event {{ fields := {}",
        "struct { struct { ".repeat(50_000)
    );
    assert!(parse_metadata(deep.as_bytes()).is_err());
    let mut aliases = format!("{trace} typealias integer {{ size = 8; }} := t0;");
    for level in 1..60 {
        let inner = format!("t{} a; t{} b;", level - 1, level - 1);
        aliases += &format!("typealias struct {{ {inner} }} := t{level};");
    }
    let error = parse_metadata(aliases.as_bytes()).unwrap_err();
    assert!(error.message().contains("field classes"), "{error}");
}

/// Locations can be as long as classes are deep, and have as many targets as a variant has options.
#[test]
fn multiplying_locations_are_rejected_in_bounded_time() {
    let fields = |fields: &str| {
        format!(
            "trace {{ major = 1; minor = 8; byte_order = le; }}; typealias integer {{ size = 8; }} \
             := u8; event {{ fields := struct {{ {fields} }}; }};"
        )
    };
    let many = |count: usize, text: &dyn Fn(usize) -> String| (0..count).map(text).collect();
    let sequences: String = many(20_000, &|index| format!("u8 a{index}[n];"));
    let deep = "struct { ".repeat(4_000) + "u8 n;" + &sequences + &"} x;".repeat(4_000);
    let labels: String = many(5_000, &|index| format!("l{index},"));
    let options: String = many(5_000, &|index| format!("u8 l{index};"));
    let wide = format!(
        "enum : integer {{ size = 16; }} {{ {labels} }} t; variant <t> {{ {options} }} n; {sequences}"
    );
    for bomb in [fields(&deep), fields(&wide)] {
        let error = parse_metadata(bomb.as_bytes()).unwrap_err();
        assert!(error.message().contains("steps and targets"), "{error}");
    }
    let overlaps: String = many(200_000, &|index| format!("l{index} = 0 ... 9,"));
    let overlaps = format!("enum : u8 {{ {overlaps} }} t; variant <t> {{ u8 l0; }} v;");
    let error = parse_metadata(fields(&overlaps).as_bytes()).unwrap_err();
    assert!(error.message().contains("overlap"), "{error}");
}
