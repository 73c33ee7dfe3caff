use std::sync::Arc;

use proptest::prelude::*;

use super::Records;
use crate::{
    Access, Block, BlockType, Cause, FileClass, FileTag, Operation, Record, Tracer, batch::Batch,
};

/// The parts of a record: file, request, block, offset, the rest.
type Parts = (usize, Option<usize>, Option<u64>, Option<u64>, (u64, u8));

const REQUESTS: [&str; 5] = ["r-1", "r-2", "a much longer id of a request", "r-ä", "r-å"];

fn files() -> Vec<FileTag> {
    let tracer = Arc::new(Tracer::default());
    (0..6)
        .map(|file| FileTag::new(&tracer, format!("file {file}"), FileClass::Data, None))
        .collect()
}

fn record<'r>(files: &'r [FileTag], parts: &Parts) -> Record<'r> {
    let (file, request, block, offset, (number, small)) = *parts;
    let file = &files[file];
    Record {
        start: number,
        latency: u64::from(small),
        operation: Operation::ALL[usize::from(small) % Operation::COUNT],
        cause: Cause::ALL[usize::from(small) % Cause::ALL.len()],
        thread: small.into(),
        file,
        access: Access {
            offset,
            asked: number ^ 1,
            done: number ^ 2,
            errno: small.into(),
            cache_hit: [None, Some(false), Some(true)][usize::from(small) % 3],
            block: block.map(|size| Block::of(file, BlockType::Index, size)),
        },
        request: request.map(|request| REQUESTS[request]),
        requests: small.into(),
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    let optional = || proptest::option::of(any::<u64>());
    let request = proptest::option::of(0..REQUESTS.len());
    let rest = (0..1_u64 << 40, any::<u8>());
    (0..6_usize, request, optional(), optional(), rest)
}

proptest! {
    /// Records of all buffers come out ordered by their end, unchanged.
    #[test]
    fn records_survive_a_round_trip(
        rounds in proptest::collection::vec(
            proptest::collection::vec((0..3_usize, parts()), 0..60), 1..4),
    ) {
        let files = files();
        let mut buffers: [Batch; 3] = Default::default();
        let mut records = Records::default();
        for pushed in rounds {
            for (buffer, parts) in &pushed {
                buffers[*buffer].push(&record(&files, parts));
            }
            records.clear();
            for (number, batch) in buffers.iter_mut().enumerate() {
                records.take(number, batch);
                prop_assert_eq!(batch.len(), 0);
            }
            records.sort();
            let mut expected: Vec<_> = pushed.iter().collect();
            expected.sort_by_key(|(buffer, parts)| (record(&files, parts).end(), *buffer));
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(_, parts)| format!("{:?}", record(&files, parts)))
                .collect();
            let found: Vec<_> = records.iter().map(|record| format!("{record:?}")).collect();
            prop_assert_eq!(records.len(), expected.len());
            prop_assert_eq!(found, expected);
        }
    }
}

/// A record that differs little from the previous one takes few bytes.
#[test]
fn a_record_similar_to_the_previous_one_is_short() {
    let files = files();
    let mut batch = Batch::default();
    for number in 0..100 {
        let parts = (number % 4, Some(0), None, Some(4096), (number as u64, 1));
        batch.push(&record(&files, &parts));
    }
    assert!(batch.bytes() < 100 * 16, "{}", batch.bytes());
}
