//! Field classes of CTF 2 metadata.

use super::json::{Json, JsonValue, fault};
use super::names::{
    BIT_ORDERS, BITS, BLOB_ROLES, BYTE_ORDERS, ENCODINGS, INTEGER, INTEGER_ROLES, KINDS, Kind,
    LENGTH_LOCATION, SCOPES, SELECTOR_LOCATION,
};
use super::object::{self, COMMON, Object};
use crate::class::{
    ArrayClass, BitMapClass, BlobClass, BoolClass, BuildError, Dependency, DisplayBase, Encoding,
    FieldId, FieldKind, FixedBits, Flag, FloatClass, IntRange, IntegerClass, Length, Location,
    Mapping, Mappings, Member, OptionalClass, PathStep, RangeSet, Role, Roles, SelectorRanges,
    StringClass, StructClass, Subject, TraceClassBuilder, VariantClass, VariantOption,
    VariantOptions,
};
use crate::integer::low_u8;
use std::collections::{HashMap, HashSet};

/// Converts JSON values to field classes.
pub(super) struct Fields {
    pub(super) builder: TraceClassBuilder,
    aliases: HashMap<String, FieldId>,
}

impl Fields {
    pub(super) fn new(builder: TraceClassBuilder) -> Self {
        Self {
            builder,
            aliases: HashMap::new(),
        }
    }

    /// Adds an alias.
    pub(super) fn declare(&mut self, name: &Json, class: FieldId) -> Result<(), BuildError> {
        let key = object::string(name)?;
        if self.aliases.insert(key.to_owned(), class).is_some() {
            return fault(name.at, format!("duplicate field class alias `{key}`"));
        }
        Ok(())
    }

    /// The structure of a scope, when `object` has `key`.
    pub(super) fn scope(
        &mut self,
        object: Object<'_>,
        key: &str,
    ) -> Result<Option<FieldId>, BuildError> {
        let Some(json) = object.get(key) else {
            return Ok(None);
        };
        let within = |error: BuildError| {
            error.within(Subject::Origin(json.at), format!("in property `{key}`"))
        };
        let class = self.class(json).map_err(within)?;
        if matches!(self.builder.field(class).kind, FieldKind::Struct(_)) {
            return Ok(Some(class));
        }
        fault(
            self.builder.origin(class),
            "the field class of a scope must be a structure",
        )
        .map_err(within)
    }

    /// A field class, given as an object or as the name of an alias.
    pub(super) fn class(&mut self, json: &Json) -> Result<FieldId, BuildError> {
        if let JsonValue::String(name) = &json.value {
            let Some(class) = self.aliases.get(name) else {
                return fault(
                    json.at,
                    format!("cannot find the field class alias `{name}`"),
                );
            };
            return self.builder.copy_field(*class);
        }
        let object = Object::any(json)?;
        let kind = object::choice(object.required("type")?, &KINDS)?;
        self.class_of(kind, object).map_err(|error| {
            let name = KINDS
                .iter()
                .find(|(_, k)| *k == kind)
                .map_or("", |(name, _)| name);
            error.within(Subject::Origin(json.at), format!("in {name}"))
        })
    }

    fn class_of(&mut self, kind: Kind, object: Object<'_>) -> Result<FieldId, BuildError> {
        let mut roles = Roles::NONE;
        let field = match kind {
            Kind::BitArray | Kind::Bool | Kind::Float => fixed(kind, object)?,
            Kind::BitMap => bit_map(object)?,
            Kind::Unsigned => {
                object.check(
                    &["length", "byte-order"],
                    &[&COMMON, &BITS, &INTEGER, &["roles"]],
                )?;
                roles = self::roles(object, &INTEGER_ROLES)?;
                FieldKind::Unsigned(bits(object)?, integer(object, object::unsigned)?)
            }
            Kind::Signed => {
                object.check(&["length", "byte-order"], &[&COMMON, &BITS, &INTEGER])?;
                FieldKind::Signed(bits(object)?, integer(object, object::signed)?)
            }
            Kind::VariableUnsigned => {
                object.check(&[], &[&COMMON, &INTEGER, &["roles"]])?;
                roles = self::roles(object, &INTEGER_ROLES)?;
                FieldKind::VariableUnsigned(integer(object, object::unsigned)?)
            }
            Kind::VariableSigned => {
                object.check(&[], &[&COMMON, &INTEGER])?;
                FieldKind::VariableSigned(integer(object, object::signed)?)
            }
            Kind::NullTerminatedString => {
                object.check(&[], &[&COMMON, &["encoding"]])?;
                FieldKind::NullTerminatedString(encoding(object)?)
            }
            Kind::StaticString | Kind::DynamicString => {
                let length = length_key(kind == Kind::StaticString);
                object.check(&[length], &[&COMMON, &["encoding"]])?;
                let encoding = encoding(object)?;
                FieldKind::String(StringClass {
                    length: self::length(object)?,
                    encoding,
                })
            }
            Kind::StaticBlob => {
                object.check(&["length"], &[&COMMON, &["media-type", "roles"]])?;
                roles = self::roles(object, &BLOB_ROLES)?;
                blob(object)?
            }
            Kind::DynamicBlob => {
                object.check(&[LENGTH_LOCATION], &[&COMMON, &["media-type"]])?;
                blob(object)?
            }
            Kind::StaticArray | Kind::DynamicArray => self.array(object, kind)?,
            Kind::Struct => self.structure(object)?,
            Kind::Optional => self.optional(object)?,
            Kind::Variant => self.variant(object)?,
        };
        let id = self.builder.add_field(field, object.at)?;
        let class = self.builder.field_mut(id);
        class.roles = roles;
        class.attributes = object.attributes()?;
        Ok(id)
    }

    fn array(&mut self, object: Object<'_>, kind: Kind) -> Result<FieldKind, BuildError> {
        let length = length_key(kind == Kind::StaticArray);
        object.check(
            &[length, "element-field-class"],
            &[&COMMON, &["minimum-alignment"]],
        )?;
        let min_alignment = min_alignment(object)?;
        let length = self::length(object)?;
        let element = self.class(object.required("element-field-class")?)?;
        Ok(FieldKind::Array(ArrayClass {
            length,
            element,
            min_alignment,
        }))
    }

    fn structure(&mut self, object: Object<'_>) -> Result<FieldKind, BuildError> {
        object.check(&[], &[&COMMON, &["member-classes", "minimum-alignment"]])?;
        let min_alignment = min_alignment(object)?;
        let mut members = Vec::new();
        let mut names = HashSet::new();
        for json in object.array("member-classes")? {
            let within = |error: BuildError| error.within(Subject::Origin(json.at), "in a member");
            let member = self.member(json, &mut names).map_err(within)?;
            members.push(member);
        }
        Ok(FieldKind::Struct(StructClass {
            members: members.into(),
            min_alignment,
        }))
    }

    fn member<'j>(
        &mut self,
        json: &'j Json,
        names: &mut HashSet<&'j str>,
    ) -> Result<Member, BuildError> {
        let optional = ["attributes", "extensions"];
        let object = Object::new(json, &["name", "field-class"], &[&optional])?;
        let name = unique_name(object, names)?.unwrap_or_default();
        let class = self.class(object.required("field-class")?)?;
        let attributes = object.attributes()?;
        Ok(Member {
            name: name.into(),
            display_name: name.into(),
            class,
            attributes,
        })
    }

    fn optional(&mut self, object: Object<'_>) -> Result<FieldKind, BuildError> {
        let required = ["field-class", SELECTOR_LOCATION];
        object.check(&required, &[&COMMON, &["selector-field-ranges"]])?;
        let selector = dependency(object, SELECTOR_LOCATION)?;
        let enabled = match object.get("selector-field-ranges") {
            Some(json) => SelectorRanges::Unsigned(selector_ranges(json)?),
            None => SelectorRanges::Bool,
        };
        let field = self.class(object.required("field-class")?)?;
        Ok(FieldKind::Optional(OptionalClass {
            selector,
            enabled,
            field,
        }))
    }

    fn variant(&mut self, object: Object<'_>) -> Result<FieldKind, BuildError> {
        object.check(&["options", SELECTOR_LOCATION], &[&COMMON])?;
        let selector = dependency(object, SELECTOR_LOCATION)?;
        let options = object.array("options")?;
        if options.is_empty() {
            return fault(
                object.required("options")?.at,
                "expecting at least one option",
            );
        }
        let mut names = HashSet::new();
        let mut made = Vec::new();
        for json in options {
            let within = |error: BuildError| error.within(Subject::Origin(json.at), "in an option");
            let option = self.variant_option(json, &mut names).map_err(within)?;
            made.push(option);
        }
        let options = VariantOptions::Unsigned(made.into());
        Ok(FieldKind::Variant(VariantClass { selector, options }))
    }

    fn variant_option<'j>(
        &mut self,
        json: &'j Json,
        names: &mut HashSet<&'j str>,
    ) -> Result<VariantOption<u64>, BuildError> {
        let optional = ["name", "attributes", "extensions"];
        let object = Object::new(
            json,
            &["field-class", "selector-field-ranges"],
            &[&optional],
        )?;
        let name = unique_name(object, names)?;
        let ranges = selector_ranges(object.required("selector-field-ranges")?)?;
        let field = self.class(object.required("field-class")?)?;
        Ok(VariantOption {
            name: name.map(Into::into),
            display_name: name.map(Into::into),
            ranges,
            field,
            attributes: object.attributes()?,
        })
    }
}

fn unique_name<'j>(
    object: Object<'j>,
    names: &mut HashSet<&'j str>,
) -> Result<Option<&'j str>, BuildError> {
    let Some(json) = object.get("name") else {
        return Ok(None);
    };
    let name = object::string(json)?;
    if names.insert(name) {
        return Ok(Some(name));
    }
    fault(json.at, format!("duplicate name `{name}`"))
}

/// Bit array, boolean or floating-point number.
fn fixed(kind: Kind, object: Object<'_>) -> Result<FieldKind, BuildError> {
    object.check(&["length", "byte-order"], &[&COMMON, &BITS])?;
    let bits = bits(object)?;
    match kind {
        Kind::Bool => Ok(FieldKind::Bool(BoolClass { bits })),
        Kind::Float if !matches!(bits.length, 32 | 64) => {
            let message = format!(
                "floating-point numbers of {} bits: only 32 and 64 are supported",
                bits.length
            );
            fault(object.required("length")?.at, message)
        }
        Kind::Float => Ok(FieldKind::Float(FloatClass { bits })),
        _ => Ok(FieldKind::BitArray(bits)),
    }
}

fn bit_map(object: Object<'_>) -> Result<FieldKind, BuildError> {
    object.check(&["length", "byte-order", "flags"], &[&COMMON, &BITS])?;
    let bits = bits(object)?;
    let json = object.required("flags")?;
    let entries = Object::any(json)?.entries();
    if entries.is_empty() {
        return fault(json.at, "expecting at least one flag");
    }
    let flag = |(name, json): &(String, Json)| {
        let bits = RangeSet::new(named_ranges(name, json, object::unsigned)?);
        Ok(Flag {
            name: name.as_str().into(),
            bits,
        })
    };
    let flags = entries.iter().map(flag).collect::<Result<_, _>>()?;
    Ok(FieldKind::BitMap(BitMapClass { bits, flags }))
}

fn bits(object: Object<'_>) -> Result<FixedBits, BuildError> {
    let length = object::within(object.required("length")?, 1, 64)?;
    let byte_order = object::choice(object.required("byte-order")?, &BYTE_ORDERS)?;
    let bit_order = match object.get("bit-order") {
        Some(json) => object::choice(json, &BIT_ORDERS)?,
        None => byte_order.natural_bit_order(),
    };
    let alignment = object.get("alignment").map_or(Ok(1), object::alignment)?;
    Ok(FixedBits {
        length: low_u8(length),
        alignment,
        byte_order,
        bit_order,
    })
}

fn integer<T: Copy + Ord>(
    object: Object<'_>,
    bound: fn(&Json) -> Result<T, BuildError>,
) -> Result<IntegerClass<T>, BuildError> {
    let base = match object.get("preferred-display-base") {
        None => DisplayBase::Decimal,
        Some(json) => match object::unsigned(json)? {
            2 => DisplayBase::Binary,
            8 => DisplayBase::Octal,
            10 => DisplayBase::Decimal,
            16 => DisplayBase::Hexadecimal,
            other => return fault(json.at, format!("{other} is not one of 2, 8, 10 and 16")),
        },
    };
    let mut mappings = Vec::new();
    if let Some(json) = object.get("mappings") {
        for (name, ranges) in Object::any(json)?.entries() {
            let ranges = RangeSet::new(named_ranges(name, ranges, bound)?);
            mappings.push(Mapping {
                name: name.as_str().into(),
                ranges,
            });
        }
    }
    Ok(IntegerClass {
        base,
        mappings: Mappings::new(mappings),
    })
}

fn named_ranges<T: Copy>(
    name: &str,
    json: &Json,
    bound: fn(&Json) -> Result<T, BuildError>,
) -> Result<Vec<IntRange<T>>, BuildError> {
    object::ranges(json, bound)
        .map_err(|error| error.within(Subject::Origin(json.at), format!("in `{name}`")))
}

fn selector_ranges(json: &Json) -> Result<RangeSet<u64>, BuildError> {
    object::ranges(json, object::raw_integer).map(RangeSet::new)
}

fn roles(object: Object<'_>, known: &[(&str, Role)]) -> Result<Roles, BuildError> {
    let mut roles = Roles::NONE;
    for json in object.array("roles")? {
        roles = roles.with(object::choice(json, known)?);
    }
    Ok(roles)
}

fn encoding(object: Object<'_>) -> Result<Encoding, BuildError> {
    object
        .get("encoding")
        .map_or(Ok(Encoding::Utf8), |json| object::choice(json, &ENCODINGS))
}

fn min_alignment(object: Object<'_>) -> Result<u32, BuildError> {
    object
        .get("minimum-alignment")
        .map_or(Ok(1), object::alignment)
}

fn blob(object: Object<'_>) -> Result<FieldKind, BuildError> {
    let media_type = object
        .string("media-type")?
        .unwrap_or("application/octet-stream")
        .into();
    Ok(FieldKind::Blob(BlobClass {
        length: length(object)?,
        media_type,
    }))
}

const fn length_key(is_static: bool) -> &'static str {
    if is_static { "length" } else { LENGTH_LOCATION }
}

fn length(object: Object<'_>) -> Result<Length, BuildError> {
    match object.unsigned("length")? {
        Some(length) => Ok(Length::Static(length)),
        None => dependency(object, LENGTH_LOCATION).map(Length::Dynamic),
    }
}

fn dependency(object: Object<'_>, key: &str) -> Result<Dependency, BuildError> {
    let json = object.required(key)?;
    location(json)
        .map(Dependency::new)
        .map_err(|error| error.within(Subject::Origin(json.at), "in a location"))
}

fn location(json: &Json) -> Result<Location, BuildError> {
    let object = Object::new(json, &["path"], &[&["origin"]])?;
    let scope = object
        .get("origin")
        .map(|json| object::choice(json, &SCOPES))
        .transpose()?;
    let path_json = object.required("path")?;
    let steps = object::array(path_json)?;
    let step = |json: &Json| match &json.value {
        JsonValue::Null => Ok(PathStep::Parent),
        JsonValue::String(name) => Ok(PathStep::Member(name.as_str().into())),
        _ => fault(json.at, "expecting a string or `null`"),
    };
    let path = steps.iter().map(step).collect::<Result<Vec<_>, _>>()?;
    match steps.last() {
        None => fault(path_json.at, "expecting at least one element"),
        Some(last) if last.value == JsonValue::Null => fault(last.at, "the path ends with `null`"),
        Some(_) => Ok(Location { scope, path }),
    }
}
