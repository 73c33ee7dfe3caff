//! ed25519 keys and signatures of seals. ring is used by this module only in this crate.

use std::fmt;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use super::{Digest, pem};

/// What is before the digest in the bytes that are signed, so that a signature is of a seal and of
/// nothing else.
const CONTEXT: &[u8] = b"tracehold seal 1\0";
/// What is before the 32 bytes of an ed25519 key in a DER `SubjectPublicKeyInfo` (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// What is before the 32 bytes of a private key in PKCS #8 (RFC 8410).
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];
const PRIVATE: &str = "PRIVATE KEY";
const PUBLIC: &str = "PUBLIC KEY";

/// The bytes are not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not an ed25519 key")]
pub struct KeyError;

/// A private key, which signs seals.
pub struct SigningKey(Ed25519KeyPair);

/// A public key, which proves who signed a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

/// The id of a public key: 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 8]);

impl SigningKey {
    /// The key in these bytes of PKCS #8 (RFC 8410), with or without its public key.
    fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der)
            .map(Self)
            .map_err(|_| KeyError)
    }

    /// The key in PEM text, as `tracehold seal keygen` and OpenSSL write it.
    ///
    /// # Errors
    /// When it contains no unencrypted ed25519 key.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        Self::from_pkcs8(&pem::decode(PRIVATE, text).ok_or(KeyError)?)
    }

    /// The PEM text of the key that is made of these 32 random bytes.
    #[must_use]
    pub fn pem_of(seed: &[u8; 32]) -> String {
        pem::encode(PRIVATE, &[&PKCS8_PREFIX[..], seed].concat())
    }

    /// Its public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(bytes)
    }

    pub(super) fn sign(&self, digest: Digest) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.0.sign(&message(digest)).as_ref());
        bytes
    }
}

/// A private key is never shown.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public().id())
    }
}

impl PartialEq for SigningKey {
    fn eq(&self, other: &Self) -> bool {
        self.public() == other.public()
    }
}

impl PublicKey {
    /// The key in PEM text, a `SubjectPublicKeyInfo`.
    ///
    /// # Errors
    /// When it contains no ed25519 key.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let der = pem::decode(PUBLIC, text).ok_or(KeyError)?;
        let bytes = der.strip_prefix(&SPKI_PREFIX).ok_or(KeyError)?;
        bytes.try_into().map(Self).map_err(|_| KeyError)
    }

    /// The key as PEM text.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem::encode(PUBLIC, &[&SPKI_PREFIX[..], &self.0].concat())
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> KeyId {
        let Digest(hash) = Digest::of(&self.0);
        let mut id = [0; 8];
        id.copy_from_slice(&hash[..8]);
        KeyId(id)
    }

    /// Whether its owner signed this digest.
    pub(super) fn has_signed(&self, digest: Digest, signature: &[u8; 64]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, &self.0);
        key.verify(&message(digest), signature).is_ok()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn message(digest: Digest) -> Vec<u8> {
    [CONTEXT, &digest.0].concat()
}
