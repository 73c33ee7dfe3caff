//! The requests of which faults are tried, as data.

use super::view::Between;

/// A server with some content, and steps that change it.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Lines of configuration.
    pub(super) config: &'static str,
    /// Requests before the first step.
    pub(super) setup: &'static [Step],
    pub(super) steps: &'static [Step],
}

impl Scenario {
    /// Whether packets that can be read are gone after a step.
    pub(super) fn loses_packets(&self) -> bool {
        self.name == OPEN_REPAIR
    }

    /// Whether the server reaches points while no request waits for it.
    pub(super) fn has_work_in_background(&self) -> bool {
        self.config == SMALL_AND_ARRANGED
    }
}

/// One change.
pub(super) struct Step {
    pub(super) what: What,
    /// What a fault in it may leave.
    pub(super) between: Between,
    /// Statuses of a repetition after it happened. Without any it is not repeated then.
    pub(super) again: &'static [u16],
}

/// A request; `{name}` in a path or body stands for the id of the storage, and `{recording}` for
/// the id of the only recording.
pub(super) enum What {
    Call {
        method: &'static str,
        path: &'static str,
        body: &'static str,
    },
    /// A creation with an idempotency key.
    Create { name: &'static str },
    /// Packets of a stream in one request; without a storage they go to the recordings.
    Push {
        storage: Option<&'static str>,
        agent: &'static str,
        stream: &'static str,
        first: u64,
        count: u64,
    },
    /// Imports a storage that was exported before, and deleted or damaged.
    Import {
        name: &'static str,
        is_damaged: bool,
    },
    /// The server is killed, or stopped after which the index `is_complete`, a packet of the second
    /// batch of the storage is damaged, and it starts again. Only before the first step.
    Damage {
        name: &'static str,
        is_complete: bool,
    },
    /// A clean shutdown and a start.
    Restart,
    /// A kill and a start.
    Crash,
}

const fn step(what: What, between: Between, again: &'static [u16]) -> Step {
    Step {
        what,
        between,
        again,
    }
}

const fn call(
    method: &'static str,
    path: &'static str,
    body: &'static str,
    again: &'static [u16],
) -> Step {
    step(What::Call { method, path, body }, Between::Nothing, again)
}

const fn create(name: &'static str) -> Step {
    step(What::Create { name }, Between::Nothing, &[200, 201])
}

const fn push(
    storage: &'static str,
    agent: &'static str,
    stream: &'static str,
    first: u64,
    count: u64,
) -> Step {
    let what = What::Push {
        storage: Some(storage),
        agent,
        stream,
        first,
        count,
    };
    step(what, Between::Prefixes, &[200])
}

const RESTART: Step = step(What::Restart, Between::Nothing, &[]);
const CRASH: Step = step(What::Crash, Between::Nothing, &[]);
const RAW: &str = r#"{"kind":"raw","codec":"none"}"#;
const ZSTD: &str = r#"{"kind":"raw","codec":"zstd"}"#;
const ONE: Step = call(
    "PUT",
    "/agents/one",
    r#"{"name":"one","host":"test"}"#,
    &[200],
);
const TWO: Step = call(
    "PUT",
    "/agents/two",
    r#"{"name":"two","host":"test"}"#,
    &[200],
);
const ONE_LEFT: Step = call("PUT", "/agents/one/streams/left", RAW, &[200, 201]);
const TWO_RIGHT: Step = call("PUT", "/agents/two/streams/right", ZSTD, &[200, 201]);

/// Index parts and data files are small, so that a few packets need several of each.
const SMALL: &str = "[storage]\npreallocation_bytes_max = 1048576\nlive_index_packets_max = 4\n\
                     data_file_bytes_max = 65536\ndisk_stop_free_bytes = 0\n\
                     disk_stop_free_percent = 0\nfull_file_arranging_bytes_per_second_max = 0\n";
/// The same; storages are sealed.
const SMALL_AND_SEALED: &str = "[storage]\npreallocation_bytes_max = 1048576\n\
                                live_index_packets_max = 4\ndata_file_bytes_max = 65536\n\
                                disk_stop_free_bytes = 0\ndisk_stop_free_percent = 0\n\
                                full_file_arranging_bytes_per_second_max = 0\n\
                                [seal]\nat_finalization = true\n";
/// As [`SMALL`]; full files are arranged while their storage is open.
const SMALL_AND_ARRANGED: &str = "[storage]\npreallocation_bytes_max = 1048576\n\
                                  live_index_packets_max = 4\ndata_file_bytes_max = 65536\n\
                                  disk_stop_free_bytes = 0\ndisk_stop_free_percent = 0\n";
const PLAIN: &str = "[storage]\ndisk_stop_free_bytes = 0\ndisk_stop_free_percent = 0\n";

const OPEN_REPAIR: &str = "repair of an open storage";

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "ingest",
        config: SMALL,
        setup: &[create("in"), ONE, TWO, ONE_LEFT, TWO_RIGHT],
        steps: &[
            push("in", "one", "left", 0, 1),
            push("in", "one", "left", 1, 5),
            push("in", "two", "right", 0, 12),
            push("in", "one", "left", 6, 12),
            RESTART,
            push("in", "one", "left", 18, 2),
            push("in", "two", "right", 12, 1),
            CRASH,
            push("in", "two", "right", 13, 3),
            call(
                "PUT",
                "/storages/{in}/agents/one/streams/left/provenance",
                r#"{"epoch":1,"path":"/trace","file_bytes":9,"packets":[[0,0,4,0,1],[1,4,5,1,1]]}"#,
                &[200],
            ),
            RESTART,
        ],
    },
    Scenario {
        name: "storages",
        config: PLAIN,
        setup: &[ONE, ONE_LEFT, create("other")],
        steps: &[
            create("new"),
            call(
                "PATCH",
                "/storages/{new}",
                r#"{"description":"changed"}"#,
                &[200],
            ),
            push("new", "one", "left", 0, 3),
            call(
                "POST",
                "/storages/{new}/labels",
                r#"{"type":"use_case","value":"io"}"#,
                &[200],
            ),
            call(
                "PUT",
                "/storages/{new}/labels/team",
                r#"{"value":"blue"}"#,
                &[200],
            ),
            call("DELETE", "/storages/{new}/labels/use_case", "", &[404]),
            call("POST", "/storages/{new}/finalize", "", &[200]),
            call(
                "PATCH",
                "/storages/{new}",
                r#"{"description":"again"}"#,
                &[200],
            ),
            call(
                "POST",
                "/storages",
                r#"{"name":"closed","open":false}"#,
                &[],
            ),
            call("POST", "/storages/{closed}/open", "", &[200]),
            call("DELETE", "/storages/{new}", "", &[]),
            call("DELETE", "/storages/{other}", "", &[]),
            RESTART,
        ],
    },
    Scenario {
        name: "arranging",
        config: SMALL_AND_SEALED,
        setup: &[
            create("in"),
            ONE,
            TWO,
            ONE_LEFT,
            TWO_RIGHT,
            push("in", "one", "left", 0, 3),
            push("in", "two", "right", 0, 3),
            push("in", "one", "left", 3, 9),
            push("in", "two", "right", 3, 9),
            push("in", "one", "left", 12, 3),
        ],
        steps: &[call("POST", "/storages/{in}/finalize", "", &[200]), CRASH],
    },
    Scenario {
        name: "full files",
        config: SMALL_AND_ARRANGED,
        setup: &[
            create("in"),
            ONE,
            TWO,
            ONE_LEFT,
            TWO_RIGHT,
            push("in", "one", "left", 0, 6),
            push("in", "two", "right", 0, 3),
        ],
        steps: &[
            push("in", "one", "left", 6, 12),
            push("in", "two", "right", 3, 9),
            CRASH,
            push("in", "one", "left", 18, 6),
            push("in", "two", "right", 12, 3),
            push("in", "one", "left", 24, 6),
            call("POST", "/storages/{in}/finalize", "", &[200]),
            CRASH,
        ],
    },
    Scenario {
        name: "import",
        config: PLAIN,
        setup: &[
            create("in"),
            ONE,
            ONE_LEFT,
            push("in", "one", "left", 0, 6),
            call("POST", "/storages/{in}/finalize", "", &[200]),
        ],
        steps: &[
            step(
                What::Import {
                    name: "in",
                    is_damaged: false,
                },
                Between::Nothing,
                &[409],
            ),
            CRASH,
        ],
    },
    Scenario {
        name: "import over damage",
        config: PLAIN,
        setup: &[
            create("in"),
            ONE,
            ONE_LEFT,
            push("in", "one", "left", 0, 6),
            call("POST", "/storages/{in}/finalize", "", &[200]),
        ],
        steps: &[
            step(
                What::Import {
                    name: "in",
                    is_damaged: true,
                },
                Between::Nothing,
                &[409],
            ),
            CRASH,
        ],
    },
    Scenario {
        name: "repair",
        config: PLAIN,
        setup: &[
            create("in"),
            ONE,
            ONE_LEFT,
            push("in", "one", "left", 0, 3),
            push("in", "one", "left", 3, 3),
            push("in", "one", "left", 6, 3),
            push("in", "one", "left", 9, 3),
            step(
                What::Damage {
                    name: "in",
                    is_complete: false,
                },
                Between::Nothing,
                &[],
            ),
        ],
        steps: &[
            // The storage file says last that the storage is open.
            step(
                What::Call {
                    method: "POST",
                    path: "/storages/{in}/verify?repair=confirm",
                    body: "",
                },
                Between::Things,
                &[200],
            ),
            push("in", "one", "left", 12, 2),
            CRASH,
            call("POST", "/storages/{in}/finalize", "", &[200]),
            RESTART,
        ],
    },
    Scenario {
        name: OPEN_REPAIR,
        config: PLAIN,
        setup: &[
            create("in"),
            ONE,
            ONE_LEFT,
            push("in", "one", "left", 0, 3),
            push("in", "one", "left", 3, 3),
            push("in", "one", "left", 6, 3),
            push("in", "one", "left", 9, 3),
            step(
                What::Damage {
                    name: "in",
                    is_complete: true,
                },
                Between::Nothing,
                &[],
            ),
            // The index in memory has these.
            push("in", "one", "left", 12, 2),
        ],
        steps: &[
            call("POST", "/storages/{in}/verify?repair=confirm", "", &[200]),
            push("in", "one", "left", 14, 2),
            CRASH,
            call("POST", "/storages/{in}/finalize", "", &[200]),
            RESTART,
        ],
    },
    Scenario {
        name: "tokens",
        config: PLAIN,
        // All requests have the first token.
        setup: &[
            create("in"),
            call(
                "POST",
                "/tokens",
                r#"{"name":"first","role":"operator"}"#,
                &[],
            ),
        ],
        steps: &[
            call(
                "POST",
                "/tokens",
                r#"{"name":"second","role":"reader"}"#,
                &[],
            ),
            call("DELETE", "/tokens/{token}", "", &[404]),
            CRASH,
            ONE,
        ],
    },
    Scenario {
        name: "agents and labels",
        config: PLAIN,
        setup: &[create("in")],
        steps: &[
            ONE,
            ONE_LEFT,
            call(
                "PUT",
                "/agents/one/metadata",
                "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };",
                &[200, 204],
            ),
            TWO,
            call("PUT", "/agents/two/quota", r#"{"bytes_max":1000}"#, &[200]),
            call("DELETE", "/agents/two/quota", "", &[204]),
            call("DELETE", "/agents/two", "", &[404]),
            call(
                "PUT",
                "/label-types/size",
                r#"{"value_type":"number"}"#,
                &[200, 201],
            ),
            call(
                "PUT",
                "/storages/{in}/labels/size",
                r#"{"value":7}"#,
                &[200],
            ),
            call("PUT", "/label-types/size", r#"{"values":[7,8]}"#, &[200]),
            call("DELETE", "/label-types/size/values/8", "", &[404]),
            step(
                What::Call {
                    method: "DELETE",
                    path: "/label-types/size?remove=true",
                    body: "",
                },
                Between::Things,
                &[404],
            ),
            RESTART,
        ],
    },
    Scenario {
        name: "recording",
        config: PLAIN,
        setup: &[create("in"), create("second"), ONE, ONE_LEFT],
        steps: &[
            call(
                "POST",
                "/recordings",
                r#"{"storage":"{in}","processors":[{"type":"saver"}]}"#,
                &[],
            ),
            step(
                What::Push {
                    storage: None,
                    agent: "one",
                    stream: "left",
                    first: 0,
                    count: 4,
                },
                Between::Prefixes,
                &[200],
            ),
            RESTART,
            call("DELETE", "/recordings/{recording}", "", &[]),
            call("DELETE", "/recordings/{recording}", "", &[]),
            call(
                "POST",
                "/recordings",
                r#"{"storage":"{second}","processors":[{"type":"saver"}],"auto_finalize":true}"#,
                &[],
            ),
            call("DELETE", "/recordings/{recording}", "", &[]),
            CRASH,
        ],
    },
];
