//! The element reader: the element texts of the corpus, positions, seeking, and errors.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::{ElementReader, ElementText};
use crate::procedure::Procedure;
use crate::{DecodeFault, Leniency, parse_metadata, parse_metadata_with};

/// The window of the element texts of the corpus.
const CORPUS_WINDOW: u64 = 4096;

fn corpus() -> Option<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if !corpus.is_dir() {
        println!("skipped: ../shared/corpora is not here");
        return None;
    }
    Some(corpus.join("ctf/yactfr/iter-data"))
}

fn procedure(metadata: &Path) -> Procedure {
    let bytes = std::fs::read(metadata).unwrap();
    let class = parse_metadata(&bytes).unwrap_or_else(|error| panic!("{metadata:?}: {error}"));
    Procedure::new(class).unwrap()
}

fn text(reader: &mut ElementReader<'_>) -> String {
    let (mut out, mut writer) = (String::new(), ElementText::new());
    loop {
        match reader.next_element() {
            Ok(Some(&element)) => writer.element(&mut out, reader, &element).unwrap(),
            Ok(None) => return out,
            Err(error) => {
                writer.error(&mut out, &error).unwrap();
                return out;
            }
        }
    }
}

fn first_difference(expected: &str, found: &str) -> String {
    let mut out = String::new();
    let pairs = expected
        .lines()
        .map(Some)
        .chain(std::iter::repeat(None))
        .zip(found.lines().map(Some).chain(std::iter::repeat(None)));
    for (number, (expected, found)) in pairs.enumerate().take(100_000) {
        if expected != found {
            write!(
                out,
                "line {}: expected {expected:?}, found {found:?}",
                number + 1
            )
            .unwrap();
            break;
        }
        if expected.is_none() {
            break;
        }
    }
    out
}

#[test]
fn element_texts_of_the_corpus_are_equal() {
    let Some(corpus) = corpus() else { return };
    let mut wrong = Vec::new();
    let mut cases = 0;
    for version in ["ctf-1", "ctf-2"] {
        for case in std::fs::read_dir(corpus.join(version)).unwrap() {
            let case = case.unwrap().path();
            let expected = std::fs::read_to_string(case.join("expect")).unwrap();
            let procedure = procedure(&case.join("trace/metadata"));
            let stream = std::fs::read(case.join("trace/stream")).unwrap();
            let mut reader = ElementReader::new(&procedure, &stream).with_window(CORPUS_WINDOW);
            let found = text(&mut reader);
            // In the corpus, the text of empty data is one empty line.
            if found.trim_end() != expected.trim_end() {
                wrong.push(format!(
                    "{}: {}",
                    case.display(),
                    first_difference(&expected, &found)
                ));
            }
            cases += 1;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {cases} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert_eq!(cases, 86);
}

/// A stream of small records: `{ len: u8, text: string[len], rest }`.
fn small() -> (Procedure, Vec<u8>) {
    let text = b"/* CTF 1.8 */
        typealias integer { size = 8; align = 8; } := u8;
        typealias integer { size = 16; align = 8; } := u16;
        trace { major = 1; minor = 8; byte_order = le; };
        stream { packet.context := struct { u16 packet_size; u16 content_size; }; };
        event { name = e; fields := struct { u8 len; u8 bytes[len]; string text; }; };";
    let mut data = Vec::new();
    for packet in 0..40_u8 {
        let mut content = Vec::new();
        for record in 0..=packet {
            content.push(record % 4);
            content.extend((0..record % 4).map(|byte| byte ^ packet));
            content.extend_from_slice(b"word\0");
        }
        let content_bits = (u16::try_from(content.len()).unwrap() + 4) * 8;
        data.extend_from_slice(&(content_bits + 24).to_le_bytes());
        data.extend_from_slice(&content_bits.to_le_bytes());
        data.extend_from_slice(&content);
        data.extend_from_slice(&[0xaa; 3]);
    }
    (Procedure::new(parse_metadata(text).unwrap()).unwrap(), data)
}

#[test]
fn a_restored_position_continues_with_the_same_elements() {
    let (procedure, data) = small();
    let mut reader = ElementReader::new(&procedure, &data);
    let (mut positions, mut lines) = (vec![reader.position()], Vec::new());
    let line = |reader: &mut ElementReader<'_>| {
        let element = *reader.next_element().unwrap()?;
        Some(format!("{} {element:?}", reader.offset()))
    };
    while let Some(line) = line(&mut reader) {
        lines.push(line);
        positions.push(reader.position());
    }
    assert!(lines.len() > 10_000);
    assert!(positions.is_sorted());
    for (given, position) in positions.iter().enumerate().step_by(97) {
        reader.restore(position);
        assert_eq!(reader.position(), *position);
        for expected in lines[given..].iter().take(200) {
            assert_eq!(line(&mut reader).as_ref(), Some(expected));
        }
    }
}

#[test]
fn seeking_packets() {
    let (procedure, data) = small();
    let mut reader = ElementReader::new(&procedure, &data);
    let mut begins = Vec::new();
    while let Some(element) = reader.next_element().unwrap() {
        if matches!(element, super::Element::PacketInfo) {
            begins.push(reader.position().packet_offset());
        }
    }
    assert_eq!(begins.len(), 40);
    for &begin in begins.iter().rev() {
        reader.seek_packet(begin);
        reader.next_element().unwrap();
        assert_eq!(reader.offset(), begin as u64 * 8);
    }
}

#[test]
fn an_error_is_returned_again_until_the_reader_moves() {
    let (procedure, mut data) = small();
    data.truncate(data.len() - 4);
    let mut reader = ElementReader::new(&procedure, &data);
    let error = loop {
        if let Err(error) = reader.next_element() {
            break error;
        }
    };
    assert_eq!(reader.next_element().unwrap_err(), error);
    assert_eq!(error.offset, data.len() as u64 * 8);
    reader.seek_packet(0);
    assert!(reader.next_element().unwrap().is_some());
}

/// Reads `data` until the expected fault.
fn fault(fields: &str, data: &[u8]) -> DecodeFault {
    let text = format!(
        "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};
        typealias integer {{ size = 64; align = 8; }} := u64;
        event {{ name = e; fields := struct {{ {fields} }}; }};"
    );
    let parsed = parse_metadata_with(text.as_bytes(), Leniency::Lenient).unwrap();
    let procedure = Procedure::new(parsed.trace).unwrap();
    let mut reader = ElementReader::new(&procedure, data);
    loop {
        match reader.next_element() {
            Ok(element) => assert!(element.is_some()),
            Err(error) => return error.fault,
        }
    }
}

#[test]
fn endless_data_without_bits_is_an_error() {
    assert_eq!(fault("struct {} nothing;", &[0]), DecodeFault::NoProgress);
    assert_eq!(
        fault("u64 len; struct {} nothing[len];", &[0xff; 8]),
        DecodeFault::NoProgress
    );
}
