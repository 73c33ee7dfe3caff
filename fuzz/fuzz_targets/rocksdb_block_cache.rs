//! RocksDB block cache traces: parsing, printing, decoding as events, and every analysis.
#![no_main]

use std::ops::ControlFlow;

use io_analysis::{
    BucketQuestion, Buckets, CacheAnalysis, CacheConfig, CacheQuestions, CorrelationQuestion,
    LabelSet,
};
use libfuzzer_sys::fuzz_target;
use query_language::FieldTable;
use trace_kinds::Decoder;
use trace_kinds::rocksdb::{BlockCacheTrace, BlockCsv, Caller, RocksdbDecoder, TraceKind};

fn questions() -> CacheQuestions {
    let labels = |text| LabelSet::parse_list(text).expect("the labels are known");
    let buckets = |text| Buckets::parse(text).expect("the limits rise");
    let of = |text| {
        Some(BucketQuestion {
            labels: labels(text),
            buckets: buckets("1,10,100"),
        })
    };
    let caches = "lru,0,0,10K\nghost_lru_hybrid,1,1K,20K\nlru_priority,0,0,5K";
    CacheQuestions {
        caches: CacheConfig::parse(caches).expect("the caches are well formed"),
        warmup_seconds: 1,
        timelines: labels("all,cf_bt,block"),
        callers: vec![Caller::GET],
        access_counts: Some(buckets("1,2")),
        reuse_distance: of("all,block"),
        reuse_interval: of("caller,sst"),
        reuse_lifetime: of("level"),
        reuse_window: Some(2),
        spatial_locality: of("cf"),
        skew: of("block,bt"),
        correlation: Some(CorrelationQuestion {
            labels: labels("caller,bt"),
            values_max: 4,
        }),
        block_sizes: true,
        access_histograms: true,
        ..CacheQuestions::default()
    }
}

/// The length in seconds of traces whose timelines are always written. Up to 200,000 steps are
/// written, which is megabytes of text for an input of a few bytes: of longer traces only some are
/// written, selected by their length.
const SHORT_SECONDS: u64 = 2_000;
const LONG_ONE_IN: usize = 61;

fuzz_target!(|input: &[u8]| {
    let Ok(mut trace) = BlockCacheTrace::open(input) else {
        return;
    };
    let (mut csv, mut text) = (BlockCsv::new(), Vec::new());
    let mut analysis = CacheAnalysis::new(questions());
    let (mut records, mut earliest, mut latest) = (0, u64::MAX, 0);
    while let Ok(Some(record)) = trace.next_record() {
        earliest = earliest.min(record.time);
        latest = latest.max(record.time);
        csv.put_row(&mut text, &record);
        analysis.observe(&record);
        records += 1;
    }
    let report = analysis.report();
    assert_eq!(report.accesses, records);
    let _text = report.to_text();
    // Extreme times give timelines that are refused; all others are written.
    let is_short = latest.saturating_sub(earliest) / 1_000_000 <= SHORT_SECONDS;
    if is_short || input.len().is_multiple_of(LONG_ONE_IN) {
        let _files = analysis.files();
    }
    let mut events = 0;
    let mut decoder = RocksdbDecoder::new(TraceKind::BlockCache, &FieldTable::new());
    let _end = decoder.decode(input, &mut |event| {
        event.each_field(&mut |_, _| {});
        events += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(events, records);
});
