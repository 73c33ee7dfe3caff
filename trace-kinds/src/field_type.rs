//! The type of a field as a column of a table: decided by its name alone, never by its values.

use query_language::{FieldPath, Term, arithmetic};

/// What the values of a field are, in every file of every kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// Nanoseconds since 1970.
    Time,
    /// An integer of 64 bits; for `dur` nanoseconds.
    Integer,
    /// A fraction.
    Fraction,
    /// True or false.
    Flag,
    /// Text, and everything whose type a trace may choose.
    Text,
}

/// Fields that are integers: those that every kind has, those of the kinds whose records have one
/// schema, of the contexts of LTTng, of DFTracer's own layers, and of OpenTelemetry's conventions.
const INTEGERS: [&str; 49] = [
    "dur",
    "pid",
    "tid",
    "packet.content_size",
    "packet.cpu_id",
    "packet.events_discarded",
    "packet.packet_seq_num",
    "packet.packet_size",
    "ctx.cpu_id",
    "ctx.pid",
    "ctx.ppid",
    "ctx.tid",
    "ctx.vpid",
    "ctx.vppid",
    "ctx.vtid",
    "args.block_size",
    "args.cf_id",
    "args.count",
    "args.done",
    "args.end",
    "args.entries",
    "args.epoch",
    "args.errno",
    "args.events",
    "args.fd",
    "args.file_size",
    "args.flags",
    "args.get_id",
    "args.http.response.status_code",
    "args.http.status_code",
    "args.image_idx",
    "args.image_size",
    "args.leaf",
    "args.len",
    "args.level",
    "args.links",
    "args.mode",
    "args.num_keys_in_block",
    "args.offset",
    "args.referenced_data_size",
    "args.requests",
    "args.ret",
    "args.server.port",
    "args.size",
    "args.sst_fd_number",
    "args.step",
    "args.tdur",
    "args.thread.id",
    "args.whence",
];

/// Fields that are true or false.
const FLAGS: [&str; 7] = [
    "args.found",
    "args.get_from_user_specified_snapshot",
    "args.immutable",
    "args.is_cache_hit",
    "args.no_insert",
    "args.not_inserted",
    "args.referenced_key_exist_in_block",
];

impl FieldType {
    /// The type of the field.
    pub fn of(field: &FieldPath) -> FieldType {
        if let Some(term) = arithmetic(field) {
            return FieldType::of_computed(&term);
        }
        match field.as_str() {
            "ts" => FieldType::Time,
            path if INTEGERS.contains(&path) => FieldType::Integer,
            path if FLAGS.contains(&path) => FieldType::Flag,
            _ => FieldType::Text,
        }
    }

    fn of_computed(term: &Term) -> FieldType {
        let mut is_fraction = term.is_fraction();
        term.for_each_field(&mut |field| {
            is_fraction |= FieldType::of(field) == FieldType::Fraction
        });
        match (is_fraction, term.is_instant()) {
            (true, _) => FieldType::Fraction,
            (false, true) => FieldType::Time,
            (false, false) => FieldType::Integer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_decide() {
        let cases = [
            ("ts", FieldType::Time),
            ("dur", FieldType::Integer),
            ("ret", FieldType::Integer),
            ("args.ret", FieldType::Integer),
            ("is_cache_hit", FieldType::Flag),
            ("name", FieldType::Text),
            ("ctx.ret", FieldType::Text),
            ("nosuch", FieldType::Text),
            ("(ret + 0)", FieldType::Integer),
            ("(dur / 1000)", FieldType::Fraction),
            ("(ts + dur)", FieldType::Time),
        ];
        for (name, expected) in cases {
            assert_eq!(FieldType::of(&FieldPath::new(name)), expected, "{name}");
        }
    }
}
