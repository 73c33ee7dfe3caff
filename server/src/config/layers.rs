//! Sources of settings in order of precedence: built-in defaults, file, environment, flags.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;
use toml::{Table, Value};

use super::limits::out_of_range;
use super::settings::{Config, InvalidSetting};

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

impl Config {
    /// Merges the layers in order of precedence; `env` is the environment of the process.
    pub fn load(
        overrides: &Overrides,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let defaults = table_of(DEFAULT_TOML, "config/default.toml")?;
        let mut merged = defaults.clone();
        if let Some(file) = &overrides.file {
            let text = read(file)?;
            merge(&mut merged, table_of(&text, &file.display().to_string())?);
        }
        let mut env: Vec<(String, String)> = env
            .into_iter()
            .filter(|(name, _)| name.starts_with(ENV_PREFIX))
            .collect();
        env.sort();
        for (name, text) in env {
            set_from_env(&mut merged, &defaults, &name, &text)?;
        }
        let mut config = Config::deserialize(Value::Table(merged)).map_err(|error| {
            // The layers of files were validated one by one, so only a variable can be invalid
            // here.
            ConfigError::Environment {
                name: format!("{ENV_PREFIX}*"),
                what: error.message().to_owned(),
                remedy: "correct the value".to_owned(),
            }
        })?;
        if let Some(listen) = overrides.listen {
            config.http.listen = listen;
        }
        if let Some(data_dir) = &overrides.data_dir {
            config.storage.data_dir.clone_from(data_dir);
        }
        config.http.insecure |= overrides.insecure;
        match config.invalid() {
            None => Ok(config),
            Some(invalid) => Err(invalid.into()),
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

/// Parses and validates one file on its own, so that errors have locations in that file.
fn table_of(text: &str, file: &str) -> Result<Table, ConfigError> {
    let malformed = |error: &toml::de::Error| {
        let offset = error.span().map_or(0, |span| span.start).min(text.len());
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ConfigError::Malformed {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.len() - line_start + 1,
            what: error.message().trim().to_owned(),
            remedy: "config/default.toml documents all keys",
        }
    };
    let table: Table = toml::from_str(text).map_err(|error| malformed(&error))?;
    // Before the types: an integer that its type cannot hold is out of range, too.
    if let Some(invalid) = out_of_range(&table) {
        return Err(invalid.into());
    }
    toml::from_str::<Config>(text).map_err(|error| malformed(&error))?;
    Ok(table)
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
    let Some((section, key)) = rest.split_once('_') else {
        return Ok(());
    };
    let Some(Value::Table(known)) = defaults.get(section) else {
        return Ok(());
    };
    let Some(example) = known.get(key) else {
        let keys: Vec<&str> = known.keys().map(String::as_str).collect();
        return Err(ConfigError::Environment {
            name: name.to_owned(),
            what: format!("section [{section}] has no key {key}"),
            remedy: format!("valid keys are {}", keys.join(", ")),
        });
    };
    let value = typed(example, text).ok_or_else(|| ConfigError::Environment {
        name: name.to_owned(),
        what: format!("{text:?} is not of type {}", example.type_str()),
        remedy: format!("the default is {example}"),
    })?;
    let mut probe = Table::new();
    probe.insert(key.to_owned(), value);
    let layer = Table::from_iter([(section.to_owned(), Value::Table(probe))]);
    if let Some(InvalidSetting { key, what, remedy }) = out_of_range(&layer) {
        return Err(ConfigError::Environment {
            name: name.to_owned(),
            what: format!("setting {key} {what}"),
            remedy,
        });
    }
    Config::deserialize(Value::Table(layer.clone())).map_err(|error| ConfigError::Environment {
        name: name.to_owned(),
        what: error.message().to_owned(),
        remedy: format!("the default is {example}"),
    })?;
    merge(merged, layer);
    Ok(())
}

/// Parses `text` as a value of the type of `example`.
fn typed(example: &Value, text: &str) -> Option<Value> {
    match example {
        Value::Integer(_) => text.parse().ok().map(Value::Integer),
        Value::Boolean(_) => text.parse().ok().map(Value::Boolean),
        _ => Some(Value::String(text.to_owned())),
    }
}

#[cfg(test)]
pub(super) fn default_toml() -> &'static str {
    DEFAULT_TOML
}
