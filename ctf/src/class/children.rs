//! The children of a field class, and its dependency.

use super::{Dependency, FieldId, FieldKind, Length, VariantOptions};

/// Calls `change` with the id of every child of a field class.
pub(super) fn for_each_child(kind: &mut FieldKind, change: &mut dyn FnMut(&mut FieldId)) {
    match kind {
        FieldKind::Array(class) => change(&mut class.element),
        FieldKind::Optional(class) => change(&mut class.field),
        FieldKind::Struct(class) => {
            class
                .members
                .iter_mut()
                .for_each(|member| change(&mut member.class));
        }
        FieldKind::Variant(class) => match &mut class.options {
            VariantOptions::Unsigned(options) => {
                options
                    .iter_mut()
                    .for_each(|option| change(&mut option.field));
            }
            VariantOptions::Signed(options) => {
                options
                    .iter_mut()
                    .for_each(|option| change(&mut option.field));
            }
        },
        _ => {}
    }
}

/// The children of a field class.
pub(super) fn children(kind: &FieldKind) -> impl Iterator<Item = FieldId> + '_ {
    let (single, members, options) = match kind {
        FieldKind::Array(class) => (Some(class.element), None, None),
        FieldKind::Optional(class) => (Some(class.field), None, None),
        FieldKind::Struct(class) => (None, Some(&class.members), None),
        FieldKind::Variant(class) => (None, None, Some(&class.options)),
        _ => (None, None, None),
    };
    let members = members.into_iter().flatten().map(|member| member.class);
    let options = options
        .into_iter()
        .flat_map(|o| (0..o.len()).map(|index| o.field(index)));
    single.into_iter().chain(members).chain(options)
}

/// The dependency of a field class.
pub(super) fn dependency_mut(kind: &mut FieldKind) -> Option<&mut Dependency> {
    match kind {
        FieldKind::String(class) => dynamic_mut(&mut class.length),
        FieldKind::Blob(class) => dynamic_mut(&mut class.length),
        FieldKind::Array(class) => dynamic_mut(&mut class.length),
        FieldKind::Optional(class) => Some(&mut class.selector),
        FieldKind::Variant(class) => Some(&mut class.selector),
        _ => None,
    }
}

fn dynamic_mut(length: &mut Length) -> Option<&mut Dependency> {
    match length {
        Length::Static(_) => None,
        Length::Dynamic(dependency) => Some(dependency),
    }
}
