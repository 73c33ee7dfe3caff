//! The text of the traces in the corpus, compared with the output of Babeltrace.

use super::trace_folders;
use crate::{TraceFolder, WriteOptions, write_events};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn corpus() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora/ctf");
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: ../shared/corpora is not here");
    None
}

/// The text of the traces at `path`, and the faults.
pub(super) fn text_of(path: &Path) -> Result<(Vec<u8>, Vec<String>), String> {
    let mut traces = Vec::new();
    for folder in trace_folders(path) {
        traces.push(TraceFolder::open(&folder).map_err(|error| error.to_string())?);
    }
    let mut text = Vec::new();
    let written = write_events(&traces, WriteOptions::default(), &mut text)
        .map_err(|error| error.to_string())?;
    let faults = written.faults.iter().map(ToString::to_string).collect();
    Ok((text, faults))
}

fn expected_text(path: &Path) -> Vec<u8> {
    let mut plain = path.as_os_str().to_owned();
    plain.push(".pretty");
    fs::read(&plain).unwrap_or_else(|_| {
        plain.push(".gz");
        let packed = fs::read(&plain).unwrap();
        let mut text = Vec::new();
        let mut decoder = flate2::read::MultiGzDecoder::new(&packed[..]);
        std::io::Read::read_to_end(&mut decoder, &mut text).unwrap();
        text
    })
}

#[test]
fn text_equals_the_output_of_babeltrace() {
    let Some(corpus) = corpus() else { return };
    let index = fs::read_to_string(corpus.join("expected/index.tsv")).unwrap();
    let (mut wrong, mut right) = (Vec::new(), 0);
    for line in index.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[1] != "0" {
            continue;
        }
        let found = text_of(&corpus.join(fields[0]));
        let expected = expected_text(&corpus.join("expected").join(fields[0]));
        match found {
            Ok((text, faults)) if faults.is_empty() && text == expected => right += 1,
            Ok((text, faults)) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                let expected = String::from_utf8_lossy(&expected).into_owned();
                let differ = text.lines().zip(expected.lines()).find(|(a, b)| a != b);
                let (ours, theirs) = differ.unwrap_or(("(shorter or longer)", ""));
                let ours: String = ours.chars().take(300).collect();
                let theirs: String = theirs.chars().take(300).collect();
                let counts = (text.lines().count(), expected.lines().count());
                wrong.push(format!(
                    "{} {faults:?} faults {counts:?}\n  {ours}\n  {theirs}",
                    fields[0]
                ));
            }
            Err(error) => wrong.push(format!("{}: {error}", fields[0])),
        }
    }
    assert!(
        wrong.is_empty(),
        "{right} right, {} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
