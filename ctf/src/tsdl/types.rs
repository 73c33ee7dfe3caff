//! Types: `integer`, `floating_point`, `string`, `enum`, `struct`, `variant`, arrays and aliases.

use super::attribute::{Attribute, AttributeValue, alignment, check_duplicates, fault};
use super::parser::{Parser, context};
use super::scope::{FrameKind, Target};
use crate::class::{
    Attributes, BuildError, ByteOrder, Dependency, DisplayBase, Encoding, FieldId, FieldKind,
    FixedBits, FloatClass, IntegerClass, Location, Member, RangeSet, StructClass, VariantClass,
    VariantOption, VariantOptions,
};
use crate::integer::low_u8;
use crate::metadata::leniency::Leniency;
use std::collections::HashSet;

/// Words that cannot be the name of a member or option in lenient mode.
const KEYWORDS: [&str; 28] = [
    "align",
    "callsite",
    "char",
    "clock",
    "const",
    "double",
    "enum",
    "env",
    "event",
    "float",
    "floating_point",
    "int",
    "integer",
    "long",
    "short",
    "signed",
    "stream",
    "string",
    "struct",
    "trace",
    "typealias",
    "typedef",
    "unsigned",
    "variant",
    "void",
    "_Bool",
    "_Complex",
    "_Imaginary",
];

/// A member of a structure or an option of a variant.
pub(super) struct NamedType {
    name: String,
    class: FieldId,
}

/// The syntactic position of a type, which determines the effect of its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TypePosition {
    /// In a body or block, where it can be a declaration.
    Declaration,
    /// After `:=`, `typealias` or `typedef`.
    Value,
}

impl Parser<'_> {
    /// An alias by name or a type; `None` when there is neither.
    pub(super) fn any_type(&mut self) -> Result<Option<FieldId>, BuildError> {
        match self.alias_reference()? {
            Some(class) => Ok(Some(class)),
            None => self.full_type(TypePosition::Value),
        }
    }

    /// A type by its keyword.
    pub(super) fn full_type(
        &mut self,
        position: TypePosition,
    ) -> Result<Option<FieldId>, BuildError> {
        let before = self.scanner;
        self.scanner.skip();
        let at = self.scanner.offset();
        let Some(word) = self.scanner.identifier() else {
            return Ok(None);
        };
        if self.depth >= self.builder.depth_max {
            return Err(BuildError::too_deep(at, self.builder.depth_max));
        }
        self.depth += 1;
        let class = match word {
            "integer" => self.integer(at).map(Some),
            "string" => self.string(at).map(Some),
            "floating_point" => self.float(at).map(Some),
            "enum" => self.enumeration(at, position),
            "struct" => self.structure(at, position),
            "variant" => self.variant(at, position),
            _ => Ok(None),
        };
        self.depth -= 1;
        let class = class.map_err(|error| context(error, at, format!("in `{word}`")))?;
        if class.is_none() {
            self.scanner = before;
            self.scanner.skip();
        }
        Ok(class)
    }

    /// `{ name = value; … }`
    fn attributes(&mut self) -> Result<Vec<Attribute>, BuildError> {
        let mut attributes = Vec::new();
        loop {
            self.scanner.skip_semicolons();
            if self.scanner.punctuation("}") {
                break;
            }
            let attribute = self.attribute()?;
            attributes.push(attribute);
        }
        check_duplicates(&attributes)?;
        Ok(attributes)
    }

    fn native_byte_order(&self) -> ByteOrder {
        self.byte_order.unwrap_or(ByteOrder::Little)
    }

    pub(super) fn integer(&mut self, at: u32) -> Result<FieldId, BuildError> {
        self.expect("{")?;
        let mut size = None;
        let mut align = None;
        let mut byte_order = self.native_byte_order();
        let mut base = DisplayBase::Decimal;
        let mut signed = false;
        let mut encoding = None;
        let mut clock: Option<(String, u32)> = None;
        for attribute in self.attributes()? {
            match attribute.name.as_str() {
                "size" => size = Some(integer_size(&attribute)?),
                "align" => align = Some(attribute.alignment()?),
                "byte_order" => byte_order = attribute.byte_order()?.unwrap_or(byte_order),
                "base" => base = attribute.display_base(self.leniency)?,
                "signed" => signed = attribute.boolean()?,
                "encoding" => encoding = attribute.encoding()?,
                "map" => {
                    if let AttributeValue::Clock(name) = attribute.value {
                        clock = Some((name, attribute.name_at));
                    }
                }
                _ => self.unknown(&attribute)?,
            }
        }
        let Some(size) = size else {
            return fault(at, "missing attribute `size`");
        };
        let align = align.unwrap_or(if size.is_multiple_of(8) { 8 } else { 1 });
        let bits = FixedBits::new(size, align, byte_order);
        let kind = if signed {
            if let Some((_, at)) = clock {
                return fault(at, "a signed integer cannot be mapped to a clock");
            }
            FieldKind::Signed(
                bits,
                IntegerClass {
                    base,
                    ..IntegerClass::default()
                },
            )
        } else {
            FieldKind::Unsigned(
                bits,
                IntegerClass {
                    base,
                    ..IntegerClass::default()
                },
            )
        };
        let id = self.builder.add_field(kind, at)?;
        self.builder.set_encoding(id, encoding);
        if let Some((name, _)) = clock {
            self.builder.map_clock(id, &name);
        }
        Ok(id)
    }

    fn float(&mut self, at: u32) -> Result<FieldId, BuildError> {
        self.expect("{")?;
        let (mut exponent, mut mantissa, mut align) = (None, None, 8);
        let mut byte_order = self.native_byte_order();
        for attribute in self.attributes()? {
            match attribute.name.as_str() {
                "exp_dig" => exponent = Some(attribute.unsigned()?),
                "mant_dig" => mantissa = Some(attribute.unsigned()?),
                "align" => align = attribute.alignment()?,
                "byte_order" => byte_order = attribute.byte_order()?.unwrap_or(byte_order),
                _ => self.unknown(&attribute)?,
            }
        }
        let Some(exponent) = exponent.filter(|digits| *digits > 0) else {
            return fault(at, "missing attribute `exp_dig`");
        };
        let Some(mantissa) = mantissa.filter(|digits| *digits > 0) else {
            return fault(at, "missing attribute `mant_dig`");
        };
        let length = match (exponent, mantissa) {
            (8, 24) => 32,
            (11, 53) => 64,
            _ => {
                let message = "unsupported `exp_dig` and `mant_dig`: only 8 and 24 (32 bits) or \
                               11 and 53 (64 bits) are";
                return fault(at, message);
            }
        };
        let bits = FixedBits::new(length, align, byte_order);
        self.builder
            .add_field(FieldKind::Float(FloatClass { bits }), at)
    }

    fn string(&mut self, at: u32) -> Result<FieldId, BuildError> {
        if self.scanner.punctuation("{") {
            for attribute in self.attributes()? {
                match attribute.name.as_str() {
                    "encoding" => {
                        attribute.encoding()?;
                    }
                    _ => self.unknown(&attribute)?,
                }
            }
        }
        self.builder
            .add_field(FieldKind::NullTerminatedString(Encoding::Utf8), at)
    }

    /// Adds the alias that the name of an `enum`, `struct` or `variant` declares.
    fn declare(&mut self, name: Option<String>, class: FieldId) -> Result<(), BuildError> {
        match name {
            Some(name) => {
                let at = self.scanner.offset();
                self.frames.add_alias(name, class, at)
            }
            None => Ok(()),
        }
    }

    /// Declares the name of a type that was just parsed. In a declaration without a member, the
    /// name takes effect after the closing `;`.
    pub(super) fn declare_named(
        &mut self,
        position: TypePosition,
        name: Option<String>,
        class: FieldId,
    ) -> Result<FieldId, BuildError> {
        let ahead = self.scanner;
        if position == TypePosition::Declaration && !self.scanner.punctuation(";") {
            self.scanner = ahead;
        }
        self.declare(name, class)?;
        self.scanner = ahead;
        Ok(class)
    }

    fn structure(
        &mut self,
        at: u32,
        position: TypePosition,
    ) -> Result<Option<FieldId>, BuildError> {
        let name = self
            .scanner
            .identifier()
            .map(|name| format!("struct {name}"));
        if !self.scanner.punctuation("{") {
            return Ok(None);
        }
        let members = self.body(FrameKind::Struct, name.is_some(), position)?;
        check_names(&members, at)?;
        let mut min_alignment = 1;
        if self.scanner.word("align") {
            self.expect("(")?;
            let Some(value) = self.scanner.unsigned() else {
                return fault(
                    self.scanner.offset(),
                    "expecting an unsigned integer constant",
                );
            };
            min_alignment = alignment(value, self.scanner.offset())?;
            self.expect(")")?;
        }
        let member = |named: NamedType| Member {
            display_name: display_name(&named.name).into(),
            name: named.name.into(),
            class: named.class,
            attributes: Attributes::default(),
        };
        let members = members.into_iter().map(member).collect();
        let kind = FieldKind::Struct(StructClass {
            members,
            min_alignment,
        });
        let class = self.builder.add_field(kind, at)?;
        self.declare_named(position, name, class).map(Some)
    }

    fn variant(&mut self, at: u32, position: TypePosition) -> Result<Option<FieldId>, BuildError> {
        let name = self
            .scanner
            .identifier()
            .map(|name| format!("variant {name}"));
        let crosses = name.is_some() && position == TypePosition::Declaration;
        if crosses {
            self.frames.push(FrameKind::Alias);
        }
        let selector = self.selector()?;
        if crosses {
            self.frames.pop();
        }
        if !self.scanner.punctuation("{") {
            return Ok(None);
        }
        let options = self.body(FrameKind::Variant, name.is_some(), position)?;
        if options.is_empty() {
            return fault(at, "a variant needs at least one option");
        }
        check_names(&options, at)?;
        let option = |named: NamedType| VariantOption {
            display_name: Some(display_name(&named.name).into()),
            name: Some(named.name.into()),
            ranges: RangeSet::default(),
            field: named.class,
            attributes: Attributes::default(),
        };
        let options = VariantOptions::Unsigned(options.into_iter().map(option).collect());
        let is_template = self.leniency == Leniency::Lenient && name.is_some();
        let (declared, used) = match selector {
            // The name is declared without the selector, so that others can use it with theirs.
            Some(selector) if is_template => (no_selector(), Some(selector)),
            selector => (selector.unwrap_or_else(no_selector), None),
        };
        let selector = Dependency::new(declared);
        let kind = FieldKind::Variant(VariantClass { selector, options });
        let class = self.builder.add_field(kind, at)?;
        self.declare_named(position, name, class)?;
        let Some(selector) = used else {
            return Ok(Some(class));
        };
        let class = self.builder.copy_field(class)?;
        self.set_selector(class, selector);
        Ok(Some(class))
    }

    /// Sets the selector of a variant.
    pub(super) fn set_selector(&mut self, class: FieldId, location: Location) {
        if let FieldKind::Variant(variant) = &mut self.builder.field_mut(class).kind {
            variant.selector = Dependency::new(location);
        }
    }

    /// `<location>`
    pub(super) fn selector(&mut self) -> Result<Option<Location>, BuildError> {
        if !self.scanner.punctuation("<") {
            return Ok(None);
        }
        let location = match self.location()? {
            Target::Field(location) => location,
            Target::Environment(_) => {
                let message = "a selector cannot be in the environment";
                return fault(self.scanner.offset(), message);
            }
        };
        self.expect(">")?;
        Ok(Some(location))
    }

    /// Members up to `}`; `{` was consumed.
    fn body(
        &mut self,
        kind: FrameKind,
        named: bool,
        position: TypePosition,
    ) -> Result<Vec<NamedType>, BuildError> {
        let crosses = named && position == TypePosition::Declaration;
        if crosses {
            self.frames.push(FrameKind::Alias);
        }
        self.frames.push(kind);
        let mut members = Vec::new();
        loop {
            self.scanner.skip_semicolons();
            if self.scanner.punctuation("}") {
                break;
            }
            let at = self.scanner.offset();
            let found = self
                .member_or_alias(&mut members)
                .map_err(|error| context(error, at, "in the body"))?;
            if !found {
                return fault(
                    at,
                    "expecting a member or option of a known type, or an alias",
                );
            }
        }
        self.frames.pop();
        if crosses {
            self.frames.pop();
        }
        Ok(members)
    }

    /// `ALIAS name[…];`, `TYPE name[…];` or a declaration of an alias.
    fn member_or_alias(&mut self, members: &mut Vec<NamedType>) -> Result<bool, BuildError> {
        self.scanner.skip_semicolons();
        let before = self.scanner;
        let at = self.scanner.offset();
        if let Some(class) = self.alias_reference()?
            && let Some(name) = self.scanner.identifier()
        {
            let class = self.subscripts(class)?;
            self.add_member(members, name, class, at)?;
            return Ok(true);
        }
        self.scanner = before;
        if self.generic_alias()? {
            return Ok(true);
        }
        let Some(class) = self.full_type(TypePosition::Declaration)? else {
            return Ok(false);
        };
        if before.is_at_nameable() && (self.scanner.punctuation(";") || self.is_before_type()) {
            return Ok(true);
        }
        let Some(name) = self.scanner.identifier() else {
            return fault(
                self.scanner.offset(),
                "expecting the name of a member or option",
            );
        };
        let class = self.subscripts(class)?;
        self.add_member(members, name, class, self.scanner.offset())?;
        Ok(true)
    }

    /// True in lenient mode before a type: the type before it only declared its name.
    fn is_before_type(&self) -> bool {
        self.leniency == Leniency::Lenient && self.scanner.is_at_nameable()
    }

    fn add_member(
        &mut self,
        members: &mut Vec<NamedType>,
        name: &str,
        class: FieldId,
        at: u32,
    ) -> Result<(), BuildError> {
        if self.leniency == Leniency::Lenient && KEYWORDS.contains(&name) {
            let message = format!(
                "keyword `{name}` as the name of a member or option; producers write `_{name}`"
            );
            return fault(at, message);
        }
        if self.lacks_selector(class) {
            return fault(at, "the variant needs a selector here");
        }
        self.expect(";")?;
        members.push(NamedType {
            name: name.to_owned(),
            class,
        });
        self.frames.add_member(name);
        Ok(())
    }

    pub(super) fn lacks_selector(&self, class: FieldId) -> bool {
        match &self.builder.field(class).kind {
            FieldKind::Array(array) => self.lacks_selector(array.element),
            FieldKind::Variant(variant) => variant.selector.location == no_selector(),
            _ => false,
        }
    }
}

fn integer_size(attribute: &Attribute) -> Result<u8, BuildError> {
    match attribute.unsigned()? {
        0 => fault(attribute.value_at, "an integer needs at least 1 bit"),
        size @ 1..=64 => Ok(low_u8(size)),
        size => fault(
            attribute.value_at,
            format!("an integer of {size} bits: the maximum is 64"),
        ),
    }
}

/// The placeholder for the selector of a variant that has none yet.
fn no_selector() -> Location {
    Location {
        scope: None,
        path: Vec::new(),
    }
}

/// In CTF 1.8, producers can prepend `_` to a name that is a keyword.
fn display_name(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

fn check_names(members: &[NamedType], at: u32) -> Result<(), BuildError> {
    let mut names = HashSet::new();
    match members.iter().find(|member| !names.insert(&member.name)) {
        Some(member) => fault(at, format!("duplicate member or option `{}`", member.name)),
        None => Ok(()),
    }
}
