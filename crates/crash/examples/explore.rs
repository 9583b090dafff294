//! Explores the workloads whose names contain one of the words given, or repeats a crash:
//! `explore [--states N] [--lazy-states N] [--seed N] [--mode x86|lazy|eadr] [--pairs] [--sample N]
//! [WORD...]`, `explore --replay ID`. With `--pairs` it takes the generated pairs, else the catalog. Fails if any state is wrong.

use std::process::ExitCode;

use vellum_crash::{Mode, Options, pairs, replay, run_workloads, sampled, workloads};

fn main() -> ExitCode {
    let mut options = Options::default();
    let (mut all, mut sample) = (workloads(), usize::MAX);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default();
        match word.as_str() {
            "--states" => options.states_per_point = value().parse().expect("a number"),
            "--lazy-states" => options.lazy_states = value().parse().expect("a number"),
            "--pairs" => all = pairs(),
            "--sample" => sample = value().parse().expect("a number"),
            "--seed" => options.seed = value().parse().expect("a number"),
            "--threads" => options.threads = value().parse().expect("a number"),
            "--mode" => {
                let name = value();
                options.modes.retain(|mode: &Mode| mode.name() == name);
            }
            "--replay" => {
                match replay(&value()) {
                    Ok(replay) => println!("{replay}"),
                    Err(error) => println!("{error}"),
                }
                return ExitCode::SUCCESS;
            }
            _ => options.only.push(word),
        }
    }
    let report = run_workloads(&sampled(&all, options.seed, sample), &options);
    print!("{report}");
    if report.violations().count() == 0 && report.totals().checked > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
