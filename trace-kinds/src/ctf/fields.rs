//! The fields of `docs/fields.md` in a trace class.
//!
//! | field | from |
//! | --- | --- |
//! | `name` | name of the event class |
//! | `cat` | log level of the event class, else its namespace |
//! | `ts` | default clock |
//! | `pid`, `tid` | `vpid` or `pid`, `vtid` or `tid` of a context, else of the environment |
//! | `args.*` | payload |
//! | `ctx.*` | specific context, common context |
//! | `packet.*` | packet context |
//!
//! Structures add a part to the path; variants and optionals do not. The value of an enumeration is
//! its label, if there is one. Arrays and BLOBs are text.

use super::paths::Paths;
use ctf::class::{EnvironmentValue, EventClass, FieldKind, TraceClass};
use ctf::{NodeId, Procedure};
use query_language::FieldTable;
use std::borrow::Cow;

/// Bytes of the longest path of a field that has another name in queries: `packet.vpid`.
const ALIAS_BYTES_MAX: usize = 16;

/// Fields outside of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Common {
    Name,
    Category,
    Time,
}

/// The mapping between fields of a table and nodes of a procedure.
#[derive(Debug)]
pub(super) struct FieldMap {
    /// Fields without a node, by their index in the table.
    pub(super) common: Vec<(usize, Common)>,
    /// Fields with the same value in all events.
    pub(super) constant: Vec<(usize, i64)>,
    /// Indexes in the table of the fields of a node, by node.
    targets: Vec<Box<[usize]>>,
    /// The nodes with targets, in order.
    wanted: Vec<NodeId>,
    paths: Paths,
}

impl FieldMap {
    pub(super) fn new(procedure: &Procedure, table: &FieldTable) -> Self {
        let paths = Paths::new(procedure);
        let wanted: Vec<&str> = table.paths().iter().map(|path| path.as_str()).collect();
        let indexes = |path: &str| {
            let matches = |wanted: &&str| {
                **wanted == *path || alias(wanted).iter().any(|name| is_context(path, name))
            };
            let found = wanted
                .iter()
                .enumerate()
                .filter(|(_, wanted)| matches(wanted));
            found.map(|(index, _)| index).collect()
        };
        let mut targets = vec![Box::default(); procedure.nodes().len()];
        let mut nodes = Vec::new();
        let longest = wanted.iter().map(|path| path.len()).max();
        let length_max = longest.map_or(0, |longest| longest.max(ALIAS_BYTES_MAX));
        for (node, path) in paths.short(length_max) {
            let found: Box<[usize]> = indexes(&path);
            if !found.is_empty() {
                nodes.push(node);
                targets[node.index()] = found;
            }
        }
        let mut common = Vec::new();
        let mut constant = Vec::new();
        for (index, wanted) in wanted.iter().enumerate() {
            match *wanted {
                "name" => common.push((index, Common::Name)),
                "cat" => common.push((index, Common::Category)),
                "ts" => common.push((index, Common::Time)),
                _ => {
                    let value = environment_id(procedure.trace_class(), wanted);
                    constant.extend(value.map(|value| (index, value)));
                }
            }
        }
        Self {
            common,
            constant,
            targets,
            wanted: nodes,
            paths,
        }
    }

    /// Indexes in the table of the fields of `node`.
    #[inline]
    pub(super) fn targets(&self, node: NodeId) -> &[usize] {
        &self.targets[node.index()]
    }

    /// The path of `node`; empty if it is not a field.
    pub(super) fn path(&self, node: NodeId) -> Cow<'_, str> {
        self.paths.path(node)
    }

    /// True if the table contains `node` or something inside it.
    pub(super) fn wants(&self, procedure: &Procedure, node: NodeId) -> bool {
        if !self.targets(node).is_empty() {
            return true;
        }
        let is_struct = matches!(procedure.field_class(node).kind, FieldKind::Struct(_));
        // Members of a structure are requested one by one.
        let next = self.wanted.partition_point(|wanted| *wanted <= node);
        let end = procedure.node(node).end();
        !is_struct && self.wanted.get(next).is_some_and(|wanted| *wanted < end)
    }
}

/// Context fields that provide a common field, in the order of preference.
fn alias(path: &str) -> &'static [&'static str] {
    match path {
        "pid" => &["vpid", "pid"],
        "tid" => &["vtid", "tid"],
        _ => &[],
    }
}

/// True when `path` is the context field `name`.
fn is_context(path: &str, name: &str) -> bool {
    let field = path
        .strip_prefix("ctx.")
        .or_else(|| path.strip_prefix("packet."));
    field == Some(name)
}

fn environment_id(trace: &TraceClass, path: &str) -> Option<i64> {
    let entries = alias(path)
        .iter()
        .filter_map(|name| trace.environment_entry(name));
    let mut integers = entries.filter_map(|value| match value {
        EnvironmentValue::Integer(value) => Some(*value),
        EnvironmentValue::String(_) => None,
    });
    integers.next()
}

/// What `cat` is for an event class.
pub(super) fn category(event: &EventClass) -> Option<&str> {
    event.severity().or(event.identity.namespace.as_deref())
}
