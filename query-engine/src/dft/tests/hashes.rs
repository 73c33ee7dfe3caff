//! Files with more hashes than fit in a dictionary: their filters are indexes in the list of names.

use chunk_index::{BlockKind, ChunkFilter, Sidecar};

use super::*;

/// The hash of a file: digits, digits that spell a power of ten, or letters.
pub(super) fn hash(file: u64) -> String {
    match file % 50 {
        0 => format!("{file:08}e0000002"),
        1 => format!("{:016}", file * 7_919),
        _ => format!("{:016x}", (file + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    }
}

fn event(text: &mut String, id: u64, hash: &str) {
    writeln!(
        text,
        "{{\"id\":{id},\"name\":\"read\",\"cat\":\"POSIX\",\"type\":3,\"pid\":7,\"tid\":7,\
         \"ts\":{},\"dur\":{},\"ph\":1,\"args\":{{\"hhash\":\"{}\",\"fhash\":{hash}}}}}",
        1_700_000_000_000_000 + id * 10,
        id % 90,
        self::hash(99_999),
    )
    .unwrap();
}

/// Events of many files, some of which nobody declares.
pub(super) fn version_2(first: u64, files: u64, declares_all: bool) -> Vec<u8> {
    let mut text = String::new();
    for file in first..first + files {
        if declares_all || file % 97 != 0 {
            writeln!(
                text,
                "{{\"name\":\"FH\",\"cat\":\"dftracer\",\"type\":1,\"pid\":7,\"tid\":7,\"ph\":4,\
                 \"args\":{{\"hhash\":\"x\",\"name\":\"/p/file-{file}\",\"value\":\"{}\"}}}}",
                hash(file)
            )
            .unwrap();
        }
        for turn in 0..4 {
            event(&mut text, file * 4 + turn, &format!("\"{}\"", hash(file)));
        }
    }
    text.into_bytes()
}

fn filters(path: &Path) -> (usize, usize) {
    let index = Sidecar::read(&std::fs::read(sidecar_path(path)).unwrap()).unwrap();
    let field = FieldPath::new("fhash");
    let filters = (0..index.chunks().len()).filter_map(|chunk| index.filter(&field, chunk));
    let places = |filter: &&ChunkFilter| matches!(filter, ChunkFilter::Entries(_));
    let (places, others): (Vec<_>, Vec<_>) = filters.partition(places);
    (places.len(), others.len())
}

#[test]
fn filters_with_many_hashes_give_the_same_result() {
    // Of the second file some are not declared, so that chunks of it have other filters.
    let texts = vec![
        version_2(0, 1_500, true),
        version_2(1_000, 1_500, false),
        version_1(3, 300),
    ];
    let forms = forms(texts, 500_000);
    let (places, others) = filters(&forms.forms[0].1[0]);
    assert!(places > 1 && others == 0, "{places} and {others}");
    let (_, others) = filters(&forms.forms[0].1[1]);
    assert!(others > 0);
    let of_734 = hash(734);
    let queries = [
        (format!("fhash == '{of_734}'"), 4),
        (format!("fhash == '{}'", hash(1_234)), 8),
        // The second file does not declare it.
        (format!("fhash == '{}'", hash(97 * 13)), 8),
        (format!("fhash in ['{of_734}', '{}']", hash(2_000)), 8),
        (format!("not (fhash == '{of_734}')"), 12_296),
        (format!("fhash == '{}'", hash(8_888)), 0),
        (format!("fhash == {}", 1_001 * 7_919), 8),
        (format!("fhash == {}00", 1_050), 8),
        ("fhash == '/p/file-1234'".to_owned(), 8),
        ("fhash == '/p/file-99999'".to_owned(), 0),
        ("fname == '/p/file-734'".to_owned(), 4),
        ("fname ~ 'file-73[0-4]$'".to_owned(), 20),
        ("fhash == 18446744073709551610".to_owned(), 50),
    ];
    for (query, expected) in queries {
        assert_eq!(forms.check(&query), expected, "{query}");
    }
    let all: Vec<String> = (0..20)
        .map(|file| format!("'{}'", hash(file * 50)))
        .collect();
    let many = format!("fhash in [{}]", all.join(", "));
    assert_eq!(forms.check(&many), 80);
    forms.check_rows(&format!("fhash == '{of_734}'"), &Columns::default());
}

#[test]
fn a_hash_of_one_chunk_is_searched_in_that_chunk_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.pfw");
    std::fs::write(&path, version_2(0, 5_000, true)).unwrap();
    update_sidecar(&path, &options(500_000), true).unwrap();
    let paths = [path];
    let mut read = 0;
    for file in (0..5_000).step_by(61) {
        let (found, report) = ask_count(
            &paths,
            &request(&format!("fhash == '{}'", hash(file))),
            true,
        );
        assert_eq!(found, 4);
        // Where a chunk ends among the events of a file, both have it.
        assert!(report.read <= 2, "{report:?}");
        // And of its lines only those are decoded.
        assert!(report.counters.decoded.events <= 8, "{report:?}");
        read += report.read;
    }
    assert!(read < 90, "{read}");
    let (found, report) = ask_count(&paths, &request("fhash == 'ffffffffffffffff'"), true);
    assert_eq!((found, report.read), (0, 0), "no other hash is in the set");
}

#[test]
fn a_damaged_dictionary_is_reported_and_does_not_change_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.pfw");
    std::fs::write(&path, version_2(0, 3_000, true)).unwrap();
    update_sidecar(&path, &options(500_000), true).unwrap();
    let mut bytes = std::fs::read(sidecar_path(&path)).unwrap();
    let length = bytes.len() as u64;
    let Ok(chunk_index::Opened::Sidecar(sidecar)) = Sidecar::open(&bytes, length) else {
        panic!("the whole file is at hand");
    };
    let mut blocks = sidecar.blocks().iter();
    let dictionary = blocks
        .find(|block| block.kind == BlockKind::FileDictionary)
        .unwrap();
    bytes[usize::try_from(dictionary.offset).unwrap() + 50] ^= 1;
    std::fs::write(sidecar_path(&path), bytes).unwrap();
    let paths = [path];
    for (query, expected) in [
        (format!("fhash == '{}'", hash(1_234)), 4),
        ("fname == '/p/file-1234'".to_owned(), 4),
    ] {
        let (found, report) = ask_count(&paths, &request(&query), true);
        assert_eq!(found, expected, "{query}");
        assert_eq!(report.damaged.len(), 1, "{report:?}");
    }
}

#[test]
fn a_hash_compared_with_text_matches_the_hashes_of_the_text() {
    let forms = forms(vec![version_1(1, 2_000), version_1(2, 2_000)], 60_000);
    let by_name = forms.check("fname == '/p/file-5'");
    assert_eq!(forms.check("fhash == '/p/file-5'"), by_name);
    assert_eq!(forms.check("fhash in ['/p/file-5', 3]"), by_name);
    assert_eq!(forms.check("not (fhash == '/p/file-5')"), 4_000 - by_name);
    assert_eq!(forms.check("fhash != '/p/file-5'"), 4_000 - by_name);
    assert!(by_name > 0);
}
