use std::collections::BTreeMap;
use std::sync::Mutex;

use storage_format::checksum::crc32c;
use storage_format::storage_file::Totals;

use super::*;
use crate::testing::{Request, Response, TestServer, answer, broken};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const INDEX: &str = "00000000000000aa.index";
const DATA: &str = "00000000000000bb.itdata";
const CHUNK_INDEX: &str = "00000000000000cc.idx";

/// A model of a server with files.
struct Files {
    files: BTreeMap<String, Vec<u8>>,
    /// Ends one body after this many bytes.
    breaks_at: Option<usize>,
    /// How often the server says that it is making chunk indexes; without, it lists no files.
    indexes_after: Option<usize>,
    /// The chunk index that it lists, if that is not the one it has.
    listed: Option<Vec<u8>>,
}

impl Files {
    fn new(state: StorageState, listed: &[(&str, FileRole)]) -> Self {
        let content = |name: &str| -> Vec<u8> {
            (0..5000_u32)
                .flat_map(|n| format!("{name}{n}").into_bytes())
                .collect()
        };
        let mut files = BTreeMap::new();
        let mut entries = Vec::new();
        for (name, role) in listed {
            let bytes = content(name);
            entries.push(FileEntry {
                name: (*name).to_owned(),
                role: *role,
                length: bytes.len() as u64,
                checksum: crc32c(&bytes),
            });
            files.insert((*name).to_owned(), bytes);
        }
        let storage = StorageFile {
            id: ID.parse().unwrap(),
            name: "s".to_owned(),
            description: String::new(),
            state,
            labels: BTreeMap::new(),
            created: 1,
            opened: None,
            finalized: None,
            server_version: String::new(),
            idempotency_key: None,
            failure: None,
            totals: Totals::default(),
            files: entries,
        };
        files.insert(format!("{ID}.storage"), storage.encode().unwrap());
        Self {
            files,
            breaks_at: None,
            indexes_after: None,
            listed: None,
        }
    }

    fn answer(&mut self, request: &Request) -> Response {
        let name = request.uri().path().rsplit('/').next().unwrap();
        if let Some(left) = self.indexes_after.as_mut().filter(|_| name == "files") {
            let listed = match left.checked_sub(1) {
                Some(less) => {
                    *left = less;
                    r#"{"files":[],"chunk_indexes":"in_progress"}"#.to_owned()
                }
                None => {
                    let own = || &self.files[CHUNK_INDEX];
                    let bytes = self.listed.as_ref().unwrap_or_else(own);
                    format!(
                        r#"{{"files":[{{"name":"{CHUNK_INDEX}","role":"chunk_index","length":{},
                        "checksum":"{:08x}"}}],"chunk_indexes":"complete"}}"#,
                        bytes.len(),
                        crc32c(bytes)
                    )
                }
            };
            return answer(200, &[], listed);
        }
        let Some(file) = self.files.get(name) else {
            return answer(404, &[], "");
        };
        let range = request
            .headers()
            .get("range")
            .map(|value| value.to_str().unwrap());
        let start = range.map_or(0, |range| {
            let start = range
                .strip_prefix("bytes=")
                .unwrap()
                .strip_suffix('-')
                .unwrap();
            start.parse::<usize>().unwrap()
        });
        let mut bytes = file[start..].to_vec();
        let length = bytes.len();
        if name == DATA
            && let Some(at) = self.breaks_at.take()
        {
            bytes.truncate(at);
            return broken(200, &[], length, bytes);
        }
        let last = file.len() - 1;
        let content_range = format!("bytes {start}-{last}/{}", file.len());
        match range {
            None => answer(200, &[], bytes),
            Some(_) => answer(206, &[("content-range", &content_range)], bytes),
        }
    }
}

const ALL: [(&str, FileRole); 3] = [
    ("host.agent", FileRole::Agent),
    (INDEX, FileRole::Index),
    (DATA, FileRole::Data),
];

struct Setting {
    server: TestServer,
    files: Arc<Mutex<Files>>,
    folder: tempfile::TempDir,
}

impl Setting {
    async fn new(files: Files) -> Self {
        let files = Arc::new(Mutex::new(files));
        let shared = Arc::clone(&files);
        let answer = move |request: &Request| Some(shared.lock().unwrap().answer(request));
        Self {
            server: TestServer::start(answer).await,
            files,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    async fn mount(&self, extent: Extent) -> Result<MountReport, ClientError> {
        self.mount_within(extent, Duration::from_secs(60)).await
    }

    async fn mount_within(
        &self,
        extent: Extent,
        index_wait: Duration,
    ) -> Result<MountReport, ClientError> {
        let url = format!("{}/storage/{ID}", self.server.url())
            .parse()
            .unwrap();
        let progress: Progress = Arc::new(|_| {});
        mount(
            &self.server.client(),
            &url,
            self.folder.path(),
            Wanted { extent, index_wait },
            &progress,
        )
        .await
    }

    /// The names of the files in the folder. Checks the content of those that the server has.
    fn here(&self) -> Vec<String> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.folder.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if let Some(bytes) = self.files.lock().unwrap().files.get(&name) {
                assert!(
                    &fs::read(self.folder.path().join(&name)).unwrap() == bytes,
                    "{name}"
                );
            }
            names.push(name);
        }
        names.sort();
        names
    }
}

async fn check(setting: &Setting, extent: Extent, expected: (u64, u64, u64)) -> MountReport {
    let done = setting.mount(extent).await.unwrap();
    let counts = (done.fetched_files, done.kept_files, done.left_out_files);
    assert_eq!(counts, expected);
    done
}

#[tokio::test]
async fn a_mount_becomes_a_download_and_nothing_is_fetched_twice() {
    let setting = Setting::new(Files::new(StorageState::Finalized, &ALL)).await;
    check(&setting, Extent::Index, (2, 0, 1)).await;
    let (local, storage) = (format!("{ID}.local"), format!("{ID}.storage"));
    assert_eq!(setting.here(), [INDEX, &local, &storage, "host.agent"]);
    check(&setting, Extent::All, (1, 2, 0)).await;
    assert_eq!(
        setting.here(),
        [INDEX, DATA, &local, &storage, "host.agent"]
    );
    let local = fs::read(setting.folder.path().join(local)).unwrap();
    let local = LocalFile::decode(&local).unwrap();
    assert_eq!(local.complete, [INDEX, DATA, "host.agent"]);
    assert_eq!(
        local.origin,
        format!("{}/storage/{ID}", setting.server.url())
    );
    check(&setting, Extent::All, (0, 3, 0)).await;
}

#[tokio::test]
async fn a_broken_transfer_is_resumed() {
    let setting = Setting::new(Files::new(StorageState::Finalized, &ALL)).await;
    setting.files.lock().unwrap().breaks_at = Some(10_000);
    let done = check(&setting, Extent::All, (3, 0, 0)).await;
    setting.here();
    let sizes = |name: &str| setting.files.lock().unwrap().files[name].len() as u64;
    let total: u64 = ALL.iter().map(|(name, _)| sizes(name)).sum();
    assert_eq!(done.fetched_bytes, total);
}

#[tokio::test]
async fn a_partial_file_is_resumed_or_discarded() {
    let setting = Setting::new(Files::new(StorageState::Finalized, &ALL)).await;
    let half = setting.files.lock().unwrap().files[DATA][..20_000].to_vec();
    let tmp = setting.folder.path().join(format!("{DATA}.tmp"));
    fs::write(&tmp, &half).unwrap();
    let done = check(&setting, Extent::All, (3, 0, 0)).await;
    let sizes = |name: &str| setting.files.lock().unwrap().files[name].len() as u64;
    assert_eq!(
        done.fetched_bytes,
        sizes(INDEX) + sizes("host.agent") + sizes(DATA) - 20_000
    );

    fs::remove_file(setting.folder.path().join(DATA)).unwrap();
    fs::write(&tmp, "other bytes").unwrap();
    let error = setting.mount(Extent::All).await.unwrap_err().to_string();
    assert!(error.contains("run the command again"), "{error}");
    check(&setting, Extent::All, (1, 2, 0)).await;
    setting.here();
}

#[tokio::test]
async fn a_damaged_transfer_is_detected() {
    let mut files = Files::new(StorageState::Finalized, &ALL);
    files.files.get_mut(DATA).unwrap()[100] ^= 1;
    let setting = Setting::new(files).await;
    let error = setting.mount(Extent::All).await.unwrap_err().to_string();
    assert!(
        error.contains("do not match the checksum") && error.contains("verify"),
        "{error}"
    );
}

async fn check_refused(files: Files, reason: &str) {
    let setting = Setting::new(files).await;
    let error = setting.mount(Extent::All).await.unwrap_err().to_string();
    assert!(error.contains(reason), "{error}");
    assert_eq!(setting.here(), [] as [String; 0], "nothing is left over");
}

#[tokio::test]
async fn invalid_storages_are_refused() {
    check_refused(Files::new(StorageState::Open, &ALL), "finalize it first").await;
    let outside = [("../../evil.agent", FileRole::Agent)];
    check_refused(
        Files::new(StorageState::Finalized, &outside),
        "with the role agent",
    )
    .await;
    let disguised = [(DATA, FileRole::Index)];
    check_refused(
        Files::new(StorageState::Finalized, &disguised),
        "with the role index",
    )
    .await;
    let twice = [ALL[0], ALL[0]];
    check_refused(
        Files::new(StorageState::Finalized, &twice),
        "with the role agent",
    )
    .await;
    let mut torn = Files::new(StorageState::Finalized, &ALL);
    torn.files
        .get_mut(&format!("{ID}.storage"))
        .unwrap()
        .truncate(40);
    check_refused(torn, "storage file").await;
}

#[tokio::test]
async fn a_folder_of_another_storage_is_refused() {
    let setting = Setting::new(Files::new(StorageState::Finalized, &ALL)).await;
    let other = "01890a5d-ac96-774b-bcce-b302099a8058";
    fs::write(setting.folder.path().join(format!("{other}.storage")), "").unwrap();
    let error = setting.mount(Extent::Index).await.unwrap_err().to_string();
    assert!(
        error.contains(&format!("already contains storage {other}")),
        "{error}"
    );
}

/// A server that makes chunk indexes for a while.
async fn indexing(answers: usize) -> Setting {
    let mut files = Files::new(StorageState::Finalized, &ALL);
    files.files.insert(CHUNK_INDEX.to_owned(), vec![7; 100]);
    files.indexes_after = Some(answers);
    Setting::new(files).await
}

#[tokio::test]
async fn a_mount_waits_for_the_chunk_indexes() {
    let setting = indexing(3).await;
    let report = setting.mount(Extent::Index).await.unwrap();
    assert_eq!(report.chunk_indexes.as_deref(), Some("complete"));
    assert_eq!(report.index_note(), None);
    assert!(setting.here().contains(&CHUNK_INDEX.to_owned()));
}

#[tokio::test]
async fn a_mount_without_chunk_indexes_says_so_and_can_be_completed() {
    let setting = indexing(1).await;
    let report = setting.mount_within(Extent::Index, Duration::ZERO).await;
    let report = report.unwrap();
    assert_eq!(report.chunk_indexes.as_deref(), Some("in_progress"));
    assert!(report.index_note().unwrap().contains("again"));
    assert!(!setting.here().contains(&CHUNK_INDEX.to_owned()));
    let again = setting.mount_within(Extent::Index, Duration::ZERO).await;
    assert_eq!(again.unwrap().index_note(), None);
    assert!(setting.here().contains(&CHUNK_INDEX.to_owned()));
}

/// A derived file that is replaced after it was listed is skipped, and the report says so.
#[tokio::test]
async fn a_chunk_index_that_is_replaced_meanwhile_is_skipped() {
    for replaced in [None, Some(vec![8; 100])] {
        let setting = indexing(0).await;
        let listed = setting.files.lock().unwrap().files[CHUNK_INDEX].clone();
        setting.files.lock().unwrap().listed = Some(listed);
        match replaced {
            Some(bytes) => setting
                .files
                .lock()
                .unwrap()
                .files
                .insert(CHUNK_INDEX.to_owned(), bytes),
            None => setting.files.lock().unwrap().files.remove(CHUNK_INDEX),
        };
        let report = setting.mount(Extent::Index).await.unwrap();
        assert_eq!(report.chunk_indexes.as_deref(), Some("in_progress"));
        assert!(report.index_note().unwrap().contains("again"));
        let here = setting.here();
        assert!(!here.contains(&CHUNK_INDEX.to_owned()), "{here:?}");
        assert!(here.contains(&format!("{ID}.storage")), "{here:?}");
    }
}
