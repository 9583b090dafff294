//! Ends the process when a case does not end by itself, and reports the case.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The time limit of a case, for a busy machine. Cases take milliseconds.
const LIMIT: Duration = Duration::from_secs(120);

static RUNNING: Mutex<Option<HashMap<ThreadId, Case>>> = Mutex::new(None);
static STARTED: Once = Once::new();

struct Case {
    began: Instant,
    input: Vec<u8>,
}

/// Watches this thread's case until dropped.
#[derive(Debug)]
#[must_use = "the case is watched until this is dropped"]
pub struct Watchdog(());

impl Watchdog {
    /// Begins to watch a case.
    pub fn watch(input: &[u8]) -> Self {
        STARTED.call_once(|| {
            thread::spawn(patrol);
        });
        let case = Case {
            began: Instant::now(),
            input: input.to_vec(),
        };
        running()
            .get_or_insert_default()
            .insert(thread::current().id(), case);
        Self(())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(cases) = running().as_mut() {
            cases.remove(&thread::current().id());
        }
    }
}

fn running() -> MutexGuard<'static, Option<HashMap<ThreadId, Case>>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn patrol() {
    loop {
        thread::sleep(Duration::from_secs(1));
        for case in running().iter().flat_map(HashMap::values) {
            if case.began.elapsed() > LIMIT {
                give_up(&case.input);
            }
        }
    }
}

/// A thread cannot be stopped, so this ends the process. The input goes directly to standard error,
/// because the test harness would keep it back.
fn give_up(input: &[u8]) -> ! {
    let mut hex = String::new();
    for byte in input {
        let _ = write!(hex, "{byte:02x}");
    }
    let text = format!("a case has not ended after {LIMIT:?}; its input: {hex}\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
    std::process::abort()
}
