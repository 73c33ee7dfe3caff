//! Values of attributes.

/// A JSON value, for attributes that the format does not interpret.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer that is not negative.
    Unsigned(u64),
    /// A negative integer.
    Signed(i64),
    /// A number with a fraction or an exponent.
    Real(f64),
    /// Text.
    String(Box<str>),
    /// Values in order.
    Array(Vec<Value>),
    /// Named values in order.
    Object(Vec<(Box<str>, Value)>),
}

impl Value {
    /// The value of `key`, when this is an object that contains it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(entries) => entries.iter().find(|(k, _)| &**k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The text, when this is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }
}

/// Attributes by namespace, as in metadata; usually empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(Option<Box<Value>>);

impl Attributes {
    /// Attributes from `value`, an object whose keys are namespaces.
    pub fn new(value: Value) -> Self {
        match value {
            Value::Object(entries) if entries.is_empty() => Self(None),
            value => Self(Some(Box::new(value))),
        }
    }

    /// The attributes of `namespace`.
    pub fn get(&self, namespace: &str) -> Option<&Value> {
        self.0.as_ref()?.get(namespace)
    }

    /// The complete object, unless it is empty.
    pub fn value(&self) -> Option<&Value> {
        self.0.as_deref()
    }
}
