//! The structures and numbers of the kernel's protocol (`linux/fuse.h`, version 7.45), as far as
//! they are used. All of them are in the byte order of the machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// The minor version that is spoken.
pub(crate) const MINOR: u32 = 45;
/// The node number of the root.
pub const ROOT: u64 = 1;

/// What a request asks for.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// The features that INIT agrees on.
pub(crate) mod feature {
    pub(crate) const ASYNC_READ: u32 = 1 << 0;
    pub(crate) const EXPORT_SUPPORT: u32 = 1 << 4;
    pub(crate) const BIG_WRITES: u32 = 1 << 5;
    pub(crate) const DONT_MASK: u32 = 1 << 6;
    pub(crate) const DO_READDIRPLUS: u32 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u32 = 1 << 14;
    pub(crate) const ASYNC_DIO: u32 = 1 << 15;
    pub(crate) const WRITEBACK_CACHE: u32 = 1 << 16;
    pub(crate) const NO_OPEN_SUPPORT: u32 = 1 << 17;
    pub(crate) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(crate) const POSIX_ACL: u32 = 1 << 20;
    pub(crate) const MAX_PAGES: u32 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u32 = 1 << 23;
    pub(crate) const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
    /// The file system drops set-id bits.
    pub(crate) const HANDLE_KILLPRIV_V2: u32 = 1 << 28;
    /// [`SetXattrIn`] has all its fields.
    pub(crate) const SETXATTR_EXT: u32 = 1 << 29;
    /// There is a second word of features.
    pub(crate) const INIT_EXT: u32 = 1 << 30;
    /// In the second word.
    pub(crate) const OVER_IO_URING: u32 = 1 << 9;
}

/// Which fields of [`SetAttrIn`] count.
pub(crate) mod set {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const DROP_SET_IDS: u32 = 1 << 11;
}

/// In the flags of a write: the kernel writes back pages that somebody changed earlier.
pub(crate) const WRITE_BACK: u32 = 1 << 0;
/// In the flags of reads and writes: the owner of locks is valid.
pub(crate) const HAS_LOCK_OWNER: u32 = 1 << 1;
/// In the flags of a write: it drops set-id bits.
pub(crate) const WRITE_DROPS_SET_IDS: u32 = 1 << 2;
/// In the further flags of setting an attribute: the access control list drops the set-gid bit.
pub(crate) const SET_XATTR_DROPS_SET_GID: u32 = 1 << 0;
/// In the flags of an ioctl: the file system itself names the memory to copy.
pub(crate) const IOCTL_UNRESTRICTED: u32 = 1 << 1;
/// The number of the notification that cached pages are stale. The header of a notification has it
/// in the place of an error.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// Entries of listings are aligned to this many bytes.
pub(crate) const DIRENT_ALIGN: usize = 8;

/// Declares structures of the kernel with their sizes.
macro_rules! structures {
    ($($(#[$doc:meta])* $visibility:vis struct $name:ident: $size:literal {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[derive(PartialEq, Eq)]
        #[repr(C)]
        $visibility struct $name {
            $($(#[$field_doc])* $visibility $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

structures! {
    /// What every request begins with.
    pub(crate) struct InHeader: 40 {
        /// The bytes of the whole request.
        len: u32,
        /// What is asked for.
        opcode: u32,
        /// The number of the request.
        unique: u64,
        /// The file or directory.
        node: u64,
        /// The user who asks.
        uid: u32,
        /// The group of the user.
        gid: u32,
        /// The process.
        pid: u32,
        /// The length of extensions at the end, in units of eight bytes.
        extensions: u16,
        /// Unused.
        padding: u16,
    }

    /// What every answer begins with.
    pub(crate) struct OutHeader: 16 {
        len: u32,
        error: i32,
        unique: u64,
    }

    pub(crate) struct InitIn: 16 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        features: u32,
    }

    pub(crate) struct InitOut: 64 {
        major: u32,
        minor: u32,
        max_readahead: u32,
        features: u32,
        max_background: u16,
        congestion_threshold: u16,
        max_write: u32,
        time_granularity_ns: u32,
        max_pages: u16,
        map_alignment: u16,
        more_features: u32,
        unused: [u32; 7],
    }

    /// The attributes of a file.
    pub struct Attr: 88 {
        /// The inode number.
        ino: u64,
        /// The size in bytes.
        size: u64,
        /// The number of 512-byte blocks.
        blocks: u64,
        /// The access time, in seconds since 1970.
        atime: i64,
        /// The modification time, in seconds since 1970.
        mtime: i64,
        /// The change time, in seconds since 1970.
        ctime: i64,
        /// The nanoseconds after `atime`.
        atime_ns: u32,
        /// The nanoseconds after `mtime`.
        mtime_ns: u32,
        /// The nanoseconds after `ctime`.
        ctime_ns: u32,
        /// Type and permission bits.
        mode: u32,
        /// The number of names.
        nlink: u32,
        /// The owner.
        uid: u32,
        /// The group.
        gid: u32,
        /// The device number of a device file.
        device: u32,
        /// The preferred size of reads and writes.
        block_size: u32,
        /// Unused.
        flags: u32,
    }

    pub(crate) struct EntryOut: 128 {
        node: u64,
        generation: u64,
        entry_valid: u64,
        attr_valid: u64,
        entry_valid_ns: u32,
        attr_valid_ns: u32,
        attr: Attr,
    }

    pub(crate) struct AttrOut: 104 {
        valid: u64,
        valid_ns: u32,
        padding: u32,
        attr: Attr,
    }

    pub(crate) struct GetAttrIn: 16 {
        flags: u32,
        padding: u32,
        handle: u64,
    }

    pub(crate) struct SetAttrIn: 88 {
        valid: u32,
        padding: u32,
        handle: u64,
        size: u64,
        lock_owner: u64,
        atime: i64,
        mtime: i64,
        ctime: i64,
        atime_ns: u32,
        mtime_ns: u32,
        ctime_ns: u32,
        mode: u32,
        unused: u32,
        uid: u32,
        gid: u32,
        unused_too: u32,
    }

    pub(crate) struct MkNodIn: 16 {
        mode: u32,
        device: u32,
        umask: u32,
        padding: u32,
    }

    pub(crate) struct MkDirIn: 8 {
        mode: u32,
        umask: u32,
    }

    pub(crate) struct RenameIn: 8 {
        new_dir: u64,
    }

    pub(crate) struct Rename2In: 16 {
        new_dir: u64,
        flags: u32,
        padding: u32,
    }

    pub(crate) struct LinkIn: 8 {
        node: u64,
    }

    pub(crate) struct OpenIn: 8 {
        flags: u32,
        open_flags: u32,
    }

    pub(crate) struct OpenOut: 16 {
        handle: u64,
        flags: u32,
        padding: u32,
    }

    pub(crate) struct CreateIn: 16 {
        flags: u32,
        mode: u32,
        umask: u32,
        open_flags: u32,
    }

    pub(crate) struct ReleaseIn: 24 {
        handle: u64,
        flags: u32,
        release_flags: u32,
        lock_owner: u64,
    }

    pub(crate) struct ReadIn: 40 {
        handle: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    pub(crate) struct WriteIn: 40 {
        handle: u64,
        offset: u64,
        size: u32,
        write_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }

    pub(crate) struct WriteOut: 8 {
        size: u32,
        padding: u32,
    }

    pub(crate) struct FSyncIn: 16 {
        handle: u64,
        flags: u32,
        padding: u32,
    }

    pub(crate) struct StatxIn: 24 {
        get_attr_flags: u32,
        reserved: u32,
        handle: u64,
        flags: u32,
        mask: u32,
    }

    pub(crate) struct StatxTime: 16 {
        seconds: i64,
        ns: u32,
        reserved: i32,
    }

    pub(crate) struct StatxOut: 288 {
        valid: u64,
        valid_ns: u32,
        flags: u32,
        spare: [u64; 2],
        mask: u32,
        block_size: u32,
        attributes: u64,
        nlink: u32,
        uid: u32,
        gid: u32,
        mode: u16,
        padding: [u16; 1],
        ino: u64,
        size: u64,
        blocks: u64,
        attributes_mask: u64,
        atime: StatxTime,
        btime: StatxTime,
        ctime: StatxTime,
        mtime: StatxTime,
        device_major: u32,
        device_minor: u32,
        pool_major: u32,
        pool_minor: u32,
        more: [u64; 14],
    }

    /// The name and the value follow.
    pub(crate) struct SetXattrIn: 16 {
        size: u32,
        flags: u32,
        set_xattr_flags: u32,
        padding: u32,
    }

    /// Of a list, or of a value, whose name follows.
    pub(crate) struct GetXattrIn: 8 {
        size: u32,
        padding: u32,
    }

    pub(crate) struct GetXattrOut: 8 {
        size: u32,
        padding: u32,
    }

    pub(crate) struct StatFsOut: 80 {
        blocks: u64,
        blocks_free: u64,
        blocks_available: u64,
        files: u64,
        files_free: u64,
        block_size: u32,
        name_max: u32,
        fragment_size: u32,
        padding: u32,
        spare: [u32; 6],
    }

    pub(crate) struct IoctlIn: 32 {
        handle: u64,
        flags: u32,
        number: u32,
        argument: u64,
        in_size: u32,
        out_size: u32,
    }

    pub(crate) struct IoctlOut: 16 {
        result: i32,
        flags: u32,
        in_iovs: u32,
        out_iovs: u32,
    }

    pub(crate) struct FAllocateIn: 32 {
        handle: u64,
        offset: u64,
        len: u64,
        mode: u32,
        padding: u32,
    }

    pub(crate) struct SeekIn: 24 {
        handle: u64,
        offset: i64,
        whence: u32,
        padding: u32,
    }

    pub(crate) struct SeekOut: 8 {
        offset: u64,
    }

    pub(crate) struct CopyFileRangeIn: 56 {
        handle: u64,
        offset: u64,
        to_node: u64,
        to_handle: u64,
        to_offset: u64,
        len: u64,
        flags: u64,
    }

    pub(crate) struct ForgetIn: 8 {
        lookups: u64,
    }

    pub(crate) struct BatchForgetIn: 8 {
        count: u32,
        padding: u32,
    }

    pub(crate) struct ForgetOne: 16 {
        node: u64,
        lookups: u64,
    }

    /// An entry of a listing; the name follows, padded to [`DIRENT_ALIGN`].
    pub(crate) struct Dirent: 24 {
        ino: u64,
        cookie: u64,
        name_len: u32,
        /// As in `d_type`: the type bits of the mode, shifted by 12.
        kind: u32,
    }

    pub(crate) struct NotifyInvalInode: 24 {
        node: u64,
        offset: i64,
        len: i64,
    }
}
