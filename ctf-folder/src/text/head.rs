//! The part of an event's text between its time and its fields.

use ctf::class::{EnvironmentValue, EventClass, TraceClass};
use ctf::text::push_signed;

use super::style::TextStyle;

/// Names of log levels by their number.
const LOG_LEVELS: [&str; 15] = [
    "TRACE_EMERG",
    "TRACE_ALERT",
    "TRACE_CRIT",
    "TRACE_ERR",
    "TRACE_WARNING",
    "TRACE_NOTICE",
    "TRACE_INFO",
    "TRACE_DEBUG_SYSTEM",
    "TRACE_DEBUG_PROGRAM",
    "TRACE_DEBUG_PROCESS",
    "TRACE_DEBUG_MODULE",
    "TRACE_DEBUG_UNIT",
    "TRACE_DEBUG_FUNCTION",
    "TRACE_DEBUG_LINE",
    "TRACE_DEBUG",
];

/// Writes the properties, with their names or separated by colons.
struct Properties {
    text: Vec<u8>,
    has_names: bool,
    /// A property other than the name of the trace was written.
    has_any: bool,
}

impl Properties {
    fn push(&mut self, name: &str, value: &[u8]) {
        if self.has_names {
            self.text.extend_from_slice(name.as_bytes());
            self.text.extend_from_slice(b" = ");
        } else if self.has_any {
            self.text.push(b':');
        }
        self.text.extend_from_slice(value);
        if self.has_names {
            self.text.extend_from_slice(b", ");
        }
        self.has_any = true;
    }

    /// The name of the trace. Babeltrace writes no separator after it, or two if a time precedes.
    fn push_trace(&mut self, name: &str, has_time: bool) {
        self.push("trace", name.as_bytes());
        if self.has_names && has_time {
            self.text.extend_from_slice(b", ");
        }
        self.has_any = false;
    }
}

/// The heads of the event classes of a trace.
pub(super) struct Heads<'t> {
    pub(super) style: &'t TextStyle,
    pub(super) trace: &'t TraceClass,
    /// The name of the trace, relative to where it was searched.
    pub(super) name: &'t str,
}

impl Heads<'_> {
    pub(super) fn head(&self, event: &EventClass, has_time: bool) -> Box<[u8]> {
        let chosen = &self.style.fields;
        let mut properties = Properties {
            text: Vec::new(),
            has_names: self.style.names.header,
            has_any: false,
        };
        if chosen.trace {
            properties.push_trace(&self.trace_name(), has_time);
        }
        let environment = [
            (chosen.hostname, "hostname"),
            (chosen.domain, "domain"),
            (chosen.procname, "procname"),
            (chosen.vpid, "vpid"),
        ];
        for (is_chosen, key) in environment {
            let value = self.trace.environment_entry(key);
            let Some(value) = value.filter(|_| is_chosen) else {
                continue;
            };
            let mut text = Vec::new();
            match value {
                EnvironmentValue::String(value) => text.extend_from_slice(value.as_bytes()),
                EnvironmentValue::Integer(value) => {
                    text.push(b'(');
                    push_signed(&mut text, *value);
                    text.push(b')');
                }
            }
            properties.push(&format!("trace:{key}"), &text);
        }
        if let Some(level) = event.log_level.filter(|_| chosen.loglevel) {
            let index = usize::try_from(level).ok();
            let name = index.and_then(|index| LOG_LEVELS.get(index));
            let name = name.copied().unwrap_or("<unknown>");
            properties.push("loglevel", format!("{name} ({level})").as_bytes());
        }
        if let Some(uri) = event.emf_uri.as_deref().filter(|_| chosen.emf) {
            properties.push("model.emf.uri", uri.as_bytes());
        }
        let Properties {
            mut text,
            has_names,
            has_any,
        } = properties;
        if has_any && !has_names {
            text.push(b' ');
        }
        if has_names {
            text.extend_from_slice(b"name = ");
        }
        let name = event.identity.name.as_deref().unwrap_or("<unknown>");
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(if has_names { b", " } else { b": " });
        text.into()
    }

    /// Host and folder, as Babeltrace names traces.
    pub(super) fn trace_name(&self) -> String {
        let host = match self.trace.environment_entry("hostname") {
            Some(EnvironmentValue::String(host)) => host,
            _ => "",
        };
        let separator = if host.is_empty() || self.name.is_empty() {
            ""
        } else {
            "/"
        };
        format!("{host}{separator}{}", self.name)
    }
}
