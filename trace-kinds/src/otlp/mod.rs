//! OpenTelemetry spans as OTLP sends them: `ExportTraceServiceRequest`, in protobuf or JSON.
//!
//! A packet is the body of one request, or the part of it that one resource sent. Protobuf is read
//! as it lies, by hand and without copies; JSON is turned into the protobuf that says the same
//! ([`to_protobuf`]) and then read alike. Which of the two a packet is tells its first byte
//! ([`is_json`]).
//!
//! | field | from |
//! | --- | --- |
//! | `name`, `cat` | name and kind of the span (`server`, `client`, …) |
//! | `ts`, `dur` | start, end − start, ns; missing when the span does not tell them |
//! | `pid`, `tid` | `process.pid` of the resource, `thread.id` of the span |
//! | `args.*` | attributes; a map as `args.KEY.ENTRY`, an array as JSON text, bytes as hex digits |
//! | `args.exception.*` | of the span's last exception event, where no attribute has that name |
//! | `args.trace_id`, `args.span_id`, `args.parent_span_id` | hexadecimal digits |
//! | `args.status`, `args.status_message` | `unset`, `ok`, `error`, and the message |
//! | `args.events`, `args.links` | how many the span has |
//! | `ctx.*` | attributes of the resource, and of the scope; `ctx.scope.name`, `ctx.scope.version` |

mod decoder;
mod encode;
mod held;
mod json;
mod list;
mod message;
mod request;
mod wire;

#[cfg(test)]
mod tests;

pub use decoder::{OtlpDecoder, OtlpEvent, kind_name};
pub use encode::{
    NewValue, RequestBuilder, SpanWriter, add_resource_attribute, attribute_message, scope_named,
};
pub use json::{JSON_MEMORY_RATIO, is_json, to_protobuf, to_protobuf_within};
pub use message::{AnyValue, Attribute, List, Source, Span, SpanEvent, each_resource_attribute};
pub use request::{Identity, ResourcePart, check};
