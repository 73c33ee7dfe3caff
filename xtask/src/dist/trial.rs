//! The packages, tried as an operator would: on a copy of this machine that is thrown away.
//!
//! The copy is an overlay over the root file system, in namespaces of its own for mounts, processes
//! and the network: nothing that a package does there is seen outside. What is run are the commands
//! of the pages on installing, upgrading and uninstalling, word for word.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::staging::{Staging, write_file};
use super::{Release, package};
use crate::failure::{Failure, Outcome, file_failed};
use crate::install::{self, Origin, Peer, Tool};
use crate::process::{command, fresh_folder, root, run, target};

/// The version that is upgraded from: the same programs under a lower number.
const OLDER: &str = "0.0.9";

/// A trace to push.
const TRACE: &str = "tests/data/trace-0-of-1.pfw.gz";

/// Where the pages' commands are run, inside of the copy.
const WORK: &str = "/srv/trial";

const TOOLS: &[Tool] = &[
    Tool {
        program: "unshare",
        from: Origin::Apt(&["util-linux"]),
        needed_for: "trying the packages on a copy of this machine",
    },
    Tool {
        program: "ip",
        from: Origin::Apt(&["iproute2"]),
        needed_for: "giving that copy a network of its own",
    },
    Tool {
        program: "skopeo",
        from: Origin::Apt(&["skopeo"]),
        needed_for: "reading the image as other programs do",
    },
    Tool {
        program: "man",
        from: Origin::Apt(&["man-db"]),
        needed_for: "printing the pages of the manual",
    },
];

/// Knows the schemas of Kubernetes.
const KUBERNETES: Peer = Peer {
    name: "kubernetes",
    packages: &["kubernetes-validate==1.37.0"],
    module: "kubernetes_validate",
};

/// Tries everything that was made. Needs root, and a machine with dpkg.
pub(super) fn run_all(release: &Release, staging: &Staging) -> Outcome {
    install::ensure(TOOLS)?;
    validate_manifests()?;
    let image = release
        .folder
        .join(format!("tracehold-{}-oci.tar", release.version));
    let image = format!("oci-archive:{}", image.display());
    run(&mut command("skopeo", &["inspect", &image]))?;
    let copied = target().join("packages-copied");
    let to = format!("dir:{}", copied.display());
    fresh_folder("packages-copied")?;
    // Reads every byte and compares the digests.
    run(&mut command(
        "skopeo",
        &["copy", "--insecure-policy", &image, &to],
    ))?;
    let trial = fresh_folder("packages-trial")?;
    make_older(release, staging, &trial)?;
    let this = std::env::current_exe().map_err(|error| Failure::Run(error.to_string()))?;
    let namespaces = ["--mount", "--pid", "--net", "--fork", "--kill-child", "--"];
    let mut inside = command("unshare", &namespaces);
    run(inside.arg(this).args(["dist", "--inside"]).arg(&trial))
}

/// A package whose settings differ, so that an upgrade finds both versions changed.
fn make_older(release: &Release, staging: &Staging, folder: &Path) -> Outcome {
    let older = fresh_folder("packages-older")?;
    let from = staging.folder.join(".");
    run(command("cp", &["--archive"]).arg(from).arg(&older))?;
    let older = Staging { folder: older };
    older.write("etc/tracehold/traceholdd.toml", b"# an older file\n", 0o644)?;
    package::make(release, &older, OLDER, folder)?;
    let mut copy = command("cp", &["--recursive"]);
    run(copy.arg(release.folder.join(".")).arg(folder))
}

fn validate_manifests() -> Outcome {
    if !install::ensure_peer(KUBERNETES) {
        let text = "kubernetes-validate cannot be installed from PyPI".to_owned();
        return Err(Failure::Run(text));
    }
    let program = target().join("peers").join(KUBERNETES.name);
    let mut validate = Command::new(program.join("bin/kubernetes-validate"));
    run(validate
        .arg("--strict")
        .arg(root().join("deploy/kubernetes/tracehold.yaml")))
}

/// The copy of this machine.
struct Machine {
    root: PathBuf,
}

/// The part of the trial that runs in its own namespaces; `folder` has the packages.
pub(super) fn run_inside(folder: &Path) -> Outcome {
    let machine = Machine::start(folder)?;
    let version = super::version()?;
    machine.step("install", &page("install.md")?.replace(&version, OLDER))?;
    machine.step("the packaged server and user", INSTALLED)?;
    machine.step("change the settings", CHANGED)?;
    machine.step("upgrade", &page("upgrade.md")?)?;
    machine.step("data and settings are kept", UPGRADED)?;
    machine.step("tune", &page("tuning.md")?)?;
    machine.step("remove", REMOVED)?;
    machine.step("uninstall", &page("uninstall.md")?)?;
    machine.step("nothing remains", PURGED)?;
    machine.step("install on a clean machine", &page("install.md")?)?;
    machine.step("remove without traces", EMPTIED)?;
    let archive = marked("install.md", "```sh bundle")?;
    machine.step("run the archive", &format!("{archive}{STARTED}"))?;
    machine.step("run the image's root file system", ROOTFS)
}

impl Machine {
    /// Mounts the copy and puts the packages, a trace and stand-ins for systemd and sudo into it.
    fn start(folder: &Path) -> Outcome<Self> {
        run(&mut command("ip", &["link", "set", "lo", "up"]))?;
        let place = fresh_folder("packages-overlay")?;
        let text = place.to_string_lossy().into_owned();
        run(&mut command("mount", &["-t", "tmpfs", "tmpfs", &text]))?;
        for name in ["upper", "work", "root"] {
            let path = place.join(name);
            std::fs::create_dir(&path).map_err(file_failed(&path))?;
        }
        let layers = format!("lowerdir=/,upperdir={text}/upper,workdir={text}/work");
        let root = place.join("root");
        let at = |path: &str| root.join(path).to_string_lossy().into_owned();
        run(&mut command(
            "mount",
            &["-t", "overlay", "overlay", "-o", &layers, &at("")],
        ))?;
        run(&mut command("mount", &["-t", "proc", "proc", &at("proc")]))?;
        run(&mut command("mount", &["--bind", "/dev", &at("dev")]))?;
        run(&mut command("mount", &["-t", "tmpfs", "tmpfs", &at("run")]))?;
        let systemctl = include_bytes!("systemctl.sh");
        write_file(&root.join("usr/local/bin/systemctl"), systemctl, 0o755)?;
        let sudo = b"#!/bin/sh\nexec \"$@\"\n";
        write_file(&root.join("usr/local/bin/sudo"), sudo, 0o755)?;
        let work = root.join(&WORK[1..]);
        std::fs::create_dir_all(&work).map_err(file_failed(&work))?;
        run(command("cp", &["--recursive"])
            .arg(folder.join("."))
            .arg(&work))?;
        let trace = work.join("trace.pfw.gz");
        std::fs::copy(crate::process::root().join(TRACE), &trace).map_err(file_failed(&trace))?;
        let machine = Self { root };
        // The packages believe that systemd runs.
        machine.step(
            "prepare",
            "mkdir -p /run/systemd/system\nrefused command -v tracehold",
        )?;
        Ok(machine)
    }

    /// Runs a script in the copy; each of its commands must succeed.
    fn step(&self, what: &str, script: &str) -> Outcome {
        println!("---- {what}");
        let begin = Instant::now();
        let mut shell = command("chroot", &[]);
        shell
            .arg(&self.root)
            .args(["bash", "-euxo", "pipefail", "-c"]);
        let script = format!("cd {WORK}\n{REFUSED}\n{script}");
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        shell
            .arg(script)
            .env_clear()
            .env("PATH", path)
            .env("TERM", "dumb");
        // As one message: the script itself is in the output, line by line.
        let status = shell.status().map_err(|source| Failure::Start {
            program: "chroot".to_owned(),
            source,
        })?;
        if !status.success() {
            return Err(Failure::Run(format!(
                "the trial failed at: {what} ({status})"
            )));
        }
        println!("---- {what}: {} ms", begin.elapsed().as_millis());
        Ok(())
    }
}

/// For commands that must fail: `!` before one does not end a script when it succeeds.
const REFUSED: &str = "refused() { if \"$@\"; then echo \"succeeded: $*\"; return 1; fi; }";

/// The commands of a page: its blocks that are marked `sh`.
fn page(name: &str) -> Outcome<String> {
    marked(name, "```sh")
}

/// The blocks of a page that begin with this line.
fn marked(name: &str, fence: &str) -> Outcome<String> {
    let path = root().join("docs").join(name);
    let text = std::fs::read_to_string(&path).map_err(file_failed(&path))?;
    let commands = commands_of(&text, fence);
    if commands.is_empty() {
        return Err(Failure::Run(format!("{} has no commands", path.display())));
    }
    Ok(commands)
}

fn commands_of(page: &str, fence: &str) -> String {
    let mut is_inside = false;
    let mut commands = String::new();
    for line in page.lines() {
        match line {
            line if line == fence => is_inside = true,
            "```" => is_inside = false,
            line if is_inside => commands.extend([line, "\n"]),
            _ => {}
        }
    }
    commands
}

const INSTALLED: &str = "
test \"$(stat -c %U:%a /var/lib/tracehold)\" = tracehold:700
test \"$(ps -o user= -p \"$(cat /run/trial/pid)\")\" = tracehold
test \"$(dpkg-query -W -f '${Version}' tracehold)\" = 0.0.9
man -P cat tracehold-storage-finalize | grep -- --token-file > /dev/null
man -P cat traceholdd | grep -- --data-dir > /dev/null
bash -c 'source /usr/share/bash-completion/completions/tracehold; complete -p tracehold'
zcat /usr/share/doc/tracehold/THIRD-PARTY-LICENSES.gz | grep '^tokio v' > /dev/null
{ ldd /usr/bin/traceholdd 2>&1 || true; } | grep -E 'statically linked|not a dynamic executable'
tracehold export --storage first exported
exported=$(find exported -name trace.pfw.gz)
cmp <(zcat $exported) <(zcat trace.pfw.gz)
";

const CHANGED: &str = "
echo '[query]' >> /etc/tracehold/traceholdd.toml
echo 'concurrent_max = 7' >> /etc/tracehold/traceholdd.toml
systemctl restart traceholdd
";

const UPGRADED: &str = "
test \"$(dpkg-query -W -f '${Version}' tracehold)\" != 0.0.9
grep -q 'an older file' /etc/tracehold/traceholdd.toml
traceholdd config check --config /etc/tracehold/traceholdd.toml > settings
grep -q 'concurrent_max = 7' settings
test \"$(tracehold storage show first | sed -n 's/^state *//p')\" = FINALIZED
tracehold storage verify first
";

const REMOVED: &str = "
dpkg -r tracehold
refused command -v traceholdd
refused systemctl is-active
test -e /etc/tracehold/traceholdd.toml
test -d /var/lib/tracehold/storages
dpkg -i $(ls tracehold_*_amd64.deb | tail -1)
systemctl is-active
tracehold storage show first
";

const PURGED: &str = "
refused command -v tracehold
test ! -e /etc/tracehold
test ! -e /var/lib/tracehold
test ! -e /usr/lib/systemd/system/traceholdd.service
refused dpkg-query -W tracehold
";

const EMPTIED: &str = "
tracehold storage delete first
dpkg -P tracehold
test ! -e /var/lib/tracehold
";

/// What the archive started.
const STARTED: &str = "
server=$!
for _ in $(seq 100); do tracehold storage list && break; sleep 0.1; done
command -v tracehold | grep \"^$PWD/tracehold-\"
tracehold storage create unpacked
test -d ~/traces/storages
man -P cat tracehold-storage-finalize | grep -- --token-file > /dev/null
complete -p tracehold
kill -TERM $server
wait $server
";

const ROOTFS: &str = "
mkdir rootfs
tar -xzpf tracehold-*-rootfs.tar.gz --numeric-owner -C rootfs
test \"$(stat -c %u:%a rootfs/var/lib/tracehold)\" = 7117:700
mkdir config
tar -xf tracehold-*-oci.tar -C config
sha256sum --check --quiet SHA256SUMS
mkdir -p rootfs/dev && touch rootfs/dev/null && mount --bind /dev/null rootfs/dev/null
chroot --userspec=7117:7117 rootfs /usr/bin/traceholdd --listen 127.0.0.1:7117 \\
    --data-dir /var/lib/tracehold > server.log 2>&1 &
server=$!
for _ in $(seq 100); do grep -q '^listening on' server.log && break; sleep 0.1; done
chroot --userspec=7117:7117 rootfs /usr/bin/tracehold storage create inside
tar -xzf tracehold-*-x86_64-linux.tar.gz
tracehold-*/bin/tracehold push --storage inside trace.pfw.gz
tracehold-*/bin/tracehold storage finalize inside
tracehold-*/bin/tracehold query --storage inside --count
chroot --userspec=7117:7117 rootfs /usr/bin/tracehold storage verify inside
kill -TERM $server
wait $server
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_blocks_of_sh() {
        let page = "text\n```sh\na\nb\n```\n```sh bundle\nc\n```\n```sh\nd\n```\n";
        assert_eq!(commands_of(page, "```sh"), "a\nb\nd\n");
        assert_eq!(commands_of(page, "```sh bundle"), "c\n");
    }

    #[test]
    fn the_pages_have_commands() {
        for name in ["install.md", "upgrade.md", "tuning.md", "uninstall.md"] {
            assert!(!page(name).unwrap().is_empty());
        }
    }
}
