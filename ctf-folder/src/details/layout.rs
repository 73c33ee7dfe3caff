//! Which fields are printed, and the root structures of events.

use ctf::class::{Dependency, PathStep, Scope, TraceClass};
use ctf::{NodeId, Procedure};

use crate::text::visibility;

/// The nodes of a trace that are printed.
#[derive(Debug)]
pub(super) struct Layout {
    visible: Vec<bool>,
    /// The visible nodes directly inside each node.
    children: Vec<Vec<NodeId>>,
    streams: Vec<StreamRoots>,
}

/// The root structures of a stream class that are printed.
#[derive(Debug, Default)]
pub(super) struct StreamRoots {
    pub(super) packet_context: Option<NodeId>,
    pub(super) common_context: Option<NodeId>,
    pub(super) events: Vec<EventRoots>,
}

/// The root structures of an event class that are printed.
#[derive(Debug, Default)]
pub(super) struct EventRoots {
    pub(super) specific_context: Option<NodeId>,
    pub(super) payload: Option<NodeId>,
}

impl Layout {
    pub(super) fn new(procedure: &Procedure) -> Self {
        let visible = visibility(procedure);
        let mut children = vec![Vec::new(); procedure.nodes().len()];
        let mut all_roots = Vec::new();
        for (index, node) in (0_u32..).zip(procedure.nodes()) {
            let id = NodeId(index);
            match node.parent() {
                Some(parent) if visible[id.index()] => children[parent.index()].push(id),
                Some(_) => {}
                None => all_roots.push(id),
            }
        }
        let streams = roots(procedure.trace_class(), &visible, all_roots);
        Self {
            visible,
            children,
            streams,
        }
    }

    pub(super) fn is_visible(&self, node: NodeId) -> bool {
        self.visible[node.index()]
    }

    /// The printed nodes directly inside `node`.
    pub(super) fn children(&self, node: NodeId) -> &[NodeId] {
        &self.children[node.index()]
    }

    /// The roots of the stream class at `index`.
    pub(super) fn stream(&self, index: usize) -> &StreamRoots {
        &self.streams[index]
    }

    /// The scope that a length or selector is in, and the way to it: the index of a member or
    /// option, or `None` for the current element of an array. `None` if it is not printed.
    pub(super) fn path(
        &self,
        procedure: &Procedure,
        node: NodeId,
        dependency: &Dependency,
    ) -> Option<(Scope, Vec<Option<usize>>)> {
        let scope = dependency.location.scope?;
        let root = self.root_of(procedure, node, scope)?;
        let (mut at, mut path) = (root, Vec::new());
        for step in &dependency.location.path {
            let PathStep::Member(name) = step else {
                return None;
            };
            // Containers without names of their own are passed on the way to a member.
            loop {
                let children = self.children(at);
                let named = |id: &&NodeId| procedure.node(**id).name() == Some(name);
                if let Some(index) = children.iter().position(|id| named(&id)) {
                    path.push(Some(index));
                    at = children[index];
                    break;
                }
                let around = |id: &&NodeId| {
                    let end = procedure.node(**id).end();
                    **id <= node && node < end
                };
                let index = children.iter().position(|id| around(&id))?;
                let child = children[index];
                path.push(procedure.node(child).option().map(|_| index));
                at = child;
            }
        }
        Some((scope, path))
    }

    /// The root of `scope` for a node of the same event class.
    fn root_of(&self, procedure: &Procedure, node: NodeId, scope: Scope) -> Option<NodeId> {
        let is_in = |root: &Option<NodeId>| {
            root.is_some_and(|root| root <= node && node < procedure.node(root).end())
        };
        for stream in &self.streams {
            let of_stream = is_in(&stream.packet_context) || is_in(&stream.common_context);
            let mut events = stream.events.iter();
            let event =
                events.find(|event| is_in(&event.specific_context) || is_in(&event.payload));
            if !of_stream && event.is_none() {
                continue;
            }
            return match scope {
                Scope::PacketContext => stream.packet_context,
                Scope::EventCommonContext => stream.common_context,
                Scope::EventSpecificContext => event?.specific_context,
                Scope::EventPayload => event?.payload,
                Scope::PacketHeader | Scope::EventHeader => None,
            };
        }
        None
    }
}

/// Distributes the roots, which are in the order of the code of a procedure.
fn roots(trace: &TraceClass, visible: &[bool], all: Vec<NodeId>) -> Vec<StreamRoots> {
    let mut all = all.into_iter();
    let mut next = |class: Option<ctf::class::FieldId>| {
        let root = class.and_then(|_| all.next());
        root.filter(|root| visible[root.index()])
    };
    next(trace.packet_header());
    let streams = trace.stream_classes().iter().map(|stream| {
        let packet_context = next(stream.packet_context);
        next(stream.event_header);
        let common_context = next(stream.event_common_context);
        let events = stream.event_classes().iter().map(|event| EventRoots {
            specific_context: next(event.specific_context),
            payload: next(event.payload),
        });
        StreamRoots {
            packet_context,
            common_context,
            events: events.collect(),
        }
    });
    streams.collect()
}
