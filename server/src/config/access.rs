//! Section `[access]`.

use std::net::IpAddr;
use std::path::Path;

use http::HeaderName;
use serde::{Deserialize, Serialize};

use super::invalid::InvalidSetting;
use super::list::items;
use crate::access::Role;

/// The document of the tokens in the data folder.
pub(crate) const TOKENS_FILE: &str = "tokens.json";

/// Whether a data folder has tokens. What they are is read at the start of the server.
pub(super) fn has_tokens(data_dir: &Path) -> bool {
    data_dir.join(TOKENS_FILE).is_file()
}

/// Section `[access]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccessConfig {
    /// Whether `/metrics` is served without a token, as health is.
    pub metrics_open: bool,
    /// The header field in which a proxy names the user that it has authenticated; empty for none.
    pub proxy_user_header: String,
    /// The header field in which it names their groups, separated by commas; empty for none.
    pub proxy_group_header: String,
    /// The addresses from which these fields are believed, and prefixes of them (`10.0.0.0/8`),
    /// separated by commas.
    pub proxy_addresses: String,
    /// What users may do: `NAME=ROLE`, separated by commas; `*` for those who are not listed.
    pub proxy_user_roles: String,
    /// What members of groups may do, in the same form.
    pub proxy_group_roles: String,
}

impl Default for AccessConfig {
    fn default() -> Self {
        Self {
            metrics_open: true,
            proxy_user_header: String::new(),
            proxy_group_header: String::new(),
            proxy_addresses: String::new(),
            proxy_user_roles: String::new(),
            proxy_group_roles: String::new(),
        }
    }
}

impl AccessConfig {
    /// Whether a proxy names users, so that every request needs one or a token.
    pub fn has_proxy(&self) -> bool {
        !self.proxy_user_header.is_empty()
    }

    /// The settings that cannot work.
    pub(super) fn invalid(&self) -> Vec<InvalidSetting> {
        let mut all = Vec::new();
        let mut invalid = |key: &str, what: String, remedy: &str| {
            all.push(InvalidSetting {
                key: format!("access.{key}"),
                what,
                remedy: remedy.to_owned(),
            });
        };
        for (key, name) in [
            ("proxy_user_header", &self.proxy_user_header),
            ("proxy_group_header", &self.proxy_group_header),
        ] {
            if !name.is_empty() && (is_taken(name) || name.parse::<HeaderName>().is_err()) {
                let what = format!("is {name:?}, which cannot carry a name");
                invalid(
                    key,
                    what,
                    "set it to a field of its own, such as x-forwarded-user",
                );
            }
        }
        if self
            .proxy_group_header
            .eq_ignore_ascii_case(&self.proxy_user_header)
            && self.has_proxy()
        {
            let what = "is that of users".to_owned();
            invalid(
                "proxy_group_header",
                what,
                "set it to another field, or to nothing",
            );
        }
        for text in items(&self.proxy_addresses).filter(|text| Network::parse(text).is_none()) {
            let what = format!("contains {text:?}, which is no address");
            invalid(
                "proxy_addresses",
                what,
                "list addresses and prefixes, such as 10.0.0.0/8",
            );
        }
        for (key, list) in [
            ("proxy_user_roles", &self.proxy_user_roles),
            ("proxy_group_roles", &self.proxy_group_roles),
        ] {
            for text in items(list).filter(|text| name_and_role(text).is_none()) {
                let what = format!("contains {text:?}, which is not NAME=ROLE");
                invalid(key, what, "the roles are agent, reader and operator");
            }
        }
        for key in self.set_without_users() {
            let what = "is set, but access.proxy_user_header is empty".to_owned();
            let remedy =
                "set the field in which the proxy names users; without it nobody is refused";
            invalid(key, what, remedy);
        }
        if self.has_proxy() && items(&self.proxy_addresses).next().is_none() {
            let what = "is empty, but access.proxy_user_header is set".to_owned();
            let remedy = "set it to the address of the proxy; nobody else is believed";
            invalid("proxy_addresses", what, remedy);
        }
        all
    }
}

impl AccessConfig {
    /// The settings that need the field of users, which is not set.
    fn set_without_users(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("proxy_group_header", &self.proxy_group_header),
            ("proxy_addresses", &self.proxy_addresses),
            ("proxy_user_roles", &self.proxy_user_roles),
            ("proxy_group_roles", &self.proxy_group_roles),
        ];
        let is_missing = !self.has_proxy();
        let set = all.map(|(key, value)| (is_missing && !value.is_empty()).then_some(key));
        set.into_iter().flatten()
    }
}

/// Fields that have a meaning of their own, and how others of them begin: the server would take
/// them out of every request.
const TAKEN: [&str; 19] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "cookie",
    "expect",
    "host",
    "idempotency-key",
    "origin",
    "prefer",
    "range",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "want-repr-digest",
    "x-request-id",
];
const TAKEN_BEGINNINGS: [&str; 5] = ["access-control-", "content-", "grpc-", "if-", "tracehold-"];

fn is_taken(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let begins = |beginning: &&str| name.starts_with(*beginning);
    TAKEN.contains(&name.as_str()) || TAKEN_BEGINNINGS.iter().any(begins)
}

/// A name and its role in a list.
pub(crate) fn name_and_role(text: &str) -> Option<(&str, Role)> {
    let (name, role) = text.rsplit_once('=')?;
    let role = match role.trim() {
        "agent" => Role::Agent,
        "reader" => Role::Reader,
        "operator" => Role::Operator,
        _ => return None,
    };
    let name = name.trim();
    (!name.is_empty()).then_some((name, role))
}

/// An address, or all that begin as it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl Network {
    /// Reads `ADDRESS` or `ADDRESS/BITS`. An address of IPv4 within IPv6 is that of IPv4, as the
    /// addresses of connections are.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().ok()?;
        let width = |address: IpAddr| match address {
            IpAddr::V4(_) => 32_u32,
            IpAddr::V6(_) => 128,
        };
        let bits = bits.map_or(Some(width(written)), |bits| bits.parse().ok())?;
        let address = written.to_canonical();
        let prefix_bits = bits.checked_sub(width(written) - width(address))?;
        (prefix_bits <= width(address)).then_some(Self {
            address,
            prefix_bits,
        })
    }

    /// Whether an address is in it.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        let differ = match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        differ >= self.prefix_bits
    }
}
