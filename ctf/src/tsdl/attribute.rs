//! Attributes: `name = value;` in a block.

use crate::class::{BuildError, ByteOrder, DisplayBase, Encoding, Subject};
use crate::metadata::leniency::Leniency;
use std::collections::HashSet;
use uuid::Uuid;

/// The value of an attribute, by its notation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributeValue {
    Identifier(String),
    String(String),
    Unsigned(u64),
    Signed(i64),
    /// `clock.NAME.value`
    Clock(String),
}

#[derive(Clone, Debug)]
pub(super) struct Attribute {
    pub(super) name: String,
    pub(super) name_at: u32,
    pub(super) value: AttributeValue,
    pub(super) value_at: u32,
}

pub(super) fn fault<T>(at: u32, message: impl Into<String>) -> Result<T, BuildError> {
    Err(BuildError::new(Subject::Origin(at), message))
}

/// Rejects a second attribute with the same name.
pub(super) fn check_duplicates(attributes: &[Attribute]) -> Result<(), BuildError> {
    let mut names = HashSet::new();
    match attributes
        .iter()
        .find(|attribute| !names.insert(&attribute.name))
    {
        Some(attribute) => fault(
            attribute.name_at,
            format!("duplicate attribute `{}`", attribute.name),
        ),
        None => Ok(()),
    }
}

impl Attribute {
    fn expecting<T>(&self, what: &str) -> Result<T, BuildError> {
        fault(
            self.value_at,
            format!("attribute `{}`: expecting {what}", self.name),
        )
    }

    pub(super) fn unsigned(&self) -> Result<u64, BuildError> {
        match self.value {
            AttributeValue::Unsigned(value) => Ok(value),
            _ => self.expecting("an unsigned integer constant"),
        }
    }

    pub(super) fn signed(&self) -> Result<i64, BuildError> {
        match self.value {
            AttributeValue::Signed(value) => Ok(value),
            AttributeValue::Unsigned(value) => match i64::try_from(value) {
                Ok(value) => Ok(value),
                Err(_) => self.expecting("a signed integer constant of 64 bits"),
            },
            _ => self.expecting("a signed integer constant"),
        }
    }

    pub(super) fn string(&self) -> Result<&str, BuildError> {
        match &self.value {
            AttributeValue::String(value) => Ok(value),
            _ => self.expecting("a string"),
        }
    }

    pub(super) fn identifier(&self) -> Result<&str, BuildError> {
        match &self.value {
            AttributeValue::Identifier(value) => Ok(value),
            _ => self.expecting("an identifier"),
        }
    }

    pub(super) fn name(&self) -> Result<&str, BuildError> {
        match &self.value {
            AttributeValue::Identifier(value) | AttributeValue::String(value) => Ok(value),
            _ => self.expecting("an identifier or a string"),
        }
    }

    pub(super) fn uuid(&self) -> Result<Uuid, BuildError> {
        let text = self.string()?;
        match Uuid::try_parse(text) {
            Ok(uuid) if !text.starts_with("urn:") => Ok(uuid),
            _ => fault(self.value_at, format!("malformed UUID `{text}`")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool, BuildError> {
        match &self.value {
            AttributeValue::Unsigned(1) => Ok(true),
            AttributeValue::Unsigned(0) => Ok(false),
            AttributeValue::Identifier(word) if word == "true" || word == "TRUE" => Ok(true),
            AttributeValue::Identifier(word) if word == "false" || word == "FALSE" => Ok(false),
            _ => self.expecting("`0`, `false`, `FALSE`, `1`, `true` or `TRUE`"),
        }
    }

    /// A byte order; `None` for the native one.
    pub(super) fn byte_order(&self) -> Result<Option<ByteOrder>, BuildError> {
        match self.identifier()? {
            "le" => Ok(Some(ByteOrder::Little)),
            "be" | "network" => Ok(Some(ByteOrder::Big)),
            "native" => Ok(None),
            other => fault(self.value_at, format!("invalid byte order `{other}`")),
        }
    }

    pub(super) fn encoding(&self) -> Result<Option<Encoding>, BuildError> {
        match self.identifier()? {
            "none" | "NONE" => Ok(None),
            "utf8" | "UTF8" | "ascii" | "ASCII" => Ok(Some(Encoding::Utf8)),
            other => fault(self.value_at, format!("invalid encoding `{other}`")),
        }
    }

    pub(super) fn display_base(&self, leniency: Leniency) -> Result<DisplayBase, BuildError> {
        let base = match &self.value {
            AttributeValue::Unsigned(2) => Some(DisplayBase::Binary),
            AttributeValue::Unsigned(8) => Some(DisplayBase::Octal),
            AttributeValue::Unsigned(10) => Some(DisplayBase::Decimal),
            AttributeValue::Unsigned(16) => Some(DisplayBase::Hexadecimal),
            AttributeValue::Unsigned(_) => None,
            AttributeValue::Identifier(word) => named_base(word),
            // Babeltrace reads it.
            AttributeValue::String(word) if leniency == Leniency::Lenient => named_base(word),
            _ => return self.expecting("an unsigned integer constant or an identifier"),
        };
        base.map_or_else(|| fault(self.value_at, "invalid display base"), Ok)
    }

    pub(super) fn alignment(&self) -> Result<u32, BuildError> {
        alignment(self.unsigned()?, self.value_at)
    }
}

fn named_base(word: &str) -> Option<DisplayBase> {
    match word {
        "decimal" | "dec" | "d" | "i" | "u" => Some(DisplayBase::Decimal),
        "hexadecimal" | "hex" | "x" | "X" | "p" => Some(DisplayBase::Hexadecimal),
        "octal" | "oct" | "o" => Some(DisplayBase::Octal),
        "binary" | "bin" | "b" => Some(DisplayBase::Binary),
        _ => None,
    }
}

/// Checks that `value` is a power of two of 32 bits.
pub(super) fn alignment(value: u64, at: u32) -> Result<u32, BuildError> {
    match u32::try_from(value) {
        Ok(bits) if bits.is_power_of_two() => Ok(bits),
        _ => fault(
            at,
            format!("invalid alignment {value}: must be a power of two"),
        ),
    }
}
