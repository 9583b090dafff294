//! Foreign SIGBUS signals reach the previous handler. Each case has its own process, because signal
//! handlers belong to the process.

use std::ffi::c_int;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::atomic::Ordering::Relaxed;
use vellum_media::{MappedPool, Memory};

const CASE: &str = "VELLUM_TEST_FAULT_CASE";

fn run(case: &str) -> ExitStatus {
    let this = std::env::current_exe().expect("this test");
    let mut child = Command::new(this);
    child
        .args(["--exact", "fault_handlers::child", "--nocapture"])
        .env(CASE, case);
    child.output().expect("run the child").status
}

#[test]
fn a_signal_that_was_sent_kills_as_it_did() {
    assert_eq!(run("sent").signal(), Some(libc::SIGBUS));
}

#[test]
fn a_fault_elsewhere_kills_as_it_did() {
    assert_eq!(run("foreign").signal(), Some(libc::SIGBUS));
}

#[test]
fn a_mapping_that_is_gone_is_elsewhere() {
    assert_eq!(run("dropped").signal(), Some(libc::SIGBUS));
}

#[test]
fn the_handler_before_ours_is_called() {
    assert_eq!(run("chained").code(), Some(33));
}

#[test]
fn a_signal_ignored_before_is_ignored() {
    assert_eq!(run("ignored").code(), Some(0));
}

/// Runs in the child; does nothing when run as a test.
#[test]
fn child() {
    match std::env::var(CASE).unwrap_or_default().as_str() {
        "sent" => {
            // The standard library's own handler would catch the first signal.
            set_action(libc::SIG_DFL);
            use_a_pool();
            raise();
        }
        "foreign" => {
            use_a_pool();
            touch_nothing();
        }
        "dropped" => {
            use_a_pool();
            let gone = MappedPool::anonymous(4096).expect("pool");
            drop(gone);
            touch_nothing();
        }
        "chained" => {
            set_action(exit_33 as extern "C" fn(c_int) as *const () as usize);
            use_a_pool();
            touch_nothing();
        }
        "ignored" => {
            set_action(libc::SIG_IGN);
            use_a_pool();
            raise();
        }
        _ => {}
    }
}

fn use_a_pool() {
    let pool = MappedPool::anonymous(4096).expect("pool");
    pool.store(0, 1, Relaxed);
    std::mem::forget(pool);
}

extern "C" fn exit_33(_signal: c_int) {
    // SAFETY: `_exit` may be called from a signal handler.
    unsafe { libc::_exit(33) }
}

fn set_action(handler: usize) {
    // SAFETY: the handler is SIG_IGN or a function of the type that no SA_SIGINFO asks for.
    unsafe { libc::signal(libc::SIGBUS, handler) };
}

fn raise() {
    // SAFETY: sends this thread a signal.
    unsafe { libc::raise(libc::SIGBUS) };
}

/// Reads a mapped page without bytes behind it.
fn touch_nothing() {
    // SAFETY: maps an empty file at an address chosen by the kernel; reading it raises the intended
    // SIGBUS.
    unsafe {
        let empty = libc::memfd_create(c"empty".as_ptr(), 0);
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            empty,
            0,
        );
        assert_ne!(page, libc::MAP_FAILED);
        std::ptr::read_volatile(page.cast::<u8>());
    }
}
