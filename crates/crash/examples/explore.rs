//! Explores the workloads whose names contain one of the words given, or repeats a crash:
//! `explore [--states N] [--lazy-states N] [--seed N] [--mode x86|lazy|eadr] [--pairs | --triples | --random N]
//! [--sample N] [--part I/N] [WORD...]`, `explore --replay ID`. It takes the catalog, unless a family
//! is named; with `--part` one workload of so many. Fails if any state is wrong.

use std::process::ExitCode;

use vellum_crash::{
    Mode, Options, pairs, random, replay, run_workloads, sampled, triples, workloads,
};

fn main() -> ExitCode {
    let mut options = Options::default();
    let (mut all, mut sample, mut part) = (workloads(), usize::MAX, (0, 1));
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default();
        match word.as_str() {
            "--states" => options.states_per_point = value().parse().expect("a number"),
            "--lazy-states" => options.lazy_states = value().parse().expect("a number"),
            "--pairs" => all = pairs(),
            "--triples" => all = triples(),
            "--random" => all = random(value().parse().expect("a number")),
            "--part" => part = parse_part(&value()).expect("I/N"),
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
    let all = sampled(&all, options.seed, sample).into_iter();
    let all: Vec<_> = all.skip(part.0).step_by(part.1).collect();
    let report = run_workloads(&all, &options);
    print!("{report}");
    if report.violations().count() == 0 && report.totals().checked > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn parse_part(text: &str) -> Option<(usize, usize)> {
    let (index, parts) = text.split_once('/')?;
    Some((index.parse().ok()?, parts.parse().ok()?))
}
