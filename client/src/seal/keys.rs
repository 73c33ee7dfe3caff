use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ring::rand::{SecureRandom, SystemRandom};
use storage_format::seal::{PublicKey, SigningKey};

use crate::ClientError;

/// Writes a new private key and its public key into files that do not exist yet.
///
/// # Errors
/// If the kernel gives no random numbers, or a file exists or cannot be written.
pub fn generate_key(private: &Path, public: &Path) -> Result<PublicKey, ClientError> {
    let mut seed = [0; 32];
    let random = SystemRandom::new().fill(&mut seed);
    random.map_err(|_| ClientError::input("the kernel gives no random numbers; retry"))?;
    let text = SigningKey::pem_of(&seed);
    let key = SigningKey::from_pem(&text);
    let key = key.map_err(|error| ClientError::input(error.to_string()))?;
    let write = |path: &Path, mode, text: &str| {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode).open(path);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| ClientError::file(path, error))
    };
    write(private, 0o600, &text)?;
    write(public, 0o644, &key.public().to_pem())?;
    Ok(key.public())
}

/// Reads a public key.
///
/// # Errors
/// If the file cannot be read, or has no ed25519 public key.
pub fn read_public_key(path: &Path) -> Result<PublicKey, ClientError> {
    let text = std::fs::read_to_string(path).map_err(|error| ClientError::file(path, error))?;
    PublicKey::from_pem(&text).map_err(|_| {
        ClientError::input(format!(
            "{}: it has no ed25519 public key (PEM); `tracehold seal keygen` writes one, and \
             `openssl pkey -pubout` prints that of a private key",
            path.display()
        ))
    })
}
