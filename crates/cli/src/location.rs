//! Paths of the form `POOL:/path`, opening a pool, and messages about pools that cannot be opened.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use vellum::media::{ANOTHERS, MappedPool, MediaChoice, MediaError, OpenMode, has_ended};
use vellum::{
    DatasetError, MediumError, Pool, PoolOptions, PoolPath, SuperblockError, open_bytes,
    pool_of_data, uuid_text,
};
use vellum_fuse::mounts::{self, Mounted};
use vellum_terminal::{Failure, Outcome, plain, quoted, status};

use crate::args::{Medium, Opening};
use crate::killed;
use crate::served;
use crate::transfer::tree::Trouble;
use crate::units::size;

/// A path in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathInPool {
    pub(crate) pool: PathBuf,
    /// Absolute.
    pub(crate) path: PathBuf,
}

impl From<OsString> for PathInPool {
    /// The path begins after the first `:/`. A `:` at the end means the root. Without either, the
    /// path is empty, and opening reports that.
    fn from(text: OsString) -> Self {
        let bytes = text.into_vec();
        let split = bytes.windows(2).position(|pair| pair == b":/");
        let split = split.or_else(|| bytes.ends_with(b":").then(|| bytes.len() - 1));
        let (pool, path) = match split {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (&bytes[..], &b""[..]),
        };
        let path = if path.is_empty() && split.is_some() {
            &b"/"[..]
        } else {
            path
        };
        let owned = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        Self {
            pool: owned(pool),
            path: owned(path),
        }
    }
}

impl fmt::Display for PathInPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pool.display(), self.path.display())
    }
}

impl PathInPool {
    /// The path as bytes, for the engine.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }

    /// The path as the user writes it.
    pub(crate) fn shown(&self) -> PathBuf {
        let mut shown = self.pool.clone().into_os_string();
        shown.push(":");
        shown.push(&self.path);
        shown.into()
    }

    /// Another path in the same pool.
    pub(crate) fn with_path(&self, path: impl Into<PathBuf>) -> Self {
        Self {
            pool: self.pool.clone(),
            path: path.into(),
        }
    }

    /// A failure at this path.
    pub(crate) fn troubled(&self, trouble: &Trouble) -> Failure {
        trouble.at(self)
    }

    /// Fails if there is no path.
    pub(crate) fn refuse_bare(&self) -> Outcome {
        if !self.path.as_os_str().is_empty() {
            return Ok(());
        }
        let pool = self.pool.display();
        Err(Failure::usage(format!("`{pool}` names no path in a pool"))
            .advise(format!("write POOL:/path, for example {pool}:/")))
    }
}

impl Opening {
    /// The options for the engine.
    pub(crate) fn options(&self, read_only: bool) -> PoolOptions {
        PoolOptions::new()
            .read_only(read_only)
            .media(self.medium.into())
            .data(self.data.clone())
    }
}

impl From<Medium> for MediaChoice {
    /// For existing pools only: their superblock says whether they have a log.
    fn from(medium: Medium) -> Self {
        match medium {
            Medium::Auto => Self::Auto,
            Medium::Pmem => Self::Dax,
            Medium::Disk => Self::File,
            Medium::Memory => Self::Memory,
        }
    }
}

/// Opens a pool for a command.
pub(crate) fn open(pool: &Path, opening: &Opening, read_only: bool) -> Outcome<Pool> {
    open_with(pool, &opening.options(read_only))
}

/// Opens a pool for a command that changes nothing: for reading only, if its device can be mapped
/// in that way.
pub(crate) fn open_to_look(pool: &Path, opening: &Opening) -> Outcome<Pool> {
    let open = |read_only| opening.options(read_only).open(pool);
    let opened = match open(true) {
        // A device-DAX node cannot be mapped read-only.
        Err(vellum::Error::Media(MediaError::ReadOnlyDevice { .. })) => open(false),
        opened => opened,
    };
    opened.map_err(|error| refused(pool, &error))
}

/// Opens a pool.
pub(crate) fn open_with(pool: &Path, options: &PoolOptions) -> Outcome<Pool> {
    served::once_closed(pool, || {
        options.open(pool).map_err(|error| refused(pool, &error))
    })
}

/// Opens the pool's bytes for writing, without recovery. The image that a killed process left in
/// memory is moved into the log first.
pub(crate) fn open_as_it_is(pool: &Path, opening: &Opening) -> Outcome<MappedPool> {
    killed::settle(pool, opening, false)?;
    let mode = OpenMode {
        read_only: false,
        media: opening.medium.into(),
        populate: false,
    };
    open_bytes(pool, mode, &opening.data).map_err(|error| refused(pool, &error))
}

/// Closes a pool. Changes are safe only when this returns.
pub(crate) fn close(pool: Pool, path: &Path) -> Outcome {
    pool.close().map_err(|error| {
        let advice = match error {
            vellum::Error::ReadOnlyAfterDamage => {
                "everything written before is kept; `vellum check` shows the damage"
            }
            _ => "nothing is lost: the next opening recovers the pool",
        };
        Failure::at(format_args!("{}: closing", path.display()), &error).advise(advice)
    })
}

/// Advice for machines without persistent memory.
pub(crate) const TRY_IN_MEMORY: &str =
    "to try it without persistent memory: --medium memory (a power cut may lose everything)";

/// The failure for a pool that could not be opened: the reason, and what to do.
pub(crate) fn refused(pool: &Path, error: &vellum::Error) -> Failure {
    let (place, word) = (pool.display(), quoted(pool));
    match error {
        vellum::Error::Media(MediaError::Busy { path, owner_pid }) => {
            let is_pool = *path == PoolPath::of(pool).pool;
            busy(if is_pool { pool } else { path }, *owner_pid)
        }
        vellum::Error::Superblock(SuperblockError::NotVellum) if pool_of_data(pool).is_some() => {
            data_device(pool)
        }
        vellum::Error::Superblock(why) => {
            Failure::new(format!("{place}: {why}")).advise(advice_for(pool, why))
        }
        vellum::Error::Media(MediaError::Empty { path }) => empty(path),
        vellum::Error::Media(MediaError::Image { path, why }) => {
            let failure = Failure::new(error.to_string());
            failure.advise(match *why {
                ANOTHERS => format!("it belongs to {}", owner_of(path)),
                _ => format!(
                    "`vellum repair --discard-image {word}` or `vellum mount --discard-image \
                     {word} DIR` discards it, with all unsynced changes"
                ),
            })
        }
        vellum::Error::Media(
            MediaError::NoSpace { path, .. }
            | MediaError::TooLarge {
                path,
                available_bytes: 0,
                ..
            },
        ) => match free_bytes(path) {
            Some(free) => Failure::new(error.to_string())
                .advise(format!("its file system has {} free", size(free))),
            None => Failure::new(error.to_string()),
        },
        vellum::Error::Medium(MediumError::OtherSession { path }) => {
            Failure::new(format!("{place}: {error}")).advise(format!(
                "`vellum repair --force-data-device --data {} {word}` accepts both as they are",
                quoted(path)
            ))
        }
        vellum::Error::Media(MediaError::Io {
            source,
            action,
            path,
        }) => {
            let what = path.display();
            let failure = Failure::new(format!("cannot {action} {what}: {}", plain(source)));
            match source.kind() {
                io::ErrorKind::NotFound if missing_dir(path).is_some() => {
                    no_directory(path).unwrap_or(failure)
                }
                io::ErrorKind::NotFound if path == pool => {
                    failure.advise(format!("`vellum mkfs {word} --size 4G` creates a pool"))
                }
                // Files and block devices can be mapped in any way, so this is a device-DAX node.
                io::ErrorKind::InvalidInput if *action == "map" && is_node(path) => failure.advise(
                    "a pool with an external data device needs a mapping that a device-DAX node \
                     does not allow (beside other bytes, or read-only): create the pool in a file \
                     of a file system on that memory (mounted with -o dax)",
                ),
                _ => failure,
            }
        }
        vellum::Error::Medium(MediumError::Short { path, expected, .. }) if path.is_file() => {
            Failure::new(format!("{place}: {error}")).advise(format!(
                "restore it from a copy; or `truncate -s {expected} {}` extends it to its old \
                 length with zeros for the lost bytes",
                quoted(path)
            ))
        }
        vellum::Error::Unsupported(_) if is_split(pool) => {
            Failure::new(format!("{place}: {error}")).advise(TRY_IN_MEMORY)
        }
        vellum::Error::Dataset(DatasetError::Name(_)) => Failure::usage(error.to_string()),
        // These name the pool themselves.
        vellum::Error::Media(_)
        | vellum::Error::Refused { .. }
        | vellum::Error::Dataset(_)
        | vellum::Error::Medium(MediumError::Unordered { .. }) => Failure::new(error.to_string()),
        error => Failure::new(format!("{place}: {error}")),
    }
}

/// Returns why a file or device of `len` bytes without a superblock is not a pool, if its length or
/// its first bytes show it.
pub(crate) fn holds_none(pool: &Path, len: u64) -> Option<Failure> {
    match len {
        0 => Some(empty(pool)),
        _ if pool_of_data(pool).is_some() => Some(data_device(pool)),
        // Too short for the two copies of the superblock at the beginning.
        1..8192 => Some(refused(pool, &SuperblockError::NotVellum.into())),
        _ => None,
    }
}

/// The failure for a file or device without bytes.
fn empty(path: &Path) -> Failure {
    let place = path.display();
    let kind = path.metadata().map(|found| found.file_type());
    match kind {
        Ok(kind) if kind.is_block_device() => {}
        Ok(kind) if kind.is_char_device() => {
            let found = "character device";
            let path = path.to_owned();
            return Failure::new(MediaError::NotAPool { path, found }.to_string());
        }
        _ => {
            return Failure::new(format!("{place} is empty: create a pool there first")).advise(
                format!("`vellum mkfs {} --size 4G` creates a pool", quoted(path)),
            );
        }
    }
    let name = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = name.file_name().unwrap_or_default();
    let sys = Path::new("/sys/class/block").join(name);
    let is_loop = name.as_bytes().starts_with(b"loop");
    if is_loop && !sys.join("loop/backing_file").exists() {
        return Failure::new(format!(
            "{place} is empty: it is a loop device without a backing file"
        ))
        .advise(format!("`losetup {} FILE` attaches one", quoted(path)));
    }
    Failure::new(format!(
        "{place} is empty: there is no medium in the device"
    ))
}

/// Fails if the device has no bytes.
pub(crate) fn refuse_empty_device(path: &Path) -> Outcome {
    let is_block = |found: &std::fs::Metadata| found.file_type().is_block_device();
    if !path.metadata().is_ok_and(|found| is_block(&found)) {
        return Ok(());
    }
    let len = File::open(path).and_then(|mut device| device.seek(SeekFrom::End(0)));
    match len {
        Ok(0) => Err(empty(path)),
        _ => Ok(()),
    }
}

/// The failure for an external data device that was named as the pool.
fn data_device(path: &Path) -> Failure {
    let place = path.display();
    let pool = pool_of_data(path).map_or_else(|| "unknown".into(), |pool| uuid_text(&pool));
    Failure::new(format!(
        "{place} is the external data device of the pool {pool}, not a pool"
    ))
    .advise(
        "name the file or device of that pool instead; it finds its data device by itself. If its \
         replica was exported, `vellum replica import` creates a pool from this device",
    )
}

/// The directory of a path, if it is missing.
fn missing_dir(path: &Path) -> Option<&Path> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty())?;
    let found = dir.metadata();
    found
        .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        .then_some(dir)
}

/// The failure for a path whose directory is missing, if it is.
pub(crate) fn no_directory(path: &Path) -> Option<Failure> {
    let dir = missing_dir(path)?;
    let (place, missing) = (path.display(), dir.display());
    Some(
        Failure::new(format!("{place}: there is no directory {missing}"))
            .advise(format!("`mkdir -p {}` creates it", quoted(dir))),
    )
}

/// The free bytes of the file system of a path. The path itself may be missing.
fn free_bytes(path: &Path) -> Option<u64> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let there =
        rustix::fs::statvfs(path).or_else(|_| rustix::fs::statvfs(dir.unwrap_or(".".as_ref())));
    let there = there.ok()?;
    Some(there.f_bavail.saturating_mul(there.f_frsize))
}

/// The owner of a file.
fn owner_of(path: &Path) -> String {
    let found = path.symlink_metadata();
    found.map_or_else(|_| "another user".into(), |found| user(found.uid()))
}

/// What to do about a superblock that is refused.
pub(crate) fn advice_for(pool: &Path, why: &SuperblockError) -> String {
    let place = quoted(pool);
    let is_file = std::fs::metadata(pool).is_ok_and(|found| found.is_file());
    match why {
        SuperblockError::NotVellum => {
            "if it was a pool, every copy of its superblock is lost, and only a copy of the pool \
             helps"
                .into()
        }
        SuperblockError::Truncated { expected, .. } if is_file => format!(
            "restore it from a copy; or `truncate -s {expected} {place}` extends it to its old \
             length with zeros for the lost bytes, and then `vellum repair {place}` repairs what \
             it can"
        ),
        SuperblockError::Truncated { .. } => "only a complete copy of it helps".into(),
        SuperblockError::Version(_) | SuperblockError::Features(_) => {
            "use the release of Vellum that created it, or a later one".into()
        }
        SuperblockError::ReadOnlyFeatures(_) => {
            format!("`vellum mount -o ro {place} DIR` mounts it read-only")
        }
        SuperblockError::Damaged | SuperblockError::Field(_) => {
            format!("`vellum repair --dry-run {place}` shows whether it can be repaired")
        }
    }
}

/// What to do about damage if the check was incomplete.
pub(crate) fn advice_for_incomplete(pool: &Path) -> String {
    match superblock_error(pool) {
        Some(why) => advice_for(pool, &why),
        None => format!(
            "`vellum repair --dry-run {}` shows what can be repaired",
            quoted(pool)
        ),
    }
}

/// The error of the superblock of a pool or dataset, if it has one.
pub(crate) fn superblock_error(pool: &Path) -> Option<SuperblockError> {
    let place = PoolPath::of(pool);
    let found = Pool::datasets(&place.pool).and_then(|all| {
        let own = all.into_iter().find(|fs| fs.name == place.dataset());
        own.map_or(Ok(()), |fs| fs.superblock.map(drop))
    });
    match found {
        Err(vellum::Error::Superblock(why)) => Some(why),
        _ => None,
    }
}

/// Fails if a later release created the pool, which is not damage.
pub(crate) fn refuse_later_release(pool: &Path) -> Outcome {
    match superblock_error(pool) {
        Some(why @ (SuperblockError::Version(_) | SuperblockError::Features(_))) => {
            Err(refused(pool, &why.into()))
        }
        _ => Ok(()),
    }
}

/// Whether the pool, or the pool of the dataset, is a character device.
fn is_node(path: &Path) -> bool {
    let found = std::fs::metadata(PoolPath::of(path).pool);
    found.is_ok_and(|found| found.file_type().is_char_device())
}

/// Whether this is a split pool: metadata in persistent memory, data on an external data device.
fn is_split(pool: &Path) -> bool {
    let place = PoolPath::of(pool);
    let all = Pool::datasets(&place.pool).unwrap_or_default();
    let own = all.into_iter().find(|fs| fs.name == place.dataset());
    let superblock = own.and_then(|fs| fs.superblock.ok());
    superblock.is_some_and(|superblock| superblock.geometry().has_undo())
}

/// Fails if a path for a new pool names a dataset of an existing pool. A file of that name would
/// hide the dataset.
pub(crate) fn refuse_dataset(path: &Path) -> Outcome {
    let place = PoolPath::of(path);
    if place.pool == path || Pool::datasets(&place.pool).is_err() {
        return Ok(());
    }
    let (pool, name) = (place.pool.display(), place.dataset());
    let failure = Failure::usage(format!(
        "{}: this names the dataset `{name}` of the pool {pool}",
        path.display()
    ));
    let all = Pool::datasets(&place.pool).unwrap_or_default();
    let pool = quoted(&place.pool);
    Err(match all.iter().any(|fs| fs.name == name) {
        true => failure.advise(format!(
            "it exists already; `vellum dataset list {pool}` lists the datasets"
        )),
        false => failure.advise(format!(
            "`vellum dataset add {pool} {} --size 4G` creates it",
            quoted(name)
        )),
    })
}

/// The failure for a pool that is in use: by which process, and what to do.
pub(crate) fn busy(pool: &Path, owner: Option<u32>) -> Failure {
    let place = pool.display();
    let (owner, comma) = match owner {
        Some(pid) if has_ended(pid) => (format!("a child of process {pid}, which has ended"), ","),
        Some(pid) => (process(pid), ""),
        None => ("another process".into(), ""),
    };
    let own = PoolPath::of(pool).resolved();
    let mut mounted = mounts::of_file(&own.pool).unwrap_or_default();
    // A mount whose process has ended does not use the pool.
    mounted.retain(|mounted| !mounted.is_dead());
    let is_own = |mounted: &&Mounted| mounted.pool == own.path();
    let found = mounted.iter().rfind(is_own).or(mounted.last());
    let failure = match found {
        Some(found) if is_own(&found) => Failure::new(format!(
            "{place} is in use (EBUSY): {owner}{comma} has it mounted on {}",
            found.dir.display()
        ))
        .advise(format!(
            "use the files there, or unmount it: vellum umount {}",
            quoted(&found.dir)
        )),
        Some(found) => Failure::new(format!(
            "{place} is in use (EBUSY): {owner}{comma} has {} of the same pool mounted on {}",
            found.pool.display(),
            found.dir.display()
        ))
        .advise(format!(
            "only one process can write to a pool: `vellum mount {} --all DIR` mounts all its \
             datasets; a dataset that is not open can be read meanwhile (check, info, ls, cat, \
             export)",
            quoted(&own.pool)
        )),
        None => match served::unseen(pool) {
            Some(failure) => failure,
            None => Failure::new(format!("{place} is in use (EBUSY) by {owner}"))
                .advise("only one process can open a pool: close it there first"),
        },
    };
    failure.with_status(status::BUSY)
}

/// A process, with its name if that is known.
pub(crate) fn process(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim()),
        Err(_) => format!("process {pid}"),
    }
}

/// A user, by name if that is known.
pub(crate) fn user(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => format!("user {uid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/dev/null` stands for a device-DAX node, which is a character device too.
    #[test]
    fn a_device_dax_node_is_distinguished_from_other_failures() {
        let told = |path: &str, source: io::ErrorKind| {
            let path = Path::new(path);
            let error = MediaError::Io {
                action: "map",
                path: path.to_owned(),
                source: source.into(),
            };
            format!("{:?}", refused(path, &error.into()))
        };
        let node = told("/dev/null", io::ErrorKind::InvalidInput);
        assert!(
            node.contains("cannot map /dev/null") && node.contains("-o dax"),
            "{node}"
        );
        for other in [
            told("/dev/null", io::ErrorKind::OutOfMemory),
            told("/proc/self/exe", io::ErrorKind::InvalidInput),
        ] {
            assert!(!other.contains("-o dax"), "{other}");
        }
    }

    #[test]
    fn places() {
        for (text, pool, path) in [
            ("p.img:/a/b", "p.img", "/a/b"),
            ("/x/p.img:/", "/x/p.img", "/"),
            ("p.img:", "p.img", "/"),
            ("a:b.img:/c", "a:b.img", "/c"),
            ("p.img", "p.img", ""),
            ("p:/a:/b", "p", "/a:/b"),
        ] {
            let place = PathInPool::from(OsString::from(text));
            assert_eq!(
                (place.pool.to_str(), place.path.to_str()),
                (Some(pool), Some(path))
            );
        }
    }
}
