//! Field numbers of the messages, as `trace.proto`, `resource.proto` and `common.proto` of
//! OpenTelemetry declare them; reading and writing use the same.

macro_rules! messages {
    ($($message:ident { $($field:ident = $number:literal,)* })*) => {
        $(
            pub(in crate::otlp) mod $message {
                $(pub(in crate::otlp) const $field: u32 = $number;)*
            }
        )*
    };
}

messages! {
    request {
        RESOURCE_SPANS = 1,
    }
    // ResourceSpans and ScopeSpans: the emitter is the resource or the scope, the parts are the
    // messages ScopeSpans or Span.
    spans {
        EMITTER = 1,
        PARTS = 2,
        SCHEMA_URL = 3,
    }
    resource {
        ATTRIBUTES = 1,
        DROPPED_ATTRIBUTES_COUNT = 2,
    }
    scope {
        NAME = 1,
        VERSION = 2,
        ATTRIBUTES = 3,
        DROPPED_ATTRIBUTES_COUNT = 4,
    }
    span {
        TRACE_ID = 1,
        SPAN_ID = 2,
        TRACE_STATE = 3,
        PARENT_SPAN_ID = 4,
        NAME = 5,
        KIND = 6,
        START_TIME = 7,
        END_TIME = 8,
        ATTRIBUTES = 9,
        DROPPED_ATTRIBUTES_COUNT = 10,
        EVENTS = 11,
        DROPPED_EVENTS_COUNT = 12,
        LINKS = 13,
        DROPPED_LINKS_COUNT = 14,
        STATUS = 15,
        FLAGS = 16,
    }
    event {
        TIME = 1,
        NAME = 2,
        ATTRIBUTES = 3,
        DROPPED_ATTRIBUTES_COUNT = 4,
    }
    link {
        TRACE_ID = 1,
        SPAN_ID = 2,
        TRACE_STATE = 3,
        ATTRIBUTES = 4,
        DROPPED_ATTRIBUTES_COUNT = 5,
        FLAGS = 6,
    }
    status {
        MESSAGE = 2,
        CODE = 3,
    }
    key_value {
        KEY = 1,
        VALUE = 2,
    }
    any_value {
        STRING = 1,
        BOOL = 2,
        INT = 3,
        DOUBLE = 4,
        ARRAY = 5,
        KEY_VALUE_LIST = 6,
        BYTES = 7,
    }
    // ArrayValue and KeyValueList.
    list {
        VALUES = 1,
    }
}
