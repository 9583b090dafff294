//! Pools and volumes: making, opening, closing, and as whom they are used.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libc::{c_char, c_int};
use vellum::{
    AccessPolicy, CreateOptions, Cred, DataOptions, Durability, Error, ImageLocation, MappingKind,
    MediaChoice, NamespaceKind, Pool, PoolOptions,
};

use crate::borrowed::{CPath, In};
use crate::failure::{Failure, Result, call};
use crate::objects::{Object, OpenPool, Volume};
use crate::{table, vellum_handle};

/// Version of this header: major.
pub const VELLUM_VERSION_MAJOR: u32 = 0;
/// Version of this header: minor.
pub const VELLUM_VERSION_MINOR: u32 = 1;
/// Version of this header: patch.
pub const VELLUM_VERSION_PATCH: u32 = 0;

/// Medium: the best that survives a power cut there (the default).
pub const VELLUM_MEDIUM_AUTO: u32 = 0;
/// Medium: persistent memory.
pub const VELLUM_MEDIUM_PMEM: u32 = 1;
/// Medium: a file or device without a log. A power cut may leave changes in any order.
pub const VELLUM_MEDIUM_FILE: u32 = 2;
/// Medium: tmpfs. A power cut loses everything.
pub const VELLUM_MEDIUM_MEMORY: u32 = 3;
/// Medium: a file or device with a redo log.
pub const VELLUM_MEDIUM_LOGGED: u32 = 4;

/// Namespace: the default, `direct`.
pub const VELLUM_NAMESPACE_DEFAULT: u32 = 0;
/// Namespace: one index over all names (DirectFS).
pub const VELLUM_NAMESPACE_DIRECT: u32 = 1;
/// Namespace: entries with paths, in areas that evolve (ADAM).
pub const VELLUM_NAMESPACE_ADAPTIVE: u32 = 2;
/// Namespace: a tree for each directory (NOVA).
pub const VELLUM_NAMESPACE_TREE: u32 = 3;

/// Mapping: that which suits the medium.
pub const VELLUM_MAPPING_DEFAULT: u32 = 0;
/// Mapping: one table of blocks (HashFS).
pub const VELLUM_MAPPING_HASHFS: u32 = 1;
/// Mapping: a radix tree for each file.
pub const VELLUM_MAPPING_RADIX: u32 = 2;
/// Mapping: a tree of extents for each file.
pub const VELLUM_MAPPING_EXTENT: u32 = 3;
/// Mapping: a tree of extents for each file, cached.
pub const VELLUM_MAPPING_EXTENT_CACHED: u32 = 4;
/// Mapping: cuckoo hashing.
pub const VELLUM_MAPPING_CUCKOO: u32 = 5;
/// Mapping: level hashing.
pub const VELLUM_MAPPING_LEVEL: u32 = 6;

/// A new pool replaces whatever the file or device holds.
pub const VELLUM_CREATE_OVERWRITE: u32 = 1;
/// The external data device is taken whatever it holds.
pub const VELLUM_CREATE_OVERWRITE_DATA: u32 = 2;
/// No space for a replica of the metadata on the external data device.
pub const VELLUM_CREATE_NO_REPLICA: u32 = 4;
/// `owner_uid` and `owner_gid` own the root directory, and not the caller.
pub const VELLUM_CREATE_OWNER: u32 = 8;

/// Opens for reading only; changes nothing in the pool.
pub const VELLUM_OPEN_READ_ONLY: u32 = 1;
/// Touches every page first, so that no operation pays for page faults.
pub const VELLUM_OPEN_POPULATE: u32 = 2;
/// Discards what a killed process left in memory: the pool is as of its last commit.
pub const VELLUM_OPEN_DISCARD_IMAGE: u32 = 4;
/// Commits do not flush the caches of devices, so a power cut may damage the pool.
pub const VELLUM_OPEN_NO_BARRIERS: u32 = 8;
/// File data bypass the kernel's page cache.
pub const VELLUM_OPEN_DIRECT: u32 = 16;
/// A kill is a power cut: the metadata of a logged pool stay in the memory of this process.
pub const VELLUM_OPEN_NO_IMAGE: u32 = 32;
/// Areas of the namespace `adaptive` do not evolve.
pub const VELLUM_OPEN_NO_EVOLVING: u32 = 64;

/// An operation that returned is durable after the next sync or commit (the default).
pub const VELLUM_DURABILITY_ASYNC: u32 = 0;
/// Creating, linking, removing and renaming include a sync.
pub const VELLUM_DURABILITY_DIRSYNC: u32 = 1;
/// Every change includes a sync.
pub const VELLUM_DURABILITY_SYNC: u32 = 2;

/// Access times as with `relatime` (the default).
pub const VELLUM_ATIME_RELATIVE: u32 = 0;
/// Every read updates the access time.
pub const VELLUM_ATIME_STRICT: u32 = 1;
/// No read updates the access time.
pub const VELLUM_ATIME_NEVER: u32 = 2;

/// How to make a pool. Zero in a member means its default, so begin with
/// `struct vellum_create_options options = {0};`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct vellum_create_options {
    /// Bytes of the pool; 1 GiB by default. A file is sparse.
    pub size_bytes: u64,
    /// Bytes of metadata; by default a part of the pool that suits its medium.
    pub metadata_bytes: u64,
    /// A label of at most 64 bytes, or NULL.
    pub label: CPath,
    /// The path of an external data device, or NULL.
    pub data_path: CPath,
    /// The size of the external data device, in bytes; 0: all of a device, or as much as needed.
    pub data_size_bytes: u64,
    /// `VELLUM_MEDIUM_...`
    pub medium: u32,
    /// `VELLUM_NAMESPACE_...`
    pub namespace_kind: u32,
    /// `VELLUM_MAPPING_...`
    pub mapping: u32,
    /// Operations that can run at once.
    pub thread_slots: u32,
    /// `VELLUM_CREATE_...`, any of them.
    pub flags: u32,
    /// Owner of the root directory, with `VELLUM_CREATE_OWNER`.
    pub owner_uid: u32,
    /// Group of the root directory, with `VELLUM_CREATE_OWNER`.
    pub owner_gid: u32,
    /// 0.
    pub reserved: u32,
}

/// How to open a pool. Zero in a member means its default, so begin with
/// `struct vellum_open_options options = {0};`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct vellum_open_options {
    /// `VELLUM_OPEN_...`, any of them.
    pub flags: u32,
    /// `VELLUM_MEDIUM_...`: what to treat the pool's medium as.
    pub medium: u32,
    /// `VELLUM_DURABILITY_...`
    pub durability: u32,
    /// `VELLUM_ATIME_...`
    pub access_times: u32,
    /// The interval between commits on logged and split pools, in ms; 5000 by default.
    pub commit_every_ms: u64,
    /// The interval between rounds in which areas of the namespace `adaptive` evolve, in ms; 5000
    /// by default.
    pub evolve_every_ms: u64,
    /// Names and files that the caches can hold at once.
    pub cache_entries: u64,
    /// The directory in memory that keeps the metadata of a logged pool for the next process if
    /// this one is killed, or NULL for `/dev/shm`.
    pub image_dir: CPath,
    /// The paths of external data devices that were moved, or NULL.
    pub data_paths: In<CPath>,
    /// The number of `data_paths`.
    pub data_path_count: usize,
}

/// A user.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct vellum_cred {
    /// User. 0 is exempt from permissions.
    pub uid: u32,
    /// Group; that of new files.
    pub gid: u32,
    /// Further groups, or NULL.
    pub groups: In<u32>,
    /// The number of `groups`.
    pub group_count: usize,
    /// Permission bits that new files do not get, as by `umask(2)`.
    pub umask: u32,
    /// 0.
    pub reserved: u32,
}

fn path_of(path: &CPath) -> Result<&Path> {
    Ok(Path::new(OsStr::from_bytes(path.bytes()?)))
}

fn optional_path(path: &CPath) -> Option<PathBuf> {
    let text = path.text()?;
    Some(PathBuf::from(OsStr::from_bytes(text)))
}

fn medium_of(medium: u32) -> Result<MediaChoice> {
    Ok(match medium {
        VELLUM_MEDIUM_AUTO => MediaChoice::Auto,
        VELLUM_MEDIUM_PMEM => MediaChoice::Dax,
        VELLUM_MEDIUM_FILE => MediaChoice::File,
        VELLUM_MEDIUM_MEMORY => MediaChoice::Memory,
        VELLUM_MEDIUM_LOGGED => MediaChoice::Logged,
        _ => return Err(Failure::invalid("an unknown medium")),
    })
}

/// Checks that nothing is set but what is known.
fn check_flags(flags: u32, known: u32, reserved: u32) -> Result<()> {
    match flags & !known == 0 && reserved == 0 {
        true => Ok(()),
        false => Err(Failure::invalid(
            "an unknown flag, or a reserved member that is not 0",
        )),
    }
}

impl vellum_create_options {
    fn to_engine(self) -> Result<CreateOptions> {
        const KNOWN: u32 = VELLUM_CREATE_OVERWRITE
            | VELLUM_CREATE_OVERWRITE_DATA
            | VELLUM_CREATE_NO_REPLICA
            | VELLUM_CREATE_OWNER;
        check_flags(self.flags, KNOWN, self.reserved)?;
        let has = |flag: u32| self.flags & flag != 0;
        let label = self.label.text().unwrap_or(b"").to_vec();
        let label = String::from_utf8(label).map_err(|_| Error::NotUtf8)?;
        let data = optional_path(&self.data_path).map(|path| {
            let device = DataOptions::new(path).size_bytes(self.data_size_bytes);
            device.overwrite(has(VELLUM_CREATE_OVERWRITE_DATA))
        });
        // With an external data device, 0 means as large as needed.
        let size_bytes = match (self.size_bytes, &data) {
            (0, None) => CreateOptions::SIZE_BYTES,
            (size_bytes, _) => size_bytes,
        };
        let mut options = CreateOptions::new(size_bytes);
        if has(VELLUM_CREATE_OWNER) {
            options.owner = (self.owner_uid, self.owner_gid);
        }
        Ok(options
            .metadata_bytes((self.metadata_bytes != 0).then_some(self.metadata_bytes))
            .thread_slots((self.thread_slots != 0).then_some(self.thread_slots))
            .label(label)
            .data(data)
            .media(medium_of(self.medium)?)
            .namespace(namespace_of(self.namespace_kind)?)
            .mapping(mapping_of(self.mapping)?)
            .overwrite(has(VELLUM_CREATE_OVERWRITE))
            .has_replica(!has(VELLUM_CREATE_NO_REPLICA)))
    }
}

fn namespace_of(namespace: u32) -> Result<NamespaceKind> {
    Ok(match namespace {
        VELLUM_NAMESPACE_DEFAULT => NamespaceKind::default(),
        VELLUM_NAMESPACE_DIRECT => NamespaceKind::Direct,
        VELLUM_NAMESPACE_ADAPTIVE => NamespaceKind::Adaptive,
        VELLUM_NAMESPACE_TREE => NamespaceKind::Tree,
        _ => return Err(Failure::invalid("an unknown namespace")),
    })
}

fn mapping_of(mapping: u32) -> Result<Option<MappingKind>> {
    Ok(Some(match mapping {
        VELLUM_MAPPING_DEFAULT => return Ok(None),
        VELLUM_MAPPING_HASHFS => MappingKind::HashFs,
        VELLUM_MAPPING_RADIX => MappingKind::Radix,
        VELLUM_MAPPING_EXTENT => MappingKind::Extent,
        VELLUM_MAPPING_EXTENT_CACHED => MappingKind::ExtentCached,
        VELLUM_MAPPING_CUCKOO => MappingKind::Cuckoo,
        VELLUM_MAPPING_LEVEL => MappingKind::Level,
        _ => return Err(Failure::invalid("an unknown mapping")),
    }))
}

impl vellum_open_options {
    fn to_engine(self) -> Result<PoolOptions> {
        const KNOWN: u32 = VELLUM_OPEN_READ_ONLY
            | VELLUM_OPEN_POPULATE
            | VELLUM_OPEN_DISCARD_IMAGE
            | VELLUM_OPEN_NO_BARRIERS
            | VELLUM_OPEN_DIRECT
            | VELLUM_OPEN_NO_IMAGE
            | VELLUM_OPEN_NO_EVOLVING;
        check_flags(self.flags, KNOWN, 0)?;
        let has = |flag: u32| self.flags & flag != 0;
        let mut options = PoolOptions::new()
            .read_only(has(VELLUM_OPEN_READ_ONLY))
            .populate(has(VELLUM_OPEN_POPULATE))
            .discard_image(has(VELLUM_OPEN_DISCARD_IMAGE))
            .barriers(!has(VELLUM_OPEN_NO_BARRIERS))
            .direct(has(VELLUM_OPEN_DIRECT))
            .media(medium_of(self.medium)?);
        options.durability = match self.durability {
            VELLUM_DURABILITY_ASYNC => Durability::Async,
            VELLUM_DURABILITY_DIRSYNC => Durability::Dirsync,
            VELLUM_DURABILITY_SYNC => Durability::Sync,
            _ => return Err(Failure::invalid("an unknown durability")),
        };
        options.access_times.policy = match self.access_times {
            VELLUM_ATIME_RELATIVE => AccessPolicy::Relative,
            VELLUM_ATIME_STRICT => AccessPolicy::Strict,
            VELLUM_ATIME_NEVER => AccessPolicy::Never,
            _ => return Err(Failure::invalid("an unknown policy of access times")),
        };
        if self.commit_every_ms != 0 {
            options.commit_every = Duration::from_millis(self.commit_every_ms);
        }
        if self.evolve_every_ms != 0 {
            options.evolve_every = Some(Duration::from_millis(self.evolve_every_ms));
        }
        if has(VELLUM_OPEN_NO_EVOLVING) {
            options.evolve_every = None;
        }
        if self.cache_entries != 0 {
            options.cache_entries = self.cache_entries;
        }
        options.image = match optional_path(&self.image_dir) {
            _ if has(VELLUM_OPEN_NO_IMAGE) => ImageLocation::Process,
            Some(dir) => ImageLocation::In(dir),
            None => ImageLocation::Shared,
        };
        let data = self.data_paths.array(self.data_path_count)?;
        let data: Result<_> = data
            .iter()
            .map(|path| Ok(path_of(path)?.to_owned()))
            .collect();
        options.data = data?;
        Ok(options)
    }
}

fn insert(pool: Pool) -> Result<vellum_handle> {
    let fs = pool.fs();
    let cred = pool.volume().cred().clone();
    table::insert(Object::Pool(OpenPool {
        volume: Volume {
            root: fs.root(),
            cred: Arc::new(cred),
        },
        pool: Mutex::new(Some(pool)),
    }))
}

/// Returns the version of the library that runs, as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Makes a pool, in a file or on a device, and opens it. `options` may be NULL; `size` is `sizeof
/// *options`. Returns a handle for `vellum_pool_close`, or -1. Besides those of `open(2)`, errors
/// are EEXIST (something is there already), EINVAL (a size or an option is impossible), ENOSPC,
/// E2BIG (the options are of a later release).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_pool_create(
    path: CPath,
    options: In<vellum_create_options>,
    size: usize,
) -> vellum_handle {
    call("vellum_pool_create", &[path], || {
        let options = options.sized(size)?.to_engine()?;
        insert(options.create(path_of(&path)?)?)
    })
}

/// Opens a pool, or its dataset `NAME` if the path is `POOL:NAME`, for reading and writing.
/// Recovers it if it was not closed cleanly. `options` may be NULL; `size` is `sizeof *options`.
/// Returns a handle for `vellum_pool_close`, or -1. Besides those of `open(2)`, errors are EBUSY
/// (another process, or this one, has it open), EUCLEAN (it is damaged, or no pool), EOPNOTSUPP (a
/// later format), EINVAL (an impossible option), E2BIG (the options are of a later release).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_pool_open(
    path: CPath,
    options: In<vellum_open_options>,
    size: usize,
) -> vellum_handle {
    call("vellum_pool_open", &[path], || {
        let options = options.sized(size)?.to_engine()?;
        insert(options.open(path_of(&path)?)?)
    })
}

/// Makes a pool of `size_bytes` in anonymous memory, for tests. It is gone when it is
/// closed or the process ends. Returns a handle for `vellum_pool_close`, or -1 with EINVAL (an
/// impossible size) or ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn vellum_pool_memory(size_bytes: u64) -> vellum_handle {
    call("vellum_pool_memory", &[], || {
        insert(Pool::memory(size_bytes)?)
    })
}

/// Closes a pool cleanly: waits for running operations, and makes everything durable. Every call on
/// its volumes and files fails with EBADF from then on; their handles still have to be closed. The
/// handle is gone, whatever this returns: 0, or -1 with EBADF (no open pool), EBUSY (removed files
/// are still open, or views still show bytes of it; `vellum_last_error` says which, and what holds
/// then), EIO (the medium failed: the next opening recovers the pool).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_pool_close(pool: vellum_handle) -> c_int {
    call("vellum_pool_close", &[], || {
        let held = table::get(pool)?;
        let open = held.pool()?;
        if let Err(forked @ Error::Forked) = open.volume.root.fs().check_use() {
            table::close(pool)?;
            return Err(forked.into());
        }
        let lock = open.pool.lock();
        let taken = lock.unwrap_or_else(PoisonError::into_inner).take();
        // Another thread is closing it if there is none.
        let taken = taken.ok_or(Failure::NO_HANDLE)?;
        drop(held);
        table::close(pool)?;
        taken.close()?;
        Ok(0)
    })
}

/// Opens a volume: the file system of a pool as one user. `pool` is a pool or another volume.
/// `cred` says who; `size` is `sizeof *cred`. NULL is the user of this process, with the umask that
/// it had when it opened the pool: a pool itself is used like this volume. Returns a handle for
/// `vellum_close`, or -1 with EBADF (neither pool nor volume), EINVAL, EFAULT, E2BIG (the structure
/// is of a later release).
#[unsafe(no_mangle)]
pub extern "C" fn vellum_volume_open(
    pool: vellum_handle,
    cred: In<vellum_cred>,
    size: usize,
) -> vellum_handle {
    call("vellum_volume_open", &[], || {
        let held = table::get(pool)?;
        let of = match &*held {
            Object::Pool(pool) => &pool.volume,
            Object::Volume(volume) => volume,
            _ => return Err(held.pool().err().unwrap_or(Failure::NO_HANDLE)),
        };
        let fs = of.root.fs();
        fs.check_use()?;
        let cred = match cred.is_null() {
            true => Cred {
                umask: of.cred.umask,
                ..Cred::current()
            },
            false => cred.sized(size)?.to_engine()?,
        };
        table::insert(Object::Volume(Volume {
            root: fs.root(),
            cred: Arc::new(cred),
        }))
    })
}

impl vellum_cred {
    fn to_engine(self) -> Result<Cred> {
        check_flags(self.umask, 0o777, self.reserved)?;
        Ok(Cred {
            groups: self.groups.array(self.group_count)?.to_vec(),
            umask: self.umask as u16,
            ..Cred::user(self.uid, self.gid)
        })
    }
}
