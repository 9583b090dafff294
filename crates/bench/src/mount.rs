//! The measuring side of mounts: a child process serves, and this process makes system calls.
//!
//! The child serves until its standard input ends, so a mount never outlives the measurement,
//! however that ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use tempfile::TempDir;
use vellum::media::count::Counts;
use vellum_transport::Door;

use crate::Result;
use crate::error::{Error, doing};
use crate::kernel::Kernel;
use crate::serve::{ASK_COUNTS, ASK_REQUESTS, NULL_FS, READY, Requests, counts_of, requests_of};

/// The commands that use mounts.
const MEASUREMENTS: [&str; 3] = ["ops", "namespace", "mount"];
/// The device through which mounts are served.
const DEVICE: &str = "/dev/fuse";

/// A mounted file system, which is unmounted when it is dropped.
pub(crate) struct Mount {
    pub(crate) kernel: Kernel,
    // Field order: the server unmounts before the directory is removed.
    server: Arc<Server>,
    dir: TempDir,
}

/// Why nothing can be mounted here; `None` if mounting is possible.
pub(crate) fn missing() -> Option<String> {
    let device = File::options().read(true).write(true).open(DEVICE);
    device.err().map(|error| format!("{DEVICE}: {error}"))
}

impl Mount {
    /// Mounts the pool at `pool`. Requests come by `door`, or else as the kernel offers it.
    pub(crate) fn of_pool(pool: &Path, door: Option<Door>) -> Result<Self> {
        Self::start(&pool.display().to_string(), 0, door)
    }

    /// Mounts a file system that does nothing, in the same way; its listings have `files` names.
    pub(crate) fn null_fs(files: usize, door: Option<Door>) -> Result<Self> {
        Self::start(NULL_FS, files, door)
    }

    /// The counts of the kernel's requests so far.
    pub(crate) fn requests(&self) -> Result<Requests> {
        self.server.requests()
    }

    /// The mount point.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn start(what: &str, files: usize, door: Option<Door>) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("vellum-bench-mount-")
            .tempdir()
            .map_err(doing("make a mount point"))?;
        let server = Arc::new(Server::start(what, dir.path(), files, door)?);
        Ok(Self {
            kernel: Kernel::mounted(dir.path().to_owned(), Arc::clone(&server)),
            server,
            dir,
        })
    }
}

/// A child process that serves a mount until its standard input ends.
pub(crate) struct Server {
    is_null_fs: bool,
    dir: PathBuf,
    child: Mutex<Child>,
    pipes: Mutex<Option<Pipes>>,
}

struct Pipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last: Counts,
}

impl Server {
    /// Starts this program again, with its own arguments up to the name of the measurement.
    fn start(what: &str, dir: &Path, files: usize, door: Option<Door>) -> Result<Self> {
        let program = std::env::current_exe().map_err(doing("find this program"))?;
        let words = std::env::args_os().skip(1);
        let mut child = Command::new(program)
            .args(words.take_while(|word| MEASUREMENTS.iter().all(|name| word != name)))
            .args(["ops", "--files", &files.max(2).to_string()])
            .args(door.iter().flat_map(|door| ["--door", door.name()]))
            .args(["--serve", what])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(doing("start a process that serves a mount"))?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let server = Self {
            is_null_fs: what == NULL_FS,
            dir: dir.to_owned(),
            child: Mutex::new(child),
            pipes: Mutex::new(pipes.map(|(input, output)| Pipes {
                input,
                output: BufReader::new(output),
                last: Counts::default(),
            })),
        };
        match server.line()?.as_str() {
            READY => Ok(server),
            "" => Err(Error::Wrong(format!("no process serves {what}"))),
            said => Err(Error::Wrong(format!("{what} cannot be mounted: {said}"))),
        }
    }

    fn with_pipes<T>(&self, run: impl FnOnce(&mut Pipes) -> std::io::Result<T>) -> Result<T> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        pipes
            .as_mut()
            .ok_or_else(gone)
            .and_then(run)
            .map_err(doing("talk to a process that serves a mount"))
    }

    fn line(&self) -> Result<String> {
        self.with_pipes(|pipes| {
            let mut line = String::new();
            pipes.output.read_line(&mut line)?;
            Ok(line.trim().to_owned())
        })
    }

    /// Asks the server; returns its answer, as `read` reads it.
    fn asked<T>(&self, question: &str, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        self.with_pipes(|pipes| writeln!(pipes.input, "{question}"))?;
        let line = self.line()?;
        read(&line).ok_or_else(|| Error::Wrong(format!("a serving process counted `{line}`")))
    }

    /// The counts of the kernel's requests so far.
    fn requests(&self) -> Result<Requests> {
        self.asked(ASK_REQUESTS, requests_of)
    }

    /// Lets the server finish its background work, and gets its counts.
    pub(crate) fn settle(&self) -> Result<()> {
        let counts = self.asked(ASK_COUNTS, counts_of)?;
        self.with_pipes(|pipes| {
            pipes.last = counts;
            Ok(())
        })
    }

    /// The counts of the server at the last call of `settle`.
    pub(crate) fn counts(&self) -> Counts {
        self.with_pipes(|pipes| Ok(pipes.last)).unwrap_or_default()
    }

    pub(crate) fn is_null_fs(&self) -> bool {
        self.is_null_fs
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server waits for the end of its input.
        *self.pipes.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        match child.wait() {
            Ok(status) if status.success() => return,
            Ok(status) => {
                crate::report::note(format_args!("a process that served a mount: {status}"))
            }
            Err(error) => {
                crate::report::note(format_args!("a process that serves a mount: {error}"))
            }
        }
        // Nothing may be mounted any more.
        if let Ok(Some(mounted)) = vellum_fuse::mounts::at(&self.dir) {
            let _ = vellum_fuse::mounts::detach(&mounted);
        }
    }
}
