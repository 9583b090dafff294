//! Runs the command and examines its results.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;
pub(crate) use vellum_testing::Did;

/// How long a test waits for an event that is fast on an idle machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A temporary directory with a pool.
pub(crate) struct Bench {
    dir: TempDir,
}

/// The command, not started yet.
pub(crate) fn vellum() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    command.env_remove("VELLUM_LOG");
    command
}

/// Converts the output of a process.
pub(crate) fn done(output: Output) -> Did {
    output.into()
}

/// Runs the command.
pub(crate) fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Did {
    vellum().args(args).output().expect("vellum runs").into()
}

impl Bench {
    /// A bench without a pool.
    pub(crate) fn empty() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
        }
    }

    /// A bench with a pool `p.img` of this size.
    pub(crate) fn with_pool(size: &str) -> Self {
        Self::with_pool_as(size, &[])
    }

    /// The same without a log, so that the latest changes are in place in the file.
    pub(crate) fn with_plain_pool(size: &str) -> Self {
        Self::with_pool_as(size, &["--medium", "disk", "--durability", "none"])
    }

    fn with_pool_as(size: &str, options: &[&str]) -> Self {
        let bench = Self::empty();
        let make = ["mkfs", "p.img", "--size", size, "--quiet"];
        bench.run(&[&make, options].concat()).ok();
        bench
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Runs the command in this directory.
    pub(crate) fn run(&self, args: &[&str]) -> Did {
        let mut command = vellum();
        command.args(args).current_dir(self.path());
        command.output().expect("vellum runs").into()
    }

    /// Runs the command in this directory with `input` on its standard input.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> Did {
        let mut child = vellum()
            .args(args)
            .current_dir(self.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("vellum runs");
        child
            .stdin
            .take()
            .expect("a pipe")
            .write_all(input)
            .expect("it reads");
        child.wait_with_output().expect("it ends").into()
    }

    /// Asserts that the pool is sound and was closed cleanly.
    #[track_caller]
    pub(crate) fn sound(&self) {
        let did = self.run(&["check", "--strict", "p.img"]).ok();
        assert!(did.out.contains("sound"), "{}", did.out);
        assert!(did.out.contains("closed cleanly"), "{}", did.out);
    }
}

/// A mounted pool, which is unmounted at the end in any case.
pub(crate) struct Mounted {
    pub(crate) bench: Bench,
    pub(crate) dir: PathBuf,
}

impl Mounted {
    pub(crate) fn new(size: &str, options: &[&str]) -> Self {
        Self::of(Bench::with_pool(size), options)
    }

    /// The pool of a bench.
    pub(crate) fn of(bench: Bench, options: &[&str]) -> Self {
        let mounted = Self::not_yet(bench);
        mounted.mount(options);
        mounted
    }

    /// The pool of a bench, not mounted yet, and the directory to mount it on.
    pub(crate) fn not_yet(bench: Bench) -> Self {
        let dir = bench.join("mnt");
        std::fs::create_dir(&dir).expect("made");
        Self { bench, dir }
    }

    pub(crate) fn mount(&self, options: &[&str]) {
        let mut args = vec!["mount"];
        args.extend(options);
        args.extend(["p.img", "mnt"]);
        self.bench.run(&args).ok();
    }

    pub(crate) fn umount(&self) {
        self.bench.run(&["umount", "mnt"]).ok();
        self.bench.sound();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = Command::new("umount").arg("-l").arg(&self.dir).output();
        } else if is_mounted(&self.dir) {
            self.bench.run(&["umount", "mnt"]).ok();
        }
    }
}

/// Kills a process, and waits until it has ended and its locks are free.
pub(crate) fn kill_and_wait(pid: Pid) {
    kill_process(pid, Signal::KILL).expect("it is there");
    let began = Instant::now();
    while test_kill_process(pid).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Kills the process of the mount, and unmounts.
pub(crate) fn kill(mounted: &Mounted) {
    let said = mounted.bench.run(&["info", "--json", "mnt"]).ok().out;
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let pid = said["mount"]["pid"].as_i64().expect("a process");
    let pid = Pid::from_raw(pid as i32).expect("a process");
    kill_and_wait(pid);
    let done = Command::new("umount").arg("-l").arg(&mounted.dir).status();
    assert!(done.expect("umount runs").success());
}

/// Whether something is mounted at an absolute path.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let is_at = |line: &str| line.split(' ').nth(1) == dir.to_str();
    mounts.lines().any(is_at)
}

/// Shell code for a mount namespace of its own: unmounts all Vellum mounts there except the one on
/// `$1`, so that pools of other tests are closed when those unmount them.
pub(crate) const ALONE: &str = r#"while read -r _ dir type _; do
        [ "$type" != fuse.vellum ] || [ "$dir" = "$1" ] || umount -l "$dir"
    done </proc/self/mounts
"#;

/// Held by tests that create mount namespaces, or that list mounts in others: a new namespace first
/// has the mounts of all tests.
pub(crate) fn namespaces() -> MutexGuard<'static, ()> {
    static NAMESPACES: Mutex<()> = Mutex::new(());
    NAMESPACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether FUSE is available. If not, reports the test as skipped.
pub(crate) fn has_fuse(test: &str) -> bool {
    let open = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    match open {
        Ok(_) => true,
        Err(error) => {
            skipped(test, &format!("/dev/fuse cannot be used ({error})"));
            false
        }
    }
}

/// Reports a skipped test directly to standard error, because the test harness swallows the output
/// of passing tests.
pub(crate) fn skipped(test: &str, why: &str) {
    let note = format!("SKIPPED {test}: {why}\n");
    let _ = std::fs::OpenOptions::new()
        .append(true)
        .open("/dev/stderr")
        .and_then(|mut terminal| terminal.write_all(note.as_bytes()));
}
