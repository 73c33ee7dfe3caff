//! The root file system of a container, and an image of it (OCI image layout) in one file.
//!
//! It has the two programs and nothing else that runs: no shell and no libraries.

use std::path::Path;

use serde_json::{Value, json};

use super::Release;
use super::staging::{Staging, write_file};
use crate::failure::{Failure, Outcome, file_failed};
use crate::process::{command, fresh_folder, output, run};

/// The user of the container, which has no rights; the same as in the `Dockerfile`.
const USER: &str = "7117";

/// What the root file system has besides what is installed.
const FILES: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0:root:/:/sbin/nologin\n\
         tracehold:x:7117:7117:tracehold:/var/lib/tracehold:/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\ntracehold:x:7117:\n"),
];

/// What is installed that a container has no use for.
const UNUSED: [&str; 5] = [
    "usr/lib",
    "usr/share/bash-completion",
    "usr/share/fish",
    "usr/share/man",
    "usr/share/zsh",
];

/// Makes `tracehold-VERSION-rootfs.tar.gz` and `tracehold-VERSION-oci.tar`.
pub(super) fn make(release: &Release, staging: &Staging) -> Outcome {
    let work = fresh_folder("packages-image")?;
    let files = work.join("rootfs");
    run(command("cp", &["--archive"])
        .arg(&staging.folder)
        .arg(&files))?;
    for unused in UNUSED {
        let folder = files.join(unused);
        std::fs::remove_dir_all(&folder).map_err(file_failed(&folder))?;
    }
    for (path, text) in FILES {
        write_file(&files.join(path), text.as_bytes(), 0o644)?;
    }
    let layer = work.join("layer.tar");
    pack_layer(release, &files, &layer)?;
    let unpacked = digest(&layer)?;
    run(command("gzip", &["-9n"]).arg(&layer))?;
    let layer = work.join("layer.tar.gz");
    let rootfs = format!("tracehold-{}-rootfs.tar.gz", release.version);
    let to = release.folder.join(rootfs);
    std::fs::copy(&layer, &to).map_err(file_failed(&to))?;
    let layout = work.join("layout");
    write_layout(release, &layout, &layer, &unpacked)?;
    let image = release
        .folder
        .join(format!("tracehold-{}-oci.tar", release.version));
    let mut tar = packer(release);
    tar.args(["--owner=0", "--group=0", "--create", "--file"]);
    tar.arg(image).arg("-C").arg(&layout);
    run(tar.args(["blobs", "index.json", "oci-layout"]))
}

fn packer(release: &Release) -> std::process::Command {
    let time = format!("--mtime=@{}", release.epoch);
    command("tar", &["--sort=name", "--numeric-owner", &time])
}

/// All files are root's but the data folder, in which the user of the container writes.
fn pack_layer(release: &Release, files: &Path, layer: &Path) -> Outcome {
    let data = files.join("var/lib/tracehold");
    std::fs::create_dir_all(&data).map_err(file_failed(&data))?;
    let mut tar = packer(release);
    tar.args([
        "--owner=0",
        "--group=0",
        "--mode=go-w",
        "--create",
        "--file",
    ]);
    tar.arg(layer).arg("-C").arg(files);
    run(tar.args(["etc", "usr"]))?;
    let user = [format!("--owner={USER}"), format!("--group={USER}")];
    let mut tar = packer(release);
    tar.args(user).args(["--mode=0700", "--append", "--file"]);
    tar.arg(layer).arg("-C").arg(files);
    run(tar.arg("var/lib/tracehold"))
}

/// Writes the folder that the image specification of OCI describes.
fn write_layout(release: &Release, layout: &Path, layer: &Path, unpacked: &str) -> Outcome {
    let packed = std::fs::read(layer).map_err(file_failed(layer))?;
    let layer_digest = digest(layer)?;
    write_file(&blob(layout, &layer_digest), &packed, 0o644)?;
    let config = write_document(layout, &config(unpacked))?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": config.0, "size": config.1,
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": format!("sha256:{layer_digest}"), "size": packed.len(),
        }],
    });
    let manifest = write_document(layout, &manifest)?;
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": manifest.0, "size": manifest.1,
            "platform": { "architecture": "amd64", "os": "linux" },
            "annotations": {
                "org.opencontainers.image.ref.name": release.version,
                "io.containerd.image.name": format!("localhost/tracehold:{}", release.version),
            },
        }],
    });
    write_file(
        &layout.join("index.json"),
        index.to_string().as_bytes(),
        0o644,
    )?;
    let version = br#"{"imageLayoutVersion":"1.0.0"}"#;
    write_file(&layout.join("oci-layout"), version, 0o644)
}

/// How a container of the image is run; the same as in the `Dockerfile`.
fn config(unpacked: &str) -> Value {
    json!({
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Entrypoint": ["/usr/bin/traceholdd"],
            "Env": [
                "PATH=/usr/bin",
                "TRACEHOLD_HTTP_LISTEN=0.0.0.0:7117",
                "TRACEHOLD_HTTP_INSECURE=true",
                "TRACEHOLD_STORAGE_DATA_DIR=/var/lib/tracehold",
            ],
            "ExposedPorts": { "7117/tcp": {}, "4317/tcp": {}, "4318/tcp": {} },
            "Volumes": { "/var/lib/tracehold": {} },
            "WorkingDir": "/var/lib/tracehold",
            "StopSignal": "SIGTERM",
            "Labels": { "org.opencontainers.image.licenses": "MIT OR Apache-2.0" },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{unpacked}")] },
        "history": [{ "created_by": "cargo xtask dist" }],
    })
}

/// Writes a document as a blob; its digest and its size.
fn write_document(layout: &Path, document: &Value) -> Outcome<(String, usize)> {
    let text = document.to_string();
    let path = layout.join("document.json");
    write_file(&path, text.as_bytes(), 0o644)?;
    let digest = digest(&path)?;
    let to = blob(layout, &digest);
    std::fs::rename(&path, &to).map_err(file_failed(&to))?;
    Ok((format!("sha256:{digest}"), text.len()))
}

fn blob(layout: &Path, digest: &str) -> std::path::PathBuf {
    layout.join("blobs/sha256").join(digest)
}

/// The SHA-256 of a file in hexadecimal.
fn digest(path: &Path) -> Outcome<String> {
    let printed = output(command("sha256sum", &["--binary"]).arg(path))?;
    let digest = printed.split(' ').next().unwrap_or_default();
    match digest.len() {
        64 => Ok(digest.to_owned()),
        _ => Err(Failure::Answer {
            command: "sha256sum".to_owned(),
            why: printed,
        }),
    }
}
