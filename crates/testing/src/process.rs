//! Tests in processes of their own, for those with counters, limits, signal handlers or forks that
//! concern the whole process.

use std::env;
use std::process::Command;

/// The environment variable that names the test of such a process.
const OWN: &str = "VELLUM_TEST_OWN_PROCESS";

/// Runs the `body` of a test in a new process of the same program, and fails if that fails. The
/// type of `test` is the test's function.
///
/// # Panics
/// Panics if the process cannot be started, or if the test fails in it.
#[track_caller]
pub fn in_own_process<T: Fn()>(test: T, body: impl FnOnce()) {
    let name = name_of(&test);
    if env::var_os(OWN).is_some_and(|own| own == *name) {
        return body();
    }
    let output = Command::new(env::current_exe().expect("this program"))
        .args([name, "--exact", "--nocapture"])
        .env(OWN, name)
        .output()
        .expect("the program starts");
    assert!(
        output.status.success(),
        "{}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The name of a test in its program: its path without the crate.
fn name_of<T>(test: &T) -> &'static str {
    let path = std::any::type_name_of_val(test);
    path.split_once("::").map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_runs_in_another_process() {
        // The variable is set in a new process only.
        in_own_process(a_test_runs_in_another_process, || {
            assert!(env::var_os(OWN).is_some());
        });
    }

    #[test]
    fn a_failure_is_passed_on() {
        let run = || in_own_process(a_failure_is_passed_on, || panic!("it failed there"));
        match env::var_os(OWN) {
            Some(_) => run(),
            None => assert!(std::panic::catch_unwind(run).is_err()),
        }
    }
}
