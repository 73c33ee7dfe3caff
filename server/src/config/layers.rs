//! Sources of settings in order of precedence: built-in defaults, file, environment, flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Table, Value};

use super::access::has_tokens;
use super::data_folder::invalid_data_folder;
use super::invalid::InvalidSetting;
use super::labels::invalid_labels;
use super::limits::{out_of_range, too_long};
use super::list::items;
use super::names::invalid_names;
use super::otlp::{equal_listens, invalid_listens};
use super::settings::Config;

/// The documented defaults.
const DEFAULT_TOML: &str = include_str!("../../../config/default.toml");

/// Prefix of all environment variables of the server.
const ENV_PREFIX: &str = "TRACEHOLD_";

/// Settings given on the command line.
#[derive(Debug, Default, Clone)]
pub struct Overrides {
    /// `--config`
    pub file: Option<PathBuf>,
    /// `--listen`
    pub listen: Option<SocketAddr>,
    /// `--data-dir`
    pub data_dir: Option<PathBuf>,
    /// `--insecure`
    pub insecure: bool,
}

/// An invalid configuration: location, problem and remedy.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// The file could not be read.
    #[error(
        "{file}: cannot read the configuration file: {cause}; check the path given with --config"
    )]
    Unreadable {
        /// The path as given.
        file: String,
        /// The error of the operating system.
        cause: String,
    },
    /// The file is not TOML, or has an unknown key or a value of the wrong type.
    #[error("{file}:{line}:{column}: {what}; {remedy}")]
    Malformed {
        /// The path as given.
        file: String,
        /// Counted from 1.
        line: usize,
        /// Counted from 1, in bytes.
        column: usize,
        /// What is invalid.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// An environment variable names no setting, or its value is invalid.
    #[error("environment variable {name}: {what}; {remedy}")]
    Environment {
        /// The name of the variable.
        name: String,
        /// What is invalid.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A setting whose value cannot work.
    #[error("setting {key} {what}; {remedy}")]
    Invalid {
        /// `section.key`
        key: String,
        /// What is invalid.
        what: String,
        /// What to do.
        remedy: String,
    },
}

/// All that is invalid in a configuration, in the order of the layers.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<ConfigError>);

impl std::error::Error for ConfigErrors {}

impl std::fmt::Display for ConfigErrors {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "\n" };
            write!(out, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl Config {
    /// Merges the layers in order of precedence; `env` is the environment of the process.
    ///
    /// # Errors
    /// Everything that is invalid.
    pub fn load(
        overrides: &Overrides,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let defaults: Table = toml::from_str(DEFAULT_TOML)
            .map_err(|error| ConfigErrors(vec![malformed("", DEFAULT_TOML, &error)]))?;
        let mut merged = defaults.clone();
        if let Some(file) = &overrides.file {
            match read(file) {
                Ok(text) => {
                    let name = file.display().to_string();
                    merge(
                        &mut merged,
                        valid_part(&text, &name, &defaults, &mut errors),
                    );
                }
                Err(error) => errors.push(error),
            }
        }
        let mut env: Vec<(String, String)> = env
            .into_iter()
            .filter(|(name, _)| name.starts_with(ENV_PREFIX))
            .collect();
        env.sort();
        for (name, text) in env {
            errors.extend(set_from_env(&mut merged, &defaults, &name, &text).err());
        }
        // Every setting was validated on its own.
        let mut config = Config::deserialize(Value::Table(merged))
            .map_err(|error| ConfigErrors(vec![malformed("", "", &error)]))?;
        if let Some(listen) = overrides.listen {
            config.http.listen = listen;
        }
        if let Some(data_dir) = &overrides.data_dir {
            config.storage.data_dir.clone_from(data_dir);
        }
        config.http.insecure |= overrides.insecure;
        let is_admitted =
            config.http.insecure || config.access.has_proxy() || has_tokens(config.data_dir());
        let invalid = invalid_listens(config.http.listen, &config.otlp, is_admitted)
            .into_iter()
            .chain(equal_listens(config.http.listen, &config.otlp))
            .chain(config.invalid())
            .chain(config.access.invalid())
            .chain(invalid_names(&config))
            .chain(invalid_data_folder(config.data_dir()))
            .chain(invalid_labels(&config));
        errors.extend(invalid.map(ConfigError::from));
        if errors.is_empty() {
            Ok(config)
        } else {
            Err(ConfigErrors(errors))
        }
    }
}

impl From<InvalidSetting> for ConfigError {
    fn from(InvalidSetting { key, what, remedy }: InvalidSetting) -> Self {
        Self::Invalid { key, what, remedy }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the configuration is read once, before there is a runtime that could be blocked"
)]
fn read(file: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(file).map_err(|error| ConfigError::Unreadable {
        file: file.display().to_string(),
        cause: error.to_string(),
    })
}

/// An error of the file at the begin of its span.
fn malformed(file: &str, text: &str, error: &toml::de::Error) -> ConfigError {
    let offset = error.span().map_or(0, |span| span.start);
    malformed_at(file, text, offset, error.message())
}

fn malformed_at(file: &str, text: &str, offset: usize, what: &str) -> ConfigError {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    ConfigError::Malformed {
        file: file.to_owned(),
        line: before.matches('\n').count() + 1,
        column: before.len() - line_start + 1,
        what: what.trim().to_owned(),
        remedy: "config/default.toml documents all keys",
    }
}

/// Parses a file and validates its settings one by one; returns those that are valid.
fn valid_part(text: &str, file: &str, defaults: &Table, errors: &mut Vec<ConfigError>) -> Table {
    let spans = match DeTable::parse(text) {
        Ok(spans) => spans,
        Err(error) => {
            errors.push(malformed(file, text, &error));
            return Table::new();
        }
    };
    let mut valid = Table::new();
    for (section, keys) in spans.get_ref() {
        let (name, at) = (section.get_ref().as_ref(), section.span().start);
        let known = defaults.get(name).and_then(Value::as_table);
        let (Some(known), DeValue::Table(keys)) = (known, keys.get_ref()) else {
            let all: Vec<&str> = defaults.keys().map(String::as_str).collect();
            let what = match known {
                Some(_) => format!("{name} is a section; write [{name}], and its keys below"),
                None => format!("no section [{name}]; the sections are {}", all.join(", ")),
            };
            errors.push(malformed_at(file, text, at, &what));
            continue;
        };
        for (key, value) in keys {
            let at = key.span().start;
            let (key, found) = (key.get_ref().as_ref(), value.span().start);
            if !known.contains_key(key) {
                let what = unknown_key(name, key, known);
                errors.push(malformed_at(file, text, at, &what));
                continue;
            }
            let layer = value_of(name, key, value).map(|value| layer_of(name, key, value));
            match layer.and_then(|layer| check_one(&layer).map(|()| layer)) {
                Ok(layer) => merge(&mut valid, layer),
                Err(OneError::Range(invalid)) => errors.push(invalid.into()),
                Err(OneError::Type(what)) => {
                    let default = known.get(key);
                    let default = default.map_or_else(String::new, Value::to_string);
                    let what = format!("setting {name}.{key}: {what}; the default is {default}");
                    errors.push(malformed_at(file, text, found, &what));
                }
            }
        }
    }
    valid
}

/// What is wrong with one setting.
enum OneError {
    Range(InvalidSetting),
    Type(String),
}

/// A value of the file. TOML has integers of any length, its tables have 64 bits.
fn value_of(section: &str, key: &str, value: &Spanned<DeValue<'_>>) -> Result<Value, OneError> {
    Value::deserialize(ValueDeserializer::from(value.clone())).map_err(|error| {
        let integer = value.get_ref().as_integer();
        let beyond = integer.and_then(|integer| too_long(section, key, integer.as_str()));
        beyond.map_or_else(
            || OneError::Type(error.message().to_owned()),
            OneError::Range,
        )
    })
}

/// Validates a layer of one setting. The range comes first: an integer that its type cannot hold is
/// out of range, too.
fn check_one(layer: &Table) -> Result<(), OneError> {
    if let Some(invalid) = out_of_range(layer) {
        return Err(OneError::Range(invalid));
    }
    match Config::deserialize(Value::Table(layer.clone())) {
        Ok(_) => Ok(()),
        Err(error) => Err(OneError::Type(error.message().to_owned())),
    }
}

fn layer_of(section: &str, key: &str, value: Value) -> Table {
    let keys = Table::from_iter([(key.to_owned(), value)]);
    Table::from_iter([(section.to_owned(), Value::Table(keys))])
}

fn unknown_key(section: &str, key: &str, known: &Table) -> String {
    let keys: Vec<&str> = known.keys().map(String::as_str).collect();
    let keys = keys.join(", ");
    format!("section [{section}] has no key {key}; its keys are {keys}")
}

fn merge(under: &mut Table, over: Table) {
    for (key, value) in over {
        match (under.get_mut(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge(under, over),
            (_, value) => {
                under.insert(key, value);
            }
        }
    }
}

/// `TRACEHOLD_HTTP_LISTEN` sets `listen` of `[http]`. A variable with an unknown section is
/// ignored: it belongs to another program, such as the command line client or a service manager.
fn set_from_env(
    merged: &mut Table,
    defaults: &Table,
    name: &str,
    text: &str,
) -> Result<(), ConfigError> {
    let rest = name
        .strip_prefix(ENV_PREFIX)
        .unwrap_or(name)
        .to_ascii_lowercase();
    // The name of a section may have the character that separates it from the key.
    let in_section = |(section, value): (&'_ String, &'_ Value)| {
        let key = rest.strip_prefix(section.as_str())?.strip_prefix('_')?;
        Some((section.clone(), key.to_owned(), value.as_table()?.clone()))
    };
    let Some((section, key, known)) = defaults.iter().find_map(in_section) else {
        if let Some(known) = defaults.get(&rest).and_then(Value::as_table) {
            let keys: Vec<&str> = known.keys().map(String::as_str).collect();
            return Err(ConfigError::Environment {
                name: name.to_owned(),
                what: format!("{rest} is a section, and no setting"),
                remedy: format!("name a key behind it: {name}_KEY with {}", keys.join(", ")),
            });
        }
        let Some(near) = near_setting(&rest, defaults) else {
            return Ok(());
        };
        return Err(ConfigError::Environment {
            name: name.to_owned(),
            what: "names no setting".to_owned(),
            remedy: format!("did you mean {ENV_PREFIX}{near}?"),
        });
    };
    let (section, key) = (section.as_str(), key.as_str());
    let Some(example) = known.get(key) else {
        let keys: Vec<&str> = known.keys().map(String::as_str).collect();
        return Err(ConfigError::Environment {
            name: name.to_owned(),
            what: format!("section [{section}] has no key {key}"),
            remedy: format!("valid keys are {}", keys.join(", ")),
        });
    };
    let value = typed(example, text).ok_or_else(|| match too_long(section, key, text) {
        Some(InvalidSetting { key, what, remedy }) => ConfigError::Environment {
            name: name.to_owned(),
            what: format!("setting {key} {what}"),
            remedy,
        },
        None => ConfigError::Environment {
            name: name.to_owned(),
            what: format!("{text:?} is not of type {}", example.type_str()),
            remedy: format!("the default is {example}"),
        },
    })?;
    let layer = layer_of(section, key, value);
    check_one(&layer).map_err(|error| match error {
        OneError::Range(InvalidSetting { key, what, remedy }) => ConfigError::Environment {
            name: name.to_owned(),
            what: format!("setting {key} {what}"),
            remedy,
        },
        OneError::Type(what) => ConfigError::Environment {
            name: name.to_owned(),
            what,
            remedy: format!("the default is {example}"),
        },
    })?;
    merge(merged, layer);
    Ok(())
}

/// The setting whose name differs in at most two letters, as a variable has it. Names of other
/// programs are further away.
fn near_setting(rest: &str, defaults: &Table) -> Option<String> {
    let of_section = |(section, keys): (&'_ String, &'_ Value)| {
        let keys = keys.as_table().cloned().unwrap_or_default();
        let section = section.clone();
        keys.into_iter()
            .map(move |(key, _)| format!("{section}_{key}"))
    };
    let names = defaults.iter().flat_map(of_section);
    let far = names.map(|name| (strsim::osa_distance(rest, &name), name));
    let (far, name) = far.min()?;
    (far <= 2).then(|| name.to_ascii_uppercase())
}

/// Parses `text` as a value of the type of `example`.
fn typed(example: &Value, text: &str) -> Option<Value> {
    match example {
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        Value::Array(_) => {
            let all = items(text).map(|item| Value::String(item.to_owned()));
            Some(Value::Array(all.collect()))
        }
        _ => Some(Value::String(text.to_owned())),
    }
}

#[cfg(test)]
pub(super) fn default_toml() -> &'static str {
    DEFAULT_TOML
}
