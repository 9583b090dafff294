//! Commands that other programs execute, as in git: they are found beside `vellum`, or on PATH.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use vellum_terminal::Failure;

use crate::args::Further;

/// Executes `program` in place of this process. Returns only on failure.
pub(crate) fn run(program: &str, args: &Further) -> Failure {
    let beside = beside(program);
    let mut command = Command::new(beside.as_deref().unwrap_or(program.as_ref()));
    let error = command.args(&args.arguments).exec();
    if error.kind() != io::ErrorKind::NotFound {
        return Failure::io(program, &error);
    }
    let failure = Failure::new(format!("{program} is not installed"));
    failure.advise(format!(
        "it belongs beside vellum, or on PATH; in Vellum's sources `cargo build --release --bin \
         {program}` builds it"
    ))
}

/// The program in the directory of this one, if it is there.
fn beside(program: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(program);
    path.is_file().then_some(path)
}
