//! `cargo xtask dist`: programs that run without a compiler or libraries, and what installs them.
//!
//! | output in `target/packages` | made by |
//! | --- | --- |
//! | `tracehold_VERSION_amd64.deb` | `package` |
//! | `tracehold-VERSION-x86_64-linux.tar.gz` | `bundle` |
//! | `tracehold-VERSION-oci.tar`, `tracehold-VERSION-rootfs.tar.gz` | `image` |
//! | `SHA256SUMS` | `checksums` |
//!
//! With `--check` the outputs are tried by `trial` on a copy of this machine that is thrown away.

mod bundle;
mod image;
mod licences;
mod package;
mod programs;
mod staging;
mod trial;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::failure::{Failure, Outcome, file_failed};
use crate::process::{command, fresh_folder, output, root, run};

use staging::Staging;

/// What a release is made of.
struct Release {
    /// The version of the workspace.
    version: String,
    /// Where the outputs are.
    folder: PathBuf,
    /// The time that all files have, so that the same sources make the same files.
    epoch: String,
}

/// What is asked for.
#[derive(Default)]
struct Asked {
    /// The profile to build with; `dist` by default.
    profile: Option<String>,
    /// A folder with programs that are built already.
    programs: Option<PathBuf>,
    is_tried: bool,
}

impl Asked {
    fn parse(arguments: &[String]) -> Outcome<Self> {
        let usage = || {
            let text = "usage: cargo xtask dist [--profile NAME | --programs FOLDER] [--check]";
            Failure::Usage(text.to_owned())
        };
        let mut asked = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--check" => asked.is_tried = true,
                "--profile" => asked.profile = Some(words.next().ok_or_else(usage)?.clone()),
                "--programs" => asked.programs = Some(words.next().ok_or_else(usage)?.into()),
                _ => return Err(usage()),
            }
        }
        Ok(asked)
    }
}

/// Builds everything, and tries it if asked to.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    if let [option, folder] = arguments
        && option == "--inside"
    {
        return trial::run_inside(Path::new(folder));
    }
    let asked = Asked::parse(arguments)?;
    let begin = Instant::now();
    let folder = fresh_folder("packages")?;
    let version = version()?;
    let log = output(&mut command("git", &["log", "-1", "--format=%ct"]))?;
    let epoch = log.trim().to_owned();
    let release = Release {
        version,
        folder,
        epoch,
    };
    let built = match &asked.programs {
        Some(folder) => folder.clone(),
        None => programs::build(asked.profile.as_deref().unwrap_or("dist"))?,
    };
    let built = programs::strip_all(&built)?;
    println!("programs: {} s", begin.elapsed().as_secs());
    let staging = Staging::make(&release, &built)?;
    package::make(&release, &staging, &release.version, &release.folder)?;
    bundle::make(&release, &staging)?;
    image::make(&release, &staging)?;
    checksums(&release.folder)?;
    print_sizes(&release.folder)?;
    println!("packages: {} s", begin.elapsed().as_secs());
    if asked.is_tried {
        trial::run_all(&release, &staging)?;
        println!("tried: {} s", begin.elapsed().as_secs());
    }
    Ok(())
}

/// The version of the workspace, from its manifest.
fn version() -> Outcome<String> {
    let path = root().join("Cargo.toml");
    let text = std::fs::read_to_string(&path).map_err(file_failed(&path))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("version = "));
    let version = line.map(|version| version.trim_matches('"').to_owned());
    version.ok_or_else(|| Failure::Run(format!("{} has no version", path.display())))
}

/// `SHA256SUMS` of all outputs, as `sha256sum --check` reads it.
fn checksums(folder: &Path) -> Outcome {
    let names = names(folder)?;
    let mut sums = command("sha256sum", &["--"]);
    sums.args(&names).current_dir(folder);
    let path = folder.join("SHA256SUMS");
    std::fs::write(&path, output(&mut sums)?).map_err(file_failed(&path))?;
    run(command("sha256sum", &["--check", "--quiet", "SHA256SUMS"]).current_dir(folder))
}

fn print_sizes(folder: &Path) -> Outcome {
    for name in names(folder)? {
        let path = folder.join(&name);
        let bytes = path.metadata().map_err(file_failed(&path))?.len();
        println!("{name}: {bytes} bytes");
    }
    Ok(())
}

/// The names of the files in a folder, sorted.
fn names(folder: &Path) -> Outcome<Vec<String>> {
    let mut names = Vec::new();
    for entry in folder.read_dir().map_err(file_failed(folder))? {
        let entry = entry.map_err(file_failed(folder))?;
        if entry.path().is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
