//! Programs in C and C++, compiled and run: plainly, under the sanitizers of addresses and
//! undefined behaviour, and with valgrind.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use vellum_testing::Did;

/// How a program is compiled, and what runs it.
struct Way {
    name: &'static str,
    options: &'static [&'static str],
    runner: &'static [&'static str],
}

const PLAIN: Way = Way {
    name: "plain",
    options: &["-O2"],
    runner: &[],
};

const SANITIZED: Way = Way {
    name: "sanitized",
    options: &[
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ],
    runner: &[],
};

const VALGRIND: Way = Way {
    name: "valgrind",
    options: &["-g"],
    runner: &["valgrind", "--quiet", "--error-exitcode=99"],
};

/// A program, compiled in a folder of its own.
struct Program {
    dir: TempDir,
    way: &'static Way,
}

impl Program {
    /// Compiles a source, whose path begins at this package.
    fn new(source: &str, way: &'static Way) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let is_cpp = source.ends_with(".cpp");
        let (compiler, standard) = match is_cpp {
            true => ("c++", "-std=c++11"),
            false => ("cc", "-std=gnu11"),
        };
        let library = library();
        let folder = library.parent().unwrap().display();
        let compiled = Command::new(compiler)
            .args([
                standard,
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                "-pthread",
            ])
            .args(way.options)
            .arg("-I")
            .arg(package.join("include"))
            .arg(package.join(source))
            .arg("-o")
            .arg(dir.path().join("program"))
            .arg(format!("-Wl,-rpath,{folder}"))
            .arg(library)
            .output()
            .expect("the compiler runs");
        Did::from(compiled).ok();
        Self { dir, way }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Did {
        let program = self.path("program");
        let mut command = match self.way.runner {
            [] => Command::new(program),
            [runner, options @ ..] => {
                let mut command = Command::new(runner);
                command.args(options).arg(program);
                command
            }
        };
        let output = command.args(arguments).output();
        Did::from(output.expect("the program starts"))
    }
}

/// The shared library, which lies beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.with_file_name("libvellum_c.so")
}

fn notes(source: &str, way: &'static Way) {
    let program = Program::new(source, way);
    let pool = program.path("notes.vellum");
    let pool = pool.to_str().unwrap();
    let first = program.run(&[pool, "shopping", "bread"]).ok();
    assert_eq!(first.out, "shopping: 6 bytes\n", "{}", way.name);
    if way.name == VALGRIND.name {
        return; // The rest does the same again, and takes seconds with it.
    }
    let missing = format!("{pool}/nowhere");
    let failed = program.run(&[missing.as_str(), "x", "y"]);
    failed.failed(1, &["notes: vellum_pool_", &missing, "Not a directory"]);
    let above = program.run(&[pool, "no/such/note", "y"]);
    above.failed(1, &["vellum_open(no/such/note): no such file or directory"]);
    // The failure may have left a pool that was not closed, which this opening recovers.
    let second = program.run(&[pool, "shopping", "cheese"]).ok();
    assert_eq!(second.out, "shopping: 13 bytes\n");
}

#[test]
fn notes_in_c() {
    notes("examples/notes.c", &PLAIN);
}

#[test]
fn notes_in_cpp() {
    notes("examples/notes.cpp", &PLAIN);
}

#[test]
fn notes_sanitized() {
    notes("examples/notes.c", &SANITIZED);
    notes("examples/notes.cpp", &SANITIZED);
}

#[test]
fn notes_with_valgrind() {
    notes("examples/notes.c", &VALGRIND);
}

fn words(way: &'static Way) {
    let program = Program::new("examples/words.c", way);
    let text = program.path("text");
    let lines: String = (0..20_000)
        .map(|i| format!("line {i} of\tmany\n"))
        .collect();
    std::fs::write(&text, lines).unwrap();
    assert_eq!(
        program.run(&[text]).ok().out,
        "80000 words\n",
        "{}",
        way.name
    );
}

#[test]
fn words_are_counted_by_threads_in_views() {
    words(&PLAIN);
    words(&SANITIZED);
}

#[test]
fn words_with_valgrind() {
    words(&VALGRIND);
}

/// Runs a program that checks by itself, and says "ok" at its end. It gets the path of a file or
/// folder of its own.
fn checks(source: &str, way: &'static Way) {
    let program = Program::new(source, way);
    let own = program.path("own");
    if source.ends_with("pools.c") {
        std::fs::create_dir(&own).unwrap();
    }
    let did = program.run(&[own]);
    let said = (did.code, &*did.out);
    assert_eq!(said, (0, "ok\n"), "{source}, {}: {}", way.name, did.err);
}

#[test]
fn every_function_and_its_errors() {
    checks("tests/c/calls.c", &PLAIN);
    checks("tests/c/pools.c", &PLAIN);
}

#[test]
fn every_function_sanitized() {
    checks("tests/c/calls.c", &SANITIZED);
    checks("tests/c/pools.c", &SANITIZED);
}

#[test]
fn every_function_with_valgrind() {
    checks("tests/c/calls.c", &VALGRIND);
}

#[test]
fn threads_close_what_others_use() {
    checks("tests/c/threads.c", &PLAIN);
    checks("tests/c/threads.c", &SANITIZED);
    let without_membarrier = Program::new("tests/c/threads.c", &PLAIN).run(&["", "without"]);
    assert_eq!(without_membarrier.ok().out, "ok\n");
}

#[test]
fn a_forked_child_is_refused() {
    checks("tests/c/forked.c", &PLAIN);
    checks("tests/c/forked.c", &SANITIZED);
}

#[test]
fn the_program_of_the_guide() {
    let guide = include_str!("../../../../docs/guide/from-c.md");
    let (_, program) = guide.split_once("```c\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("guide.c");
    std::fs::write(&source, program).unwrap();
    let program = Program::new(source.to_str().unwrap(), &PLAIN);
    let output = Command::new(program.path("program"))
        .current_dir(&dir)
        .output();
    assert_eq!(Did::from(output.unwrap()).ok().out, "7 bytes\n");
}
