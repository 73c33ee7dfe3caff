//! Block cache traces of RocksDB: walking, printing, decoding as events, and every analysis.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use trace_analysis::{
    BucketQuestion, Buckets, CacheAnalysis, CacheConfig, CacheQuestions, CorrelationQuestion,
    LabelSet,
};
use trace_events::Decoder;
use trace_events::rocksdb::{BlockCacheTrace, BlockCsv, Caller, RocksdbDecoder, TraceKind};
use trace_query::FieldTable;

fn questions() -> CacheQuestions {
    let labels = |text| LabelSet::parse_list(text).expect("the labels are known");
    let buckets = |text| Buckets::parse(text).expect("the limits rise");
    let of = |text| Some(BucketQuestion { labels: labels(text), buckets: buckets("1,10,100") });
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
        correlation: Some(CorrelationQuestion { labels: labels("caller,bt"), values_max: 4 }),
        block_sizes: true,
        access_histograms: true,
        ..CacheQuestions::default()
    }
}

fuzz_target!(|input: &[u8]| {
    let Ok(mut trace) = BlockCacheTrace::open(input) else { return };
    let (mut csv, mut text) = (BlockCsv::new(), Vec::new());
    let mut analysis = CacheAnalysis::new(questions());
    let mut records = 0;
    while let Ok(Some(record)) = trace.next_record() {
        csv.put_row(&mut text, &record);
        analysis.observe(&record);
        records += 1;
    }
    let report = analysis.report();
    assert_eq!(report.accesses, records);
    let _text = report.to_text();
    // Wild times make timelines that are refused; anything else is written.
    let _files = analysis.files();
    let mut events = 0;
    let mut decoder = RocksdbDecoder::new(TraceKind::BlockCache, &FieldTable::new());
    let _end = decoder.decode(input, &mut |event| {
        event.each_field(&mut |_, _| {});
        events += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(events, records);
});
