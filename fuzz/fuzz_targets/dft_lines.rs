//! Lines of DFTracer traces, with two projections. Whether a line is an event must not depend on
//! the requested fields, and neither this nor its content on the lines around it.
#![no_main]

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{ControlFlow, Range};

use libfuzzer_sys::fuzz_target;
use query_language::{FieldPath, FieldTable};
use trace_kinds::dft::{DftDecoder, DftVisitor, Metadata, Names, TimeUnit};
use trace_kinds::{Decoded, Event};

const FIELDS: &[&str] = &["name", "ts", "dur", "pid", "fhash", "fname", "a.b", "level"];

/// Computes a checksum of all values that it receives.
struct Checksum<'t>(&'t FieldTable, DefaultHasher);

impl DftVisitor for Checksum<'_> {
    fn event<E: Event>(&mut self, event: &E, _: Range<usize>) -> ControlFlow<()> {
        for (id, _) in self.0.iter() {
            format!("{:?}", event.field(id)).hash(&mut self.1);
        }
        event.ts().hash(&mut self.1);
        event.each_field(&mut |path, value| {
            assert!(!path.is_empty());
            format!("{path}={value:?}").hash(&mut self.1);
        });
        ControlFlow::Continue(())
    }

    fn metadata(&mut self, metadata: Metadata) {
        metadata.apply(&mut Default::default(), &mut Default::default());
    }
}

/// The number of events in the pieces of a packet, and a checksum of their content.
fn walk<'p>(fields: &[&str], pieces: impl Iterator<Item = &'p [u8]>) -> (Decoded, u64) {
    let mut table = FieldTable::new();
    for field in fields {
        table.insert(&FieldPath::new(field));
    }
    let decoder = DftDecoder::new(&table, Names::default(), TimeUnit::Microsecond);
    let mut checksum = Checksum(&table, DefaultHasher::new());
    let mut decoded = Decoded::default();
    for piece in pieces {
        decoded += decoder.walk(piece, &mut checksum);
    }
    (decoded, checksum.1.finish())
}

fuzz_target!(|packet: &[u8]| {
    let (count, checksum_of_text) = walk(FIELDS, [packet].into_iter());
    assert_eq!(count, walk(&[], [packet].into_iter()).0);
    let lines = packet.split_inclusive(|byte| *byte == b'\n');
    assert_eq!((count, checksum_of_text), walk(FIELDS, lines));
});
