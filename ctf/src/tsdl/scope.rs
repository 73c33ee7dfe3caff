//! Lexical scopes: the aliases and earlier members that are visible to a declaration.

use super::attribute::fault;
use crate::class::{BuildError, FieldId, Location, PathStep, Scope};
use crate::metadata::leniency::Leniency;
use std::collections::HashMap;

/// The construct that opened a lexical scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// The text, a root block or the structure of a scope.
    Block,
    /// A named declaration; locations cannot lead out of it.
    Alias,
    /// The body of a structure.
    Struct,
    /// The body of a variant.
    Variant,
}

#[derive(Debug)]
pub(super) struct Frame {
    kind: FrameKind,
    aliases: HashMap<String, FieldId>,
    members: Vec<String>,
}

/// Open scopes.
#[derive(Debug)]
pub(super) struct Frames {
    /// The innermost last; never empty.
    open: Vec<Frame>,
    leniency: Leniency,
}

/// The target of a path in the text.
#[derive(Debug)]
pub(super) enum Target {
    /// Another field.
    Field(Location),
    /// An entry of the environment.
    Environment(Vec<String>),
}

impl Frames {
    pub(super) fn new(leniency: Leniency) -> Self {
        let mut frames = Self {
            open: Vec::new(),
            leniency,
        };
        frames.push(FrameKind::Block);
        frames
    }

    pub(super) fn push(&mut self, kind: FrameKind) {
        self.open.push(Frame {
            kind,
            aliases: HashMap::new(),
            members: Vec::new(),
        });
    }

    pub(super) fn pop(&mut self) {
        self.open.pop();
    }

    /// Adds a member to the innermost scope.
    pub(super) fn add_member(&mut self, name: &str) {
        if let Some(frame) = self.open.last_mut() {
            frame.members.push(name.to_owned());
        }
    }

    /// Adds an alias to the innermost scope; it can hide one of an outer scope.
    pub(super) fn add_alias(
        &mut self,
        name: String,
        class: FieldId,
        at: u32,
    ) -> Result<(), BuildError> {
        let Some(frame) = self.open.last_mut() else {
            return Ok(());
        };
        if frame.aliases.contains_key(&name) {
            return fault(at, format!("duplicate alias `{name}`"));
        }
        frame.aliases.insert(name, class);
        Ok(())
    }

    pub(super) fn alias(&self, name: &str) -> Option<FieldId> {
        self.open
            .iter()
            .rev()
            .find_map(|frame| frame.aliases.get(name))
            .copied()
    }

    /// The target of the path `names`, which is at `at`.
    pub(super) fn target(&self, names: &[&str], at: u32) -> Result<Target, BuildError> {
        if let Some((scope, prefix)) = absolute_scope(names, at)? {
            let rest = names[prefix..].iter().copied();
            return Ok(Target::Field(Location::absolute(scope, rest)));
        }
        match names {
            ["env", keys @ ..] => Ok(Target::Environment(
                keys.iter().map(|key| (*key).to_owned()).collect(),
            )),
            _ => self.relative(names, at).map(Target::Field),
        }
    }

    fn relative(&self, names: &[&str], at: u32) -> Result<Location, BuildError> {
        let first = names.first().copied().unwrap_or_default();
        let mut path = Vec::new();
        for frame in self.open.iter().rev() {
            match frame.kind {
                // The members around a use of the type are known only when it is used.
                FrameKind::Alias if self.leniency == Leniency::Lenient => {
                    let members = names.iter().map(|name| PathStep::Member((*name).into()));
                    path = std::iter::once(PathStep::Search).chain(members).collect();
                    return Ok(Location { scope: None, path });
                }
                FrameKind::Alias => {
                    let message = format!(
                        "`{first}` is outside of the alias (or named structure or variant) that \
                         contains this location, which is not supported"
                    );
                    return fault(at, message);
                }
                FrameKind::Struct if frame.members.iter().any(|member| member == first) => {
                    path.extend(names.iter().map(|name| PathStep::Member((*name).into())));
                    return Ok(Location { scope: None, path });
                }
                FrameKind::Struct => path.push(PathStep::Parent),
                FrameKind::Block | FrameKind::Variant => {}
            }
        }
        let text = names.join(".");
        fault(
            at,
            format!("invalid relative location `{text}`: cannot find `{first}`"),
        )
    }
}

/// The scope that `names` begins with, and the number of names that denote it.
fn absolute_scope(names: &[&str], at: u32) -> Result<Option<(Scope, usize)>, BuildError> {
    let found = match names {
        ["trace", "packet", "header", ..] => (Scope::PacketHeader, 3),
        ["stream", "packet", "context", ..] => (Scope::PacketContext, 3),
        ["stream", "event", "header", ..] => (Scope::EventHeader, 3),
        ["stream", "event", "context", ..] => (Scope::EventCommonContext, 3),
        ["event", "context", ..] => (Scope::EventSpecificContext, 2),
        ["event", "fields", ..] => (Scope::EventPayload, 2),
        ["trace", _, _, ..] => return fault(at, "expecting `packet.header` after `trace.`"),
        ["stream", _, _, ..] => {
            let message =
                "expecting `packet.context`, `event.header` or `event.context` after `stream.`";
            return fault(at, message);
        }
        ["event", _, ..] => return fault(at, "expecting `context` or `fields` after `event.`"),
        _ => return Ok(None),
    };
    Ok(Some(found))
}
