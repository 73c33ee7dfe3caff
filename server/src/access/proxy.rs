//! Users that a proxy has authenticated, and names in header fields.
//!
//! The fields are believed from the addresses of the proxy only. From all others they are dropped
//! before anything sees them, so that nobody can name themselves.

use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, Request};

use super::rules::Right;
use super::token::Role;
use crate::config::{AccessConfig, Network, items, name_and_role};

/// A name is no longer than this.
const NAME_BYTES_MAX: usize = 255;

/// A user that the proxy named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    /// Of their name and of their groups; at least one.
    pub(crate) roles: Vec<Role>,
}

impl User {
    /// Whether one of the roles has a right.
    pub(crate) fn has(&self, right: Right) -> bool {
        self.roles.iter().any(|role| role.has(right))
    }
}

/// What the proxy said of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    /// A user with a role.
    User(Arc<User>),
    /// A user, or several, that may do nothing.
    Nobody,
}

/// What is known of the proxy.
#[derive(Debug, Default)]
pub(crate) struct Proxy {
    user_header: Option<HeaderName>,
    group_header: Option<HeaderName>,
    networks: Vec<Network>,
    user_roles: Vec<(String, Role)>,
    group_roles: Vec<(String, Role)>,
}

impl Proxy {
    /// The settings, which are valid.
    pub(crate) fn new(config: &AccessConfig) -> Self {
        let header = |name: &str| name.parse().ok();
        let roles = |list: &str| {
            let pairs = items(list).filter_map(name_and_role);
            pairs.map(|(name, role)| (name.to_owned(), role)).collect()
        };
        Self {
            user_header: header(&config.proxy_user_header),
            group_header: header(&config.proxy_group_header),
            networks: items(&config.proxy_addresses)
                .filter_map(Network::parse)
                .collect(),
            user_roles: roles(&config.proxy_user_roles),
            group_roles: roles(&config.proxy_group_roles),
        }
    }

    /// Takes the fields out of a request of `peer`, and leaves what they say as an extension if
    /// they are to be believed.
    pub(crate) fn take<B>(&self, request: &mut Request<B>, peer: IpAddr) {
        let Some(user_header) = &self.user_header else {
            return;
        };
        let is_believed = self.networks.iter().any(|network| network.contains(peer));
        let named = is_believed
            .then(|| self.named(request.headers(), user_header))
            .flatten();
        let fields = request.headers_mut();
        for header in [Some(user_header), self.group_header.as_ref()] {
            while header.is_some_and(|header| fields.remove(header).is_some()) {}
        }
        if let Some(named) = named {
            request.extensions_mut().insert(named);
        }
    }

    /// What the proxy says; `None` if it names nobody.
    fn named(&self, headers: &HeaderMap, user_header: &HeaderName) -> Option<Named> {
        let mut users = headers.get_all(user_header).iter();
        let user = users.next()?;
        let name = user.to_str().unwrap_or_default().trim();
        if name.is_empty() && users.next().is_none() && user.is_empty() {
            return None;
        }
        // Two fields are of two hands.
        let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(',');
        if !is_name || headers.get_all(user_header).iter().count() > 1 {
            return Some(Named::Nobody);
        }
        let groups = self.group_header.iter();
        let groups = groups.flat_map(|header| headers.get_all(header));
        let groups = groups.flat_map(|groups| items(groups.to_str().unwrap_or_default()));
        let of_groups = groups.flat_map(|group| roles_of(&self.group_roles, group));
        let mut roles = roles_of(&self.user_roles, name);
        for role in of_groups {
            if !roles.contains(&role) {
                roles.push(role);
            }
        }
        if roles.is_empty() {
            return Some(Named::Nobody);
        }
        let name = name.to_owned();
        Some(Named::User(Arc::new(User { name, roles })))
    }
}

/// The roles of a name in a list: its own, or those of all who are not listed.
fn roles_of(roles: &[(String, Role)], name: &str) -> Vec<Role> {
    let of = |wanted: &str| -> Vec<Role> {
        let known = roles.iter().filter(|(known, _)| known == wanted);
        known.map(|(_, role)| *role).collect()
    };
    // Nobody is called `*`.
    let own = if name == "*" { Vec::new() } else { of(name) };
    if own.is_empty() { of("*") } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AccessConfig {
        AccessConfig {
            proxy_user_header: "X-User".to_owned(),
            proxy_group_header: "x-groups".to_owned(),
            proxy_addresses: "127.0.0.1, 10.1.0.0/16, ::1".to_owned(),
            proxy_user_roles: "ada=operator, bob=agent".to_owned(),
            proxy_group_roles: "staff=reader, root=operator".to_owned(),
            ..AccessConfig::default()
        }
    }

    /// What is known of a request with these fields from this address.
    fn check(config: &AccessConfig, peer: &str, fields: &[(&str, &str)], wanted: &str) {
        let mut request = Request::builder().uri("/");
        for (name, value) in fields {
            request = request.header(*name, value.as_bytes());
        }
        let mut request = request.body(()).unwrap();
        Proxy::new(config).take(&mut request, peer.parse().unwrap());
        let found = match request.extensions().get::<Named>() {
            None => String::new(),
            Some(Named::Nobody) => "nobody".to_owned(),
            Some(Named::User(user)) => {
                let roles = user.roles.iter().map(|role| format!(" {role:?}"));
                format!("{}{}", user.name, roles.collect::<String>())
            }
        };
        assert_eq!(found, wanted, "{peer} {fields:?}");
        if config.has_proxy() {
            assert!(!request.headers().contains_key("x-user"), "{fields:?}");
            assert!(!request.headers().contains_key("x-groups"), "{fields:?}");
        }
    }

    #[test]
    fn only_the_proxy_names_users() {
        let own = "127.0.0.1";
        let config = config();
        for (peer, fields, wanted) in [
            (own, &[("x-user", "ada")][..], "ada Operator"),
            ("10.1.255.1", &[("x-user", "ada")], "ada Operator"),
            ("::1", &[("x-user", "ada")], "ada Operator"),
            // From anywhere else, nobody.
            ("10.2.0.1", &[("x-user", "ada")], ""),
            ("127.0.0.2", &[("X-USER", "ada"), ("x-groups", "root")], ""),
            ("::2", &[("x-user", "ada")], ""),
            // Nothing said.
            (own, &[], ""),
            (own, &[("x-user", "")], ""),
            (own, &[("x-groups", "root")], ""),
            // Said by two, or nothing that is a name.
            (own, &[("x-user", "bob"), ("x-user", "ada")], "nobody"),
            (own, &[("x-user", ""), ("x-user", "ada")], "nobody"),
            (own, &[("x-user", "bob, ada")], "nobody"),
            (own, &[("x-user", "\u{e4}")], "nobody"),
            (own, &[("x-user", "*")], "nobody"),
            // Roles.
            (own, &[("x-user", "bob")], "bob Agent"),
            (own, &[("x-user", "Ada")], "nobody"),
            (own, &[("x-user", "eve")], "nobody"),
            (
                own,
                &[("x-user", "eve"), ("x-groups", "a, staff")],
                "eve Reader",
            ),
            (
                own,
                &[("x-user", "eve"), ("x-groups", "staff,root")],
                "eve Reader Operator",
            ),
            (
                own,
                &[("x-user", "ada"), ("x-groups", "staff")],
                "ada Operator Reader",
            ),
            // What a group may do takes nothing away.
            (
                own,
                &[("x-user", "bob"), ("x-groups", "staff")],
                "bob Agent Reader",
            ),
            (own, &[("x-user", "eve"), ("x-groups", "*")], "nobody"),
        ] {
            check(&config, peer, fields, wanted);
        }
        let others = AccessConfig {
            proxy_user_roles: "ada=operator, bob=agent, *=reader".to_owned(),
            proxy_addresses: "::ffff:127.0.0.1, ::ffff:10.1.0.0/112".to_owned(),
            ..config
        };
        check(&others, own, &[("x-user", "bob")], "bob Agent");
        check(&others, "10.1.0.9", &[("x-user", "bob")], "bob Agent");
        check(&others, "10.2.0.9", &[("x-user", "bob")], "");
        check(&others, own, &[("x-user", "eve")], "eve Reader");
        check(&others, own, &[("x-user", "*")], "* Reader");
        check(&AccessConfig::default(), own, &[("x-user", "ada")], "");
    }
}
