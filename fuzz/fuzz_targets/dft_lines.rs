//! Lines of DFTracer traces, for two projections. What is an event must not depend on the fields
//! that are asked for, nor on the lines around.
#![no_main]

use std::ops::{ControlFlow, Range};

use libfuzzer_sys::fuzz_target;
use trace_events::dft::{DftDecoder, DftVisitor, Metadata, Names, TimeUnit};
use trace_events::{Decoded, Event};
use trace_query::{FieldPath, FieldTable};

struct Look<'t>(&'t FieldTable);

impl DftVisitor for Look<'_> {
    fn event<E: Event>(&mut self, event: &E, _: Range<usize>) -> ControlFlow<()> {
        for (id, _) in self.0.iter() {
            let _value = event.field(id);
        }
        let _ts = event.ts();
        event.each_field(&mut |path, _| assert!(!path.is_empty()));
        ControlFlow::Continue(())
    }

    fn metadata(&mut self, metadata: Metadata) {
        metadata.apply(&mut Default::default(), &mut Default::default());
    }
}

fn walk(fields: &[&str], packet: &[u8]) -> Decoded {
    let mut table = FieldTable::new();
    for field in fields {
        table.insert(&FieldPath::new(field));
    }
    let decoder = DftDecoder::new(&table, Names::default(), TimeUnit::Microsecond);
    decoder.walk(packet, &mut Look(&table))
}

fuzz_target!(|packet: &[u8]| {
    let all = walk(&["name", "ts", "dur", "pid", "fhash", "fname", "a.b", "level"], packet);
    assert_eq!(all, walk(&[], packet));
    let mut alone = Decoded::default();
    for line in packet.split_inclusive(|byte| *byte == b'\n') {
        alone += walk(&["fhash"], line);
    }
    assert_eq!(all, alone);
});
