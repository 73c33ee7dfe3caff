//! Parsing of attributes and constants.

use super::attribute::{Attribute, AttributeValue, fault};
use super::parser::Parser;
use crate::class::BuildError;
use crate::metadata::leniency::Leniency;

impl Parser<'_> {
    /// `name = value;`
    pub(super) fn attribute(&mut self) -> Result<Attribute, BuildError> {
        self.scanner.skip();
        let name_at = self.scanner.offset();
        let Some(word) = self.scanner.identifier() else {
            return fault(name_at, "expecting the name of an attribute");
        };
        let mut name = word.to_owned();
        if word == "model" && self.scanner.punctuation(".") {
            self.expect_word("emf")?;
            self.expect(".")?;
            self.expect_word("uri")?;
            name = "model.emf.uri".to_owned();
        }
        self.expect("=")?;
        self.scanner.skip();
        let value_at = self.scanner.offset();
        let value = if name == "map" {
            self.clock_value()?
        } else {
            self.constant(value_at)?
        };
        self.expect(";")?;
        Ok(Attribute {
            name,
            name_at,
            value,
            value_at,
        })
    }

    /// `clock.NAME.value`
    fn clock_value(&mut self) -> Result<AttributeValue, BuildError> {
        self.expect_word("clock")?;
        self.expect(".")?;
        let Some(name) = self.scanner.identifier() else {
            return fault(self.scanner.offset(), "expecting the name of a clock");
        };
        self.expect(".")?;
        self.expect_word("value")?;
        Ok(AttributeValue::Clock(name.to_owned()))
    }

    fn constant(&mut self, at: u32) -> Result<AttributeValue, BuildError> {
        if let Some(text) = self.literal()? {
            return Ok(AttributeValue::String(text));
        }
        if let Some(word) = self.scanner.identifier() {
            return Ok(AttributeValue::Identifier(word.to_owned()));
        }
        if let Some(value) = self.scanner.unsigned() {
            return Ok(AttributeValue::Unsigned(value));
        }
        if let Some(value) = self.scanner.signed() {
            return Ok(AttributeValue::Signed(value));
        }
        if self.leniency == Leniency::Lenient
            && let Some(code) = self.scanner.character()
        {
            return Ok(AttributeValue::Unsigned(code));
        }
        fault(
            at,
            "expecting an integer constant, a string or an identifier",
        )
    }

    /// A string between quotes, when there is one.
    pub(super) fn literal(&mut self) -> Result<Option<String>, BuildError> {
        self.scanner.skip();
        let at = self.scanner.offset();
        match self.scanner.string() {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(byte)) => fault(at, format!("control character {byte:#x} in a string")),
        }
    }

    pub(super) fn expect(&mut self, token: &str) -> Result<(), BuildError> {
        if self.scanner.punctuation(token) {
            return Ok(());
        }
        fault(self.scanner.offset(), format!("expecting `{token}`"))
    }

    fn expect_word(&mut self, word: &str) -> Result<(), BuildError> {
        if self.scanner.word(word) {
            return Ok(());
        }
        fault(self.scanner.offset(), format!("expecting `{word}`"))
    }
}
