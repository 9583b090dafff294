//! Works in a mount that will be killed, and compares what is left with the operations that had
//! returned (`tests/lib.bash`).
//!
//! `killed load MOUNT RECORDS SEED` works in the mount, with one thread for each `worker-N.log` in
//! the directory RECORDS, until the mount is dead. Each operation is written to the thread's record
//! before it is called and after it returned. A result that differs from the model's ends
//! everything. `killed verify MOUNT RECORDS` compares the tree of the next mount with the trees
//! that the records allow: all returned operations, and all or nothing of the operation in flight.
//! Both commands need the superuser, and the directories `shared` and `wN` in the mount.

mod load;
mod record;
mod verify;
mod work;

#[path = "../../tests/kernel/mod.rs"]
#[expect(dead_code, reason = "the times are for the tests")]
mod kernel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    kernel::agreement::ON_EXT4.store(false, std::sync::atomic::Ordering::Relaxed);
    let result = match words[..] {
        ["load", mount, records, seed] => match seed.parse() {
            Ok(seed) => load::load(Path::new(mount), &records_in(records), seed),
            Err(_) => Err(format!("`{seed}` is not a seed")),
        },
        ["verify", mount, records] => verify::verify(Path::new(mount), &records_in(records)),
        _ => Err("killed load MOUNT RECORDS SEED | killed verify MOUNT RECORDS".to_owned()),
    };
    match result {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("killed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The records `worker-0.log`, `worker-1.log`, ... that exist.
fn records_in(dir: &str) -> Vec<PathBuf> {
    (0..)
        .map(|worker| Path::new(dir).join(format!("worker-{worker}.log")))
        .take_while(|path| path.exists())
        .collect()
}
