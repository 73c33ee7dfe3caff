//! Resolution of the locations of lengths and selectors to save slots.
//!
//! A location is followed through the classes in the order of decoding: structures by name, arrays
//! and optionals only from inside, variants by the option that contains the dependent field or,
//! from outside, through all options.

use super::children::{children, dependency_mut};
use super::rules::{verify_event, verify_stream};
use super::{
    BuildError, EventClass, FieldId, FieldKind, Location, MajorVersion, Mappings, PathStep,
    RangeSet, Scope, SelectorRanges, SlotId, StreamClass, TraceClassBuilder, VariantOption,
    VariantOptions,
};
use std::collections::{BTreeMap, HashMap};

/// Limit of the steps and targets of all locations, far above what metadata of any tracer needs.
const STEPS_MAX: usize = 1 << 20;

/// Checks and resolves every scope. The order determines which fault is reported first.
pub(super) fn resolve(builder: &mut TraceClassBuilder) -> Result<(), BuildError> {
    let mut slots = BTreeMap::new();
    let streams: Vec<StreamClass> = builder.streams.values().cloned().collect();
    for stream in &streams {
        verify_stream(builder, stream)?;
        let events = builder.events.get(&stream.id).cloned().unwrap_or_default();
        for event in events.values() {
            verify_event(builder, stream, event)?;
            for scope in [Scope::EventSpecificContext, Scope::EventPayload] {
                resolve_scope(builder, &mut slots, scope, Some(stream), Some(&event.class))?;
            }
        }
        for scope in [
            Scope::PacketContext,
            Scope::EventHeader,
            Scope::EventCommonContext,
        ] {
            resolve_scope(builder, &mut slots, scope, Some(stream), None)?;
        }
    }
    resolve_scope(builder, &mut slots, Scope::PacketHeader, None, None)?;
    builder.slot_count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    let mut saves: HashMap<FieldId, Vec<SlotId>> = HashMap::new();
    for (targets, slot) in slots {
        for target in targets {
            saves.entry(target).or_default().push(slot);
        }
    }
    for (id, mut slots) in saves {
        slots.sort_unstable();
        builder.field_mut(id).slots = slots.into_boxed_slice();
    }
    Ok(())
}

type Slots = BTreeMap<Vec<FieldId>, SlotId>;

fn resolve_scope(
    builder: &mut TraceClassBuilder,
    slots: &mut Slots,
    scope: Scope,
    stream: Option<&StreamClass>,
    event: Option<&EventClass>,
) -> Result<(), BuildError> {
    let roots = Scope::ALL.map(|scope| match scope {
        Scope::PacketHeader => builder.packet_header,
        Scope::PacketContext => stream.and_then(|s| s.packet_context),
        Scope::EventHeader => stream.and_then(|s| s.event_header),
        Scope::EventCommonContext => stream.and_then(|s| s.event_common_context),
        Scope::EventSpecificContext => event.and_then(|e| e.specific_context),
        Scope::EventPayload => event.and_then(|e| e.payload),
    });
    let Some(root) = roots[scope.index()] else {
        return Ok(());
    };
    let mut positions = HashMap::new();
    number(builder, root, 0, &mut positions);
    let mut walk = Walk {
        builder,
        slots,
        scope,
        roots,
        positions,
        inside: HashMap::new(),
    };
    walk.make_absolute(root, &mut Vec::new(), &mut Vec::new())?;
    walk.visit(root)
}

/// Numbers the fields of a scope in decoding order; the options of a variant get the same numbers.
fn number(
    builder: &TraceClassBuilder,
    id: FieldId,
    next: u32,
    positions: &mut HashMap<FieldId, u32>,
) -> u32 {
    positions.insert(id, next);
    let next = next + 1;
    let kind = &builder.field(id).kind;
    if matches!(kind, FieldKind::Variant(_)) {
        return children(kind)
            .map(|c| number(builder, c, next, positions))
            .max()
            .unwrap_or(next);
    }
    children(kind).fold(next, |next, child| number(builder, child, next, positions))
}

struct Walk<'b> {
    builder: &'b mut TraceClassBuilder,
    slots: &'b mut Slots,
    scope: Scope,
    roots: [Option<FieldId>; 6],
    positions: HashMap<FieldId, u32>,
    /// Containers of the visited field, with the index of the option for variants.
    inside: HashMap<FieldId, usize>,
}

impl Walk<'_> {
    fn fault<T>(&self, at: FieldId, message: String) -> Result<T, BuildError> {
        Err(BuildError::at(self.builder.origin(at), message))
    }

    /// Turns relative locations of the fields in `id` into absolute ones. `names` contains the
    /// member names on the path to `id`, one for each structure in `outer`.
    fn make_absolute(
        &mut self,
        id: FieldId,
        names: &mut Vec<Box<str>>,
        outer: &mut Vec<FieldId>,
    ) -> Result<(), BuildError> {
        let origin = self.builder.origin(id);
        let scope = self.scope;
        if let Some(dependency) = dependency_mut(&mut self.builder.field_mut(id).kind) {
            let mut location = dependency.location.clone();
            self.search(&mut location, names, outer)
                .and_then(|()| absolute(&mut location, scope, names))
                .map_err(|message| BuildError::at(origin, message))?;
            self.charge(id, location.path.len())?;
            if let Some(dependency) = dependency_mut(&mut self.builder.field_mut(id).kind) {
                dependency.location = location;
            }
        }
        let members = self.builder.field(id).members().to_vec();
        outer.push(id);
        for member in members {
            names.push(member.name);
            self.make_absolute(member.class, names, outer)?;
            names.pop();
        }
        outer.pop();
        let others: Vec<FieldId> = match &self.builder.field(id).kind {
            FieldKind::Struct(_) => Vec::new(),
            kind => children(kind).collect(),
        };
        others
            .into_iter()
            .try_for_each(|child| self.make_absolute(child, names, outer))
    }

    /// Counts steps and targets of locations, whose number is limited: a location can be as long
    /// as the classes are deep, and have as many targets as a variant has options.
    fn charge(&mut self, id: FieldId, steps: usize) -> Result<(), BuildError> {
        self.builder.location_steps += steps;
        if self.builder.location_steps > STEPS_MAX {
            let message = format!("locations have more than {STEPS_MAX} steps and targets in all");
            return self.fault(id, message);
        }
        Ok(())
    }

    /// Replaces a search by the steps up to the structure that it finds. The structures `outer`
    /// contain the field with the location, and `names` lead from each to the next.
    fn search(
        &self,
        location: &mut Location,
        names: &[Box<str>],
        outer: &[FieldId],
    ) -> Result<(), String> {
        let [PathStep::Search, PathStep::Member(first), ..] = &location.path[..] else {
            return Ok(());
        };
        let has_first = |(id, name): (&FieldId, &str)| {
            let members = self.builder.field(*id).members().iter();
            let mut before = members.take_while(|member| *member.name != *name);
            before.any(|member| member.name == *first)
        };
        let levels = outer.iter().zip(names.iter().map(|name| &**name)).rev();
        let Some(up) = levels.map(has_first).position(|found| found) else {
            return Err(format!("invalid relative location: cannot find `{first}`"));
        };
        location.path.splice(..1, vec![PathStep::Parent; up]);
        Ok(())
    }

    fn visit(&mut self, id: FieldId) -> Result<(), BuildError> {
        let dependency = dependency_mut(&mut self.builder.field_mut(id).kind);
        if let Some(location) = dependency.map(|dependency| dependency.location.clone()) {
            let targets = self.targets(id, &location)?;
            self.charge(id, targets.len())?;
            self.check_targets(id, &location, &targets)?;
            let next = SlotId(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
            let slot = *self.slots.entry(targets).or_insert(next);
            if let Some(dependency) = dependency_mut(&mut self.builder.field_mut(id).kind) {
                dependency.slot = slot;
            }
        }
        let contained: Vec<FieldId> = children(&self.builder.field(id).kind).collect();
        let tracked = !matches!(self.builder.field(id).kind, FieldKind::Struct(_));
        for (index, child) in contained.into_iter().enumerate() {
            if tracked {
                self.inside.insert(id, index);
            }
            self.visit(child)?;
        }
        self.inside.remove(&id);
        Ok(())
    }

    /// Fields that `location` denotes for the field `source`, sorted.
    fn targets(&self, source: FieldId, location: &Location) -> Result<Vec<FieldId>, BuildError> {
        let scope = location.scope.unwrap_or(self.scope);
        if scope > self.scope {
            let text = describe(location, location.path.len());
            return self.fault(source, format!("location {text}: decoded after its use"));
        }
        let Some(root) = self.roots[scope.index()] else {
            let text = describe(location, location.path.len());
            return self.fault(source, format!("location {text}: there is no such scope"));
        };
        let mut targets = Vec::new();
        self.follow(root, location, 0, &mut targets)?;
        let here = self.positions.get(&source);
        if scope == self.scope && targets.iter().any(|t| self.positions.get(t) > here) {
            let text = describe(location, location.path.len());
            let message = format!("location {text}: a length or selector is decoded after its use");
            return self.fault(source, message);
        }
        targets.sort_unstable();
        targets.dedup();
        Ok(targets)
    }

    fn follow(
        &self,
        id: FieldId,
        location: &Location,
        step: usize,
        targets: &mut Vec<FieldId>,
    ) -> Result<(), BuildError> {
        let text = || describe(location, step);
        match &self.builder.field(id).kind {
            FieldKind::Struct(class) => {
                let Some(PathStep::Member(name)) = location.path.get(step) else {
                    let message = format!(
                        "location {}: a structure cannot be a length or selector",
                        text()
                    );
                    return self.fault(id, message);
                };
                match class.members.iter().find(|member| member.name == *name) {
                    Some(member) => self.follow(member.class, location, step + 1, targets),
                    None => self.fault(id, format!("location {}: cannot find `{name}`", text())),
                }
            }
            FieldKind::Array(class) if self.inside.contains_key(&id) => {
                self.follow(class.element, location, step, targets)
            }
            FieldKind::Optional(class) if self.inside.contains_key(&id) => {
                self.follow(class.field, location, step, targets)
            }
            FieldKind::Array(_) => self.fault(
                id,
                format!(
                    "location {}: the array does not contain the field that uses the location",
                    text()
                ),
            ),
            FieldKind::Optional(_) => self.fault(
                id,
                format!(
                    "location {}: the optional does not contain the field that uses the location",
                    text()
                ),
            ),
            FieldKind::Variant(class) => match self.inside.get(&id) {
                Some(option) => self.follow(class.options.field(*option), location, step, targets),
                None => (0..class.options.len())
                    .try_for_each(|o| self.follow(class.options.field(o), location, step, targets)),
            },
            _ if step < location.path.len() => self.fault(
                id,
                format!("location {}: this field contains no fields", text()),
            ),
            _ => {
                targets.push(id);
                Ok(())
            }
        }
    }

    /// Checks that the targets have the type that `source` needs, and sets the sign (and in CTF 1.8
    /// the ranges) of the selector of a variant or optional.
    fn check_targets(
        &mut self,
        source: FieldId,
        location: &Location,
        targets: &[FieldId],
    ) -> Result<(), BuildError> {
        let checked = match &self.builder.field(source).kind {
            FieldKind::Optional(class) if class.enabled == SelectorRanges::Bool => {
                self.check_all(targets, "selector is not a boolean", |kind| {
                    matches!(kind, FieldKind::Bool(_))
                })
            }
            FieldKind::Optional(_) | FieldKind::Variant(_) => self.check_selector(source, targets),
            _ => self.check_all(targets, "length is not an unsigned integer", |kind| {
                matches!(
                    kind,
                    FieldKind::Unsigned(..) | FieldKind::VariableUnsigned(_)
                )
            }),
        };
        checked.map_err(|error| {
            let text = describe(location, location.path.len());
            let subject = super::Subject::Origin(self.builder.origin(source));
            error.within(subject, format!("invalid location {text}"))
        })
    }

    fn check_all(
        &self,
        targets: &[FieldId],
        message: &str,
        accepts: impl Fn(&FieldKind) -> bool,
    ) -> Result<(), BuildError> {
        match targets
            .iter()
            .find(|id| !accepts(&self.builder.field(**id).kind))
        {
            Some(id) => self.fault(*id, message.to_owned()),
            None => Ok(()),
        }
    }

    fn check_selector(&mut self, source: FieldId, targets: &[FieldId]) -> Result<(), BuildError> {
        self.check_all(targets, "selector is not an integer", |kind| {
            signedness(kind).is_some()
        })?;
        let is_signed = |id: &FieldId| signedness(&self.builder.field(*id).kind) == Some(true);
        let signed = targets.iter().filter(|id| is_signed(id)).count();
        if signed != 0 && signed != targets.len() {
            return self.fault(source, "selectors are both signed and unsigned".to_owned());
        }
        let (v1, signed) = (self.builder.version == MajorVersion::V1, signed != 0);
        let mut kind = self.builder.field(source).kind.clone();
        match &mut kind {
            FieldKind::Optional(class) => {
                if let (true, SelectorRanges::Unsigned(ranges)) = (signed, &class.enabled) {
                    class.enabled = SelectorRanges::Signed(as_signed(ranges));
                }
            }
            FieldKind::Variant(class) if v1 => {
                class.options = self.options_of_labels(source, targets, &class.options)?;
            }
            FieldKind::Variant(class) => {
                if let (true, VariantOptions::Unsigned(options)) = (signed, &class.options) {
                    let convert = |o: &VariantOption<u64>| with_ranges(o, as_signed(&o.ranges));
                    class.options = VariantOptions::Signed(options.iter().map(convert).collect());
                }
                let overlap = match &class.options {
                    VariantOptions::Unsigned(options) => {
                        overlapping(options.iter().map(|o| &o.ranges))
                    }
                    VariantOptions::Signed(options) => {
                        overlapping(options.iter().map(|o| &o.ranges))
                    }
                };
                if overlap.is_some() {
                    let message = "a value of the selector selects two options".to_owned();
                    return self.fault(source, message);
                }
            }
            _ => {}
        }
        self.builder.field_mut(source).kind = kind;
        Ok(())
    }

    /// CTF 1.8: options are selected by the labels of the selector, an enumeration.
    fn options_of_labels(
        &self,
        source: FieldId,
        targets: &[FieldId],
        options: &VariantOptions,
    ) -> Result<VariantOptions, BuildError> {
        let (&[target], VariantOptions::Unsigned(options)) = (targets, options) else {
            return self.fault(source, "the selector must be exactly one field".to_owned());
        };
        match &self.builder.field(target).kind {
            FieldKind::Unsigned(_, class) if !class.mappings.is_empty() => Ok(
                VariantOptions::Unsigned(self.choose(source, options, &class.mappings)?),
            ),
            FieldKind::Signed(_, class) if !class.mappings.is_empty() => Ok(
                VariantOptions::Signed(self.choose(source, options, &class.mappings)?),
            ),
            _ => self.fault(target, "the selector is not an enumeration".to_owned()),
        }
    }

    /// Sets the ranges of each option to those of the label with its name.
    fn choose<T: Copy + Ord>(
        &self,
        source: FieldId,
        options: &[VariantOption<u64>],
        mappings: &Mappings<T>,
    ) -> Result<Box<[VariantOption<T>]>, BuildError> {
        self.check_overlaps(source, mappings.as_slice())?;
        let chosen = options.iter().map(|option| {
            let name = option.name.as_deref().unwrap_or_default();
            match mappings.get(name) {
                Some(mapping) => Ok(with_ranges(option, mapping.ranges.clone())),
                None => self.fault(source, format!("the selector has no label `{name}`")),
            }
        });
        chosen.collect()
    }

    fn check_overlaps<T: Copy + Ord>(
        &self,
        source: FieldId,
        mappings: &[super::Mapping<T>],
    ) -> Result<(), BuildError> {
        match overlapping(mappings.iter().map(|mapping| &mapping.ranges)) {
            Some(index) => {
                let name = &mappings[index].name;
                self.fault(
                    source,
                    format!("values of the selector's label `{name}` overlap"),
                )
            }
            None => Ok(()),
        }
    }
}

/// The index of a set that has a value in common with another one; the lowest one of those that
/// are found.
fn overlapping<'r, T: Copy + Ord + 'r>(
    sets: impl Iterator<Item = &'r RangeSet<T>>,
) -> Option<usize> {
    let ranges = |(index, set): (usize, &'r RangeSet<T>)| {
        let ranges = set.ranges().iter();
        ranges.map(move |range| (range.lower, range.upper, index))
    };
    let mut sorted: Vec<(T, T, usize)> = sets.enumerate().flat_map(ranges).collect();
    sorted.sort_unstable();
    // The two sets whose ranges reach furthest so far.
    let mut furthest: [Option<(T, usize)>; 2] = [None, None];
    let mut found: Option<usize> = None;
    for (lower, upper, index) in sorted {
        let others = furthest.iter().flatten();
        let mut others = others.filter(|(reach, other)| *reach >= lower && *other != index);
        if let Some((_, other)) = others.next() {
            let lowest = index.min(*other);
            found = Some(found.map_or(lowest, |found| found.min(lowest)));
        }
        match &mut furthest {
            [Some((reach, first)), _] if *first == index => *reach = upper.max(*reach),
            [first, second] if first.is_none_or(|(reach, _)| reach < upper) => {
                *second = first.replace((upper, index));
            }
            [_, second] if second.is_none_or(|(reach, _)| reach < upper) => {
                *second = Some((upper, index));
            }
            _ => {}
        }
    }
    found
}

/// Some(true) for signed integers, Some(false) for unsigned ones.
fn signedness(kind: &FieldKind) -> Option<bool> {
    match kind {
        FieldKind::Unsigned(..) | FieldKind::VariableUnsigned(_) => Some(false),
        FieldKind::Signed(..) | FieldKind::VariableSigned(_) => Some(true),
        _ => None,
    }
}

/// Converts ranges that were stored as raw bits before the sign of the selector was known.
fn as_signed(ranges: &RangeSet<u64>) -> RangeSet<i64> {
    let convert = |range: &super::IntRange<u64>| super::IntRange {
        lower: range.lower.cast_signed(),
        upper: range.upper.cast_signed(),
    };
    RangeSet::new(ranges.ranges().iter().map(convert).collect())
}

fn with_ranges<A, B>(option: &VariantOption<A>, ranges: RangeSet<B>) -> VariantOption<B> {
    VariantOption {
        name: option.name.clone(),
        display_name: option.display_name.clone(),
        ranges,
        field: option.field,
        attributes: option.attributes.clone(),
    }
}

/// Makes the location of a field in `scope` absolute; the member `names` lead to the field.
fn absolute(location: &mut Location, scope: Scope, names: &[Box<str>]) -> Result<(), String> {
    let mut path: Vec<PathStep> = Vec::new();
    if location.scope.is_none() {
        // The last name is the member with the location; the path starts at the structure around
        // it.
        let parents = &names[..names.len().saturating_sub(1)];
        path.extend(parents.iter().cloned().map(PathStep::Member));
    }
    for step in &location.path {
        match step {
            PathStep::Member(_) => path.push(step.clone()),
            PathStep::Search => {}
            PathStep::Parent => {
                if path.pop().is_none() {
                    return Err("the root structure of a scope has no parent".to_owned());
                }
            }
        }
    }
    location.scope.get_or_insert(scope);
    location.path = path;
    Ok(())
}

/// The first `steps` steps of an absolute location, for messages.
fn describe(location: &Location, steps: usize) -> String {
    let mut text = location.scope.map_or("?", Scope::name).to_owned();
    for (index, step) in location.path.iter().take(steps).enumerate() {
        text.push_str(if index == 0 { ": `" } else { "/`" });
        match step {
            PathStep::Member(name) => text.push_str(name),
            PathStep::Parent | PathStep::Search => text.push_str(".."),
        }
        text.push('`');
    }
    text
}
