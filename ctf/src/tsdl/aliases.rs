//! Aliases: named types.

use super::attribute::fault;
use super::parser::{Parser, context};
use super::scope::FrameKind;
use super::types::TypePosition;
use crate::class::{BuildError, FieldId};
use crate::metadata::leniency::Leniency;

const TYPE_EXPECTED: &str = "expecting a type (`integer`, `floating_point`, `enum`, `string`, \
     `struct` or `variant`) or the name of an alias";

/// Words that cannot be part of the name of an alias.
const RESERVED: [&str; 11] = [
    "integer",
    "floating_point",
    "enum",
    "string",
    "struct",
    "variant",
    "trace",
    "stream",
    "clock",
    "event",
    "env",
];

/// Words of which the name of an alias can have several.
const C_WORDS: [&str; 13] = [
    "const",
    "char",
    "double",
    "float",
    "int",
    "long",
    "short",
    "signed",
    "unsigned",
    "void",
    "_Bool",
    "_Complex",
    "_Imaginary",
];

impl Parser<'_> {
    /// Parses any declaration of an alias.
    pub(super) fn alias_declaration(&mut self) -> Result<bool, BuildError> {
        self.scanner.skip_semicolons();
        if self.generic_alias()? {
            return Ok(true);
        }
        let before = self.scanner;
        if !before.is_at_nameable() {
            return Ok(false);
        }
        if self.full_type(TypePosition::Declaration)?.is_some()
            && (self.scanner.punctuation(";") || self.is_before_declaration())
        {
            return Ok(true);
        }
        self.scanner = before;
        Ok(false)
    }

    /// True in lenient mode before a declaration of a name: Babeltrace reads the one before it
    /// without a semicolon, too.
    fn is_before_declaration(&self) -> bool {
        let mut next = self.scanner;
        let is_alias = matches!(next.peek_identifier(), Some("typealias" | "typedef"));
        self.leniency == Leniency::Lenient && (is_alias || next.is_at_nameable())
    }

    /// `typealias TYPE := NAME;` or `typedef TYPE NAME;`
    pub(super) fn generic_alias(&mut self) -> Result<bool, BuildError> {
        self.scanner.skip_semicolons();
        let at = self.scanner.offset();
        let is_typealias = self.scanner.word("typealias");
        if !is_typealias && !self.scanner.word("typedef") {
            return Ok(false);
        }
        self.frames.push(FrameKind::Alias);
        let (name, class) = self
            .generic_alias_body(is_typealias)
            .map_err(|error| context(error, at, "in an alias"))?;
        self.frames.pop();
        let end = self.scanner.offset();
        self.frames
            .add_alias(name, class, end)
            .map_err(|error| context(error, at, "in an alias"))?;
        Ok(true)
    }

    pub(super) fn generic_alias_body(
        &mut self,
        typealias: bool,
    ) -> Result<(String, FieldId), BuildError> {
        let class = match self.full_type(TypePosition::Value)? {
            Some(class) => class,
            None => match self.alias_reference_or_name()? {
                Some(class) => class,
                None => return fault(self.scanner.offset(), TYPE_EXPECTED),
            },
        };
        if typealias {
            self.expect(":=")?;
        }
        let Some(name) = self.alias_name(true)? else {
            return fault(self.scanner.offset(), "expecting the name of an alias");
        };
        let class = self.subscripts(class)?;
        self.expect(";")?;
        Ok((name, class))
    }

    /// A reference to an alias, or one unknown name, which is consumed.
    pub(super) fn alias_reference_or_name(&mut self) -> Result<Option<FieldId>, BuildError> {
        let class = self.alias_reference()?;
        if class.is_none() {
            self.scanner.identifier();
        }
        Ok(class)
    }

    /// A use of an alias: a copy of its type.
    pub(super) fn alias(&mut self, name: &str, at: u32) -> Result<Option<FieldId>, BuildError> {
        let Some(class) = self.frames.alias(name) else {
            return Ok(None);
        };
        let copy = self.builder.copy_field(class)?;
        self.builder.set_origin(copy, at);
        Ok(Some(copy))
    }

    /// `enum NAME`, `struct NAME`, `variant NAME`, `variant NAME <location>` or the name of an
    /// alias; `None` without a change of the position when there is none.
    pub(super) fn alias_reference(&mut self) -> Result<Option<FieldId>, BuildError> {
        self.scanner.skip();
        let before = self.scanner;
        let at = self.scanner.offset();
        let keyword = self.scanner.identifier();
        let class = match keyword {
            Some(keyword @ ("enum" | "struct")) => match self.scanner.identifier() {
                Some(name) => {
                    let ahead = self.scanner;
                    let defines = self.scanner.punctuation("{") || self.scanner.punctuation(":");
                    self.scanner = ahead;
                    if defines {
                        None
                    } else {
                        self.alias(&format!("{keyword} {name}"), at)?
                    }
                }
                None => None,
            },
            Some("variant") => self.variant_reference(at)?,
            Some(_) => {
                self.scanner = before;
                match self.alias_name(false)? {
                    Some(name) => self.alias(&name, at)?,
                    None => None,
                }
            }
            None => None,
        };
        if class.is_none() {
            self.scanner = before;
        }
        Ok(class)
    }

    pub(super) fn variant_reference(&mut self, at: u32) -> Result<Option<FieldId>, BuildError> {
        let Some(name) = self.scanner.identifier() else {
            return Ok(None);
        };
        let Some(class) = self.alias(&format!("variant {name}"), at)? else {
            return Ok(None);
        };
        if !self.lacks_selector(class) {
            return Ok(Some(class));
        }
        let Some(location) = self.selector()? else {
            return Ok(None);
        };
        let ahead = self.scanner;
        if self.scanner.punctuation("{") {
            return Ok(None);
        }
        self.scanner = ahead;
        self.set_selector(class, location);
        Ok(Some(class))
    }

    /// The name of an alias: one word, or C words such as `unsigned long int`.
    pub(super) fn alias_name(&mut self, expected: bool) -> Result<Option<String>, BuildError> {
        let mut words: Vec<&str> = Vec::new();
        let mut is_multiple = false;
        while let Some(word) = self.scanner.peek_identifier() {
            if RESERVED.contains(&word) {
                if !expected {
                    return Ok(None);
                }
                let message = format!("keyword `{word}` in the name of an alias");
                return fault(self.scanner.offset(), message);
            }
            let is_c_word = C_WORDS.contains(&word);
            if is_multiple && !is_c_word {
                break;
            }
            is_multiple |= is_c_word;
            self.scanner.word(word);
            words.push(word);
            if !is_multiple {
                break;
            }
        }
        Ok((!words.is_empty()).then(|| words.join(" ")))
    }
}
