//! The part of `vellum info` that says what survives a crash.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use vellum::media::MediaKind;
use vellum::{Durability, RealFs};

/// What survives each kind of crash, in words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Survives {
    pub(crate) killed_process: String,
    pub(crate) kernel_crash: String,
    pub(crate) power_cut: String,
    /// The last one in short. Mounts of other releases do not say it.
    #[serde(default)]
    pub(crate) power_cut_brief: String,
}

impl Survives {
    /// What survives a power cut, in short.
    pub(super) fn brief(&self) -> &str {
        match self.power_cut_brief.as_str() {
            "" => &self.power_cut,
            brief => brief,
        }
    }

    /// The kernel gathers writes to open files.
    pub(crate) fn leave_out_gathered(&mut self) {
        let Self {
            killed_process,
            kernel_crash,
            power_cut,
            power_cut_brief,
        } = self;
        *power_cut_brief += "; not what the kernel still gathers (-o writeback)";
        for promise in [killed_process, kernel_crash, power_cut] {
            *promise += "; not the writes to open files that the kernel still gathers (-o \
                         writeback): a sync or close of the file itself brings them to the pool";
        }
    }
}

/// Where the metadata image of a logged pool is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Image<'a> {
    /// There is none, because nobody has the pool open for writing.
    NotYet,
    /// In the memory of the process.
    OfProcess,
    /// In this directory.
    In(&'a Path),
}

impl<'a> Image<'a> {
    pub(super) fn of(fs: &RealFs, dir: Option<&'a Path>) -> Self {
        match dir {
            Some(dir) => Self::In(dir),
            None if fs.is_read_only() => Self::NotYet,
            None => Self::OfProcess,
        }
    }
}

/// What survives of a pool whose commits do not flush the caches of devices.
const WITHOUT_BARRIERS: &str = "only what the devices and the file systems below had already \
                                written from their caches, whatever fsync said (--no-barrier): \
                                files may have wrong contents, and the pool may be in an older \
                                state or be refused as damaged";

/// The calls that make everything before them durable: in a mount, in the commands, and in the
/// library.
const SYNCED: &str = "fsync, fdatasync or an O_SYNC write in a mount of it, `vellum sync`, \
                      unmounting, or Volume::sync, File::sync_all or Pool::close of the library";

/// What no crash takes.
const NOTHING_LOST: &str = "every operation that returned";

/// A time in words, without "one".
fn seconds(time: Duration) -> String {
    match time.as_secs_f64() {
        1.0 => "second".to_owned(),
        seconds => format!("{seconds} seconds"),
    }
}

/// The options of a pool that decide what it promises.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    /// It is a split pool: it has an external data device and no log.
    is_split: bool,
    durability: Durability,
    commit_every: Duration,
    has_barriers: bool,
}

impl Promise {
    pub(super) fn of(fs: &RealFs) -> Self {
        Self {
            is_split: fs.superblock().geometry().has_undo(),
            durability: fs.durability(),
            commit_every: fs.commit_every(),
            has_barriers: fs.has_barriers(),
        }
    }

    /// The promise of a commit.
    fn committed(self) -> String {
        let (after, without) = match self.durability {
            Durability::Async => (SYNCED.to_owned(), true),
            Durability::Dirsync => {
                let names = "a call that creates, links, removes or renames something";
                (format!("{names}, {SYNCED}"), true)
            }
            Durability::Sync => ("a call that changes something".to_owned(), false),
        };
        let mut words =
            format!("once {after} has returned: everything that any thread did before it; ");
        if without {
            let last = seconds(self.commit_every);
            words += &format!(
                "otherwise all but the last {last} plus the time of a commit (sync(2) and \
                 syncfs(2) do not reach a mount); "
            );
        }
        words + "the tree is always that of one instant between operations"
    }

    /// The promise of a commit in short.
    fn committed_brief(self) -> String {
        let after = match self.durability {
            Durability::Async => "an fsync, a `vellum sync` or unmounting",
            Durability::Dirsync => "a change of names, an fsync, a `vellum sync` or unmounting",
            Durability::Sync => return NOTHING_LOST.into(),
        };
        let last = seconds(self.commit_every);
        format!("all that was done before {after}; otherwise all but the last {last}")
    }

    /// What survives a power cut, in short.
    fn brief(self, media: MediaKind) -> String {
        match media {
            MediaKind::Dax if !self.is_split => NOTHING_LOST.into(),
            MediaKind::Dax | MediaKind::Logged if !self.has_barriers => {
                "perhaps nothing (--no-barrier)".into()
            }
            MediaKind::Dax | MediaKind::Logged => self.committed_brief(),
            MediaKind::File => {
                "what an fsync, a `vellum sync` or unmounting wrote, unless newer changes hurt it"
                    .into()
            }
            MediaKind::Memory => "nothing".into(),
            MediaKind::Sim => "simulated".into(),
        }
    }

    /// The promise of a commit if the machine fails.
    fn kept(self) -> String {
        match self.has_barriers {
            true => self.committed(),
            false => WITHOUT_BARRIERS.into(),
        }
    }

    /// The promise of a medium.
    pub(super) fn survives(self, media: MediaKind, image: Image<'_>) -> Survives {
        let words = |killed: &str, crash: &str, cut: &str| Survives {
            killed_process: killed.into(),
            kernel_crash: crash.into(),
            power_cut: cut.into(),
            power_cut_brief: self.brief(media),
        };
        let nothing_lost = NOTHING_LOST;
        match media {
            MediaKind::Dax if self.is_split => words(nothing_lost, &self.kept(), &self.kept()),
            MediaKind::Dax => words(nothing_lost, nothing_lost, nothing_lost),
            MediaKind::File => {
                let written_back = format!(
                    "what {SYNCED} wrote back, and perhaps newer changes in any order (sync(2) and \
                     syncfs(2) do not reach a mount); the next opening for writing checks the \
                     whole pool, and refuses it if it is damaged"
                );
                words(nothing_lost, &written_back, &written_back)
            }
            MediaKind::Logged => {
                let killed = match image {
                    Image::NotYet => format!(
                        "{nothing_lost}, if /dev/shm has space for the metadata when the pool is \
                         opened"
                    ),
                    Image::In(dir) => {
                        format!("{nothing_lost}; the metadata are in {}", dir.display())
                    }
                    Image::OfProcess => {
                        let committed = self.committed();
                        format!("{committed}; the metadata are in the memory of the process")
                    }
                };
                words(&killed, &self.kept(), &self.kept())
            }
            MediaKind::Memory => {
                let nothing = "nothing: the medium is ordinary memory";
                words(
                    "every operation that returned, while the memory is kept",
                    nothing,
                    nothing,
                )
            }
            MediaKind::Sim => words("simulated", "simulated", "simulated"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Promise = Promise {
        is_split: false,
        durability: Durability::Async,
        commit_every: Duration::from_secs(5),
        has_barriers: true,
    };

    #[test]
    fn no_promise_exceeds_that_of_the_medium() {
        let told = |media, is_split| {
            let promise = Promise {
                is_split,
                ..PROMISE
            };
            promise.survives(media, Image::NotYet)
        };
        for is_split in [false, true] {
            let memory = told(MediaKind::Memory, is_split);
            assert!(memory.power_cut.starts_with("nothing"));
        }
        assert!(told(MediaKind::File, false).power_cut.contains("fsync"));
        let split = told(MediaKind::Dax, true);
        assert!(split.power_cut.contains("fsync") && split.killed_process.starts_with("every"));
        let logged = |image| PROMISE.survives(MediaKind::Logged, image);
        assert!(logged(Image::NotYet).power_cut.contains("fsync"));
        assert!(logged(Image::OfProcess).killed_process.contains("fsync"));
        let kept = logged(Image::In(Path::new("/dev/shm"))).killed_process;
        assert!(
            kept.starts_with("every operation")
                && kept.contains("/dev/shm")
                && !kept.contains("fsync")
        );
        let whole = told(MediaKind::Dax, false);
        assert_eq!(whole.power_cut, whole.killed_process);
    }

    /// The promise names the calls of the mount and of the library, and says that `sync(2)` does
    /// not reach a mount.
    #[test]
    fn the_promise_names_the_calls_that_make_changes_durable() {
        let logged = PROMISE.survives(MediaKind::Logged, Image::NotYet);
        let file = PROMISE.survives(MediaKind::File, Image::NotYet);
        for promised in [logged.power_cut, logged.kernel_crash, file.power_cut] {
            for words in [
                "fsync, fdatasync or an O_SYNC write in a mount",
                "Volume::sync",
                "do not reach a mount",
            ] {
                assert!(promised.contains(words), "{words}: {promised}");
            }
        }
    }

    /// The promise of a commit depends on the options of the pool.
    #[test]
    fn the_promise_follows_the_options() {
        let cut = |promise: Promise| promise.survives(MediaKind::Logged, Image::NotYet).power_cut;
        let every = |seconds| Promise {
            commit_every: Duration::from_secs(seconds),
            ..PROMISE
        };
        assert!(cut(PROMISE).contains("all but the last 5 seconds"));
        assert!(cut(every(1)).contains("all but the last second plus"));
        let durable = |durability| {
            cut(Promise {
                durability,
                ..PROMISE
            })
        };
        assert!(durable(Durability::Dirsync).contains("or renames something"));
        assert!(!durable(Durability::Sync).contains("all but"));
        let split = Promise {
            is_split: true,
            has_barriers: false,
            ..PROMISE
        };
        for media in [MediaKind::Logged, MediaKind::Dax] {
            let told = split.survives(media, Image::NotYet);
            assert!(told.power_cut.contains("--no-barrier"));
            assert!(told.killed_process.starts_with("every operation"));
        }
    }
}
