//! The canonical paths of the nodes of a procedure.

use std::borrow::Cow;

use ctf::class::{FieldKind, Scope};
use ctf::{Node, NodeId, Procedure};

/// Bytes of paths that are stored. Metadata can have many fields inside of deep structures with
/// long names; paths beyond this limit are built each time.
const STORED_BYTES_MAX: usize = 16 << 20;

/// The paths of all nodes. The path of a node that is not a field is empty.
#[derive(Debug)]
pub(super) struct Paths {
    procedure: Procedure,
    /// Lengths in bytes.
    lengths: Vec<usize>,
    /// Paths, up to the limit.
    stored: Vec<Option<Box<str>>>,
}

impl Paths {
    pub(super) fn new(procedure: &Procedure) -> Self {
        let mut paths = Self {
            procedure: procedure.clone(),
            lengths: Vec::with_capacity(procedure.nodes().len()),
            stored: Vec::with_capacity(procedure.nodes().len()),
        };
        let mut stored_bytes = 0_usize;
        for node in procedure.nodes() {
            let length = paths.length_of(node);
            stored_bytes = stored_bytes.saturating_add(length);
            let fits = stored_bytes <= STORED_BYTES_MAX;
            paths.lengths.push(length);
            let path = fits.then(|| paths.build(node, length).into());
            paths.stored.push(path);
        }
        paths
    }

    /// The length of the path of `node`; those of the nodes around it are known.
    fn length_of(&self, node: &Node) -> usize {
        let Some(parent) = node.parent() else {
            return root(node.scope()).len();
        };
        let above = self.lengths[parent.index()];
        match node.display_name() {
            _ if above == 0 || self.is_array(parent) => 0,
            Some(name) => above.saturating_add(name.len()).saturating_add(1),
            None => above,
        }
    }

    fn is_array(&self, node: NodeId) -> bool {
        matches!(self.procedure.field_class(node).kind, FieldKind::Array(_))
    }

    fn build(&self, node: &Node, length: usize) -> String {
        if length == 0 {
            return String::new();
        }
        let mut names = Vec::new();
        let mut at = node;
        while let Some(parent) = at.parent() {
            if let Some(Some(stored)) = self.stored.get(parent.index()) {
                names.extend(at.display_name());
                return joined(stored, &names, length);
            }
            names.extend(at.display_name());
            at = self.procedure.node(parent);
        }
        joined(root(at.scope()), &names, length)
    }

    /// The path of `node`.
    pub(super) fn path(&self, node: NodeId) -> Cow<'_, str> {
        match &self.stored[node.index()] {
            Some(path) => Cow::Borrowed(path),
            None => self
                .build(self.procedure.node(node), self.lengths[node.index()])
                .into(),
        }
    }

    #[cfg(test)]
    pub(super) fn stored_bytes(&self) -> usize {
        self.stored.iter().flatten().map(|path| path.len()).sum()
    }

    /// The paths of all nodes that are fields and have paths of at most `length_max` bytes.
    pub(super) fn short(&self, length_max: usize) -> impl Iterator<Item = (NodeId, Cow<'_, str>)> {
        let ids = (0..).map(NodeId).zip(&self.lengths);
        let short = ids.filter(move |(_, length)| (1..=length_max).contains(*length));
        short.map(|(id, _)| (id, self.path(id)))
    }
}

/// `above` and the names, which begin with the innermost one.
fn joined(above: &str, names: &[&str], length: usize) -> String {
    let mut path = String::with_capacity(length);
    path.push_str(above);
    for name in names.iter().rev() {
        path.push('.');
        path.push_str(name);
    }
    path
}

/// The first part of the paths of a scope.
fn root(scope: Scope) -> &'static str {
    match scope {
        Scope::PacketHeader | Scope::EventHeader => "",
        Scope::PacketContext => "packet",
        Scope::EventCommonContext | Scope::EventSpecificContext => "ctx",
        Scope::EventPayload => "args",
    }
}
