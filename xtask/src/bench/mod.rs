//! `cargo xtask bench NAME`: every benchmark is one file here and one entry in [`BENCHES`].
//!
//! A benchmark compares two ways to do the same work in one run, alternating (see [`paired`]), and
//! prints the ratio of the medians: on a shared machine only ratios within one run are meaningful.
//! It prints for each target whether it is met. A missed target does not fail the job, because a
//! timed test that fails at random is soon ignored.

mod ctf;
mod finalize;
mod history;
mod index;
mod ingest;
mod io_trace;
mod listing;
mod memory;
mod memory_chrome;
mod memory_limit;
mod mount;
mod otlp;
mod overload;
mod packet_files;
mod page;
mod paired;
mod parquet;
mod range;
mod restart;
mod rocksdb;
mod table;
mod versions;
mod zip;

use crate::failure::{Failure, Outcome};
use crate::options::Options;

/// One benchmark.
struct Bench {
    name: &'static str,
    /// What is compared with what, in one line.
    about: &'static str,
    run: fn(&Options) -> Outcome,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "ctf",
        about: "elements, events and text of a real LTTng-UST trace against Babeltrace 2",
        run: ctf::run_bench,
    },
    Bench {
        name: "finalize",
        about: "finalizing interleaved streams against cp of the same files",
        run: finalize::run_bench,
    },
    Bench {
        name: "index",
        about: "indexing and querying DFTracer files against zcat, dftracer-utils and DuckDB",
        run: index::run_bench,
    },
    Bench {
        name: "ingest",
        about: "durable pushes against discarded bodies, bare writers and fio on the same disk",
        run: ingest::run_bench,
    },
    Bench {
        name: "io-trace",
        about: "pushes and range reads with and without the I/O trace",
        run: io_trace::run_bench,
    },
    Bench {
        name: "listing",
        about: "a page of the list of storages with 10,000 of them against one with 200",
        run: listing::run_bench,
    },
    Bench {
        name: "memory",
        about: "peak memory with tiny packets, many storages, many streams, a long Chrome trace",
        run: memory::run_bench,
    },
    Bench {
        name: "mount",
        about: "a rare name in a mounted remote storage against a downloaded copy of it",
        run: mount::run_bench,
    },
    Bench {
        name: "otlp",
        about: "spans over HTTP into a durable recording: the saver alone and the default chain",
        run: otlp::run_bench,
    },
    Bench {
        name: "overload",
        about: "goodput and health in 512 MiB with bombs, idle connections and a slow disk",
        run: overload::run_bench,
    },
    Bench {
        name: "packet-files",
        about: "CPU time and memory of indexing RocksDB, CTF and I/O traces, against reading them",
        run: packet_files::run_bench,
    },
    Bench {
        name: "page",
        about: "the page of a storage with 10 million events: first picture, and a zoom",
        run: page::run_bench,
    },
    Bench {
        name: "parquet",
        about: "making the file of events of a storage against DuckDB's COPY of the same files",
        run: parquet::run_bench,
    },
    Bench {
        name: "range",
        about: "byte ranges of a finalized data file against nginx",
        run: range::run_bench,
    },
    Bench {
        name: "restart",
        about: "time to ready with many finalized storages, and with uncovered data",
        run: restart::run_bench,
    },
    Bench {
        name: "rocksdb",
        about: "RocksDB's traces: text, CSV and analysis against the rates of its own tools",
        run: rocksdb::run_bench,
    },
    Bench {
        name: "versions",
        about: "ingest, ranges, decoding and indexing of two builds of the programs",
        run: versions::run_bench,
    },
    Bench {
        name: "zip",
        about: "memory of a server that exports a storage of 5 GiB, and of one that imports it",
        run: zip::run_bench,
    },
];

/// `NAME [--runs N] [--history FILE] [--KEY VALUE]…` runs a benchmark; `--report [--history FILE]`
/// writes the page of figures; without arguments the benchmarks are listed.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    let Some((name, rest)) = arguments.split_first() else {
        for bench in BENCHES {
            println!("{:12} {}", bench.name, bench.about);
        }
        return Ok(());
    };
    if name == "--report" {
        return history::report(&Options::parse(rest)?);
    }
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        let names: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
        let known = names.join(", ");
        return Err(Failure::Usage(format!(
            "no benchmark {name:?}; there are: {known}"
        )));
    };
    println!("{}: {}", bench.name, bench.about);
    let options = Options::parse(rest)?;
    let file = history::file_of(&options)?;
    (bench.run)(&options)?;
    history::record(bench.name, &file, &paired::concluded());
    Ok(())
}
