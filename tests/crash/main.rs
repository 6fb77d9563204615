//! Ends brokers at random moments under load, and counts what was lost.
//!
//! `cargo test -p gazette-tests --test crash -- [--rounds N] [--seed N] [--power] [--fault NAME]`
//!
//! Each round starts a broker on the data of the round before, lets 16 writers append to many
//! journals, ends it by kill -9 (or, with `--power`, cuts the power of its file system), starts it
//! again, and judges every journal against what was acknowledged in all rounds so far.
//!
//! Without arguments it runs the rounds of CI, of both kinds, and then plants each fault and
//! expects that it is found.

#![expect(
    clippy::print_stdout,
    reason = "a test without a harness prints its results itself"
)]

mod broker;
mod load;
mod round;

use std::process::ExitCode;

use clap::Parser;
use rand::RngExt as _;

use self::round::{Campaign, Ending, Outcome};

/// Rounds of kill -9 in CI.
const ROUNDS_KILL: u32 = 50;
/// Rounds of power cuts in CI: each takes longer, the file system of them being in memory.
const ROUNDS_POWER: u32 = 15;
/// Rounds after which a planted fault counts as not found.
const ROUNDS_FAULT: u32 = 100;

#[derive(Debug, Parser)]
#[command(about = "Ends brokers at random moments under load, and counts what was lost")]
struct Arguments {
    /// Rounds of each kind
    #[arg(long)]
    rounds: Option<u32>,
    /// Seed of the random moments and sizes
    #[arg(long)]
    seed: Option<u64>,
    /// Only power cuts
    #[arg(long)]
    power: bool,
    /// Only kill -9
    #[arg(long)]
    kill: bool,
    /// Plants a fault, and succeeds if it is found
    #[arg(long)]
    fault: Option<String>,
    /// As other test targets take it; a filter that does not match skips all
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments
        .rest
        .iter()
        .any(|filter| !filter.starts_with('-') && !"crash".contains(filter.as_str()))
    {
        return ExitCode::SUCCESS;
    }
    let seed = arguments.seed.unwrap_or_else(|| rand::rng().random());
    let mut passed = 0;
    let mut failed = 0;
    let mut count = |ok: bool| if ok { passed += 1 } else { failed += 1 };

    let endings: &[Ending] = match (arguments.kill, arguments.power) {
        (true, false) => &[Ending::Kill],
        (false, true) => &[Ending::PowerCut],
        (true, true) | (false, false) => &[Ending::Kill, Ending::PowerCut],
    };
    let runtime = tokio::runtime::Runtime::new().expect("start a runtime");
    if arguments.fault.is_none() {
        for &ending in endings {
            let rounds = arguments.rounds.unwrap_or(match ending {
                Ending::Kill => ROUNDS_KILL,
                Ending::PowerCut => ROUNDS_POWER,
            });
            let campaign = Campaign {
                ending,
                rounds,
                seed,
                fault: None,
            };
            count(report(&campaign, &runtime.block_on(campaign.run())));
        }
    }
    for (fault, ending) in round::FAULTS {
        let is_wanted = match &arguments.fault {
            Some(wanted) => wanted == fault,
            None => arguments.rounds.is_none() && endings.contains(ending),
        };
        if is_wanted {
            let campaign = Campaign {
                ending: *ending,
                rounds: ROUNDS_FAULT,
                seed,
                fault: Some(fault),
            };
            count(report(&campaign, &runtime.block_on(campaign.run())));
        }
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "test result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out"
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints how a campaign went, and returns whether that is what it should show.
fn report(campaign: &Campaign, outcome: &anyhow::Result<Outcome>) -> bool {
    let name = format!("{} seed {}", campaign.name(), campaign.seed);
    match (outcome, campaign.fault) {
        (Ok(Outcome::Skipped(why)), _) => {
            println!("{name}: SKIPPED, NOTHING IS SHOWN: {why}");
            true
        }
        (Ok(outcome), None) => {
            println!("{name}: {outcome}");
            !outcome.is_damaged()
        }
        (Ok(outcome), Some(_)) if outcome.is_damaged() => {
            println!("{name}: found as it should be: {outcome}");
            true
        }
        (Ok(outcome), Some(_)) => {
            println!("{name}: THE PLANTED FAULT WAS NOT FOUND: {outcome}");
            false
        }
        // A broker that refuses to start on damaged data has found the fault too.
        (Err(error), Some(_)) if error.is::<broker::Refused>() => {
            println!("{name}: found as it should be: {error:#}");
            true
        }
        (Err(error), _) => {
            println!("{name}: {error:#}");
            false
        }
    }
}
