use proptest::prelude::*;
use query_language::{FieldPath, FieldTable, Value};

use super::{Block, BlockKind, Opened, Sidecar, SidecarError, TAIL_BYTES};
use crate::{
    Checkpoint, Chunk, ChunkBuilder, ChunkFilter, ChunkMismatch, ChunkSummary, DictionaryEntry,
    FileDictionary, FilterCache, Identity, Index, IndexConfig, Window, body, fuzzing,
};

/// Hashes as DFTracer writes them; too many for a dictionary.
fn hash(n: u64) -> String {
    format!("{:016x}", crate::value::mix(n))
}

fn summaries(config: &IndexConfig) -> Vec<ChunkSummary> {
    summaries_with(config, None)
}

/// The filters of chunks are entry sets if a file dictionary contains all their hashes.
fn summaries_with(
    config: &IndexConfig,
    file_dictionary: Option<&FileDictionary>,
) -> Vec<ChunkSummary> {
    let mut table = FieldTable::new();
    let mut builder = ChunkBuilder::new(config.clone(), &mut table);
    if file_dictionary.is_some() {
        builder.collect_distinct(&FieldPath::new("fhash"));
    }
    let mut summaries: Vec<ChunkSummary> = (0..2_u64)
        .map(|chunk| {
            for n in 0..400 {
                let fhash = hash(n % 300 + chunk * 1_000);
                let ts = i64::try_from(n * 1_000_000).unwrap();
                let row: Vec<Option<Value<'_>>> = table
                    .paths()
                    .iter()
                    .map(|path| match path.as_str() {
                        "name" => Some(Value::Str(if n % 2 == 0 { b"read" } else { b"write" })),
                        "cat" => Some(Value::Str(b"POSIX")),
                        "ts" => Some(Value::Int(1_700_000_000_000_000_000 + ts)),
                        "dur" if n % 3 == 0 => Some(Value::Int(ts / 7)),
                        "pid" => Some(Value::Uint(n % 5)),
                        "args.fhash" => Some(Value::from(fhash.as_str())),
                        "args.ratio" if n % 7 == 0 => Some(Value::Float(n as f64 / 2.0)),
                        "args.ok" => Some(Value::Bool(n % 2 == 0)),
                        "args.old" => Some(Value::Str(b"-12")),
                        _ => None,
                    })
                    .collect();
                let record = format!("{{\"event\":{n}}}\n");
                builder.add_record(&row, None, n * 20, record.as_bytes());
            }
            builder.finish()
        })
        .collect();
    if let Some(distinct) = builder.take_distinct() {
        assert!(distinct.build_filters(file_dictionary, config, &mut summaries));
    }
    summaries
}

/// The hashes of the first chunk, and one that is in no chunk.
fn file_dictionary() -> FileDictionary {
    let hashes = (0..301).rev().map(hash);
    let distinct = hashes.filter_map(|hash| DictionaryEntry::of(Value::from(hash.as_str())));
    FileDictionary::new(distinct).unwrap()
}

fn config(fields: &[&str]) -> IndexConfig {
    let mut config = IndexConfig::new(fields.iter().copied());
    config.dictionary_bytes_max = 1_024;
    config
}

fn build(config: &IndexConfig) -> Index {
    build_of(config, summaries(config))
}

fn build_of(config: &IndexConfig, summaries: Vec<ChunkSummary>) -> Index {
    let mut index = Index::new(config);
    for (n, summary) in (0..).zip(summaries) {
        let chunk = Chunk {
            offset: n * 1_000,
            length: 900,
            raw_offset: n * 50_000,
            raw_length: 49_000,
            first_line: n * 500,
            lines: 450,
            number: n,
            ..Chunk::default()
        };
        index.push(chunk, summary);
    }
    index
}

const FIELDS: [&str; 5] = ["pid", "fhash", "ratio", "ok", "old"];

fn sample() -> Index {
    let (config, file_dictionary) = (config(&FIELDS), file_dictionary());
    let mut index = build_of(&config, summaries_with(&config, Some(&file_dictionary)));
    index.set_file_dictionary(&FieldPath::new("fhash"), file_dictionary);
    index.set_identity(Identity {
        length: 1_900,
        modified: Some(1_700_000_000_000_000_001),
        checksum: Some(0xdead_beef_0000_0001),
    });
    index.set_checkpoints(vec![
        Checkpoint {
            raw_offset: 0,
            offset: 0,
            bits: 0,
            window: Window::Member,
        },
        Checkpoint {
            raw_offset: 50_000,
            offset: 1_000,
            bits: 3,
            window: Window::Loaded(b"the history that the next block refers to; ".repeat(700)),
        },
        Checkpoint {
            raw_offset: 90_000,
            offset: 1_700,
            bits: 0,
            window: Window::Loaded(b"short".to_vec()),
        },
    ]);
    index.attach("dft.names", b"hashes and the names behind them".to_vec());
    index
}

fn open(bytes: &[u8]) -> Sidecar {
    match Sidecar::open(bytes, bytes.len() as u64) {
        Ok(Opened::Sidecar(sidecar)) => *sidecar,
        other => panic!("{other:?}"),
    }
}

fn bytes_of<'a>(file: &'a [u8], block: &Block) -> &'a [u8] {
    let range = block.range();
    &file[range.start as usize..range.end as usize]
}

#[test]
fn an_index_survives_a_round_trip() {
    let index = sample();
    let bytes = index.encode().unwrap();
    let read = Sidecar::read(&bytes).unwrap();
    assert_eq!(read, index);
    assert_eq!(read.encode().unwrap(), bytes, "the same bytes again");
    let filter = |chunk| read.filter(&FieldPath::new("fhash"), chunk);
    assert!(matches!(filter(0), Some(ChunkFilter::Entries(_))));
    assert!(matches!(filter(1), Some(ChunkFilter::Bloom(_))));
    assert!(read.limits(&FieldPath::new("pid"), 1).unwrap().1.is_some());
}

#[test]
fn golden_bytes_are_read_and_those_of_older_versions_refused() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");
    let path = format!("{folder}/v3/sample.idx");
    if !std::path::Path::new(&path).exists() {
        std::fs::create_dir_all(format!("{folder}/v3")).unwrap();
        std::fs::write(&path, sample().encode().unwrap()).unwrap();
    }
    let golden = std::fs::read(path).unwrap();
    assert_eq!(Sidecar::read(&golden).unwrap(), sample());
    for version in ["v1", "v2"] {
        let old = std::fs::read(format!("{folder}/{version}/sample.idx")).unwrap();
        let refused = Sidecar::open(&old, old.len() as u64);
        assert!(
            matches!(refused, Err(SidecarError::Version { .. })),
            "{version}: {refused:?}"
        );
    }
}

/// A chunk needs no filter; all else must be there, or the sidecar is incomplete.
#[test]
fn a_sidecar_with_a_missing_block_is_refused() {
    let (index, bytes) = (sample(), sample().encode().unwrap());
    let Ok(Opened::Sidecar(sidecar)) = Sidecar::open(&bytes, bytes.len() as u64) else {
        panic!("the whole file is at hand");
    };
    let without = |kind| {
        let mut body = bytes.clone();
        let blocks = sidecar.blocks().iter();
        let named: Vec<_> = blocks.filter(|b| Some(b.kind) != kind).cloned().collect();
        let checkpoints = crate::checkpoint::encode(&index.checkpoints, &mut body);
        let footer = index.encode_footer(&checkpoints, &named);
        Sidecar::read(&super::closed(super::SIGNATURE, body, footer).unwrap())
    };
    assert_eq!(without(None).as_ref(), Ok(&index));
    for kind in [
        BlockKind::Sketches,
        BlockKind::Limits,
        BlockKind::Slowest,
        BlockKind::Attachment,
        BlockKind::FileDictionary,
    ] {
        let refused = without(Some(kind));
        assert!(
            matches!(refused, Err(SidecarError::Damaged { .. })),
            "{kind:?}: {refused:?}"
        );
    }
}

#[test]
fn the_end_of_a_sidecar_locates_all_blocks() {
    let bytes = sample().encode().unwrap();
    let length = bytes.len() as u64;
    let tail = |wanted: u64| &bytes[(length - wanted.min(length)) as usize..];
    let Ok(Opened::More(more)) = Sidecar::open(tail(100), length) else {
        panic!("100 bytes do not hold the footer");
    };
    assert!(more < TAIL_BYTES);
    assert!(matches!(
        Sidecar::open(tail(more - 1), length),
        Ok(Opened::More(again)) if again == more
    ));
    let Ok(Opened::Sidecar(mut sidecar)) = Sidecar::open(tail(more), length) else {
        panic!("all requested bytes are given");
    };
    assert_eq!(sidecar.index().chunks(), sample().chunks());
    assert_eq!(sidecar.index().dimensions(), sample().dimensions());
    assert_eq!(sidecar.index().encode(), Err(SidecarError::NotLoaded));
    assert_eq!(sidecar.index().statistics(0), None);
    assert_eq!(sidecar.index().attachment("dft.names"), None);
    for block in sidecar.blocks().to_vec() {
        assert!(!sidecar.is_loaded(&block));
        sidecar.load(&block, bytes_of(&bytes, &block)).unwrap();
        assert!(sidecar.is_loaded(&block));
    }
    assert!(sidecar.index().attachment("dft.names").is_some());
    let Window::Stored(window) = sidecar.index().checkpoints()[1].window else {
        panic!("windows stay in the sidecar");
    };
    let begin = window.offset as usize;
    let stored = &bytes[begin..begin + window.length as usize];
    let Window::Loaded(wanted) = &sample().checkpoints[1].window else {
        panic!("as made");
    };
    assert_eq!(window.load(stored).as_ref(), Ok(wanted));
    assert!(window.load(&stored[1..]).is_err());
}

#[test]
fn other_files_and_truncated_files_are_refused() {
    let bytes = sample().encode().unwrap();
    let cases: [(&[u8], &str); 4] = [
        (b"", "not an index"),
        (b"{\"name\":\"read\"}\n", "not an index"),
        (&bytes[..bytes.len() - 1], "not an index"),
        (&[0; 4_096], "not an index"),
    ];
    for (file, reason) in cases {
        let error = Sidecar::read(file).unwrap_err().to_string();
        assert!(error.starts_with(reason), "{error}");
    }
    let length = bytes.len() as u64;
    assert!(matches!(
        Sidecar::open(&bytes, length + 5),
        Err(SidecarError::Damaged {
            part: "the trailer",
            ..
        })
    ));
    let block = open(&bytes).blocks()[0];
    assert!(matches!(
        open(&bytes).load(&block, &bytes[..10]),
        Err(SidecarError::WrongBytes { found: 10, .. })
    ));
    let mut later = bytes.clone();
    let trailer = later.len() - 48;
    later[trailer + 20] = 4;
    let checksum = crc32c::crc32c(&later[trailer..trailer + 36]).to_le_bytes();
    later[trailer + 36..trailer + 40].copy_from_slice(&checksum);
    assert!(matches!(
        Sidecar::open(&later, length),
        Err(SidecarError::Version {
            found: 4,
            wanted: 3
        })
    ));
}

#[test]
fn only_missing_dimensions_are_added() {
    let old = config(&["pid"]);
    let new = config(&["pid", "fhash", "ok"]);
    let bytes = build(&old).encode().unwrap();
    let mut index = Sidecar::read(&bytes).unwrap();
    index.extend(&new, &summaries(&new)).unwrap();
    assert_eq!(index, build(&new));
    let fewer = &summaries(&new)[..1];
    assert_eq!(index.extend(&new, fewer), Err(ChunkMismatch));
}

#[test]
fn the_second_query_gets_its_filters_from_the_cache() {
    let bytes = sample().encode().unwrap();
    let cache = FilterCache::new(1 << 20);
    for round in 0..2 {
        let mut sidecar = open(&bytes);
        let blocks = sidecar.blocks().to_vec();
        for block in blocks
            .iter()
            .filter(|block| block.kind == BlockKind::Filters)
        {
            match cache.get(sidecar.key(), block) {
                Some(filters) => sidecar.put_filters(block, filters),
                None => {
                    sidecar.load(block, bytes_of(&bytes, block)).unwrap();
                    cache.put(sidecar.key(), block, sidecar.filters(block).unwrap());
                }
            }
        }
        assert_eq!(cache.counts().hits, round);
        let field = FieldPath::new("fhash");
        assert_eq!(
            sidecar.index().filter(&field, 1),
            sample().filter(&field, 1)
        );
    }
}

/// A body of each kind with contents.
fn bodies() -> Vec<(BlockKind, Vec<u8>)> {
    let index = sample();
    let mut statistics = Vec::clone(index.statistics.blocks[0].as_ref().unwrap());
    statistics.push(statistics[0].clone());
    let dimension = |path: &str| index.dimension(&FieldPath::new(path)).unwrap();
    let mut limits = Vec::clone(dimension("pid").limits.blocks[0].as_ref().unwrap());
    limits.push(dimension("ratio").limits.get(0).unwrap().clone());
    let mut filters = Vec::clone(dimension("fhash").filters.blocks[0].as_ref().unwrap());
    filters.push(None);
    vec![
        (BlockKind::Statistics, body::encode_statistics(&statistics)),
        (BlockKind::Limits, body::encode_limits(&limits)),
        (BlockKind::Filters, body::encode_filters(&filters)),
        (BlockKind::FileDictionary, file_dictionary().encode()),
    ]
}

#[test]
fn bodies_decode_without_their_envelope() {
    for (kind, body) in bodies() {
        assert!(fuzzing::block(kind, &body), "{kind:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_change_of_a_byte_goes_unnoticed(
        at in any::<proptest::sample::Index>(), flip in 1_u8..,
    ) {
        let mut bytes = sample().encode().unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        prop_assert!(Sidecar::read(&bytes).is_err(), "byte {}", at);
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Sidecar::read(&bytes);
        fuzzing::footer(&bytes);
        fuzzing::provenance(&bytes);
        for kind in [
            BlockKind::Statistics, BlockKind::Sketches, BlockKind::Limits, BlockKind::Filters,
            BlockKind::FileDictionary,
        ] {
            fuzzing::block(kind, &bytes);
        }
    }

    #[test]
    fn no_change_below_the_checksum_panics(
        at in any::<proptest::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        for (kind, mut body) in bodies() {
            let at = at.index(body.len());
            body[at] = byte;
            if cut {
                body.truncate(at);
            }
            fuzzing::block(kind, &body);
        }
    }
}
