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

use ctf::class::{EnvironmentValue, EventClass, FieldKind, Scope, TraceClass};
use ctf::{NodeId, Procedure};
use query_language::FieldTable;

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
    /// Canonical path of every node that is a field; empty for others.
    paths: Vec<Box<str>>,
}

impl FieldMap {
    pub(super) fn new(procedure: &Procedure, table: &FieldTable) -> Self {
        let paths = paths(procedure);
        let wanted: Vec<&str> = table.paths().iter().map(|path| path.as_str()).collect();
        let indexes = |node: usize| {
            let matches = |wanted: &&str| {
                let path = &*paths[node];
                **wanted == *path || alias(wanted).iter().any(|name| is_context(path, name))
            };
            let found = wanted
                .iter()
                .enumerate()
                .filter(|(_, wanted)| matches(wanted));
            found.map(|(index, _)| index).collect()
        };
        let targets = (0..procedure.nodes().len())
            .map(|node| {
                if paths[node].is_empty() {
                    Box::default()
                } else {
                    indexes(node)
                }
            })
            .collect();
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
            paths,
        }
    }

    /// Indexes in the table of the fields of `node`.
    #[inline]
    pub(super) fn targets(&self, node: NodeId) -> &[usize] {
        &self.targets[node.index()]
    }

    /// The path of `node`; empty if it is not a field.
    pub(super) fn path(&self, node: NodeId) -> &str {
        &self.paths[node.index()]
    }

    /// True if the table contains `node` or something inside it.
    pub(super) fn wants(&self, procedure: &Procedure, node: NodeId) -> bool {
        if !self.targets(node).is_empty() {
            return true;
        }
        let is_struct = matches!(procedure.field_class(node).kind, FieldKind::Struct(_));
        let inside = (node.index() + 1..procedure.nodes().len()).take_while(|index| {
            let id = u32::try_from(*index).expect("nodes have ids of 32 bits");
            is_inside(procedure, NodeId(id), node)
        });
        // Members of a structure are requested one by one.
        !is_struct
            && inside
                .into_iter()
                .any(|index| !self.targets[index].is_empty())
    }
}

fn is_inside(procedure: &Procedure, mut node: NodeId, outer: NodeId) -> bool {
    while let Some(parent) = procedure.node(node).parent() {
        if parent == outer {
            return true;
        }
        node = parent;
    }
    false
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

fn paths(procedure: &Procedure) -> Vec<Box<str>> {
    let mut paths: Vec<Box<str>> = Vec::with_capacity(procedure.nodes().len());
    for node in procedure.nodes() {
        let root = match node.scope() {
            Scope::PacketHeader | Scope::EventHeader => "",
            Scope::PacketContext => "packet",
            Scope::EventCommonContext | Scope::EventSpecificContext => "ctx",
            Scope::EventPayload => "args",
        };
        let Some(parent) = node.parent() else {
            paths.push(root.into());
            continue;
        };
        let above = &*paths[parent.index()];
        let parent_class = procedure
            .trace_class()
            .field(procedure.node(parent).class());
        let path = match (node.display_name(), &parent_class.kind) {
            (_, FieldKind::Array(_)) => String::new(),
            _ if above.is_empty() => String::new(),
            (Some(name), _) => format!("{above}.{name}"),
            (None, _) => above.to_owned(),
        };
        paths.push(path.into());
    }
    paths
}

/// What `cat` is for an event class.
pub(super) fn category(event: &EventClass) -> Option<&str> {
    event.severity().or(event.identity.namespace.as_deref())
}
