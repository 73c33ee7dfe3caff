//! A page of the list of storages with few and with many of them: it costs what it has.

use std::time::Instant;

use harness::{Api, Server, Settings};

use super::paired::{Figures, Side, Target, Verdict, alternate, conclude};
use super::table::Table;
use crate::failure::Outcome;
use crate::options::Options;
use crate::process::{dist_server, fresh_folder};

/// Storages in a page.
const PAGE: usize = 100;
/// Storages of the smaller server.
const FEW: usize = 200;
/// Pages per run.
const PAGES: u32 = 20;
const RATIO_MAX: f64 = 1.5;

/// `--storages 10000`.
pub(crate) fn run_bench(options: &Options) -> Outcome {
    let many: usize = options.get("storages", 10_000)?;
    let settings = Settings {
        program: Some(dist_server()?),
        ..Settings::default()
    };
    let few = Server::start(&fresh_folder("bench/listing-few")?, &settings);
    let full = Server::start(&fresh_folder("bench/listing-many")?, &settings);
    for (server, count) in [(&few, FEW), (&full, many)] {
        let mut api = server.api();
        for number in 0..count {
            api.create_storage(&format!("storage-{number}"));
        }
    }
    let mut verdicts = Vec::new();
    for order in ["oldest", "newest"] {
        let sides = &mut [side("many", &full, order), side("few", &few, order)];
        let figures = alternate(options.runs()?, sides)?;
        println!("{order} first, {many} storages against {FEW}");
        println!("{}", Table::of_figures("ms for a page", &figures));
        verdicts.push(verdict(order, &figures));
    }
    conclude(&verdicts);
    Ok(())
}

/// Pages of this server.
fn side<'a>(name: &'a str, server: &Server, order: &'static str) -> Side<'a> {
    let mut api = server.api();
    Side {
        name,
        run: Box::new(move || Ok(milliseconds(&mut api, order))),
    }
}

fn verdict(order: &str, figures: &[Figures]) -> Verdict {
    let what = format!("a page of {PAGE}, {order} first: time with many storages / with few");
    Verdict::new(
        what,
        Target::AtMost(RATIO_MAX),
        figures[0].ratio(&figures[1]),
    )
}

/// Milliseconds that the first page takes.
fn milliseconds(api: &mut Api, order: &str) -> f64 {
    let path = format!("/storages?limit={PAGE}&order={order}");
    let begin = Instant::now();
    for _ in 0..PAGES {
        let page = api.call("GET", &path, None);
        assert_eq!(page.status, 200, "{}", page.brief());
    }
    begin.elapsed().as_secs_f64() * 1e3 / f64::from(PAGES)
}
