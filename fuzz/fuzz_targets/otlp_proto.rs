//! OTLP requests in protobuf: validation, decoding as events, reassembly.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use query_language::{FieldPath, FieldTable};
use trace_kinds::Decoder;
use trace_kinds::otlp::{OtlpDecoder, RequestBuilder, RequestLimits, check, is_json};

fuzz_target!(|input: &[u8]| {
    if is_json(input) {
        return;
    }
    let mut table = FieldTable::new();
    for path in [
        "name",
        "dur",
        "pid",
        "tid",
        "events",
        "trace_id",
        "a.b",
        "exception.type",
        "ctx.a",
    ] {
        table.insert(&FieldPath::new(path));
    }
    let mut builder = RequestBuilder::new();
    let decoded = OtlpDecoder::new(&table).walk(input, &mut |event| {
        builder.add(event.resource(), event.scope(), &event.span());
        ControlFlow::Continue(())
    });
    let mut shown = 0;
    let all = OtlpDecoder::new(&FieldTable::new()).decode(input, &mut |event| {
        event.each_field(&mut |_, _| {});
        shown += 1;
        ControlFlow::Continue(())
    });
    let checked = check(input, &RequestLimits::READABLE);
    // An accepted request can be decoded, and all readers see the same spans.
    if let Ok(parts) = &checked {
        let spans: u64 = parts.iter().map(|part| part.spans).sum();
        assert_eq!(decoded.as_ref().map(|d| d.events), Ok(spans));
        assert_eq!(all.as_ref().map(|d| d.events), Ok(shown));
        assert_eq!(shown, spans);
        let again = check(&builder.finish(), &RequestLimits::READABLE)
            .expect("what was put together is sound");
        assert_eq!(again.iter().map(|part| part.spans).sum::<u64>(), spans);
    }
});
