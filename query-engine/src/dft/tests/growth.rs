//! Files that grow after they were indexed: the index is extended, and answers as one rebuilt.

use chunk_index::{DftFacts, Sidecar};

use super::*;

/// How a file holds its text.
#[derive(Debug, Clone, Copy)]
enum Form {
    Plain,
    /// Members that end with a line.
    Lines,
    /// Members that end anywhere.
    Torn,
}

impl Form {
    /// The file of a text that begins with one of `before` bytes.
    fn file(self, text: &[u8], parts: &[usize]) -> Vec<u8> {
        let mut file = Vec::new();
        for range in parts.windows(2) {
            let part = &text[range[0]..range[1]];
            match self {
                Form::Plain => file.extend_from_slice(part),
                Form::Torn => file.extend(gzip(part, 12_345)),
                Form::Lines => {
                    for lines in part
                        .split_inclusive(|byte| *byte == b'\n')
                        .collect::<Vec<_>>()
                        .chunks(60)
                    {
                        file.extend(gzip(&lines.concat(), usize::MAX));
                    }
                }
            }
        }
        file
    }
}

/// Where the text ends in each step: at the ends of lines, or inside them.
fn steps(text: &[u8], at_lines: bool) -> Vec<usize> {
    let mut steps: Vec<usize> = [0, 31, 32, 55, 77, 99]
        .map(|percent| text.len() * percent / 100)
        .into();
    if at_lines {
        for step in &mut steps {
            *step = memchr::memrchr(b'\n', &text[..*step]).map_or(0, |newline| newline + 1);
        }
    }
    steps.push(text.len());
    steps
}

fn facts(path: &Path) -> (u64, u64, usize) {
    let index = Sidecar::read(&std::fs::read(sidecar_path(path)).unwrap()).unwrap();
    let facts = DftFacts::decode(index.attachment(DftFacts::NAME).unwrap()).unwrap();
    (facts.metadata, facts.broken, index.chunks().len())
}

fn check(form: Form, text: &[u8], queries: &[&str], (at_lines, expected): (bool, Update)) {
    let folder = tempfile::tempdir().unwrap();
    let [path, anew] = ["grown", "anew"].map(|name| folder.path().join(name).with_extension("pfw"));
    let steps = steps(text, at_lines);
    for last in 1..steps.len() {
        let file = form.file(text, &steps[..=last]);
        for path in [&path, &anew] {
            std::fs::write(path, &file).unwrap();
        }
        let grown = update_sidecar(&path, &options(30_000), false).unwrap();
        let place = format!("{form:?} step {last}");
        let update = if last == 1 { &Update::Built } else { &expected };
        assert_eq!(&grown.update, update, "{place}");
        let built = update_sidecar(&anew, &options(30_000), true).unwrap();
        assert_eq!(
            (grown.events, grown.broken, grown.text_bytes, grown.fault),
            (built.events, built.broken, built.text_bytes, built.fault),
            "{place}"
        );
        let (of_grown, of_built) = (facts(&path), facts(&anew));
        assert_eq!(
            (of_grown.0, of_grown.1),
            (of_built.0, of_built.1),
            "{place}"
        );
        assert!(
            of_grown.2 <= of_built.2 + last,
            "{place}: {of_grown:?} {of_built:?}"
        );
        let paths = [path.clone()];
        for query in queries {
            let (found, report) = ask_count(&paths, &request(query), true);
            assert_eq!(report.indexed, 1, "{place} {query}");
            let (expected, _) = ask_count(&paths, &request(query), false);
            assert_eq!(found, expected, "{place} {query}");
        }
        for field in ["name", "fhash", "fname"] {
            let groups = ask_groups(&paths, &request(""), field, true);
            assert_eq!(
                groups,
                ask_groups(&paths, &request(""), field, false),
                "{place} {field}"
            );
        }
        let again = update_sidecar(&path, &options(30_000), false).unwrap();
        assert_eq!(
            (again.update, again.broken),
            (Update::Fresh, built.broken),
            "{place}"
        );
    }
}

#[test]
fn what_is_appended_extends_the_index() {
    let text = version_1(1, 2_000);
    check(Form::Plain, &text, QUERIES, (false, Update::Grown));
    check(Form::Plain, &text, QUERIES, (true, Update::Grown));
    check(Form::Lines, &text, QUERIES, (true, Update::Grown));
    // No chunk begins where a member does.
    check(Form::Torn, &text, QUERIES, (false, Update::Built));
}

/// The dictionary of the first index does not have the hashes that come later.
#[test]
fn hashes_that_come_later_are_found() {
    let text = hashes::version_2(0, 1_500, false);
    let hashes = [3, 97 * 5, 734, 1_234, 1_499, 8_888].map(hashes::hash);
    let mut queries = hashes
        .each_ref()
        .map(|hash| format!("fhash == '{hash}'"))
        .to_vec();
    queries.extend([
        "fname == '/p/file-734'".to_owned(),
        "fname ~ 'file-14[0-9]*$'".to_owned(),
        format!("not (fhash == '{}')", hashes[3]),
    ]);
    let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
    for form in [Form::Plain, Form::Lines] {
        check(form, &text, &queries, (true, Update::Grown));
    }
}

#[test]
fn a_longer_file_with_other_bytes_is_indexed_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw");
    let text = version_1(1, 2_000);
    let half = text.len() / 2;
    let other_unit =
        b"{\"name\":\"x\",\"ph\":\"M\",\"args\":{\"name\":\"time_unit\",\"value\":\"ns\"}}\n";
    let place = memchr::memmem::find(&text, b"\"tid\":").unwrap() + b"\"tid\":".len();
    let mut other = text.clone();
    other[place] = b'9';
    let shifted = [&other_unit[..], &text].concat();
    for (what, longer) in [("a byte", &other), ("a line before", &shifted)] {
        std::fs::write(&path, &text[..half]).unwrap();
        update_sidecar(&path, &options(20_000), true).unwrap();
        std::fs::write(&path, longer).unwrap();
        let updated = update_sidecar(&path, &options(20_000), false).unwrap();
        assert_eq!(updated.update, Update::Built, "{what}");
        let paths = [path.clone()];
        for query in ["tid >= 9", "name == 'read'"] {
            let found = ask_count(&paths, &request(query), true);
            assert_eq!(
                found.0,
                ask_count(&paths, &request(query), false).0,
                "{what}"
            );
        }
    }
}

/// Fields that were added to an index stay in it.
#[test]
fn a_grown_index_keeps_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pfw");
    let text = version_1(1, 2_000);
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    let mut more = options(20_000);
    more.config.add(FieldPath::new("epoch"));
    update_sidecar(&path, &more, true).unwrap();
    std::fs::write(&path, &text).unwrap();
    let grown = update_sidecar(&path, &options(20_000), false).unwrap();
    assert_eq!(grown.update, Update::Grown);
    let again = update_sidecar(&path, &more, false).unwrap();
    assert_eq!((again.update, again.events), (Update::Fresh, 2_000));
    let (found, report) = ask_count(&[path], &request("epoch == 3"), true);
    assert_eq!((found, report.indexed), (200, 1));
    assert!(report.read < report.chunks, "{report:?}");
}
