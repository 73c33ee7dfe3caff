//! `cargo xtask model`: the long form of the model tests.

use harness::{ModelPlan, Settings, run_model};

use crate::failure::Outcome;
use crate::options::Options;
use crate::process::{dist_server, fresh_folder};

/// The number of sequences, one per seed, and the operations in each.
const SEEDS_DEFAULT: u64 = 20;
const OPERATIONS_DEFAULT: u64 = 1000;

/// Data files are full after some packets, and arranged.
const SMALL_FILES: &str = "[storage]\nlive_index_packets_max = 8\ndata_file_bytes_max = 65536\n\
                           preallocation_bytes_max = 1048576\n";

/// Builds the server and compares random sequences of operations with the model.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments)?;
    let seeds: u64 = options.get("seeds", SEEDS_DEFAULT)?;
    let first: u64 = options.get("seed", 1)?;
    let operations = options.get("operations", OPERATIONS_DEFAULT)?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..Settings::with_config(SMALL_FILES)
    };
    for seed in first..first + seeds {
        let report = run_model(&ModelPlan {
            folder: fresh_folder("model")?,
            settings: settings.clone(),
            operations,
            seed,
        });
        println!(
            "seed {seed}: done {:?}, refused {:?}, {} full data files arranged",
            report.done, report.refused, report.files_arranged
        );
    }
    println!("{seeds} sequences of {operations} operations; all match the model");
    Ok(())
}
