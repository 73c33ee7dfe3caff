//! Settings that are names: of hosts and of origins.

use super::invalid::InvalidSetting;
use super::list::items;
use super::settings::Config;
use crate::authority::authority;

/// The names that cannot work.
pub(super) fn invalid_names(config: &Config) -> Vec<InvalidSetting> {
    let mut all = Vec::new();
    let mut invalid = |key: &str, what: String, remedy: &str| {
        all.push(InvalidSetting {
            key: key.to_owned(),
            what,
            remedy: remedy.to_owned(),
        });
    };
    let (hosts, origins) = (&config.http.allowed_hosts, &config.http.allowed_origins);
    for host in items(hosts).filter(|host| !is_host(host)) {
        invalid(
            "http.allowed_hosts",
            format!("contains {host:?}, which is not a host"),
            "list names without a port, separated by commas, such as traces.example",
        );
    }
    for origin in items(origins).filter(|origin| !is_origin(origin)) {
        invalid(
            "http.allowed_origins",
            format!("contains {origin:?}, which is not an origin"),
            "list SCHEME://HOST or SCHEME://HOST:PORT, separated by commas, such as \
             https://ui.example",
        );
    }
    let readers = &config.http.cors_origins;
    let is_every_page = readers.trim() == "*";
    for origin in items(readers).filter(|origin| !is_every_page && !is_page_of_origin(origin)) {
        invalid(
            "http.cors_origins",
            format!("contains {origin:?}, which is not the origin of a page"),
            "list SCHEME://HOST or SCHEME://HOST:PORT, separated by commas, or set it to \"*\" alone",
        );
    }
    all
}

/// Pages without an address are nobody in particular: `*` would be meant.
fn is_page_of_origin(text: &str) -> bool {
    is_origin(text) && !text.eq_ignore_ascii_case("null")
}

/// A name or address as requests name it. Patterns are not matched.
fn is_host(text: &str) -> bool {
    let host = authority(text.as_bytes());
    host.is_some_and(|host| host.host() == text && !text.contains('*'))
}

/// What browsers send as `Origin`; pages without an address send `null`.
fn is_origin(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let is_page = |(scheme, host): (&str, &str)| {
        is_scheme(scheme) && authority(host.as_bytes()).is_some() && !host.contains('*')
    };
    text.eq_ignore_ascii_case("null") || text.split_once("://").is_some_and(is_page)
}
