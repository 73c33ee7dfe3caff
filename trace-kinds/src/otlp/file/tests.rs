use std::io::{self, Read};

use super::*;
use crate::otlp::to_protobuf;

/// A request with one span of this name.
fn json(name: &str) -> String {
    format!(
        "{{\"resourceSpans\":[{{\"scopeSpans\":[{{\"spans\":[{{\"traceId\":\
         \"0102030405060708090a0b0c0d0e0f10\",\"spanId\":\"0102030405060708\",\"name\":\"{name}\",\
         \"startTimeUnixNano\":\"1000\",\"endTimeUnixNano\":\"2000\"}}]}}]}}]}}"
    )
}

fn protobuf(name: &str) -> Vec<u8> {
    to_protobuf(json(name).as_bytes()).unwrap()
}

fn with_lengths(requests: &[Vec<u8>]) -> Vec<u8> {
    let length = |request: &Vec<u8>| u32::try_from(request.len()).unwrap().to_be_bytes();
    let framed = requests.iter();
    framed
        .flat_map(|request| [&length(request)[..], request].concat())
        .collect()
}

/// Gives a few bytes at a time.
struct Slow<'b>(&'b [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(3);
        self.0.read(&mut buffer[..length])
    }
}

/// The requests and the damage in a file, in order.
fn read(file: &[u8], form: FileForm) -> Vec<Result<Vec<u8>, String>> {
    fn all(mut reader: PacketReader<impl Read>, file: &[u8]) -> Vec<Result<Vec<u8>, String>> {
        let mut found = Vec::new();
        loop {
            match reader.next_packet() {
                Ok(Some(packet)) => {
                    let at = usize::try_from(packet.offset).unwrap();
                    assert_eq!(file[at..at + packet.bytes.len()], packet.bytes);
                    found.push(Ok(packet.bytes));
                }
                Ok(None) => return found,
                Err(error) => found.push(Err(error.to_string())),
            }
            assert!(found.len() <= file.len() + 1, "it does not end");
        }
    }
    let found = all(PacketReader::new(file, form), file);
    assert_eq!(all(PacketReader::new(Slow(file), form), file), found);
    found
}

#[test]
fn documents_are_on_one_line_or_several() {
    let (a, b) = (json("a }{ \\\" \\\\"), json("b"));
    let spread = b
        .replace('[', "[\n  ")
        .replace(",\"", ",\n\"")
        .replace("{\"res", "{ \"res");
    for file in [format!("{a}\n{spread}\n"), format!("\n {a}{spread}")] {
        assert_eq!(recognize(file.as_bytes(), true), Some(FileForm::Json));
        let expected = [Ok(a.clone().into_bytes()), Ok(spread.clone().into_bytes())];
        assert_eq!(read(file.as_bytes(), FileForm::Json), expected);
    }
}

#[test]
fn a_damaged_document_costs_no_other() {
    let (a, b) = (json("a"), json("b"));
    let whole = |text: &str| Ok(text.as_bytes().to_vec());
    let error = |text: &str| Err(text.to_owned());
    let half = &a[..a.len() / 2];
    let cases = [
        (
            format!("{half}\n{b}\n"),
            vec![
                error("at byte 0: the request ends before it is complete"),
                whole(&b),
            ],
        ),
        (
            format!("{a}\nnoise\n{b}"),
            vec![
                whole(&a),
                Err(format!(
                    "at byte {}: this line is no request in JSON",
                    a.len() + 1
                )),
                whole(&b),
            ],
        ),
        (
            format!("{a}\n{half}"),
            vec![
                whole(&a),
                Err(format!("at byte {}: {CUT_END}", a.len() + 1)),
            ],
        ),
    ];
    for (file, expected) in cases {
        assert_eq!(read(file.as_bytes(), FileForm::Json), expected, "{file}");
    }
}

const CUT_END: &str = "the file ends inside a request; it was cut";

#[test]
fn protobuf_has_lengths_or_is_one_request() {
    let requests = [protobuf("a"), Vec::new(), protobuf("b")];
    let expected = [Ok(requests[0].clone()), Ok(requests[2].clone())];
    let framed = with_lengths(&requests);
    let joined = requests.concat();
    for (file, form) in [(&framed, FileForm::Lengths), (&joined, FileForm::Request)] {
        assert_eq!(recognize(file, true), Some(form));
        assert_eq!(read(file, form), expected);
        // The first request is not there as a whole, but its span is recognized.
        let start = &file[..40];
        assert_eq!(recognize(start, false), Some(form));
        // Cut anywhere, what is whole is read, and the rest is told.
        let first = file.len() - requests[2].len();
        for length in first + 1..file.len() {
            let found = read(&file[..length], form);
            assert_eq!(found[0], expected[0]);
            let error = found[1].clone().unwrap_err();
            assert!(error.ends_with(CUT_END), "{length}: {error}");
            assert_eq!(found.len(), 2);
        }
    }
}

#[test]
fn a_damaged_key_costs_one_resource_and_is_told() {
    let requests = [protobuf("a"), protobuf("b"), protobuf("c")];
    let second = requests[0].len();
    assert_eq!(requests[1][0], 0x0a);
    for key in [0x02, 0x12, 0x1a, 0x2a, 0x4a] {
        let mut file = requests.concat();
        file[second] = key;
        let told = format!("at byte {second}: this field is no resource of a request");
        let expected = [Ok(requests[0].clone()), Err(told), Ok(requests[2].clone())];
        assert_eq!(read(&file, FileForm::Request), expected, "{key:#x}");
    }
    // The field of a resource, but a number or of fixed width.
    for key in [0x08, 0x09, 0x0d] {
        let mut file = requests.concat();
        file[second] = key;
        let found = read(&file, FileForm::Request);
        assert_eq!(found[0], Ok(requests[0].clone()));
        assert!(found[1].is_err(), "{key:#x}: {found:?}");
    }
}

/// Looking at all of it again with each piece takes minutes.
#[test]
fn white_space_after_a_brace_is_read_once() {
    let blank = io::repeat(b' ').take(64 << 20);
    let file = (&b"{\"resourceSpans\":[\n{"[..]).chain(blank);
    let mut reader = PacketReader::new(file, FileForm::Json);
    let begin = std::time::Instant::now();
    assert!(reader.next_packet().is_err());
    assert!(begin.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn other_files_are_no_requests() {
    let zero_id = protobuf("a")
        .iter()
        .map(|byte| byte ^ 0x40)
        .collect::<Vec<_>>();
    let long = [&u32::MAX.to_be_bytes()[..], &protobuf("a")].concat();
    let cases: [&[u8]; 9] = [
        b"",
        b"\n\n\nHello\n",
        b"{\"resourceMetrics\":[]}",
        b"{}",
        b"{\"resourceSpa",
        b"\0\0\0\0\0\0\0\0",
        b"\x0a\x02\x12\x00",
        &zero_id,
        &long[..20],
    ];
    for file in cases {
        for is_whole in [false, true] {
            assert_eq!(recognize(file, is_whole), None, "{file:?}");
        }
    }
}

#[test]
fn a_length_beyond_the_limit_ends_reading() {
    let file = [with_lengths(&[protobuf("a")]), vec![0xff; 64]].concat();
    let found = read(&file, FileForm::Lengths);
    assert_eq!(found.len(), 2);
    assert!(found[1].clone().unwrap_err().contains("more than"));
    let file = [protobuf("a"), vec![0xff; 64]].concat();
    assert_eq!(read(&file, FileForm::Request).len(), 2);
}

proptest::proptest! {
    #[test]
    fn any_bytes_end(mut file: Vec<u8>, cut in 0_usize..400, at in 0_usize..400, byte: u8) {
        for form in [FileForm::Json, FileForm::Lengths, FileForm::Request] {
            let _found = read(&file, form);
            let mut damaged = match form {
                FileForm::Json => format!("{}\n{}\n", json("a"), json("b")).into_bytes(),
                FileForm::Lengths => with_lengths(&[protobuf("a"), protobuf("b")]),
                FileForm::Request => [protobuf("a"), protobuf("b")].concat(),
            };
            damaged.truncate(damaged.len().max(1).saturating_sub(cut / 4).max(1));
            let at = at % damaged.len();
            damaged[at] = byte;
            let _found = read(&damaged, form);
            let _form = recognize(&damaged, true);
        }
        file.insert(0, 0x0a);
        let _form = recognize(&file, false);
    }
}
