//! One line of text for each operation and credential, so that a failing sequence can be kept and
//! replayed.
//!
//! Words are separated by single spaces. Modes are octal, other numbers decimal, `-` is "none" or
//! "not". Paths are written as they are, except that bytes other than letters, digits and `._/-`
//! become `%` and two hexadecimal digits, a run of at least eight equal bytes becomes `%(` the byte
//! in hexadecimal `x` its length `)`, and an empty path, or one that would read as `-`, is marked
//! by a single `%` at the end.

use crate::{Cred, Kind, Op, Range, Step, TimeSet};
use std::fmt::{self, Display, Formatter, Write};
use std::str::FromStr;

/// Why a line is not an operation.
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
            let longer = path.len() + count.parse::<u16>().ok()? as usize;
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

fn flag(set: bool, word: &str) -> Maybe<&str> {
    Maybe(set.then_some(word))
}

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

/// Open flags as `open+wronly+creat`; a plain `open` is for reading.
struct Flags(i32);

impl Display for Flags {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("open")?;
        OPEN_FLAGS
            .iter()
            .filter(|(_, bit)| self.0 & bit != 0)
            .try_for_each(|(name, _)| f.write_str(name))
    }
}

fn parse_flags(word: &str) -> Option<i32> {
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

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.offset, self.len)
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create {
                path,
                mode,
                exclusive,
            } => {
                write!(
                    f,
                    "create {} {mode:o} {}",
                    Path(path),
                    flag(*exclusive, EXCLUSIVE)
                )
            }
            Op::Mkdir { path, mode } => write!(f, "mkdir {} {mode:o}", Path(path)),
            Op::Mknod {
                path,
                kind,
                mode,
                device,
            } => write!(f, "mknod {} {kind} {mode:o} {device}", Path(path)),
            Op::Symlink { target, path } => write!(f, "symlink {} {}", Path(target), Path(path)),
            Op::Link { from, to } => write!(f, "link {} {}", Path(from), Path(to)),
            Op::Unlink { path } => write!(f, "unlink {}", Path(path)),
            Op::Rmdir { path } => write!(f, "rmdir {}", Path(path)),
            Op::Rename { from, to, flags } => {
                write!(f, "rename {} {} {flags}", Path(from), Path(to))
            }
            Op::Readlink { path } => write!(f, "readlink {}", Path(path)),
            Op::Write {
                path,
                offset,
                seed,
                len,
            } => write!(f, "write {} {offset} {seed} {len}", Path(path)),
            Op::Append { path, seed, len } => write!(f, "append {} {seed} {len}", Path(path)),
            Op::Read { path, range } => write!(f, "read {} {range}", Path(path)),
            Op::Truncate { path, size } => write!(f, "truncate {} {size}", Path(path)),
            Op::Fallocate { path, mode, range } => {
                write!(f, "fallocate {} {mode} {range}", Path(path))
            }
            Op::SeekData { path, offset } => write!(f, "seek-data {} {offset}", Path(path)),
            Op::SeekHole { path, offset } => write!(f, "seek-hole {} {offset}", Path(path)),
            Op::Fsync { path } => write!(f, "fsync {}", Path(path)),
            Op::Sync => write!(f, "sync"),
            Op::Chmod { path, mode } => write!(f, "chmod {} {mode:o}", Path(path)),
            Op::Chown {
                path,
                uid,
                gid,
                follow,
            } => {
                write!(
                    f,
                    "chown {} {} {} {}",
                    Path(path),
                    Maybe(*uid),
                    Maybe(*gid),
                    flag(*follow, FOLLOW)
                )
            }
            Op::Utimens {
                path,
                atime,
                mtime,
                follow,
            } => {
                let (atime, mtime) = (Maybe(atime.map(Time)), Maybe(mtime.map(Time)));
                write!(
                    f,
                    "utimens {} {atime} {mtime} {}",
                    Path(path),
                    flag(*follow, FOLLOW)
                )
            }
            Op::Stat { path, follow } => write!(f, "stat {} {}", Path(path), flag(*follow, FOLLOW)),
            Op::Times { path } => write!(f, "times {}", Path(path)),
            Op::Access { path, mask } => write!(f, "access {} {mask}", Path(path)),
            Op::Readdir { path } => write!(f, "readdir {}", Path(path)),
            Op::Open {
                slot,
                path,
                flags,
                mode,
            } => {
                write!(f, "{} {slot} {} {mode:o}", Flags(*flags), Path(path))
            }
            Op::CloseSlot { slot } => write!(f, "close-slot {slot}"),
            Op::ReadSlot { slot, range } => write!(f, "read-slot {slot} {range}"),
            Op::WriteSlot {
                slot,
                offset,
                seed,
                len,
            } => write!(f, "write-slot {slot} {offset} {seed} {len}"),
            Op::TruncateSlot { slot, size } => write!(f, "truncate-slot {slot} {size}"),
            Op::FallocateSlot { slot, mode, range } => {
                write!(f, "fallocate-slot {slot} {mode} {range}")
            }
            Op::StatSlot { slot } => write!(f, "stat-slot {slot}"),
            Op::ReaddirSlot { slot } => write!(f, "readdir-slot {slot}"),
            Op::FsyncSlot { slot } => write!(f, "fsync-slot {slot}"),
        }
    }
}

/// The words of a line that are left to read.
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

    fn maybe<T: FromStr>(&mut self) -> Result<Option<T>, ParseError> {
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
        if let Some(flags) = parse_flags(name) {
            return Ok(Op::Open {
                slot: self.number()?,
                path: self.path()?,
                flags,
                mode: self.mode()?,
            });
        }
        if let Some(name) = name.strip_suffix("-slot") {
            let slot = self.number()?;
            return self.slot_op(name, slot);
        }
        if name == "sync" {
            return Ok(Op::Sync);
        }
        let path = self.path()?;
        Ok(match name {
            "create" => Op::Create {
                path,
                mode: self.mode()?,
                exclusive: self.flag(EXCLUSIVE)?,
            },
            "mkdir" => Op::Mkdir {
                path,
                mode: self.mode()?,
            },
            "mknod" => Op::Mknod {
                path,
                kind: self.kind()?,
                mode: self.mode()?,
                device: self.number()?,
            },
            "symlink" => Op::Symlink {
                target: path,
                path: self.path()?,
            },
            "link" => Op::Link {
                from: path,
                to: self.path()?,
            },
            "unlink" => Op::Unlink { path },
            "rmdir" => Op::Rmdir { path },
            "rename" => Op::Rename {
                from: path,
                to: self.path()?,
                flags: self.number()?,
            },
            "readlink" => Op::Readlink { path },
            "write" => Op::Write {
                path,
                offset: self.number()?,
                seed: self.number()?,
                len: self.number()?,
            },
            "append" => Op::Append {
                path,
                seed: self.number()?,
                len: self.number()?,
            },
            "read" => Op::Read {
                path,
                range: self.range()?,
            },
            "truncate" => Op::Truncate {
                path,
                size: self.number()?,
            },
            "fallocate" => Op::Fallocate {
                path,
                mode: self.number()?,
                range: self.range()?,
            },
            "seek-data" => Op::SeekData {
                path,
                offset: self.number()?,
            },
            "seek-hole" => Op::SeekHole {
                path,
                offset: self.number()?,
            },
            "fsync" => Op::Fsync { path },
            "chmod" => Op::Chmod {
                path,
                mode: self.mode()?,
            },
            "chown" => Op::Chown {
                path,
                uid: self.maybe()?,
                gid: self.maybe()?,
                follow: self.flag(FOLLOW)?,
            },
            "utimens" => Op::Utimens {
                path,
                atime: self.time()?,
                mtime: self.time()?,
                follow: self.flag(FOLLOW)?,
            },
            "stat" => Op::Stat {
                path,
                follow: self.flag(FOLLOW)?,
            },
            "times" => Op::Times { path },
            "access" => Op::Access {
                path,
                mask: self.number()?,
            },
            "readdir" => Op::Readdir { path },
            _ => return Err(self.error("the operation")),
        })
    }

    fn slot_op(&mut self, name: &str, slot: u8) -> Result<Op, ParseError> {
        Ok(match name {
            "close" => Op::CloseSlot { slot },
            "read" => Op::ReadSlot {
                slot,
                range: self.range()?,
            },
            "write" => Op::WriteSlot {
                slot,
                offset: self.number()?,
                seed: self.number()?,
                len: self.number()?,
            },
            "truncate" => Op::TruncateSlot {
                slot,
                size: self.number()?,
            },
            "fallocate" => Op::FallocateSlot {
                slot,
                mode: self.number()?,
                range: self.range()?,
            },
            "stat" => Op::StatSlot { slot },
            "readdir" => Op::ReaddirSlot { slot },
            "fsync" => Op::FsyncSlot { slot },
            _ => return Err(self.error("the operation")),
        })
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
            "sync",
        ] {
            let again = line.parse::<Op>().map(|op| op.to_string());
            let expected = line.replace("create -", "create -%").replace("%20%", "%20");
            assert_eq!(again, Ok(expected), "{line}");
        }
        let step = "1000:100+4+24! stat a -";
        assert_eq!(step.parse::<Step>().unwrap().to_string(), step);
    }

    #[test]
    fn what_is_not_an_operation_is_refused() {
        for line in [
            "",
            "mkdir",
            "mkdir a",
            "mkdir a 8",
            "mkdir a 7 7",
            "open+fast 1 a 0",
            "stat a maybe",
            "unlink %zz",
            "é",
        ] {
            assert!(line.parse::<Op>().is_err(), "{line}");
        }
    }
}
