//! Outcomes as text, in the notation of `text`.

use crate::text::{Flags, Maybe, Path};
use crate::{HeldLock, Kind, LockKind, LockOwner, Outcome, Payload, QuotaKind, Space, StatView};
use std::fmt::{self, Display, Formatter};

impl Display for Kind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::File => "file",
            Kind::Dir => "dir",
            Kind::Symlink => "symlink",
            Kind::Fifo => "fifo",
            Kind::Socket => "socket",
            Kind::CharDevice => "char-device",
            Kind::BlockDevice => "block-device",
        })
    }
}

impl Display for LockKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockKind::Shared => "shared",
            LockKind::Exclusive => "exclusive",
        })
    }
}

impl Display for LockOwner {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockOwner::Handle => "handle",
            LockOwner::Process => "process",
        })
    }
}

impl Display for HeldLock {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.owner, self.kind, self.range)
    }
}

impl Display for QuotaKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuotaKind::User => "user",
            QuotaKind::Group => "group",
            QuotaKind::Project => "project",
        })
    }
}

impl Display for Space {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.bytes, self.inodes)
    }
}

impl Display for StatView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let StatView {
            kind,
            mode,
            nlink,
            uid,
            gid,
            size,
            blocks,
        } = self;
        write!(f, "{kind} {mode:o} {nlink} {uid}:{gid} {size} {blocks}")
    }
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Err(errno) => write!(f, "{errno}"),
            Outcome::Ok(Payload::Done) => f.write_str("done"),
            Outcome::Ok(Payload::Count(count)) => write!(f, "count {count}"),
            Outcome::Ok(Payload::Bytes(bytes)) => {
                write!(f, "bytes {} {}", bytes.len(), Path(bytes))
            }
            Outcome::Ok(Payload::Offset(offset)) => write!(f, "offset {offset}"),
            Outcome::Ok(Payload::Stat(view)) => write!(f, "stat {view}"),
            Outcome::Ok(Payload::Times([atime, mtime, ctime])) => {
                write!(
                    f,
                    "times {} {} {}",
                    Maybe(*atime),
                    Maybe(*mtime),
                    Maybe(*ctime)
                )
            }
            Outcome::Ok(Payload::Flags(flags, project)) => {
                write!(f, "flags {} {project}", Flags(*flags))
            }
            Outcome::Ok(Payload::Quota([used, limits])) => write!(f, "quota {used} {limits}"),
            Outcome::Ok(Payload::Xattrs(names)) => {
                f.write_str("xattrs")?;
                names
                    .iter()
                    .try_for_each(|name| write!(f, " {}", Path(name)))
            }
            Outcome::Ok(Payload::Lock(lock)) => write!(f, "lock {}", Maybe(*lock)),
            Outcome::Ok(Payload::Names(names)) => {
                f.write_str("names")?;
                names
                    .iter()
                    .try_for_each(|(name, kind)| write!(f, " {}:{kind}", Path(name)))
            }
        }
    }
}

/// Longest outcome that `Debug` prints in full, in characters.
const DEBUG_MAX: usize = 400;

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = self.to_string();
        if text.len() <= DEBUG_MAX {
            return f.write_str(&text);
        }
        write!(f, "{}... ({} characters)", &text[..DEBUG_MAX], text.len())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Outcome::Ok(self.clone()), f)
    }
}
