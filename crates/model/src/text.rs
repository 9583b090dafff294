//! One line of text for each operation and credential, so that a failing sequence can be kept and
//! replayed.
//!
//! Words are separated by single spaces. Modes are octal, other numbers decimal, `-` is "none" or
//! "not". Paths are written literally, except that bytes other than letters, digits and `._/-`
//! become `%` and two hexadecimal digits, a run of at least eight equal bytes becomes `%(` the byte
//! in hexadecimal `x` its length `)`, and an empty path, or one that would read as `-`, is marked
//! by a single `%` at the end. So are names and values of extended attributes; but `@` and two
//! numbers stand for a value of the bytes of a seed and a length, and `=` begins an access control
//! list. Flags are the letters of `chattr(1)`.

use crate::{
    APPEND_ONLY, Cred, IMMUTABLE, Kind, LockKind, LockOwner, NO_ATIME, NO_DUMP, Op,
    PROJECT_INHERIT, QuotaKind, Range, Space, Step, TimeSet, XattrMode, XattrValue,
};
use std::fmt::{self, Display, Formatter, Write};
use std::str::FromStr;

/// The error for a line that is not an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {what} in {line:?}")]
pub struct ParseError {
    what: &'static str,
    line: String,
}

/// Shortest run of equal bytes that is written as a run.
const RUN_MIN: usize = 8;

/// A path as a word.
pub(crate) struct Path<'a>(pub(crate) &'a [u8]);

impl Display for Path<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for run in self.0.chunk_by(|a, b| a == b) {
            if run.len() >= RUN_MIN {
                write!(f, "%({:02x}x{})", run[0], run.len())?;
                continue;
            }
            for &byte in run {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'/' | b'-' => {
                        f.write_char(byte as char)?
                    }
                    _ => write!(f, "%{byte:02x}")?,
                }
            }
        }
        if matches!(self.0, b"" | b"-") {
            f.write_char('%')
        } else {
            Ok(())
        }
    }
}

fn parse_path(word: &str) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    let mut rest = word.strip_suffix('%').unwrap_or(word);
    while let Some(first) = rest.bytes().next() {
        rest = if let Some(run) = rest.strip_prefix("%(") {
            let (run, rest) = run.split_once(')')?;
            let (byte, count) = run.split_once('x')?;
            let longer = path.len() + count.parse::<u32>().ok()? as usize;
            path.resize(longer, u8::from_str_radix(byte, 16).ok()?);
            rest
        } else if first == b'%' {
            path.push(u8::from_str_radix(rest.get(1..3)?, 16).ok()?);
            &rest[3..]
        } else {
            path.push(first);
            rest.get(1..)?
        };
    }
    Some(path)
}

/// An optional value, or a word that stands for "yes"; `-` if absent.
pub(crate) struct Maybe<T>(pub(crate) Option<T>);

impl<T: Display> Display for Maybe<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_char('-'),
        }
    }
}

const EXCLUSIVE: &str = "exclusive";
const FOLLOW: &str = "follow";
const ON: &str = "on";

struct Time(TimeSet);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            TimeSet::Now => f.write_str("now"),
            TimeSet::At(time) => time.fmt(f),
        }
    }
}

const OPEN_FLAGS: [(&str, i32); 9] = [
    ("+wronly", libc::O_WRONLY),
    ("+rdwr", libc::O_RDWR),
    ("+creat", libc::O_CREAT),
    ("+excl", libc::O_EXCL),
    ("+trunc", libc::O_TRUNC),
    ("+append", libc::O_APPEND),
    ("+directory", libc::O_DIRECTORY),
    ("+nofollow", libc::O_NOFOLLOW),
    ("+noatime", libc::O_NOATIME),
];

/// Open flags as `open+wronly+creat`; a plain `open` is read-only.
struct OpenFlags(i32);

impl Display for OpenFlags {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("open")?;
        OPEN_FLAGS
            .iter()
            .filter(|(_, bit)| self.0 & bit != 0)
            .try_for_each(|(name, _)| f.write_str(name))
    }
}

fn parse_open(word: &str) -> Option<i32> {
    let mut rest = word.strip_prefix("open")?;
    let mut flags = 0;
    for (name, bit) in OPEN_FLAGS {
        if let Some(after) = rest.strip_prefix(name) {
            flags |= bit;
            rest = after;
        }
    }
    rest.is_empty().then_some(flags)
}

const FLAGS: [(char, u32); 5] = [
    ('i', IMMUTABLE),
    ('a', APPEND_ONLY),
    ('d', NO_DUMP),
    ('A', NO_ATIME),
    ('P', PROJECT_INHERIT),
];

/// Flags as the letters of `chattr(1)`; others behind `~`, in hexadecimal.
pub(crate) struct Flags(pub(crate) u32);

impl Display for Flags {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut others = self.0;
        for (letter, flag) in FLAGS {
            if self.0 & flag != 0 {
                f.write_char(letter)?;
                others &= !flag;
            }
        }
        match (self.0, others) {
            (0, _) => f.write_char('-'),
            (_, 0) => Ok(()),
            _ => write!(f, "~{others:x}"),
        }
    }
}

fn parse_flags(word: &str) -> Option<u32> {
    if word == "-" {
        return Some(0);
    }
    let (letters, others) = word.split_once('~').unwrap_or((word, "0"));
    let others = u32::from_str_radix(others, 16).ok()?;
    let of = |letter| FLAGS.iter().find(|(known, _)| *known == letter);
    letters
        .chars()
        .try_fold(others, |flags, letter| Some(flags | of(letter)?.1))
}

const XATTR_MODES: [(&str, XattrMode); 3] = [
    ("any", XattrMode::Any),
    ("create", XattrMode::Create),
    ("replace", XattrMode::Replace),
];

struct Value<'a>(&'a XattrValue);

impl Display for Value<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            XattrValue::Bytes(bytes) => Path(bytes).fmt(f),
            XattrValue::Pattern { seed, len } => write!(f, "@{seed}:{len}"),
            XattrValue::Acl(list) => write!(f, "={list}"),
        }
    }
}

fn parse_value(word: &str) -> Option<XattrValue> {
    if let Some(list) = word.strip_prefix('=') {
        return list.parse().ok().map(XattrValue::Acl);
    }
    let Some(pattern) = word.strip_prefix('@') else {
        return parse_path(word).map(XattrValue::Bytes);
    };
    let (seed, len) = pattern.split_once(':')?;
    Some(XattrValue::Pattern {
        seed: seed.parse().ok()?,
        len: len.parse().ok()?,
    })
}

fn parse_lock(word: &str) -> Option<LockKind> {
    let all = [LockKind::Shared, LockKind::Exclusive];
    all.into_iter().find(|kind| kind.to_string() == word)
}

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.offset, self.len)
    }
}

/// A line being written, after its first word.
struct Writer<'w, 'f> {
    f: &'w mut Formatter<'f>,
}

impl Writer<'_, '_> {
    fn word(&mut self, word: impl Display) -> fmt::Result {
        write!(self.f, " {word}")
    }

    fn path(&mut self, path: &[u8]) -> fmt::Result {
        self.word(Path(path))
    }

    fn number(&mut self, number: impl Display) -> fmt::Result {
        self.word(number)
    }

    fn mode(&mut self, mode: &u32) -> fmt::Result {
        write!(self.f, " {mode:o}")
    }

    fn kind(&mut self, kind: &Kind) -> fmt::Result {
        self.word(kind)
    }

    fn maybe(&mut self, number: &Option<u32>) -> fmt::Result {
        self.word(Maybe(*number))
    }

    fn time(&mut self, time: &Option<TimeSet>) -> fmt::Result {
        self.word(Maybe(time.map(Time)))
    }

    fn exclusive(&mut self, is_set: &bool) -> fmt::Result {
        self.word(Maybe(is_set.then_some(EXCLUSIVE)))
    }

    fn follow(&mut self, is_set: &bool) -> fmt::Result {
        self.word(Maybe(is_set.then_some(FOLLOW)))
    }

    fn name(&mut self, name: &[u8]) -> fmt::Result {
        self.path(name)
    }

    fn value(&mut self, value: &XattrValue) -> fmt::Result {
        self.word(Value(value))
    }

    fn flags(&mut self, flags: &u32) -> fmt::Result {
        self.word(Flags(*flags))
    }

    fn xattr_mode(&mut self, mode: &XattrMode) -> fmt::Result {
        let word = XATTR_MODES.iter().find(|(_, of)| of == mode);
        self.word(word.map_or("", |(word, _)| word))
    }

    fn on(&mut self, is_on: &bool) -> fmt::Result {
        self.word(if *is_on { ON } else { "off" })
    }

    fn quota_kind(&mut self, kind: &QuotaKind) -> fmt::Result {
        self.word(kind)
    }

    fn limits(&mut self, limits: &Option<Space>) -> fmt::Result {
        match limits {
            Some(limits) => self.word(limits),
            None => self.word("- -"),
        }
    }

    fn range(&mut self, range: &Range) -> fmt::Result {
        self.word(range)
    }

    fn owner(&mut self, owner: &LockOwner) -> fmt::Result {
        self.word(owner)
    }

    fn lock(&mut self, kind: &LockKind) -> fmt::Result {
        self.word(kind)
    }

    fn maybe_lock(&mut self, kind: &Option<LockKind>) -> fmt::Result {
        self.word(Maybe(*kind))
    }
}

/// The remaining words of a line.
struct Words<'a> {
    line: &'a str,
    words: std::str::Split<'a, char>,
}

impl<'a> Words<'a> {
    fn new(line: &'a str) -> Words<'a> {
        Words {
            line,
            words: line.split(' '),
        }
    }

    fn error(&self, what: &'static str) -> ParseError {
        ParseError {
            what,
            line: self.line.to_owned(),
        }
    }

    fn read<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ParseError> {
        self.words
            .next()
            .and_then(read)
            .ok_or_else(|| self.error(what))
    }

    fn path(&mut self) -> Result<Vec<u8>, ParseError> {
        self.read("a path", parse_path)
    }

    fn number<T: FromStr>(&mut self) -> Result<T, ParseError> {
        self.read("a number", |word| word.parse().ok())
    }

    fn mode(&mut self) -> Result<u32, ParseError> {
        self.read("an octal mode", |word| u32::from_str_radix(word, 8).ok())
    }

    fn kind(&mut self) -> Result<Kind, ParseError> {
        self.read("a kind of file", |word| {
            Kind::ALL.into_iter().find(|kind| kind.to_string() == word)
        })
    }

    fn maybe(&mut self) -> Result<Option<u32>, ParseError> {
        self.read("a number or -", |word| {
            if word == "-" {
                Some(None)
            } else {
                word.parse().ok().map(Some)
            }
        })
    }

    fn time(&mut self) -> Result<Option<TimeSet>, ParseError> {
        self.read("a time", |word| match word {
            "-" => Some(None),
            "now" => Some(Some(TimeSet::Now)),
            _ => word.parse().ok().map(|time| Some(TimeSet::At(time))),
        })
    }

    fn flag(&mut self, name: &str) -> Result<bool, ParseError> {
        self.read("a flag", |word| {
            (word == name || word == "-").then_some(word == name)
        })
    }

    fn exclusive(&mut self) -> Result<bool, ParseError> {
        self.flag(EXCLUSIVE)
    }

    fn follow(&mut self) -> Result<bool, ParseError> {
        self.flag(FOLLOW)
    }

    fn name(&mut self) -> Result<Vec<u8>, ParseError> {
        self.read("a name", parse_path)
    }

    fn value(&mut self) -> Result<XattrValue, ParseError> {
        self.read("a value", parse_value)
    }

    fn flags(&mut self) -> Result<u32, ParseError> {
        self.read("flags of chattr, or -", parse_flags)
    }

    fn xattr_mode(&mut self) -> Result<XattrMode, ParseError> {
        self.read("any, create or replace", |word| {
            let found = XATTR_MODES.iter().find(|(text, _)| *text == word);
            found.map(|&(_, mode)| mode)
        })
    }

    fn owner(&mut self) -> Result<LockOwner, ParseError> {
        self.read("handle or process", |word| {
            let all = [LockOwner::Handle, LockOwner::Process];
            all.into_iter().find(|owner| owner.to_string() == word)
        })
    }

    fn lock(&mut self) -> Result<LockKind, ParseError> {
        self.read("shared or exclusive", parse_lock)
    }

    fn maybe_lock(&mut self) -> Result<Option<LockKind>, ParseError> {
        self.read("shared, exclusive or -", |word| match word {
            "-" => Some(None),
            _ => parse_lock(word).map(Some),
        })
    }

    fn on(&mut self) -> Result<bool, ParseError> {
        self.read("on or off", |word| {
            matches!(word, ON | "off").then_some(word == ON)
        })
    }

    fn quota_kind(&mut self) -> Result<QuotaKind, ParseError> {
        self.read("user, group or project", |word| {
            let mut all = QuotaKind::ALL.into_iter();
            all.find(|kind| kind.to_string() == word)
        })
    }

    fn limits(&mut self) -> Result<Option<Space>, ParseError> {
        let mut limit = || {
            self.read("a limit or -", |word| match word {
                "-" => Some(None),
                _ => word.parse().ok().map(Some),
            })
        };
        let both: (Option<u64>, Option<u64>) = (limit()?, limit()?);
        match both {
            (Some(bytes), Some(inodes)) => Ok(Some(Space { bytes, inodes })),
            (None, None) => Ok(None),
            _ => Err(self.error("two limits, or - twice")),
        }
    }

    fn range(&mut self) -> Result<Range, ParseError> {
        Ok(Range {
            offset: self.number()?,
            len: self.number()?,
        })
    }

    fn end<T>(mut self, value: T) -> Result<T, ParseError> {
        if self.words.next().is_none() {
            Ok(value)
        } else {
            Err(self.error("the end"))
        }
    }

    fn op(&mut self) -> Result<Op, ParseError> {
        let name = self.words.next().unwrap_or_default();
        if let Some(flags) = parse_open(name) {
            return Ok(Op::Open {
                slot: self.number()?,
                path: self.path()?,
                flags,
                mode: self.mode()?,
            });
        }
        read(name, self)
    }

    /// `uid:gid`, then `+` and a group for each supplementary group, then `!` if privileged.
    fn cred(&mut self) -> Result<Cred, ParseError> {
        self.read("a credential", |word| {
            let (word, privileged) = match word.strip_suffix('!') {
                Some(word) => (word, true),
                None => (word, false),
            };
            let (uid, groups) = word.split_once(':')?;
            let mut groups = groups.split('+').map(|group| group.parse().ok());
            let gid = groups.next()??;
            Some(Cred {
                uid: uid.parse().ok()?,
                gid,
                groups: groups.collect::<Option<_>>()?,
                privileged,
            })
        })
    }
}

/// Creates the reader and the writer of operations from a table: the first word, the operation, and
/// for each further word the field and its notation.
macro_rules! lines {
    ($($name:literal $op:ident { $($field:ident: $word:ident),* })*) => {
        impl Display for Op {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                match self {
                    $(Op::$op { $($field),* } => {
                        f.write_str($name)?;
                        $(Writer { f }.$word($field)?;)*
                        Ok(())
                    })*
                    Op::Open { slot, path, flags, mode } => {
                        write!(f, "{} {slot} {} {mode:o}", OpenFlags(*flags), Path(path))
                    }
                }
            }
        }

        fn read(name: &str, words: &mut Words<'_>) -> Result<Op, ParseError> {
            Ok(match name {
                $($name => Op::$op { $($field: words.$word()?),* },)*
                _ => return Err(words.error("the operation")),
            })
        }
    };
}

lines! {
    "create" Create { path: path, mode: mode, exclusive: exclusive }
    "mkdir" Mkdir { path: path, mode: mode }
    "mknod" Mknod { path: path, kind: kind, mode: mode, device: number }
    "symlink" Symlink { target: path, path: path }
    "link" Link { from: path, to: path }
    "unlink" Unlink { path: path }
    "rmdir" Rmdir { path: path }
    "rename" Rename { from: path, to: path, flags: number }
    "readlink" Readlink { path: path }
    "write" Write { path: path, offset: number, seed: number, len: number }
    "append" Append { path: path, seed: number, len: number }
    "read" Read { path: path, range: range }
    "truncate" Truncate { path: path, size: number }
    "fallocate" Fallocate { path: path, mode: number, range: range }
    "seek-data" SeekData { path: path, offset: number }
    "seek-hole" SeekHole { path: path, offset: number }
    "fsync" Fsync { path: path }
    "sync" Sync {}
    "chmod" Chmod { path: path, mode: mode }
    "chown" Chown { path: path, uid: maybe, gid: maybe, follow: follow }
    "utimens" Utimens { path: path, atime: time, mtime: time, follow: follow }
    "setxattr" SetXattr { path: path, name: name, value: value, mode: xattr_mode, follow: follow }
    "removexattr" RemoveXattr { path: path, name: name, follow: follow }
    "getxattr" GetXattr { path: path, name: name, follow: follow }
    "listxattr" ListXattr { path: path, follow: follow }
    "chattr" SetFlags { path: path, flags: flags }
    "set-project" SetProject { path: path, project: number }
    "quotas" SetQuotas { is_on: on }
    "set-quota" SetQuota { kind: quota_kind, id: number, limits: limits }
    "get-quota" GetQuota { kind: quota_kind, id: number }
    "lsattr" GetFlags { path: path }
    "stat" Stat { path: path, follow: follow }
    "times" Times { path: path }
    "access" Access { path: path, mask: number }
    "readdir" Readdir { path: path }
    "close-slot" CloseSlot { slot: number }
    "read-slot" ReadSlot { slot: number, range: range }
    "write-slot" WriteSlot { slot: number, offset: number, seed: number, len: number }
    "truncate-slot" TruncateSlot { slot: number, size: number }
    "fallocate-slot" FallocateSlot { slot: number, mode: number, range: range }
    "stat-slot" StatSlot { slot: number }
    "readdir-slot" ReaddirSlot { slot: number }
    "fsync-slot" FsyncSlot { slot: number }
    "flock-slot" FlockSlot { slot: number, kind: maybe_lock }
    "lock-slot" LockSlot { slot: number, owner: owner, kind: maybe_lock, range: range }
    "get-lock-slot" GetLockSlot { slot: number, owner: owner, kind: lock, range: range }
}

impl FromStr for Op {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Op, ParseError> {
        let mut words = Words::new(line);
        let op = words.op()?;
        words.end(op)
    }
}

impl Display for Cred {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)?;
        self.groups
            .iter()
            .try_for_each(|group| write!(f, "+{group}"))?;
        if self.privileged {
            f.write_char('!')
        } else {
            Ok(())
        }
    }
}

impl FromStr for Cred {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Cred, ParseError> {
        let mut words = Words::new(line);
        let cred = words.cred()?;
        words.end(cred)
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.cred, self.op)
    }
}

impl FromStr for Step {
    type Err = ParseError;

    fn from_str(line: &str) -> Result<Step, ParseError> {
        let mut words = Words::new(line);
        let step = Step {
            cred: words.cred()?,
            op: words.op()?,
        };
        words.end(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back() {
        for line in [
            "create a/b 644 exclusive",
            "create - 644 -",
            "mkdir % 1777",
            "symlink %(61x255)/..//x %20%",
            "rename a/ %(78x8) 2",
            "chown a - 7 follow",
            "utimens a now - -",
            "utimens a -5 12 follow",
            "fallocate a 3 4096 10",
            "open+rdwr+creat+append 3 a 600",
            "open 0 a 0",
            "write-slot 1 2 3 4",
            "readdir-slot 9",
            "flock-slot 1 -",
            "lock-slot 1 process shared 0 18446744073709551615",
            "lock-slot 1 handle - 5 0",
            "get-lock-slot 1 handle exclusive 5 0",
            "setxattr a user.b %00x%(61x70000) any follow",
            "setxattr a % @7:65536 create -",
            "setxattr a system.posix_acl_access =u::6,u:7:4,g::4,m::4,o::10 replace follow",
            "setxattr a user.b = any -",
            "removexattr a user.b -",
            "getxattr a trusted.%20 follow",
            "listxattr a follow",
            "sync",
            "quotas on",
            "quotas off",
            "set-quota user 7 8192 0",
            "set-quota project 0 - -",
            "get-quota group 9",
        ] {
            let again = line.parse::<Op>().map(|op| op.to_string());
            let expected = line
                .replace("create - ", "create -% ")
                .replace("%20%", "%20");
            assert_eq!(again, Ok(expected), "{line}");
        }
        let step = "1000:100+4+24! stat a -";
        assert_eq!(step.parse::<Step>().unwrap().to_string(), step);
    }

    #[test]
    fn invalid_lines_are_refused() {
        for line in [
            "",
            "mkdir",
            "mkdir a",
            "mkdir a 8",
            "mkdir a 7 7",
            "open+fast 1 a 0",
            "stat a maybe",
            "flock-slot 1 maybe",
            "get-lock-slot 1 handle - 0 0",
            "lock-slot 1 nobody shared 0 0",
            "unlink %zz",
            "quotas maybe",
            "set-quota user 7 - 5",
            "get-quota nobody 7",
            "setxattr a user.b x maybe follow",
            "setxattr a user.b @7 any follow",
            "setxattr a user.b =u:6 any follow",
            "é",
        ] {
            assert!(line.parse::<Op>().is_err(), "{line}");
        }
    }
}
