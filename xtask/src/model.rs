//! `cargo xtask model`: the long form of the model tests.

use harness::{ModelPlan, Settings, model_settings, run_model};

use crate::failure::{Failure, Outcome};
use crate::options::Options;
use crate::process::{dist_server, fresh_folder};

/// The number of sequences, one per seed, and the operations in each.
const SEEDS_DEFAULT: u64 = 20;
const OPERATIONS_DEFAULT: u64 = 1000;

/// Builds the server and compares random sequences of operations with the model.
pub(crate) fn run_job(arguments: &[String]) -> Outcome {
    let options = Options::parse(arguments)?;
    let seeds: u64 = options.get("seeds", SEEDS_DEFAULT)?;
    let first: u64 = options.get("seed", 1)?;
    let operations = options.get("operations", OPERATIONS_DEFAULT)?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..model_settings()
    };
    let mut files_arranged: usize = 0;
    for seed in first..first + seeds {
        let report = run_model(&ModelPlan {
            folder: fresh_folder("model")?,
            settings: settings.clone(),
            operations,
            seed,
        });
        files_arranged += report.files_arranged;
        println!(
            "seed {seed}: done {:?}, refused {:?}, {} full data files arranged",
            report.done, report.refused, report.files_arranged
        );
    }
    if files_arranged == 0 {
        return Err(Failure::Run("no full data file was arranged".into()));
    }
    println!("{seeds} sequences of {operations} operations; all match the model");
    Ok(())
}
