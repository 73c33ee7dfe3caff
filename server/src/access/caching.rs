//! Who may keep a response: caches that others use must not have what needed a token, a user or a
//! shared URL.

use http::{HeaderMap, HeaderValue, Method, header};

use super::caller::Caller;
use super::token::Role;

const PRIVATE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// Whether responses to this method can be kept.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Limits what a response to `caller` says about keeping it. What a shared URL gave is asked for
/// again each time, so that it ends with the share.
pub(super) fn limit(fields: &mut HeaderMap, caller: &Caller) {
    let is_share = match caller {
        Caller::Anyone => return,
        Caller::Token(token) => token.role == Role::Share,
        Caller::User(_) => false,
    };
    let said = fields.get(header::CACHE_CONTROL);
    let said = said.and_then(|said| said.to_str().ok()).unwrap_or_default();
    let limited = if said.contains("no-store") {
        return;
    } else if said.contains("public") && !is_share {
        HeaderValue::try_from(said.replace("public", "private")).unwrap_or(PRIVATE)
    } else {
        PRIVATE
    };
    fields.insert(header::CACHE_CONTROL, limited);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::proxy::User;
    use crate::access::token::{NewToken, Token};

    fn token(role: Role) -> Caller {
        let new = NewToken {
            name: "n".to_owned(),
            role,
            agents: Vec::new(),
            storages: Vec::new(),
            expires: None,
        };
        Caller::Token(Arc::new(Token::new(new, 5).unwrap().0))
    }

    #[test]
    fn only_open_servers_let_others_keep_responses() {
        let user = Caller::User(Arc::new(User {
            name: "ada".to_owned(),
            roles: vec![Role::Reader],
        }));
        let always = "public, max-age=31536000, immutable";
        let own = "private, max-age=31536000, immutable";
        let asked = "private, no-cache";
        for (caller, said, expected) in [
            (Caller::Anyone, always, always),
            (Caller::Anyone, "", ""),
            (token(Role::Reader), always, own),
            (user, always, own),
            (token(Role::Reader), "no-cache", asked),
            (token(Role::Reader), "", asked),
            (token(Role::Reader), "no-store", "no-store"),
            (token(Role::Share), always, asked),
            (token(Role::Share), "no-cache", asked),
            (token(Role::Share), "no-store", "no-store"),
        ] {
            let mut fields = HeaderMap::new();
            if !said.is_empty() {
                fields.insert(header::CACHE_CONTROL, said.parse().unwrap());
            }
            limit(&mut fields, &caller);
            let found = fields.get(header::CACHE_CONTROL);
            let found = found.map_or("", |found| found.to_str().unwrap());
            assert_eq!(found, expected, "{caller:?} {said}");
        }
    }
}
