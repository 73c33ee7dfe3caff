//! Comparison with the result files of RocksDB's analyzer, over the corpus.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use trace_kinds::rocksdb::{BlockCacheTrace, Caller, IoTrace};

use crate::*;

/// The folder of real traces; `None`, with a message, if it does not exist.
pub(crate) fn corpus() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora");
    if !folder.exists() {
        println!("skipped: ../shared/corpora is not here");
        return None;
    }
    Some(folder.join("rocksdb"))
}

pub(crate) fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(path: &Path) -> String {
    String::from_utf8(read(path)).unwrap()
}

fn analyze(trace: &[u8], questions: CacheQuestions) -> CacheAnalysis {
    let mut analysis = CacheAnalysis::new(questions);
    let mut trace = BlockCacheTrace::open(trace).unwrap();
    while let Some(record) = trace.next_record().unwrap() {
        analysis.observe(&record);
    }
    analysis
}

fn labels(text: &str) -> Vec<LabelSet> {
    LabelSet::parse_list(text).unwrap()
}

fn buckets(text: &str) -> Buckets {
    Buckets::parse(text).unwrap()
}

fn by_bucket(labels_text: &str, buckets_text: &str) -> Option<BucketQuestion> {
    Some(BucketQuestion {
        labels: labels(labels_text),
        buckets: buckets(buckets_text),
    })
}

/// The questions of `bc_medium_analysis.cmd`.
fn medium_questions(folder: &Path) -> CacheQuestions {
    CacheQuestions {
        caches: CacheConfig::parse(&text(&folder.join("sim_config.txt"))).unwrap(),
        warmup_seconds: 10,
        downsample: 1,
        curves_only: false,
        timelines: labels("cf,bt,level,caller,all,cf_bt"),
        callers: ["Get", "Iterator", "Compaction"]
            .map(|name| Caller::from_name(name).unwrap())
            .to_vec(),
        access_counts: Some(buckets("1,2,3,4,5,10,50,100,500,1000")),
        reuse_distance: None,
        reuse_interval: by_bucket("bt,cf,caller", "1,10,100,1000"),
        reuse_lifetime: by_bucket("bt,cf", "1,10,100,1000"),
        reuse_window: Some(20),
        spatial_locality: by_bucket("cf,all", "10,20,30,40,50,60,70,80,90,100"),
        skew: by_bucket("block,bt,cf", "1,5,10,20,50,75,90,100"),
        correlation: Some(CorrelationQuestion {
            labels: labels("all,bt"),
            values_max: 100_000,
        }),
        block_sizes: true,
        access_histograms: true,
    }
}

#[test]
fn every_file_equals_that_of_the_analyser() {
    let Some(folder) = corpus() else { return };
    let analysis = analyze(
        &read(&folder.join("bc_medium.trace")),
        medium_questions(&folder),
    );
    let ours: BTreeMap<String, String> = analysis
        .files()
        .0
        .into_iter()
        .map(|file| (file.name, file.text))
        .collect();
    let results = folder.join("bc_medium_analysis");
    let mut compared = 0;
    for entry in std::fs::read_dir(&results).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name == "stdout.txt" {
            continue;
        }
        // RocksDB writes the reuse of all blocks into the files of every type; ours has a file of
        // its own for that.
        let our_name = match name.split_once("_20_reuse_blocks_timeline") {
            Some((front, _)) => {
                let access = front.split_once('_').unwrap().1;
                format!("all_{access}_20_reuse_blocks_timeline")
            }
            None => name.clone(),
        };
        let ours = ours
            .get(&our_name)
            .unwrap_or_else(|| panic!("{our_name} is missing"));
        let theirs = text(&results.join(&name));
        if name.ends_with("correlation_input") {
            // RocksDB shuffles the rows with the clock as the seed.
            let sorted = |text: &str| {
                let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
                lines[1..].sort_unstable();
                lines
            };
            assert!(sorted(ours) == sorted(&theirs), "{name}");
        } else {
            assert_eq!(*ours, theirs, "{name}");
        }
        compared += 1;
    }
    assert!(compared > 80, "{compared}");
}

#[test]
fn only_the_files_by_type_of_reuse_windows_are_more() {
    let Some(folder) = corpus() else { return };
    let analysis = analyze(
        &read(&folder.join("bc_medium.trace")),
        medium_questions(&folder),
    );
    let names: BTreeSet<String> = analysis
        .files()
        .0
        .into_iter()
        .map(|file| file.name)
        .collect();
    let theirs: BTreeSet<String> = std::fs::read_dir(folder.join("bc_medium_analysis"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let more: Vec<_> = names.difference(&theirs).map(String::as_str).collect();
    assert_eq!(
        more,
        [
            "all_all_access_20_reuse_blocks_timeline",
            "all_user_access_only_20_reuse_blocks_timeline"
        ]
    );
}

#[test]
fn reuse_distances_equal_those_of_the_analyser() {
    let Some(folder) = corpus() else { return };
    let questions = CacheQuestions {
        reuse_distance: by_bucket("all,bt", "256K,1M,4M,16M,64M"),
        ..CacheQuestions::default()
    };
    let analysis = analyze(&read(&folder.join("bc_prefix2000.trace")), questions);
    let files = analysis.files().0;
    assert_eq!(files.len(), 2);
    for file in files {
        let expected = text(&folder.join("bc_prefix2000_analysis").join(&file.name));
        assert_eq!(file.text, expected, "{}", file.name);
    }
}

#[test]
fn the_summary_equals_the_words_of_the_analyser() {
    let Some(folder) = corpus() else { return };
    for name in ["bc_medium", "bc_small"] {
        let questions = CacheQuestions::default();
        let analysis = analyze(&read(&folder.join(format!("{name}.trace"))), questions);
        let expected = text(&folder.join(format!("{name}_analysis")).join("stdout.txt"));
        let start = expected.find("****").unwrap();
        let ours = analysis.report().rocksdb_summary();
        assert_eq!(ours, expected[start..start + ours.len()], "{name}");
        assert!(expected[start + ours.len()..].starts_with("****"), "{name}");
    }
}

#[test]
fn histograms_equal_those_of_the_analyser() {
    let Some(folder) = corpus() else { return };
    let questions = CacheQuestions {
        block_sizes: true,
        access_histograms: true,
        ..Default::default()
    };
    let analysis = analyze(&read(&folder.join("bc_medium.trace")), questions);
    let ours = analysis.report().to_text(Layout::default());
    let theirs = text(&folder.join("bc_medium_analysis/stdout.txt"));
    let histograms = |text: &str| -> BTreeSet<String> {
        text.split("Count: ")
            .skip(1)
            .map(|part| {
                let lines = part.lines();
                let is_bar = |line: &&str| line.starts_with(['[', '(']);
                let head = lines.clone().take(4);
                head.chain(lines.skip(4).take_while(is_bar))
                    .collect::<Vec<_>>()
                    .join("\n")
            })
            .collect()
    };
    let (ours, theirs) = (histograms(&ours), histograms(&theirs));
    assert!(ours.len() > 30, "{}", ours.len());
    for histogram in &ours {
        assert!(theirs.contains(histogram), "{histogram}");
    }
}

/// An I/O trace as its analysis.
fn analyze_io(trace: &[u8]) -> IoAnalysis {
    let mut analysis = IoAnalysis::new(IoQuestions::default());
    let mut io = RocksdbIo::default();
    let mut trace = IoTrace::open(trace).unwrap();
    while let Some(record) = trace.next_record().unwrap() {
        analysis.observe(&io.access(&record, trace.start_ns(&record)));
    }
    analysis
}

#[test]
fn an_io_report_counts_what_the_parser_prints() {
    let Some(folder) = corpus() else { return };
    let report = analyze_io(&read(&folder.join("io_small.trace"))).report();
    let lines = text(&folder.join("io_small.txt"));
    let records: Vec<_> = lines.lines().skip(3).collect();
    assert_eq!(report.operations, records.len() as u64);
    let number = |line: &str, name: &str| -> Option<u64> {
        let value = line.split(&format!("{name}: ")).nth(1)?;
        value.split(',').next()?.trim().parse().ok()
    };
    let field = |line: &str, name: &str| -> String {
        let value = line.split(&format!("{name}: ")).nth(1).unwrap();
        value.split(',').next().unwrap().trim().to_owned()
    };
    for row in &report.latencies {
        let of: Vec<_> = records
            .iter()
            .filter(|line| field(line, "File Operation") == row.operation)
            .filter(|line| {
                let name = field(line, "File Name");
                trace_kinds::rocksdb::file_class(name.as_bytes()) == row.class
            })
            .collect();
        assert_eq!(row.count, of.len() as u64, "{row:?}");
        let sum = |name: &str| of.iter().filter_map(|line| number(line, name)).sum::<u64>();
        assert_eq!(
            (row.total_ns, row.bytes),
            (sum("Latency"), sum("Length")),
            "{row:?}"
        );
        let greatest = of.iter().filter_map(|line| number(line, "Latency")).max();
        assert_eq!(Some(row.max_ns), greatest);
    }
    let counted: u64 = report
        .throughput
        .iter()
        .map(|step| step.reads + step.writes + step.syncs + step.others)
        .sum();
    assert_eq!(counted, report.operations);
    assert!(report.to_text(Layout::default()).contains("Append"));
    assert_eq!(report.files().len(), 7);
}

/// Every element of the picture is closed: good enough to know that text was escaped.
#[track_caller]
fn assert_well_formed(svg: &str) {
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    let opened = svg.matches("<text ").count();
    assert_eq!(opened, svg.matches("</text>").count());
    for line in svg.lines() {
        let (open, close) = (line.matches('<').count(), line.matches('>').count());
        assert_eq!(open, close, "{line}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn pictures_of_both_kinds() {
    assert_well_formed(&io_picture(
        &IoAnalysis::new(IoQuestions::default()).report(),
    ));
    assert_well_formed(&cache_picture(
        &CacheAnalysis::new(CacheQuestions::default()).report(),
    ));
    let Some(folder) = corpus() else { return };
    let io = analyze_io(&read(&folder.join("io_small.trace")));
    assert_well_formed(&io_picture(&io.report()));
    let questions = CacheQuestions {
        caches: CacheConfig::parse("lru,0,0,1M,8M\nghost_lru,0,1K,64K").unwrap(),
        ..CacheQuestions::default()
    };
    let cache = analyze(&read(&folder.join("bc_small.trace")), questions);
    let svg = cache_picture(&cache.report());
    assert_well_formed(&svg);
    assert!(svg.contains("ghost_lru"));
}
