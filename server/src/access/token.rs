//! Tokens: secrets that clients present, and what the server keeps of them.

use std::fmt;

use serde::{Deserialize, Serialize};
use storage_format::{AgentId, StorageId};

use crate::secrets::{Digest, NoRandomness, from_hex, is_same, random, sha256, to_hex};

/// The beginning of every token, so that tools which look for secrets find one.
const PREFIX: &str = "tracehold_";

/// What a token may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// Pushes packets.
    Agent,
    /// Reads and queries.
    Reader,
    /// Everything.
    Operator,
    /// Reads one storage, by a URL.
    Share,
}

/// What the server keeps of a token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// Not secret: it names the token in lists and logs.
    pub(crate) id: String,
    /// For people.
    pub(crate) name: String,
    pub(crate) role: Role,
    /// SHA-256 of the secret, which is random and 32 bytes long.
    hash: String,
    /// Only these agents, if any are listed.
    #[serde(default)]
    pub(crate) agents: Vec<AgentId>,
    /// Only these storages, if any are listed.
    #[serde(default)]
    pub(crate) storages: Vec<StorageId>,
    /// Nanoseconds since the epoch, as the following ones.
    pub(crate) created: i64,
    #[serde(default)]
    pub(crate) expires: Option<i64>,
    #[serde(default)]
    pub(crate) revoked: Option<i64>,
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Token({} {:?})", self.id, self.role)
    }
}

/// A token as its owner presents it. Its secret is never printed.
pub(crate) struct Secret {
    pub(crate) id: String,
    secret: [u8; 32],
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Secret({})", self.id)
    }
}

/// What a new token is for.
#[derive(Debug, Clone)]
pub(crate) struct NewToken {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) agents: Vec<AgentId>,
    pub(crate) storages: Vec<StorageId>,
    /// Nanoseconds since the epoch.
    pub(crate) expires: Option<i64>,
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is not a token of this server.
    Unknown,
    /// It was revoked.
    Revoked,
    /// It has expired.
    Expired,
}

impl Token {
    /// A new token, and the text that its owner gets.
    pub(crate) fn new(new: NewToken, now: i64) -> Result<(Self, String), NoRandomness> {
        let (id, secret): ([u8; 8], [u8; 32]) = (random()?, random()?);
        let id = to_hex(&id);
        let text = format!("{PREFIX}{id}_{}", to_hex(&secret));
        let token = Self {
            id,
            name: new.name,
            role: new.role,
            hash: to_hex(&sha256(&secret)),
            agents: new.agents,
            storages: new.storages,
            created: now,
            expires: new.expires,
            revoked: None,
        };
        Ok((token, text))
    }

    /// Whether the secret belongs to this token, and the token is good now.
    pub(crate) fn check(&self, secret: &Secret, now: i64) -> Result<(), Why> {
        let hash: Digest = from_hex(&self.hash).ok_or(Why::Unknown)?;
        if !is_same(&hash, &sha256(&secret.secret)) {
            return Err(Why::Unknown);
        }
        // Only the owner of the secret learns the following.
        self.check_time(now)
    }

    /// Whether it is good now, whoever presents it.
    pub(crate) fn check_time(&self, now: i64) -> Result<(), Why> {
        match (self.revoked, self.expires) {
            (Some(_), _) => Err(Why::Revoked),
            (None, Some(expires)) if expires <= now => Err(Why::Expired),
            _ => Ok(()),
        }
    }

    /// Whether it can be presented at this time.
    pub(crate) fn is_good(&self, now: i64) -> bool {
        self.check_time(now).is_ok()
    }

    /// Whether it is limited to some agents or storages.
    pub(crate) fn is_scoped(&self) -> bool {
        !self.agents.is_empty() || !self.storages.is_empty()
    }
}

impl Secret {
    /// Reads a token; `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        from_hex::<8>(id)?;
        Some(Self {
            id: id.to_owned(),
            secret: from_hex(secret)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::access::Caller;

    fn new(expires: Option<i64>) -> (Token, String) {
        let new = NewToken {
            name: "n".to_owned(),
            role: Role::Reader,
            agents: Vec::new(),
            storages: Vec::new(),
            expires,
        };
        Token::new(new, 5).unwrap()
    }

    #[test]
    fn a_token_of_some_storages_does_not_learn_what_all_have() {
        let (mut token, _) = new(None);
        let sees = |token: &Token| Caller::Token(Arc::new(token.clone())).sees_all_storages();
        assert!(sees(&token));
        token.agents.push("a".parse().unwrap());
        assert!(sees(&token));
        token.storages.push(StorageId::from_bytes([1; 16]));
        assert!(!sees(&token));
    }

    #[test]
    fn only_the_secret_of_a_token_opens_it() {
        let (mut token, text) = new(Some(100));
        let secret = Secret::parse(&text).unwrap();
        assert_eq!(token.check(&secret, 99), Ok(()));
        assert_eq!(token.check(&secret, 100), Err(Why::Expired));
        let (_, other) = new(None);
        let other = Secret::parse(&other).unwrap();
        // Whoever does not know the secret learns nothing of the token.
        assert_eq!(token.check(&other, 100), Err(Why::Unknown));
        token.revoked = Some(50);
        assert_eq!(token.check(&secret, 99), Err(Why::Revoked));
        assert_eq!(token.check(&other, 99), Err(Why::Unknown));
        assert!(!token.is_good(99));
    }

    #[test]
    fn secrets_are_neither_stored_nor_printed() {
        let (token, text) = new(None);
        let secret = Secret::parse(&text).unwrap();
        let (_, digits) = text.rsplit_once('_').unwrap();
        let stored = serde_json::to_string(&token).unwrap();
        for printed in [stored, format!("{token:?}"), format!("{secret:?}")] {
            assert!(
                !printed.contains(digits) && !printed.contains(&digits[..16]),
                "{printed}"
            );
        }
        assert!(!format!("{token:?}").contains(&token.hash));
    }

    #[test]
    fn other_texts_are_no_tokens() {
        let (_, text) = new(None);
        for wrong in [
            "",
            "tracehold_",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replace("tracehold_", "tracehold_x"),
        ] {
            assert!(Secret::parse(wrong).is_none(), "{wrong}");
        }
    }
}
