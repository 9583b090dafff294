//! Copies of mounted pools. The mount's process writes into a file that the command has open, and
//! the command asks how far it is.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use vellum::{Copied, CopyScope, RealFs};
use vellum_fuse::mounts::Mounted;
use vellum_fuse::{ControlRequest, CopyRequest};
use vellum_terminal::{Failure, Outcome, plain};

use crate::info;

/// A copy ends if nobody asks about it for so long, or if whoever wants it has ended.
const ASKED_EVERY: Duration = Duration::from_secs(10);
/// How often a command asks.
const ASK_AFTER: Duration = Duration::from_millis(50);

/// A copy that was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) pool_bytes: u64,
    pub(crate) copied_bytes: u64,
    /// How long changes waited.
    pub(crate) paused_us: u64,
    pub(crate) unreadable: Vec<u64>,
}

impl From<Copied> for Made {
    fn from(copied: Copied) -> Self {
        Self {
            pool_bytes: copied.pool_bytes,
            copied_bytes: copied.bytes,
            paused_us: copied.paused.as_micros() as u64,
            unreadable: copied.unreadable,
        }
    }
}

/// How far a copy is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CopyState {
    done_bytes: u64,
    all_bytes: u64,
    made: Option<Made>,
}

/// The copies that a mount's process makes.
#[derive(Default)]
pub(crate) struct Copies(Mutex<Vec<Running>>);

struct Running {
    id: u64,
    far: Arc<Far>,
    thread: JoinHandle<vellum::Result<Copied>>,
}

/// How far a copy is, and when somebody asked that last.
struct Far {
    began: Instant,
    asked_ms: AtomicU64,
    done_bytes: AtomicU64,
    all_bytes: AtomicU64,
    /// The process that wants it.
    wanted_by: Option<OwnedFd>,
}

impl Far {
    fn new(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Self {
            wanted_by: pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()),
            began: Instant::now(),
            asked_ms: AtomicU64::new(0),
            done_bytes: AtomicU64::new(0),
            all_bytes: AtomicU64::new(0),
        }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn is_wanted(&self) -> bool {
        let silent = self
            .now_ms()
            .saturating_sub(self.asked_ms.load(Ordering::Relaxed));
        silent < ASKED_EVERY.as_millis() as u64 && !self.has_ended()
    }

    /// Whether the process that wants it has ended.
    fn has_ended(&self) -> bool {
        self.wanted_by.as_ref().is_some_and(|process| {
            let mut polled = [PollFd::new(process, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
        })
    }

    /// Returns whether the copy is to go on.
    fn tell(&self, done: u64, all: u64) -> bool {
        self.done_bytes.store(done, Ordering::Relaxed);
        self.all_bytes.store(all, Ordering::Relaxed);
        self.is_wanted()
    }

    fn state(&self) -> CopyState {
        self.asked_ms.store(self.now_ms(), Ordering::Relaxed);
        CopyState {
            done_bytes: self.done_bytes.load(Ordering::Relaxed),
            all_bytes: self.all_bytes.load(Ordering::Relaxed),
            made: None,
        }
    }
}

impl Copies {
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Running>) -> T) -> T {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut running)
    }

    /// Begins a copy. Returns its number.
    pub(crate) fn begin(&self, fs: &Arc<RealFs>, request: CopyRequest) -> Result<u64, String> {
        let target = target_of(request)?;
        let far = Arc::new(Far::new(request.pid));
        let (fs, told, scope) = (Arc::clone(fs), Arc::clone(&far), request.scope);
        let copy = move || fs.copy_into(scope, &target, &|done, all| told.tell(done, all));
        let thread = std::thread::Builder::new().name("vellum-copy".into());
        let thread = thread.spawn(copy).map_err(|error| plain(&error))?;
        Ok(self.change(|running| {
            running.retain(|copy| !copy.thread.is_finished() || copy.far.is_wanted());
            let id = running.last().map_or(1, |last| last.id + 1);
            running.push(Running { id, far, thread });
            id
        }))
    }

    /// How far a copy is, or its error.
    pub(crate) fn state(&self, id: u64) -> Result<CopyState, String> {
        let (state, thread) = self.change(|running| {
            let at = running.iter().position(|copy| copy.id == id);
            let at = at.ok_or("the copy was cut short, because nobody asked about it")?;
            let state = running[at].far.state();
            let is_over = running[at].thread.is_finished();
            let thread = is_over.then(|| running.remove(at).thread);
            Ok::<_, String>((state, thread))
        })?;
        let made = thread.map(|thread| match thread.join() {
            Ok(copied) => copied.map(Made::from).map_err(|error| error.to_string()),
            Err(_) => Err("the copy failed by a panic".into()),
        });
        Ok(CopyState {
            made: made.transpose()?,
            ..state
        })
    }
}

/// Opens the file of a caller.
fn target_of(request: CopyRequest) -> Result<File, String> {
    let CopyRequest { fd, pid, .. } = request;
    let link = format!("/proc/{pid}/fd/{fd}");
    let opened = OpenOptions::new().write(true).open(link);
    let file = opened.map_err(|error| {
        format!(
            "the mount's process cannot open the file of the copy: {}; run this as its user, and \
             not in another PID namespace",
            plain(&error)
        )
    })?;
    let found = file.metadata().map_err(|error| plain(&error))?;
    match found.is_file() && found.len() == 0 {
        true => Ok(file),
        false => Err("the file of the copy is not an empty one".into()),
    }
}

/// Has a mounted pool copied into this empty file.
pub(crate) fn copy(
    mounted: &Mounted,
    scope: CopyScope,
    file: &File,
    bar: &ProgressBar,
) -> Outcome<Made> {
    let fd = u32::try_from(file.as_raw_fd()).map_err(|error| Failure::new(error.to_string()))?;
    let request = CopyRequest { scope, fd, pid: 0 };
    let id = info::request(mounted, ControlRequest::Copy(request))?;
    loop {
        let state: CopyState = info::request(mounted, ControlRequest::CopyState { id })?;
        show(bar, state.done_bytes, state.all_bytes);
        if let Some(made) = state.made {
            bar.finish_and_clear();
            return Ok(made);
        }
        std::thread::sleep(ASK_AFTER);
    }
}

/// Shows how far a copy is.
pub(crate) fn show(bar: &ProgressBar, done: u64, all: u64) {
    bar.set_length(all);
    bar.set_position(done);
}
