//! Rename: the checks of `renameat2(2)` in the kernel's order, then the move.

use crate::namespace::Entry;
use crate::tree::{Body, WRITE};
use crate::{Cred, Errno, Ino, Kind, LINK_MAX, Model, Result};

/// Fail with `EEXIST` if the new name exists.
pub const RENAME_NOREPLACE: u32 = 1;
/// Exchange the two names.
pub const RENAME_EXCHANGE: u32 = 2;
/// Leave a whiteout under the old name: a character device 0.
pub const RENAME_WHITEOUT: u32 = 4;

/// Checks the flags by themselves.
pub(crate) fn check_flags(flags: u32) -> Result<()> {
    let beside = RENAME_NOREPLACE | RENAME_WHITEOUT;
    let exchanges = flags & RENAME_EXCHANGE != 0;
    if flags & !(beside | RENAME_EXCHANGE) != 0 || exchanges && flags & beside != 0 {
        Err(Errno::EINVAL)
    } else {
        Ok(())
    }
}

/// Refuses to move `.` and `..`, or anything to them.
fn check_dots(from: &Entry, to: &Entry, flags: u32) -> Result<()> {
    if from.is_dots() {
        return Err(Errno::EBUSY);
    }
    match to.is_dots() {
        true if flags & RENAME_NOREPLACE != 0 => Err(Errno::EEXIST),
        true => Err(Errno::EBUSY),
        false => Ok(()),
    }
}

impl Model {
    /// Moves `from` in `from_dir` to `to` in `to_dir`; `flags` are [`RENAME_NOREPLACE`],
    /// [`RENAME_EXCHANGE`] and [`RENAME_WHITEOUT`].
    #[expect(
        clippy::too_many_arguments,
        reason = "two names, two directories, flags, and what every operation takes"
    )]
    pub fn rename(
        &mut self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        flags: u32,
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        check_flags(flags)?;
        self.rename_entry(
            Entry::bare(from_dir, from),
            Entry::bare(to_dir, to),
            flags,
            cred,
            now,
        )
    }

    pub(crate) fn rename_entry(
        &mut self,
        from: Entry,
        to: Entry,
        flags: u32,
        cred: &Cred,
        now: i64,
    ) -> Result<()> {
        let exchange = flags & RENAME_EXCHANGE != 0;
        self.search(from.dir, cred)?;
        self.search(to.dir, cred)?;
        check_dots(&from, &to, flags)?;
        let (source, target) = self.ends(&from, &to, flags)?;
        self.check_kinds((&from, source), (&to, target), exchange)?;
        if target == Some(source) {
            return Ok(());
        }
        self.may_move((&from, source), (&to, target), exchange, cred)?;
        self.takes(to.dir, source)?;
        if let Some(target) = target.filter(|_| exchange) {
            self.takes(from.dir, target)?;
        }
        match target {
            Some(target) if exchange => self.exchange(from, source, to, target, now),
            Some(target) if self.is_dir(source)? && !self.entries(target)?.is_empty() => {
                Err(Errno::ENOTEMPTY)
            }
            _ => {
                if flags & RENAME_WHITEOUT != 0 {
                    self.may_have_new(from.dir, Kind::CharDevice, cred)?;
                }
                self.replace(from, source, to, target, now)?;
                if flags & RENAME_WHITEOUT != 0 {
                    let whiteout = Body::Special(Kind::CharDevice, 0);
                    self.add_new(from, whiteout, 0, cred, now)?;
                }
                Ok(())
            }
        }
    }

    fn is_dir(&self, ino: Ino) -> Result<bool> {
        self.node(ino).map(|node| node.is_dir())
    }

    /// The inodes of the old and the new name.
    fn ends(&self, from: &Entry, to: &Entry, flags: u32) -> Result<(Ino, Option<Ino>)> {
        let source = self.find(from.dir, from.name)?.ok_or(Errno::ENOENT)?;
        if self.node(to.dir)?.nlink == 0 {
            // Whatever the source is: the target is looked up first.
            return Err(Errno::ENOENT);
        }
        match self.find(to.dir, to.name)? {
            Some(_) if flags & RENAME_NOREPLACE != 0 => Err(Errno::EEXIST),
            None if flags & RENAME_EXCHANGE != 0 => Err(Errno::ENOENT),
            target => Ok((source, target)),
        }
    }

    /// Slashes behind a name require a directory, and no directory moves below itself.
    fn check_kinds(
        &self,
        (from, source): (&Entry, Ino),
        (to, target): (&Entry, Option<Ino>),
        exchange: bool,
    ) -> Result<()> {
        let target_dir = match target {
            Some(target) if self.is_dir(target)? => Some(target),
            _ => None,
        };
        let source_is_dir = self.is_dir(source)?;
        if exchange && target_dir.is_none() && to.slash {
            return Err(Errno::ENOTDIR);
        }
        if !source_is_dir && (from.slash || (!exchange && to.slash)) {
            return Err(Errno::ENOTDIR);
        }
        if source_is_dir && self.is_within(to.dir, source)? {
            return Err(Errno::EINVAL);
        }
        match target_dir {
            Some(dir) if self.is_within(from.dir, dir)? => Err(if exchange {
                Errno::EINVAL
            } else {
                Errno::ENOTEMPTY
            }),
            _ => Ok(()),
        }
    }

    /// Checks permissions, kinds that can replace each other, and link counts.
    fn may_move(
        &self,
        (from, source): (&Entry, Ino),
        (to, target): (&Entry, Option<Ino>),
        exchange: bool,
        cred: &Cred,
    ) -> Result<()> {
        let source_is_dir = self.is_dir(source)?;
        self.may_delete(from.dir, source, None, cred)?;
        match target {
            None => self.may_create(to.dir, cred)?,
            Some(target) => {
                self.may_delete(to.dir, target, (!exchange).then_some(source_is_dir), cred)?;
            }
        }
        if from.dir == to.dir {
            return Ok(());
        }
        self.may_change_parent(source, cred)?;
        if let Some(target) = target.filter(|_| exchange) {
            self.may_change_parent(target, cred)?;
        }
        let target_is_dir = target.map(|target| self.is_dir(target)).transpose()?;
        let full = |dir: Ino| self.node(dir).map(|node| node.nlink >= LINK_MAX);
        let gains = source_is_dir && target_is_dir != Some(true) && full(to.dir)?;
        let gains_back =
            exchange && !source_is_dir && target_is_dir == Some(true) && full(from.dir)?;
        if gains || gains_back {
            Err(Errno::EMLINK)
        } else {
            Ok(())
        }
    }

    /// The directory's `..` is rewritten, so the directory itself must be writable.
    fn may_change_parent(&self, ino: Ino, cred: &Cred) -> Result<()> {
        if self.is_dir(ino)? {
            self.access(ino, WRITE, cred)
        } else {
            Ok(())
        }
    }

    fn replace(
        &mut self,
        from: Entry,
        source: Ino,
        to: Entry,
        target: Option<Ino>,
        now: i64,
    ) -> Result<()> {
        self.remove_entry(from.dir, from.name, now);
        if let Some(target) = target {
            if self.node(target)?.is_dir() {
                self.node_mut(to.dir)?.nlink -= 1;
            }
            self.drop_link(target, now);
        }
        self.add_entry(to.dir, to.name, source, now);
        self.moved(source, from.dir, to.dir, now)
    }

    fn exchange(
        &mut self,
        from: Entry,
        source: Ino,
        to: Entry,
        target: Ino,
        now: i64,
    ) -> Result<()> {
        self.add_entry(from.dir, from.name, target, now);
        self.add_entry(to.dir, to.name, source, now);
        self.moved(source, from.dir, to.dir, now)?;
        self.moved(target, to.dir, from.dir, now)
    }

    /// Updates an inode whose name moved from one directory to another.
    fn moved(&mut self, ino: Ino, from: Ino, to: Ino, now: i64) -> Result<()> {
        let node = self.node_mut(ino)?;
        node.ctime = now;
        if let Body::Dir { parent, .. } = &mut node.body {
            *parent = to;
            self.node_mut(from)?.nlink -= 1;
            self.node_mut(to)?.nlink += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps: &[(&str, &str)]) {
        let mut model = Model::new(0);
        for (line, expected) in steps {
            let outcome = crate::apply(&mut model, &line.parse().unwrap(), &Cred::superuser(), 1);
            assert_eq!(outcome.to_string(), *expected, "{line}");
        }
    }

    #[test]
    fn loops_and_ancestors() {
        run(&[
            ("mkdir a 755", "done"),
            ("mkdir a/b 755", "done"),
            ("create a/b/f 644 -", "done"),
            ("rename a a/b/c 0", "EINVAL"),
            ("rename a a/x 0", "EINVAL"),
            ("rename a/b/f a 0", "ENOTEMPTY"),
            ("rename a/b a 2", "EINVAL"),
            ("rename a a 0", "done"),
            ("rename a/. b 0", "EBUSY"),
            ("rename a b 3", "EINVAL"),
        ]);
    }

    #[test]
    fn nothing_moves_into_a_removed_directory_not_even_its_parent() {
        let (mut model, root) = (Model::new(0), Cred::superuser());
        let above = model.mkdir(Ino::ROOT, b"a", 0o755, &root, 1).unwrap();
        let removed = model.mkdir(above, b"b", 0o755, &root, 1).unwrap();
        model.open(removed, libc::O_RDONLY, &root, 1).unwrap();
        model.rmdir(above, b"b", &root, 1).unwrap();
        for flags in [0, RENAME_NOREPLACE, RENAME_EXCHANGE] {
            let moved = model.rename(Ino::ROOT, b"a", removed, b"c", flags, &root, 1);
            assert_eq!(moved, Err(Errno::ENOENT), "{flags}");
        }
    }

    #[test]
    fn kinds_must_agree_and_links_are_counted() {
        run(&[
            ("mkdir d 755", "done"),
            ("mkdir d/sub 755", "done"),
            ("create f 644 -", "done"),
            ("link f g", "done"),
            ("rename f g 0", "done"),
            ("stat f -", "stat file 644 2 0:0 0 0"),
            ("rename f d 0", "EISDIR"),
            ("rename d f 0", "ENOTDIR"),
            ("rename f d 2", "done"),
            ("stat f -", "stat dir 755 3 0:0 0 0"),
            ("mkdir e 755", "done"),
            ("rename e f 0", "ENOTEMPTY"),
            ("rename f/sub e 0", "done"),
            ("stat f -", "stat dir 755 2 0:0 0 0"),
            ("stat . -", "stat dir 755 4 0:0 0 0"),
            ("rename e f 1", "EEXIST"),
        ]);
    }
}
