use std::cell::Cell;
use std::rc::Rc;

use super::*;

fn act(number: usize) -> What {
    What::Act(Act {
        caller: "anyone".to_owned(),
        method: "POST".to_owned(),
        path: format!("/{number}"),
        query: None,
        status: 200,
        made: None,
        request: "r".to_owned(),
    })
}

fn config(file_bytes_max: u64) -> AuditConfig {
    AuditConfig {
        file_bytes_max,
        files_max: 3,
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let complete = complete_files(folder).unwrap().into_iter();
    let mut files: Vec<PathBuf> = complete.map(|(_, path)| path).collect();
    files.push(folder.join(CURRENT));
    files
}

/// The paths of all acts in the files.
fn noted(folder: &Path) -> Vec<String> {
    let all = files(folder).into_iter();
    all.flat_map(|file| noted_in(&file)).collect()
}

#[expect(clippy::disallowed_methods, reason = "a test reads its files")]
fn noted_in(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let paths = lines.filter_map(|line: serde_json::Value| {
        line.get("path")
            .map(|path| path.as_str().unwrap().to_owned())
    });
    paths.collect()
}

/// A disk on which some operations fail: a write after half of its bytes, and a sync after all of
/// them are in the file.
#[derive(Clone)]
struct Failing {
    done: Rc<Cell<usize>>,
    fails: std::ops::Range<usize>,
}

impl Failing {
    fn new(fails: std::ops::Range<usize>) -> Self {
        let done = Rc::default();
        Self { done, fails }
    }

    fn step(&self) -> io::Result<()> {
        let step = self.done.get();
        self.done.set(step + 1);
        if self.fails.contains(&step) {
            return Err(io::Error::from(ErrorKind::StorageFull));
        }
        Ok(())
    }
}

impl Operations for Failing {
    fn open(&self, path: &Path) -> io::Result<File> {
        self.step().and_then(|()| Disk.open(path))
    }

    fn write(&self, file: &File, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.step() {
            Disk.write(file, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        Disk.write(file, bytes)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.step().and_then(|()| Disk.sync(file))
    }

    fn cut(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.step().and_then(|()| Disk.cut(file, bytes))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step().and_then(|()| Disk.rename(from, to))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.step().and_then(|()| Disk.sync_folder(folder))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step().and_then(|()| Disk.remove(path))
    }
}

/// Notes acts on a disk that fails; what is noted must be there, in order, in intact files.
fn check_failing(fails: std::ops::Range<usize>, is_restarted: bool) {
    let case = format!("{fails:?}, restarted: {is_restarted}");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join(FOLDER);
    let disk = Failing::new(fails.clone());
    let open = || {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match Log::open(folder.clone(), &config(600), disk.clone()) {
                Ok(log) => return log,
                Err(error) => assert!(attempts < 100, "{error}"),
            }
        }
    };
    let mut log = open();
    let mut answered = Vec::new();
    for number in 0..24 {
        match log.append(act(number)) {
            Ok(()) => answered.push(format!("/{number}")),
            Err(_) if is_restarted => log = open(),
            Err(_) => {}
        }
    }
    assert!(disk.done.get() > fails.end, "{case}");
    let all = files(&folder);
    let verified = verify_audit(&folder, &all);
    assert_eq!(verified.unwrap().0, log.end.number, "{case}");
    let found = noted(&folder);
    let found = found.iter().filter(|path| answered.contains(path));
    let found: Vec<String> = found.cloned().collect();
    assert!(
        found.len() > 4 && answered.ends_with(&found),
        "{case}: {found:?}"
    );
    assert!(all.len() <= 4, "{case}: {all:?}");
}

#[test]
fn a_disk_that_fails_for_a_while_costs_no_line_and_no_file() {
    for from in 0..60 {
        for count in [1, 2, 7] {
            for is_restarted in [false, true] {
                check_failing(from..from + count, is_restarted);
            }
        }
    }
}

#[test]
fn a_disk_that_stays_full_removes_no_history_and_starts_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join(FOLDER);
    let mut log = Log::open(folder.clone(), &config(600), Disk).unwrap();
    for number in 0..12 {
        log.append(act(number)).unwrap();
    }
    drop(log);
    let before = (files(&folder), noted(&folder));
    // Opening works, and nothing after it.
    let full = Failing::new(1..usize::MAX);
    let mut log = Log::open(folder.clone(), &config(600), full).unwrap();
    for number in 0..50 {
        assert!(log.append(act(number)).is_err());
    }
    drop(log);
    assert_eq!((files(&folder), noted(&folder)), before);
    Log::open(folder.clone(), &config(600), Disk)
        .unwrap()
        .append(act(99))
        .unwrap();
    verify_audit(&folder, &files(&folder)).unwrap();

    // The same where there is no file yet.
    let new = tempfile::tempdir().unwrap();
    let new = new.path().join(FOLDER);
    let mut log = Log::open(new.clone(), &config(600), Failing::new(1..9)).unwrap();
    while log.append(act(1)).is_err() {}
    assert_eq!(noted(&new), ["/1"]);
    verify_audit(&new, &files(&new)).unwrap();
}

#[test]
fn the_log_continues_after_a_start_and_over_a_bounded_number_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join(FOLDER);
    for start in 0..40 {
        let mut log = Log::open(folder.clone(), &config(600), Disk).unwrap();
        log.append(act(start)).unwrap();
        let all = files(&folder);
        assert!(all.len() <= 4);
        let (number, _) = verify_audit(&folder, &all).unwrap();
        assert_eq!(number, log.end.number);
    }
    let all = files(&folder);
    assert_eq!(all.len(), 4);
    let without = [&all[..1], &all[2..]].concat();
    let error = verify_audit(&folder, &without).unwrap_err();
    assert!(error.path == all[2] && matches!(error.damage, AuditDamage::Apart));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test damages its files")]
fn a_torn_line_is_cut_and_a_damaged_file_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join(FOLDER);
    let open = || Log::open(folder.clone(), &config(1 << 20), Disk).unwrap();
    open().append(act(1)).unwrap();
    let path = folder.join(CURRENT);
    let intact = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&intact[..], b"{\"number\":3,"].concat()).unwrap();
    open().append(act(2)).unwrap();
    assert_eq!(verify_audit(&folder, &files(&folder)).unwrap().0, 3);
    assert!(std::fs::read(&path).unwrap().starts_with(&intact));

    let mut damaged = intact;
    damaged[20] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    open().append(act(3)).unwrap();
    let all = files(&folder);
    assert_eq!(std::fs::read(&all[0]).unwrap(), damaged);
    assert!(verify_audit(&folder, &all).is_err() && verify_audit(&folder, &all[1..]).is_ok());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test damages its files")]
fn no_number_is_given_twice_behind_damaged_files() {
    // None is removed.
    let config = AuditConfig {
        files_max: 99,
        ..config(600)
    };
    let empty: fn(&mut Vec<u8>) = Vec::clear;
    let changed: fn(&mut Vec<u8>) = |bytes| bytes[20] ^= 1;
    for (damage, from) in [(empty, 1), (changed, 1), (empty, 0), (changed, 0)] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join(FOLDER);
        let mut log = Log::open(folder.clone(), &config, Disk).unwrap();
        for number in 0..9 {
            log.append(act(number)).unwrap();
        }
        let before = log.end.number;
        drop(log);
        for file in &files(&folder)[from..] {
            let mut bytes = std::fs::read(file).unwrap();
            damage(&mut bytes);
            std::fs::write(file, bytes).unwrap();
        }
        let all = files(&folder);
        let complete = all[..all.len() - 1].to_vec();
        let mut log = Log::open(folder.clone(), &config, Disk).unwrap();
        // What an emptied file contained is not known.
        let lines = before - u64::try_from(complete.len()).unwrap();
        assert!(
            log.end.number > lines / 2,
            "{} after {before}",
            log.end.number
        );
        log.append(act(9)).unwrap();
        let now = files(&folder);
        assert!(
            now.starts_with(&complete),
            "the newest file sorts last: {now:?}"
        );
        assert_eq!(noted_in(now.last().unwrap()), ["/9"]);
        verify_audit(&folder, &now[now.len() - 1..]).unwrap();
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test writes as a server does")]
fn a_line_that_is_being_written_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join(FOLDER);
    let mut log = Log::open(folder.clone(), &config(600), Disk).unwrap();
    log.append(act(1)).unwrap();
    let path = folder.join(CURRENT);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    let mut waits = 0;
    let verified = verify_folder(&folder, || {
        waits += 1;
        std::fs::write(&path, &whole).unwrap();
    });
    assert_eq!((verified.unwrap().0, waits), (2, 1));
    // What stays so is damage.
    std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    let torn = verify_folder(&folder, || waits += 1).unwrap_err();
    assert!(matches!(torn.damage, AuditDamage::Cut { .. }));
    assert_eq!(waits, ATTEMPTS);
}
