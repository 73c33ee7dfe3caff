//! OpenTelemetry spans as OTLP sends them: `ExportTraceServiceRequest`, in protobuf or JSON.
//!
//! A packet is the body of one request, or the part of it that one resource sent. Protobuf is
//! decoded in place; JSON is first converted to protobuf ([`to_protobuf`]). The first byte of a
//! packet shows which of the two it is ([`is_json`]).
//!
//! | field | from |
//! | --- | --- |
//! | `name`, `cat` | name and kind of the span (`server`, `client`, …) |
//! | `ts`, `dur` | start, end − start, ns; missing if unknown |
//! | `pid`, `tid` | `process.pid` of the resource, `thread.id` of the span |
//! | `args.*` | attributes; a map as `args.KEY.ENTRY`, an array as JSON text, bytes as hex digits |
//! | `args.exception.*` | of the span's last exception event, unless an attribute has that name |
//! | `args.trace_id`, `args.span_id`, `args.parent_span_id` | hexadecimal digits |
//! | `args.status`, `args.status_message` | `unset`, `ok`, `error`, and the message |
//! | `args.events`, `args.links` | their numbers |
//! | `ctx.*` | attributes of the resource, and of the scope; `ctx.scope.name`, `ctx.scope.version` |

mod attribute;
mod decoder;
mod emitter;
mod field;
mod field_value;
pub mod file;
mod json;
mod limits;
mod request;
mod schema;
mod span;
mod validate;
mod visitor;
mod wire;
mod writer;

#[cfg(test)]
mod tests;

pub use attribute::{AnyValue, Attribute, List};
pub use decoder::{OtlpDecoder, OtlpEvent, kind_name};
pub use emitter::{Emitter, each_resource_attribute};
pub use json::{JSON_MEMORY_RATIO, is_json, to_json_line, to_protobuf, to_protobuf_within};
pub use limits::{Counted, RequestError, RequestLimits};
pub use request::{Identity, RESOURCE_MEMORY_BYTES, ResourcePart, check, resource_count};
pub use span::{Span, SpanEvent};
pub use writer::{
    NewValue, RequestBuilder, SpanWriter, add_resource_attribute, attribute_message, scope_named,
};
