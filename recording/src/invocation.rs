//! Assembles spans to invocations.
//!
//! An invocation is a local root with its descendants. Spans of one trace arrive in any order and
//! in several requests, children mostly before their parents, because a span is sent when it ends.
//! So the spans of an agent and trace wait until none arrived for a while, until the first of them
//! is too old, or until memory is full; then those that arrived are assembled. A span is a root if
//! its parent is not among them, or ran in another process.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use query_language::FieldTable;
use storage_format::{AgentId, StreamId};
use trace_kinds::DecodeError;
use trace_kinds::otlp::{Emitter, OtlpDecoder, Span, add_resource_attribute};

use crate::packet::{Derived, Packet};

/// How long spans wait for others of their trace, and in how much memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// A trace is assembled when no span of it arrived for this long, ns.
    pub quiet_ns: i64,
    /// And when its first span arrived this long ago, ns.
    pub age_ns_max: i64,
    /// Bytes of what waits in the chain; beyond, the oldest trace is assembled.
    pub bytes_max: usize,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            quiet_ns: 1_000_000_000,
            age_ns_max: 30_000_000_000,
            bytes_max: 32 << 20,
        }
    }
}

/// Emitters that are remembered, so that spans of one resource share it.
const SOURCES_MAX: usize = 1024;
/// Bytes of the emitters that are remembered.
const SOURCES_BYTES_MAX: usize = 1 << 20;
/// Memory of a trace without its spans, in bytes.
const TRACE_BYTES: usize = 256;

/// A resource or a scope, shared by its spans.
#[derive(Debug, Default)]
pub struct SharedSource {
    message: Vec<u8>,
    schema_url: Vec<u8>,
    /// The message with the attribute of derived spans.
    marked: [OnceLock<Vec<u8>>; Derived::ALL.len()],
}

impl SharedSource {
    /// Memory of the messages as they were sent and as they are marked, bytes.
    fn memory(&self) -> usize {
        const BESIDES: usize = 256;
        let marked = self.marked.iter().filter_map(OnceLock::get);
        let marked: usize = marked.map(Vec::capacity).sum();
        BESIDES + self.message.len() + self.schema_url.len() + marked
    }

    fn of(source: &Emitter<'_>) -> Self {
        Self {
            message: source.message.to_vec(),
            schema_url: source.schema_url.to_vec(),
            marked: Default::default(),
        }
    }

    /// As it was sent.
    pub(crate) fn plain(&self) -> Emitter<'_> {
        Emitter::new(&self.message[..], &self.schema_url)
    }

    /// As the resource of derived spans.
    pub(crate) fn marked(&self, derived: Derived) -> Emitter<'_> {
        let message = self.marked[derived as usize].get_or_init(|| {
            let mut message = self.message.clone();
            add_resource_attribute(&mut message, "tracehold.derived", derived.as_str());
            message
        });
        Emitter::new(&message[..], &self.schema_url)
    }
}

/// A span of an invocation.
#[derive(Debug, Clone, Copy)]
pub struct Member<'t> {
    /// The span.
    pub span: Span<'t>,
    /// Its resource.
    pub resource: &'t SharedSource,
    /// Its scope.
    pub scope: &'t SharedSource,
    /// Nanoseconds in which none of its children ran.
    pub exclusive: u64,
}

/// A local root with its descendants.
#[derive(Debug)]
pub struct Invocation<'t> {
    /// The agent.
    pub agent: &'t AgentId,
    /// The stream of its spans.
    pub stream: &'t StreamId,
    /// The root, then its descendants, parents before their children.
    pub members: Vec<Member<'t>>,
}

#[derive(Debug, PartialEq, Eq, Hash, Clone, Copy)]
struct TraceKey {
    /// Index of agent and stream.
    home: u32,
    trace: [u8; 16],
}

#[derive(Debug)]
struct Trace {
    /// The messages of its spans, concatenated.
    messages: Vec<u8>,
    spans: Vec<Waiter>,
    sources: Vec<(Arc<SharedSource>, Arc<SharedSource>)>,
    /// Memory of these, as if no other trace shared them.
    source_bytes: usize,
    first: i64,
    last: i64,
}

#[derive(Debug, Clone, Copy)]
struct Waiter {
    begin: u32,
    end: u32,
    source: u32,
    id: [u8; 8],
    /// Zeros if the span itself says that it is a local root.
    parent: [u8; 8],
    start: u64,
    stop: u64,
}

/// Collects spans until they can be assembled.
pub(crate) struct Assembler {
    waiting: Waiting,
    decoder: OtlpDecoder,
    homes: Vec<(AgentId, StreamId)>,
    traces: HashMap<TraceKey, Trace>,
    /// Keys in the order in which their traces began; some traces are assembled already.
    order: VecDeque<TraceKey>,
    bytes: usize,
    sources: Sources,
}

/// The emitters that are remembered.
#[derive(Default)]
struct Sources {
    known: HashMap<Vec<u8>, Arc<SharedSource>>,
    /// Memory of them, with their keys.
    bytes: usize,
}

impl Assembler {
    pub(crate) fn new(waiting: Waiting) -> Self {
        Self {
            waiting,
            decoder: OtlpDecoder::new(&FieldTable::new()),
            homes: Vec::new(),
            traces: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            sources: Sources::default(),
        }
    }

    /// Memory of what waits, and of the emitters that are remembered.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.saturating_add(self.sources.bytes)
    }

    /// Adds the spans of `request`, the protobuf form of `packet`. Calls `each` with the
    /// invocations that became complete by time or for lack of memory. Spans after damage are
    /// skipped.
    pub(crate) fn take(
        &mut self,
        packet: &Packet,
        request: &[u8],
        each: &mut dyn FnMut(&Invocation<'_>),
    ) -> Result<u64, DecodeError> {
        let home = self.home(packet);
        let mut sources = (Arc::default(), Arc::default());
        let mut seen: Option<(Vec<u8>, Vec<u8>)> = None;
        let Self {
            decoder,
            traces,
            order,
            bytes,
            sources: known,
            ..
        } = self;
        let now = packet.arrival;
        let decoded = decoder.walk(request, &mut |event| {
            let (resource, scope) = (event.resource(), event.scope());
            let is_same = seen.as_ref().is_some_and(|(of_resource, of_scope)| {
                of_resource[..] == resource.message[..] && of_scope[..] == scope.message[..]
            });
            if !is_same {
                sources = (known.shared(resource), known.shared(scope));
                seen = Some((resource.message.to_vec(), scope.message.to_vec()));
            }
            let span = event.span();
            if let Ok(trace) = <[u8; 16]>::try_from(span.trace_id) {
                let key = TraceKey { home, trace };
                let trace = traces.entry(key).or_insert_with(|| {
                    order.push_back(key);
                    *bytes += TRACE_BYTES;
                    Trace::new(now)
                });
                *bytes += trace.add(&span, &sources, now);
            }
            ControlFlow::Continue(())
        });
        while self.bytes > self.waiting.bytes_max && self.complete_oldest(each) {}
        decoded.map(|decoded| decoded.events)
    }

    /// Assembles the trace that began first. Returns false if none waits.
    pub(crate) fn complete_oldest(&mut self, each: &mut dyn FnMut(&Invocation<'_>)) -> bool {
        match self.order.pop_front() {
            Some(oldest) => {
                self.complete(oldest, each);
                true
            }
            None => false,
        }
    }

    fn home(&mut self, packet: &Packet) -> u32 {
        let is_it = |home: &(AgentId, StreamId)| home.0 == packet.agent && home.1 == packet.stream;
        let at = self.homes.iter().position(is_it).unwrap_or_else(|| {
            self.homes
                .push((packet.agent.clone(), packet.stream.clone()));
            self.homes.len() - 1
        });
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// Assembles what has waited long enough.
    pub(crate) fn tick(&mut self, now: i64, each: &mut dyn FnMut(&Invocation<'_>)) {
        let Waiting {
            quiet_ns,
            age_ns_max,
            ..
        } = self.waiting;
        let is_due = |trace: &Trace| {
            now.saturating_sub(trace.last) >= quiet_ns
                || now.saturating_sub(trace.first) >= age_ns_max
        };
        let order = std::mem::take(&mut self.order);
        let (due, waiting): (VecDeque<_>, VecDeque<_>) = order
            .into_iter()
            .filter(|key| self.traces.contains_key(key))
            .partition(|key| self.traces.get(key).is_some_and(is_due));
        self.order = waiting;
        for key in due {
            self.complete(key, each);
        }
    }

    /// Assembles all traces.
    pub(crate) fn finish(&mut self, each: &mut dyn FnMut(&Invocation<'_>)) {
        while let Some(key) = self.order.pop_front() {
            self.complete(key, each);
        }
    }

    fn complete(&mut self, key: TraceKey, each: &mut dyn FnMut(&Invocation<'_>)) {
        let Some(trace) = self.traces.remove(&key) else {
            return;
        };
        self.bytes -= trace.bytes();
        let Some((agent, stream)) = self.homes.get(key.home as usize) else {
            return;
        };
        trace.each_invocation(agent, stream, each);
    }
}

impl Sources {
    /// The shared form of `source`.
    fn shared(&mut self, source: &Emitter<'_>) -> Arc<SharedSource> {
        let mut key = source.message.to_vec();
        key.push(0);
        key.extend_from_slice(source.schema_url);
        if let Some(known) = self.known.get(&key) {
            return Arc::clone(known);
        }
        if self.known.len() >= SOURCES_MAX || self.bytes >= SOURCES_BYTES_MAX {
            *self = Self::default();
        }
        let made = Arc::new(SharedSource::of(source));
        self.bytes += key.len() + made.memory();
        self.known.insert(key, Arc::clone(&made));
        made
    }
}

impl Trace {
    fn new(now: i64) -> Self {
        Self {
            messages: Vec::new(),
            spans: Vec::new(),
            sources: Vec::new(),
            source_bytes: 0,
            first: now,
            last: now,
        }
    }

    /// Memory of the trace in the accounters of the assembler.
    fn bytes(&self) -> usize {
        let pair = size_of::<(Arc<SharedSource>, Arc<SharedSource>)>();
        TRACE_BYTES
            + self.messages.capacity()
            + self.spans.capacity() * size_of::<Waiter>()
            + self.sources.capacity() * pair
            + self.source_bytes
    }

    /// Adds a span; returns the bytes it takes.
    fn add(
        &mut self,
        span: &Span<'_>,
        sources: &(Arc<SharedSource>, Arc<SharedSource>),
        now: i64,
    ) -> usize {
        let before = self.bytes();
        let is_last = self.sources.last().is_some_and(|(resource, scope)| {
            Arc::ptr_eq(resource, &sources.0) && Arc::ptr_eq(scope, &sources.1)
        });
        if !is_last {
            self.sources.push(sources.clone());
            self.source_bytes += sources.0.memory() + sources.1.memory();
        }
        let message = span.message();
        let begin = self.messages.len();
        let (Ok(from), Ok(to)) = (u32::try_from(begin), u32::try_from(begin + message.len()))
        else {
            // Four gigabytes of one trace; the limit of bytes is far below.
            return self.bytes() - before;
        };
        self.messages.extend_from_slice(message);
        self.spans.push(Waiter {
            begin: from,
            end: to,
            source: u32::try_from(self.sources.len() - 1).unwrap_or(0),
            id: id_of(span.span_id),
            parent: if span.is_local_root() {
                [0; 8]
            } else {
                id_of(span.parent_span_id)
            },
            start: span.start,
            stop: span.end.max(span.start),
        });
        self.last = now;
        self.bytes() - before
    }

    fn each_invocation(
        &self,
        agent: &AgentId,
        stream: &StreamId,
        each: &mut dyn FnMut(&Invocation<'_>),
    ) {
        let parents = self.parents();
        let children = Children::new(&parents);
        let mut ordered = Vec::new();
        let roots = (0..self.spans.len()).filter(|at| parents[*at].is_none());
        for root in roots {
            ordered.clear();
            ordered.push(root);
            let mut next = 0;
            while let Some(&at) = ordered.get(next) {
                ordered.extend_from_slice(children.of(at));
                next += 1;
            }
            let members = ordered.iter().filter_map(|&at| {
                let (resource, scope) = self.sources.get(self.spans[at].source as usize)?;
                Some(Member {
                    span: Span::read(self.message(at)).ok()?,
                    resource,
                    scope,
                    exclusive: self.exclusive(at, children.of(at)),
                })
            });
            each(&Invocation {
                agent,
                stream,
                members: members.collect(),
            });
        }
    }

    fn message(&self, at: usize) -> &[u8] {
        let Waiter { begin, end, .. } = self.spans[at];
        &self.messages[begin as usize..end as usize]
    }

    /// The parent of each span, if it arrived. Where parents form a circle, which no correct sender
    /// does, one of them is a root.
    fn parents(&self) -> Vec<Option<usize>> {
        let by_id: HashMap<[u8; 8], usize> = (self.spans.iter().enumerate())
            .map(|(at, span)| (span.id, at))
            .collect();
        let mut parents: Vec<Option<usize>> = (self.spans.iter().enumerate())
            .map(|(at, span)| {
                let parent = by_id.get(&span.parent).copied();
                parent.filter(|parent| span.parent != [0; 8] && *parent != at)
            })
            .collect();
        // 0 for not visited, else the walk that visited it.
        let mut walks = vec![0_usize; parents.len()];
        for begin in 0..parents.len() {
            let (walk, mut at) = (begin + 1, begin);
            while walks[at] == 0 {
                walks[at] = walk;
                match parents[at] {
                    Some(parent) if walks[parent] == walk => parents[at] = None,
                    Some(parent) => at = parent,
                    None => break,
                }
            }
        }
        parents
    }

    /// Nanoseconds of a span in which none of its children ran; overlapping children count once.
    fn exclusive(&self, at: usize, children: &[usize]) -> u64 {
        let Waiter { start, stop, .. } = self.spans[at];
        let mut covered = 0;
        let mut until = start;
        let mut sorted: Vec<_> = children
            .iter()
            .map(|&child| (self.spans[child].start, self.spans[child].stop))
            .collect();
        sorted.sort_unstable();
        for (begin, end) in sorted {
            let (begin, end) = (begin.max(until), end.min(stop));
            if end > begin {
                covered += end - begin;
                until = end;
            }
        }
        (stop - start).saturating_sub(covered)
    }
}

/// An id of eight bytes; zeros for anything else, which is nobody's parent.
fn id_of(id: &[u8]) -> [u8; 8] {
    id.try_into().unwrap_or_default()
}

/// Children by parent.
struct Children {
    /// All children, grouped by parent.
    flat: Vec<usize>,
    /// Where the children of each parent begin; one more at the end.
    starts: Vec<usize>,
}

impl Children {
    fn new(parents: &[Option<usize>]) -> Self {
        let mut starts = vec![0; parents.len() + 1];
        for parent in parents.iter().flatten() {
            starts[parent + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut places = starts.clone();
        let mut flat = vec![0; starts[parents.len()]];
        for (child, parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                flat[places[*parent]] = child;
                places[*parent] += 1;
            }
        }
        Self { flat, starts }
    }

    fn of(&self, parent: usize) -> &[usize] {
        &self.flat[self.starts[parent]..self.starts[parent + 1]]
    }
}
