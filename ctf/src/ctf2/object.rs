//! Typed access to JSON values, with the checks of CTF 2.

use super::json::{Json, JsonValue, fault};
use crate::class::{Attributes, BuildError, Identity, IntRange, Subject};

/// Properties that every object of CTF 2 can have.
pub(super) const COMMON: [&str; 3] = ["type", "attributes", "extensions"];

/// A JSON object.
#[derive(Clone, Copy)]
pub(super) struct Object<'j> {
    pub(super) at: u32,
    entries: &'j [(String, Json)],
}

impl<'j> Object<'j> {
    /// The object in `json`, with any properties.
    pub(super) fn any(json: &'j Json) -> Result<Self, BuildError> {
        match &json.value {
            JsonValue::Object(entries) => Ok(Self {
                at: json.at,
                entries,
            }),
            _ => fault(json.at, "expecting an object"),
        }
    }

    /// The object in `json`, which must have all `required` properties, and others only if
    /// `optional`.
    pub(super) fn new(
        json: &'j Json,
        required: &[&str],
        optional: &[&[&str]],
    ) -> Result<Self, BuildError> {
        let object = Self::any(json)?;
        object.check(required, optional)?;
        Ok(object)
    }

    pub(super) fn check(&self, required: &[&str], optional: &[&[&str]]) -> Result<(), BuildError> {
        if let Some(missing) = required.iter().find(|key| self.get(key).is_none()) {
            return fault(self.at, format!("missing property `{missing}`"));
        }
        let is_known = |key: &str| {
            required.contains(&key) || optional.iter().any(|group| group.contains(&key))
        };
        if let Some((key, value)) = self.entries.iter().find(|(key, _)| !is_known(key)) {
            return fault(value.at, format!("unknown property `{key}`"));
        }
        self.attributes()?;
        if let Some(extensions) = self.get("extensions")
            && !Self::any(extensions)?.entries.is_empty()
        {
            return fault(extensions.at, "extensions of CTF 2 are not supported");
        }
        Ok(())
    }

    pub(super) fn entries(&self) -> &'j [(String, Json)] {
        self.entries
    }

    pub(super) fn get(&self, key: &str) -> Option<&'j Json> {
        self.entries
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    }

    /// A required property; the fault has the position of the object.
    pub(super) fn required(&self, key: &str) -> Result<&'j Json, BuildError> {
        match self.get(key) {
            Some(value) => Ok(value),
            None => fault(self.at, format!("missing property `{key}`")),
        }
    }

    pub(super) fn attributes(&self) -> Result<Attributes, BuildError> {
        let Some(json) = self.get("attributes") else {
            return Ok(Attributes::default());
        };
        Self::any(json)?;
        Ok(Attributes::new(json.to_value()?))
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<&'j str>, BuildError> {
        self.get(key).map(string).transpose()
    }

    pub(super) fn unsigned(&self, key: &str) -> Result<Option<u64>, BuildError> {
        self.get(key).map(unsigned).transpose()
    }

    pub(super) fn array(&self, key: &str) -> Result<&'j [Json], BuildError> {
        self.get(key).map_or(Ok(&[]), array)
    }

    /// `namespace`, `name` and `uid`.
    pub(super) fn identity(&self) -> Result<Identity, BuildError> {
        Ok(Identity {
            namespace: self.string("namespace")?.map(Into::into),
            name: self.string("name")?.map(Into::into),
            uid: self.string("uid")?.map(Into::into),
        })
    }
}

pub(super) fn string(json: &Json) -> Result<&str, BuildError> {
    match &json.value {
        JsonValue::String(text) => Ok(text),
        _ => fault(json.at, "expecting a string"),
    }
}

pub(super) fn array(json: &Json) -> Result<&[Json], BuildError> {
    match &json.value {
        JsonValue::Array(values) => Ok(values),
        _ => fault(json.at, "expecting an array"),
    }
}

pub(super) fn unsigned(json: &Json) -> Result<u64, BuildError> {
    let value = match json.value {
        JsonValue::Integer(value) => u64::try_from(value).ok(),
        _ => None,
    };
    value.map_or_else(|| fault(json.at, "expecting an unsigned integer"), Ok)
}

pub(super) fn signed(json: &Json) -> Result<i64, BuildError> {
    match json.value {
        JsonValue::Integer(value) => i64::try_from(value)
            .or_else(|_| fault(json.at, "expecting a signed integer of 64 bits")),
        _ => fault(json.at, "expecting an integer"),
    }
}

/// An unsigned integer from `lowest` to `highest`.
pub(super) fn within(json: &Json, lowest: u64, highest: u64) -> Result<u64, BuildError> {
    let value = unsigned(json)?;
    if (lowest..=highest).contains(&value) {
        return Ok(value);
    }
    fault(
        json.at,
        format!("{value} is not in the range {lowest} to {highest}"),
    )
}

/// A power of two of 32 bits.
pub(super) fn alignment(json: &Json) -> Result<u32, BuildError> {
    let value = unsigned(json)?;
    match u32::try_from(value) {
        Ok(bits) if bits.is_power_of_two() => Ok(bits),
        _ => fault(
            json.at,
            format!("invalid alignment {value}: must be a power of two"),
        ),
    }
}

/// One of `choices`, by its name.
pub(super) fn choice<T: Copy>(json: &Json, choices: &[(&str, T)]) -> Result<T, BuildError> {
    let text = string(json)?;
    if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
        return Ok(*value);
    }
    let names: Vec<String> = choices
        .iter()
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    fault(
        json.at,
        format!("unexpected value `{text}`: expecting {}", names.join(", ")),
    )
}

/// A set of integer ranges; `bound` converts each bound.
pub(super) fn ranges<T: Copy>(
    json: &Json,
    bound: fn(&Json) -> Result<T, BuildError>,
) -> Result<Vec<IntRange<T>>, BuildError> {
    let values = array(json)?;
    if values.is_empty() {
        return fault(json.at, "expecting at least one range");
    }
    let within = |error: BuildError| error.within(Subject::Origin(json.at), "in the range set");
    values
        .iter()
        .map(|range| int_range(range, bound))
        .collect::<Result<_, _>>()
        .map_err(within)
}

fn int_range<T: Copy>(
    json: &Json,
    bound: fn(&Json) -> Result<T, BuildError>,
) -> Result<IntRange<T>, BuildError> {
    let [lower_json, upper_json] = array(json)? else {
        return fault(json.at, "expecting a range: an array of two integers");
    };
    let (lower, upper) = (bound(lower_json)?, bound(upper_json)?);
    match (&lower_json.value, &upper_json.value) {
        (JsonValue::Integer(low), JsonValue::Integer(high)) if low > high => {
            fault(json.at, format!("{low} is greater than {high}"))
        }
        _ => Ok(IntRange { lower, upper }),
    }
}

/// A signed or unsigned bound, as raw bits.
pub(super) fn raw_integer(json: &Json) -> Result<u64, BuildError> {
    match json.value {
        JsonValue::Integer(value) if value < 0 => signed(json).map(i64::cast_unsigned),
        JsonValue::Integer(_) => unsigned(json),
        _ => fault(json.at, "expecting an integer"),
    }
}
