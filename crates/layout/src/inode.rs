//! Inodes: one metadata slot, two cache lines.
//!
//! Line 0 holds what `chmod`, `chown` and `link` change, line 1 what reads and writes change, so a
//! write that grows the file commits with one line. Every mutable field is one 8-byte word.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::NamespaceKind;
use crate::checksum::checksum_words;

/// The kind of an inode. The numbers are on the media and equal those of `d_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FileKind {
    /// A named pipe.
    Fifo = 1,
    /// A character device.
    CharDevice = 2,
    /// A directory.
    Directory = 4,
    /// A block device.
    BlockDevice = 6,
    /// A regular file.
    File = 8,
    /// A symbolic link.
    Symlink = 10,
    /// A local socket.
    Socket = 12,
}

impl FileKind {
    /// The kind with this number.
    pub fn from_u8(value: u8) -> Option<Self> {
        Some(match value {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::File,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }

    /// The kind's bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        u32::from(self as u8) << 12
    }
}

/// Whether an inode slot is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum InodeState {
    /// Not in use.
    Free = 0,
    /// In use.
    Live = 1,
    /// Without a name, kept while it is open (the persistent orphan record); freed by recovery.
    Orphan = 2,
}

/// An inode as it lies on the pool.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Inode {
    /// [`IdentityWord`]: state, kind, permission bits, flags, generation.
    pub identity: u64,
    /// [`OwnerWord`]: user and group.
    pub owner: u64,
    /// [`LinksWord`]: link count and flags.
    pub links: u64,
    /// Time of birth, nanoseconds since 1970.
    pub btime: i64,
    /// Directories: inode slot of the parent. Devices: the device number. Else 0.
    pub parent: u64,
    /// Slot of the first piece of the extended attributes ([`crate::XattrHead`]), or 0.
    pub xattr_root: u64,
    /// Reserved; 0.
    pub acl_root: u64,
    /// Project id. Every value is valid.
    pub project: u32,
    /// CRC-32C of slot number, kind, generation and birth time, which never change during the
    /// inode's life.
    pub checksum: u32,
    /// Bytes of a file or of a symlink's target.
    pub size: u64,
    /// Time of last modification, nanoseconds since 1970.
    pub mtime: i64,
    /// Time of last status change.
    pub ctime: i64,
    /// Time of last access.
    pub atime: i64,
    /// Files: [`MapRoot`]. Directories: slot of the first log extent. Symlinks: slot of the text.
    pub root: u64,
    /// Symlinks: [`crate::text_check`] of the target. Files, if the mapping has trees:
    /// [`crate::TreeWord`], the root of the tree. Otherwise reserved for further mapping roots
    /// (files of several segments) and the redirect table; 0.
    pub detail: u64,
    /// `nv_pointer` (DirectFS III-D): cachelet in bits 0..40, pool epoch in 40..64. Its meaning is
    /// volatile: it is stale unless the epoch is the present one.
    pub cachelet: u64,
    /// Files: how the file was used when it was last closed ([`Inode::CONTINUOUS`] or 0). Otherwise
    /// 0. It is a hint that is never flushed; any value that a crash leaves is harmless.
    pub pattern: u64,
}

const _: () = assert!(size_of::<Inode>() == 128);

macro_rules! word_offsets {
    ($($(#[$doc:meta])* $name:ident = $field:ident;)*) => {
        $($(#[$doc])* pub const $name: u64 = std::mem::offset_of!(Inode, $field) as u64;)*
    };
}

impl Inode {
    word_offsets! {
        /// Offset of [`IdentityWord`].
        IDENTITY = identity;
        /// Offset of [`OwnerWord`].
        OWNER = owner;
        /// Offset of [`LinksWord`].
        LINKS = links;
        /// Offset of the birth time.
        BTIME = btime;
        /// Offset of the parent.
        PARENT = parent;
        /// Offset of the slot of the extended attributes.
        XATTR_ROOT = xattr_root;
        /// Offset of the word with the [project id](Inode::project_word) and the checksum.
        PROJECT = project;
        /// Offset of the size.
        SIZE = size;
        /// Offset of the modification time.
        MTIME = mtime;
        /// Offset of the change time.
        CTIME = ctime;
        /// Offset of the access time.
        ATIME = atime;
        /// Offset of the root.
        ROOT = root;
        /// Offset of the check of a symlink's target.
        DETAIL = detail;
        /// Offset of the nv_pointer.
        CACHELET = cachelet;
        /// Offset of the access pattern.
        PATTERN = pattern;
    }

    /// An access pattern: the file was read or written sequentially before it was closed (AFPT).
    pub const CONTINUOUS: u64 = 1;

    /// Bits of the access pattern that are ignored with the namespace *adaptive*.
    const PATTERN_RESERVED: u64 = 0xFE;

    /// Whether a file of this kind may have this access pattern in this namespace.
    pub fn has_sound_pattern(&self, kind: FileKind, namespace: NamespaceKind) -> bool {
        match (kind, namespace) {
            (FileKind::File, NamespaceKind::Adaptive) => self.pattern & Self::PATTERN_RESERVED == 0,
            (FileKind::File, _) => self.pattern <= Self::CONTINUOUS,
            _ => self.pattern == 0,
        }
    }

    /// The checksum this inode must carry at metadata slot `slot`.
    pub fn expected_checksum(&self, slot: u64) -> u32 {
        let identity = IdentityWord(self.identity);
        checksum_words(&[slot, identity.0 & IdentityWord::CHECKED, self.btime as u64])
    }

    /// The word that holds the project id (low half) and the checksum, with another project id.
    pub fn project_word(word: u64, project: u32) -> u64 {
        word >> 32 << 32 | u64::from(project)
    }

    /// Whether an inode in use is sound at metadata slot `slot`.
    pub fn is_sound(&self, slot: u64) -> bool {
        let identity = IdentityWord(self.identity);
        identity
            .state()
            .is_some_and(|state| state != InodeState::Free)
            && identity.kind().is_some()
            && self.checksum == self.expected_checksum(slot)
    }
}

/// State (bits 0..4), flags (4..8 and 31), kind (8..16), permission bits (16..28), which extended
/// attributes there are (28..31), generation (32..64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityWord(pub u64);

impl IdentityWord {
    /// What the checksum covers: kind and generation.
    const CHECKED: u64 = 0xFFFF_FFFF_0000_FF00;
    const STATE: u64 = 0xF;
    /// Flag: neither content nor attributes nor names change.
    pub const IMMUTABLE: u64 = 1 << 4;
    /// Flag: content is only appended, names are only created.
    pub const APPEND_ONLY: u64 = 1 << 5;
    /// Flag: backups leave the file out.
    pub const NO_DUMP: u64 = 1 << 6;
    /// Flag: reads do not move the access time.
    pub const NO_ATIME: u64 = 1 << 7;
    /// Flag: new files in this directory get its project id.
    pub const PROJECT_INHERIT: u64 = 1 << 31;
    /// The flags that forbid changes.
    pub const GUARDED: u64 = Self::IMMUTABLE | Self::APPEND_ONLY;
    /// All flags that users set.
    pub const FLAGS: u64 = Self::GUARDED | Self::NO_ATIME | Self::NO_DUMP | Self::PROJECT_INHERIT;
    /// Flag: there is an access control list, which decides with the permission bits.
    pub const ACCESS_LIST: u64 = 1 << 28;
    /// Flag: there is an access control list for new files in this directory.
    pub const DEFAULT_LIST: u64 = 1 << 29;
    /// Flag: there are capabilities, which end with the next change of the content.
    pub const CAPABILITY: u64 = 1 << 30;
    /// The flags that follow from the extended attributes.
    pub const XATTR_FLAGS: u64 = Self::ACCESS_LIST | Self::DEFAULT_LIST | Self::CAPABILITY;

    /// Packs the word; `mode` keeps its low 12 bits.
    pub fn new(state: InodeState, kind: FileKind, mode: u16, generation: u32) -> Self {
        Self(
            state as u64
                | (kind as u64) << 8
                | u64::from(mode & 0o7777) << 16
                | u64::from(generation) << 32,
        )
    }

    /// Whether the inode is in use, if the number is known.
    pub fn state(self) -> Option<InodeState> {
        match self.0 & Self::STATE {
            0 => Some(InodeState::Free),
            1 => Some(InodeState::Live),
            2 => Some(InodeState::Orphan),
            _ => None,
        }
    }

    /// The kind, if the number is known.
    pub fn kind(self) -> Option<FileKind> {
        FileKind::from_u8((self.0 >> 8) as u8)
    }

    /// Permission bits, set-id bits and the sticky bit.
    pub fn mode(self) -> u16 {
        (self.0 >> 16) as u16 & 0o7777
    }

    /// The generation, which changes whenever the slot is reused.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The same inode with other permission bits.
    pub fn with_mode(self, mode: u16) -> Self {
        Self(self.0 & !(0o7777 << 16) | u64::from(mode & 0o7777) << 16)
    }

    /// Whether all of these flags are set.
    pub fn has(self, flags: u64) -> bool {
        self.0 & flags == flags
    }

    /// Whether any of these flags is set.
    pub fn has_any(self, flags: u64) -> bool {
        self.0 & flags != 0
    }

    /// The [flags](Self::FLAGS) that users set.
    pub fn flags(self) -> u64 {
        self.0 & Self::FLAGS
    }

    /// The same inode with other ones of these.
    pub fn with_flags(self, flags: u64) -> Self {
        Self(self.0 & !Self::FLAGS | flags & Self::FLAGS)
    }

    /// Whether a file of this kind can have these flags.
    pub fn has_sound_flags(self) -> bool {
        let possible = self.kind().map_or(0, Self::flags_of);
        self.flags() & !possible == 0
    }

    /// The flags that a file of this kind can have.
    pub fn flags_of(kind: FileKind) -> u64 {
        match kind {
            FileKind::Directory => Self::FLAGS,
            FileKind::File => Self::FLAGS & !Self::PROJECT_INHERIT,
            _ => Self::NO_ATIME | Self::NO_DUMP,
        }
    }

    /// The same inode with the flags of other extended attributes.
    pub fn with_xattr_flags(self, flags: u64) -> Self {
        Self(self.0 & !Self::XATTR_FLAGS | flags & Self::XATTR_FLAGS)
    }

    /// The same inode in another state.
    pub fn with_state(self, state: InodeState) -> Self {
        Self(self.0 & !Self::STATE | state as u64)
    }
}

/// User (low half) and group (high half).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerWord(pub u64);

impl OwnerWord {
    /// Packs the word.
    pub fn new(uid: u32, gid: u32) -> Self {
        Self(u64::from(uid) | u64::from(gid) << 32)
    }

    /// The user.
    pub fn uid(self) -> u32 {
        self.0 as u32
    }

    /// The group.
    pub fn gid(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Link count (low half) and flags (high half, reserved). In directories the link count is the
/// number of subdirectories plus two, as of the last write-back; recovery recounts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinksWord(pub u64);

impl LinksWord {
    /// Flag: a redirect table is consulted before the mapping (shared or relocated blocks).
    /// Reserved: this version refuses inodes that carry it.
    pub const REDIRECT: u32 = 1;

    /// Packs the word.
    pub fn new(links: u32, flags: u32) -> Self {
        Self(u64::from(links) | u64::from(flags) << 32)
    }

    /// The link count.
    pub fn links(self) -> u32 {
        self.0 as u32
    }

    /// The flags.
    pub fn flags(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A file's mapping: id (bits 0..30), segment (32..48), blocks beyond the end (62), valid (63).
/// Zero: no block was ever mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRoot(pub u64);

impl MapRoot {
    /// Flag: preallocated blocks may lie beyond the end of file. While it is clear there are none.
    pub const BEYOND: u64 = 1 << 62;

    /// A root in `segment` under `id` (30 bits).
    pub fn new(segment: u16, id: u32) -> Self {
        Self(1 << 63 | u64::from(segment) << 32 | u64::from(id & 0x3FFF_FFFF))
    }

    /// The mapping id that this version gives the file with this inode number.
    pub fn id_of(ino: u64) -> u32 {
        ino as u32 & 0x3FFF_FFFF
    }

    /// Segment and mapping id, if there is a mapping.
    pub fn get(self) -> Option<(u16, u32)> {
        (self.0 >> 63 == 1).then_some(((self.0 >> 32) as u16, self.0 as u32 & 0x3FFF_FFFF))
    }

    /// Whether this version writes such a root: in segment 0, without reserved bits.
    pub fn is_sound(self) -> bool {
        self.get().is_some_and(|(segment, id)| {
            segment == 0 && self.0 & !Self::BEYOND == Self::new(segment, id).0
        })
    }

    /// Whether blocks may lie beyond the end of file.
    pub fn is_beyond(self) -> bool {
        self.0 & Self::BEYOND != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_words_share_the_second_line() {
        for at in [
            Inode::SIZE,
            Inode::MTIME,
            Inode::CTIME,
            Inode::ATIME,
            Inode::ROOT,
        ] {
            assert_eq!(at / 64, 1);
        }
    }

    #[test]
    fn checksum_covers_what_never_changes_and_only_that() {
        let mut inode = Inode {
            identity: IdentityWord::new(InodeState::Live, FileKind::File, 0o644, 7).0,
            btime: 99,
            ..Inode::default()
        };
        inode.checksum = inode.expected_checksum(5);
        assert!(inode.is_sound(5));
        assert!(!inode.is_sound(6));
        inode.identity = IdentityWord(inode.identity)
            .with_mode(0o4755)
            .with_flags(IdentityWord::FLAGS)
            .0;
        (inode.size, inode.project) = (1, 7);
        assert!(inode.is_sound(5));
        inode.identity ^= 1 << 40;
        assert!(!inode.is_sound(5));
    }

    #[test]
    fn words_give_back_what_was_packed() {
        let word = IdentityWord::new(InodeState::Orphan, FileKind::Symlink, 0o7777, u32::MAX);
        assert_eq!(word.state(), Some(InodeState::Orphan));
        assert_eq!(word.kind(), Some(FileKind::Symlink));
        assert_eq!((word.mode(), word.generation()), (0o7777, u32::MAX));
        let flagged = word.with_flags(u64::MAX);
        assert_eq!(
            (flagged.state(), flagged.kind()),
            (word.state(), word.kind())
        );
        assert_eq!(
            (flagged.mode(), flagged.generation()),
            (word.mode(), word.generation())
        );
        assert_eq!(flagged.flags(), IdentityWord::FLAGS);
        assert_eq!(flagged.with_flags(0), word);
        let word = (0xABCD_u64 << 32) + 5;
        assert_eq!(Inode::project_word(word, u32::MAX), 0xABCD_FFFF_FFFF);
        assert_eq!(MapRoot::new(3, 0x3FFF_FFFF).get(), Some((3, 0x3FFF_FFFF)));
        assert_eq!(MapRoot(0).get(), None);
    }
}
