//! Rename: the checks of `renameat2(2)` in the kernel's order, then the move.

use crate::namespace::Entry;
use crate::tree::{Body, WRITE};
use crate::{Cred, Errno, Ino, LINK_MAX, Model, Result};

/// Fail with `EEXIST` if the new name exists.
pub const RENAME_NOREPLACE: u32 = 1;
/// Exchange the two names.
pub const RENAME_EXCHANGE: u32 = 2;

/// Checks what the flags alone can violate.
pub(crate) fn check_flags(flags: u32) -> Result<()> {
    let both = RENAME_NOREPLACE | RENAME_EXCHANGE;
    if flags & !both != 0 || flags == both {
        Err(Errno::EINVAL)
    } else {
        Ok(())
    }
}

impl Model {
    /// Moves `from` in `from_dir` to `to` in `to_dir`; `flags` is 0, [`RENAME_NOREPLACE`] or
    /// [`RENAME_EXCHANGE`].
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
        let no_replace = flags & RENAME_NOREPLACE != 0;
        self.search(from.dir, cred)?;
        self.search(to.dir, cred)?;
        if from.is_dots() {
            return Err(Errno::EBUSY);
        }
        if to.is_dots() {
            return Err(if no_replace {
                Errno::EEXIST
            } else {
                Errno::EBUSY
            });
        }
        let source = self.find(from.dir, from.name)?.ok_or(Errno::ENOENT)?;
        if self.node(to.dir)?.nlink == 0 {
            // Whatever the source is: the target is looked for first.
            return Err(Errno::ENOENT);
        }
        let target = self.find(to.dir, to.name)?;
        let source_is_dir = self.node(source)?.is_dir();
        let target_is_dir = match target {
            Some(_) if no_replace => return Err(Errno::EEXIST),
            None if exchange => return Err(Errno::ENOENT),
            Some(target) => self.node(target)?.is_dir(),
            None => false,
        };
        if exchange && !target_is_dir && to.slash {
            return Err(Errno::ENOTDIR);
        }
        if !source_is_dir && (from.slash || (!exchange && to.slash)) {
            return Err(Errno::ENOTDIR);
        }
        if source_is_dir && self.is_within(to.dir, source)? {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = target
            && target_is_dir
            && self.is_within(from.dir, target)?
        {
            return Err(if exchange {
                Errno::EINVAL
            } else {
                Errno::ENOTEMPTY
            });
        }
        if target == Some(source) {
            return Ok(());
        }
        self.may_delete(from.dir, source, None, cred)?;
        match target {
            None => self.may_create(to.dir, cred)?,
            Some(target) => {
                self.may_delete(to.dir, target, (!exchange).then_some(source_is_dir), cred)?
            }
        }
        if from.dir != to.dir {
            self.may_change_parent(source, source_is_dir, cred)?;
            if let Some(target) = target.filter(|_| exchange) {
                self.may_change_parent(target, target_is_dir, cred)?;
            }
            self.check_dir_links(
                from,
                to,
                source_is_dir,
                target.map(|_| target_is_dir),
                exchange,
            )?;
        }
        match target {
            Some(target) if exchange => self.exchange(from, source, to, target, now),
            Some(target) if source_is_dir && !self.entries(target)?.is_empty() => {
                Err(Errno::ENOTEMPTY)
            }
            _ => self.replace(from, source, to, target, now),
        }
    }

    /// A directory's `..` is rewritten, so the directory itself must be writable.
    fn may_change_parent(&self, ino: Ino, is_dir: bool, cred: &Cred) -> Result<()> {
        if is_dir {
            self.access(ino, WRITE, cred)
        } else {
            Ok(())
        }
    }

    fn check_dir_links(
        &self,
        from: Entry,
        to: Entry,
        source: bool,
        target: Option<bool>,
        swap: bool,
    ) -> Result<()> {
        let full = |dir: Ino| self.node(dir).map(|node| node.nlink >= LINK_MAX);
        let gains = source && target != Some(true) && full(to.dir)?;
        let gains_back = swap && !source && target == Some(true) && full(from.dir)?;
        if gains || gains_back {
            Err(Errno::EMLINK)
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

    /// The inode's name went from one directory to another.
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
    fn nothing_moves_into_a_removed_directory_not_even_what_it_was_in() {
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
