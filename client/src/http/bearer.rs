use std::fmt;

/// A token that is presented to the server. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Bearer(String);

impl Bearer {
    /// The secret.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing to present, as with an empty variable of the environment.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Bearer {
    fn from(text: String) -> Self {
        Self(text.trim().to_owned())
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_printed() {
        let bearer = Bearer::from(" secret\n".to_owned());
        assert_eq!(bearer.as_str(), "secret");
        assert!(!format!("{bearer:?}").contains("secret"));
    }
}
