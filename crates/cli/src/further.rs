//! Commands that are programs of their own, as git has them: found beside `vellum`, or on PATH.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use vellum_terminal::Failure;

use crate::args::Further;

/// Becomes `program`. What it returns is why it could not.
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
         {program}` makes it"
    ))
}

/// The program in the folder that this one was started from.
fn beside(program: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(program);
    path.is_file().then_some(path)
}
