//! The files that settings name.

use crate::config::Config;
use crate::seal_key;
use crate::tls::Tls;

/// What is wrong with the files that settings name, one line each: the server would not start, or
/// would serve without what they are for.
pub fn check_named_files(config: &Config) -> Vec<String> {
    let tls = Tls::load(&config.tls).err().map(|error| error.to_string());
    let seal = seal_key::engine_of(config).err();
    let seal = seal.map(|error| error.to_string());
    let store = object_store(config).map(|error| format!("object_store: {error}"));
    [tls, seal, store].into_iter().flatten().collect()
}

/// What is wrong with the object store before anything is asked of it.
fn object_store(config: &Config) -> Option<String> {
    if !config.object_store.is_on() {
        return None;
    }
    match config.object_store.store() {
        Ok(store) => store.open().err().map(|error| error.to_string()),
        Err(error) => Some(error),
    }
}
