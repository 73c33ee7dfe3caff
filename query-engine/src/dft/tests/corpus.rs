//! Traces of other people.

use super::*;

/// The corpus folder, `None` (after saying so) where it is not.
fn corpus() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if folder.is_dir() {
        return Some(folder.join("dft"));
    }
    println!("skipped: ../shared/corpora is not here");
    None
}

#[test]
fn real_traces_give_the_same_result_in_every_form() {
    let Some(corpus) = corpus() else { return };
    let queries = [
        "name == 'read'",
        "not (cat == 'POSIX')",
        "dur > 100",
        "not (dur > 100)",
        "pid == 0",
        "hostname contains '1'",
        "fname contains '.h5'",
        "not (fname contains '/')",
        "epoch == 1",
        "level == 1 or p_idx < 5",
        "fhash > 9223372036854775808",
        "tid != 1",
    ];
    for folder in ["dlio", "polaris", "cm1", "plain"] {
        let mut texts = Vec::new();
        for entry in std::fs::read_dir(corpus.join(folder)).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            let mut text = Vec::new();
            if bytes.starts_with(&[0x1f, 0x8b]) {
                let mut inflate = flate2::read::MultiGzDecoder::new(&bytes[..]);
                std::io::copy(&mut inflate, &mut text).unwrap();
            } else {
                text = bytes;
            }
            texts.push(text);
        }
        // The start of each file: the benchmark reads complete ones.
        for text in &mut texts {
            let end = text.len().min(250_000);
            text.truncate(end);
        }
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        texts.truncate(3);
        let forms = forms(texts, 60_000);
        let mut found = 0;
        for query in queries {
            found += forms.check(query);
        }
        assert!(found > 0, "{folder}");
        forms.check_groups("dur > 10", "name");
    }
}
