//! `vellum repair` at a terminal.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};

use crate::support::{Bench, done, vellum};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A command at a pseudo-terminal of its own, and its output so far.
pub(crate) struct AtTerminal {
    keyboard: File,
    child: Child,
    said: String,
}

impl AtTerminal {
    fn start(bench: &Bench, args: &[&str]) -> Self {
        Self::start_in(bench, args, &[])
    }

    /// The same with additional environment variables.
    pub(crate) fn start_in(bench: &Bench, args: &[&str], more: &[(&str, &str)]) -> Self {
        let keyboard = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&keyboard).expect("granted");
        unlockpt(&keyboard).expect("unlocked");
        let name = ptsname(&keyboard, Vec::new()).expect("a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY;
        let screen = rustix::fs::open(name, flags, Mode::empty()).expect("its other end");
        let again = || -> OwnedFd { screen.try_clone().expect("another") };
        let mut command = vellum();
        command.args(args).current_dir(bench.path());
        command.envs(more.iter().copied());
        command.stdin(again()).stderr(again()).stdout(again());
        let child = command.spawn().expect("vellum runs");
        Self {
            keyboard: keyboard.into(),
            child,
            said: String::new(),
        }
    }

    /// Reads more output. Returns false if the command has closed the terminal.
    fn reads(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.keyboard.read(&mut bytes) {
            Ok(count) => {
                self.said
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
                count > 0
            }
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits for the next question, and types an answer.
    #[track_caller]
    fn answer(&mut self, typed: &str) {
        self.said.clear();
        while !self.said.ends_with("[a]ll: ") {
            assert!(self.reads(), "it asked nothing: {}", self.said);
        }
        self.keyboard.write_all(typed.as_bytes()).expect("typed");
    }

    /// Its exit code, and its last output.
    pub(crate) fn end(mut self) -> (i32, String) {
        while self.reads() {}
        let status = self.child.wait().expect("it ends");
        (status.code().expect("it was not killed"), self.said)
    }
}

/// A pool with damage of two classes, and its bytes.
fn damaged() -> (Bench, Vec<u8>) {
    let bench = Bench::with_plain_pool("4M");
    bench.run_with_input(&["put", "-", "p.img:/a"], b"a").ok();
    let mut bytes = std::fs::read(bench.join("p.img")).expect("a pool");
    // The first superblock, and the state word, which is in the third block.
    bytes[100] ^= 1;
    bytes[8192] ^= 1;
    std::fs::write(bench.join("p.img"), &bytes).expect("written");
    (bench, bytes)
}

fn pool(bench: &Bench) -> Vec<u8> {
    std::fs::read(bench.join("p.img")).expect("a pool")
}

/// Whether there is no file but the pool. A repair that wrote something left an undo file.
fn is_alone(bench: &Bench) -> bool {
    std::fs::read_dir(bench.path()).expect("listed").count() == 1
}

#[test]
fn no_leaves_the_pool_as_it_was() {
    let (bench, before) = damaged();
    let mut repair = AtTerminal::start(&bench, &["repair", "p.img"]);
    repair.answer("n\n");
    repair.answer("what?\n");
    repair.answer("no\n");
    let (code, said) = repair.end();
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("nothing was changed"), "{said}");
    assert!(pool(&bench) == before && is_alone(&bench));
}

#[test]
fn yes_repairs() {
    let (bench, before) = damaged();
    let mut repair = AtTerminal::start(&bench, &["repair", "p.img"]);
    repair.answer("y\n");
    repair.answer("yes\n");
    let (code, said) = repair.end();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("2 repairs made"), "{said}");
    assert!(pool(&bench) != before);
    bench.sound();
    assert_eq!(bench.run(&["cat", "p.img:/a"]).ok().out, "a");
}

#[test]
fn only_accepted_repairs_are_made() {
    let (bench, before) = damaged();
    let mut repair = AtTerminal::start(&bench, &["repair", "p.img"]);
    repair.answer("y\n");
    repair.answer("n\n");
    let (code, said) = repair.end();
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("still damaged"), "{said}");
    assert!(pool(&bench) != before);
    assert_eq!(bench.run(&["check", "p.img"]).code, 4);
}

/// Control-D, the end of input at a terminal, counts as no.
const END: &str = "\u{4}";

#[test]
fn the_end_of_input_counts_as_no() {
    let (bench, before) = damaged();
    let mut repair = AtTerminal::start(&bench, &["repair", "p.img"]);
    repair.answer(END);
    let (code, said) = repair.end();
    assert_eq!(code, 4, "{said}");
    assert_eq!(said.matches("[a]ll").count(), 1, "it asked again: {said}");
    assert!(said.contains("nothing was changed"), "{said}");
    assert!(pool(&bench) == before && is_alone(&bench));
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let (bench, before) = damaged();
    let mut answers = tempfile::tempfile().expect("a file");
    answers.write_all(b"y\ny\n").expect("written");
    answers.rewind().expect("rewound");
    for input in [Stdio::from(answers), Stdio::null()] {
        let mut command = vellum();
        command.args(["repair", "p.img"]).current_dir(bench.path());
        let output = command.stdin(input).output().expect("vellum runs");
        done(output).failed(16, &["no terminal", "--yes", "--dry-run"]);
        assert!(pool(&bench) == before && is_alone(&bench));
    }
}
