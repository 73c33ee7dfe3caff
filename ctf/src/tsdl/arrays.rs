//! Locations, and arrays whose length is a constant or at a location.

use super::attribute::fault;
use super::parser::{Parser, context};
use super::scope::Target;
use crate::class::{
    ArrayClass, BuildError, Dependency, Encoding, EnvironmentValue, FieldId, FieldKind, Length,
    StringClass,
};

impl Parser<'_> {
    /// `a.b.c`
    pub(super) fn location(&mut self) -> Result<Target, BuildError> {
        self.scanner.skip();
        let at = self.scanner.offset();
        let mut names = Vec::new();
        while let Some(name) = self.scanner.identifier() {
            names.push(name);
            if !self.scanner.punctuation(".") {
                break;
            }
        }
        if names.is_empty() {
            return fault(at, "empty location");
        }
        self.frames.target(&names, at)
    }

    /// `[length]…`: the leftmost is the outermost array.
    pub(super) fn subscripts(&mut self, element: FieldId) -> Result<FieldId, BuildError> {
        let mut lengths = Vec::new();
        while self.scanner.punctuation("[") {
            self.scanner.skip();
            let at = self.scanner.offset();
            let length = self.array_length(at)?;
            lengths.push((length, at));
            self.expect("]")?;
        }
        let mut class = element;
        for (length, at) in lengths.into_iter().rev() {
            let kind = match self.text_encoding(class) {
                Some(encoding) => FieldKind::String(StringClass { length, encoding }),
                None => FieldKind::Array(ArrayClass {
                    length,
                    element: class,
                    min_alignment: 1,
                }),
            };
            class = self.builder.add_field(kind, at)?;
        }
        Ok(class)
    }

    pub(super) fn array_length(&mut self, at: u32) -> Result<Length, BuildError> {
        if let Some(length) = self.scanner.signed() {
            return match u64::try_from(length) {
                Ok(length) => Ok(Length::Static(length)),
                Err(_) => fault(at, format!("negative array length {length}")),
            };
        }
        let target = self.location().map_err(|error| {
            context(
                error,
                at,
                "expecting an integer constant or the location of a length",
            )
        })?;
        let keys = match target {
            Target::Field(location) => return Ok(Length::Dynamic(Dependency::new(location))),
            Target::Environment(keys) => keys,
        };
        let [key] = &keys[..] else {
            return fault(at, "expecting `env.KEY`");
        };
        let Some(environment) = &self.environment else {
            return fault(
                at,
                format!("there is no environment with `{key}` at this point"),
            );
        };
        match environment.get(key) {
            None => fault(at, format!("there is no environment entry `{key}`")),
            Some(EnvironmentValue::Integer(length)) => match u64::try_from(*length) {
                Ok(length) => Ok(Length::Static(length)),
                Err(_) => fault(at, format!("negative array length {length}")),
            },
            Some(EnvironmentValue::String(_)) => {
                fault(at, format!("environment entry `{key}` is not an integer"))
            }
        }
    }

    /// The text encoding of an array of `element`; `None` when it is not text.
    pub(super) fn text_encoding(&self, element: FieldId) -> Option<Encoding> {
        let bits = self.builder.field(element).fixed_bits()?;
        let is_byte = bits.length == 8 && bits.alignment == 8;
        self.builder.encoding(element).filter(|_| is_byte)
    }
}
