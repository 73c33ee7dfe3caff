//! The options of a job: `--key value` pairs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use crate::failure::{Failure, Outcome};

/// The given options; a job reads those it knows.
#[derive(Debug, Default)]
pub(crate) struct Options(BTreeMap<String, String>);

impl Options {
    /// Parses `--key value` pairs and nothing else.
    pub(crate) fn parse(arguments: &[String]) -> Outcome<Self> {
        let mut options = BTreeMap::new();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let key = word
                .strip_prefix("--")
                .ok_or_else(|| Failure::Usage(format!("{word:?}: an option starts with --")))?;
            let value = words
                .next()
                .ok_or_else(|| Failure::Usage(format!("--{key} needs a value")))?;
            options.insert(key.to_owned(), value.clone());
        }
        Ok(Self(options))
    }

    /// The value of an option, or the default if it is not given.
    pub(crate) fn get<T>(&self, key: &str, default: T) -> Outcome<T>
    where
        T: FromStr<Err: Display>,
    {
        let Some(text) = self.0.get(key) else {
            return Ok(default);
        };
        text.parse()
            .map_err(|error| Failure::Usage(format!("--{key} {text:?}: {error}")))
    }

    /// The number of runs of each side: with an odd number the median is a measured value.
    pub(crate) fn runs(&self) -> Outcome<usize> {
        Ok(self.get("runs", 5)?.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Outcome<Options> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        Options::parse(&words)
    }

    #[test]
    fn an_option_is_a_pair() {
        let options = parse(&["--runs", "3", "--seconds", "1.5"]).unwrap();
        assert_eq!(options.runs().unwrap(), 3);
        assert_eq!(options.get("seconds", 9.0).unwrap(), 1.5);
        assert_eq!(options.get("bytes", 7).unwrap(), 7);
    }

    #[test]
    fn other_arguments_are_refused() {
        assert!(
            parse(&["runs"])
                .unwrap_err()
                .to_string()
                .contains("starts with --")
        );
        assert!(
            parse(&["--runs"])
                .unwrap_err()
                .to_string()
                .contains("needs a value")
        );
        assert!(parse(&["--runs", "x"]).unwrap().runs().is_err());
    }
}
