//! Path resolution.

use crate::tree::Body;
use crate::{Cred, Errno, Ino, Model, PATH_MAX, Result, SYMLINK_FOLLOW_MAX};

/// The end of a walked path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// The path was only slashes: the root directory.
    Root,
    /// The last component, in a directory that the caller may search.
    Name {
        /// The directory.
        dir: Ino,
        /// The component, also `.` or `..`; not looked up yet.
        name: Vec<u8>,
        /// Whether slashes follow.
        slash: bool,
    },
}

/// A walk in progress.
pub(crate) struct Walk<'a> {
    model: &'a Model,
    cred: &'a Cred,
    dir: Ino,
    pending: Vec<u8>,
    links: u32,
}

impl<'a> Walk<'a> {
    /// Begins at `base`; checks everything that follows from the path's bytes alone.
    pub(crate) fn new(
        model: &'a Model,
        base: Ino,
        path: &[u8],
        cred: &'a Cred,
    ) -> Result<Walk<'a>> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.contains(&0) {
            return Err(Errno::EINVAL);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let dir = if path[0] == b'/' { Ino::ROOT } else { base };
        model.entries(dir)?;
        Ok(Walk {
            model,
            cred,
            dir,
            pending: path.to_vec(),
            links: 0,
        })
    }

    /// Walks everything but the last component.
    pub(crate) fn reach_last(&mut self) -> Result<Last> {
        loop {
            let skipped = self
                .pending
                .iter()
                .take_while(|&&byte| byte == b'/')
                .count();
            self.pending.drain(..skipped);
            if self.pending.is_empty() {
                return Ok(Last::Root);
            }
            self.model.search(self.dir, self.cred)?;
            let end = self
                .pending
                .iter()
                .position(|&byte| byte == b'/')
                .unwrap_or(self.pending.len());
            let rest = self.pending.split_off(end);
            let name = std::mem::replace(&mut self.pending, rest);
            if self.pending.iter().all(|&byte| byte == b'/') {
                return Ok(Last::Name {
                    dir: self.dir,
                    name,
                    slash: !self.pending.is_empty(),
                });
            }
            let ino = self.model.find(self.dir, &name)?.ok_or(Errno::ENOENT)?;
            match &self.model.node(ino)?.body {
                Body::Dir { .. } => self.dir = ino,
                Body::File(_) | Body::Special(..) => return Err(Errno::ENOTDIR),
                Body::Symlink(target) => self.follow(target)?,
            }
        }
    }

    /// Continues with a link's target in place of the component that was returned or walked last.
    fn follow(&mut self, target: &[u8]) -> Result<()> {
        self.links += 1;
        if self.links > SYMLINK_FOLLOW_MAX {
            return Err(Errno::ELOOP);
        }
        if target.first() == Some(&b'/') {
            self.dir = Ino::ROOT;
        }
        self.pending.splice(..0, target.iter().copied());
        Ok(())
    }

    /// Continues with the target of the last component, which is the link `ino` in `dir`.
    pub(crate) fn follow_last(&mut self, dir: Ino, ino: Ino, target: &[u8]) -> Result<()> {
        self.follow(target)?;
        self.model.may_follow(dir, ino, self.cred)
    }

    /// Walks to the end. The last component is followed if `follow_last` is set or slashes come
    /// after it.
    pub(crate) fn reach_end(&mut self, follow_last: bool) -> Result<Ino> {
        loop {
            let Last::Name { dir, name, slash } = self.reach_last()? else {
                return Ok(Ino::ROOT);
            };
            let ino = self.model.find(dir, &name)?.ok_or(Errno::ENOENT)?;
            match &self.model.node(ino)?.body {
                Body::Symlink(target) if follow_last || slash => {
                    self.follow_last(dir, ino, target)?
                }
                Body::Dir { .. } => return Ok(ino),
                _ if slash => return Err(Errno::ENOTDIR),
                _ => return Ok(ino),
            }
        }
    }
}

impl Model {
    /// The inode of `path`, from the directory `base` or, if the path begins with a slash, from the
    /// root.
    ///
    /// A symbolic link at the end is followed if `follow_last` is set or slashes come after it.
    pub fn resolve(&self, base: Ino, path: &[u8], follow_last: bool, cred: &Cred) -> Result<Ino> {
        Walk::new(self, base, path, cred)?.reach_end(follow_last)
    }

    /// Everything but the last component of `path`.
    pub(crate) fn resolve_parent(&self, base: Ino, path: &[u8], cred: &Cred) -> Result<Last> {
        Walk::new(self, base, path, cred)?.reach_last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Model {
        let mut model = Model::new(0);
        let root = Cred::superuser();
        for path in [&b"d"[..], b"d/e", b"closed"] {
            model.mkdir_at(Ino::ROOT, path, 0o755, &root, 1).unwrap();
        }
        model
            .mkdir_at(Ino::ROOT, b"closed/in", 0o755, &root, 1)
            .unwrap();
        model
            .open_at(Ino::ROOT, b"d/f", libc::O_CREAT, 0o644, &root, 1)
            .unwrap();
        for (target, path) in [
            (&b"d/"[..], &b"l"[..]),
            (b"/d/f", b"d/e/abs"),
            (b"self", b"self"),
            (b"none", b"dangling"),
        ] {
            model.symlink_at(target, Ino::ROOT, path, &root, 1).unwrap();
        }
        let closed = model.resolve(Ino::ROOT, b"closed", true, &root).unwrap();
        model.node_mut(closed).unwrap().mode = 0o700;
        model
    }

    #[test]
    fn paths_resolve_as_in_the_kernel() {
        let model = tree();
        let user = Cred::user(5, 5, &[]);
        let at = |path: &[u8], follow| model.resolve(Ino::ROOT, path, follow, &user);
        assert_eq!(at(b"l/../d//e/./abs", true), at(b"d/f", true));
        assert_ne!(at(b"l", false), at(b"l", true));
        assert_eq!(at(b"l/", false), at(b"d", false));
        assert_eq!(at(b"../../..", true), Ok(Ino::ROOT));
        assert_eq!(at(b"d/f/", true), Err(Errno::ENOTDIR));
        assert_eq!(at(b"d/f/.", true), Err(Errno::ENOTDIR));
        assert_eq!(at(b"d/f/x", true), Err(Errno::ENOTDIR));
        assert_eq!(at(b"self", true), Err(Errno::ELOOP));
        assert_eq!(at(b"dangling", true), Err(Errno::ENOENT));
        assert_eq!(at(b"dangling/", false), Err(Errno::ENOENT));
        assert_eq!(at(b"", true), Err(Errno::ENOENT));
        assert_eq!(at(&[b'n'; 256], true), Err(Errno::ENAMETOOLONG));
        assert_eq!(at(&[b'/'; 4096], true), Err(Errno::ENAMETOOLONG));
        assert_eq!(at(&[b'/'; 4095], true), Ok(Ino::ROOT));
        assert_eq!(at(b"closed/in", true), Err(Errno::EACCES));
        assert_eq!(at(b"closed/.", true), Err(Errno::EACCES));
        assert!(at(b"closed/", true).is_ok());
    }

    #[test]
    fn protected_links_are_not_followed_if_the_kernel_is_hardened() {
        let mut model = Model::new(0);
        let (root, user) = (Cred::superuser(), Cred::user(5, 5, &[]));
        model.node_mut(Ino::ROOT).unwrap().mode = 0o1777;
        model.symlink_at(b".", Ino::ROOT, b"l", &user, 1).unwrap();
        let file = model
            .create(Ino::ROOT, b"f", 0o666, true, &user, 1)
            .unwrap();
        model.open(file, libc::O_RDONLY, &user, 1).unwrap();
        let open = |model: &mut Model, path: &[u8], flags| {
            model.open_at(Ino::ROOT, path, flags, 0, &root, 1).err()
        };
        let (create, nofollow) = (libc::O_CREAT, libc::O_CREAT | libc::O_NOFOLLOW);
        assert_eq!(model.resolve(Ino::ROOT, b"l", true, &root), Ok(Ino::ROOT));
        assert_eq!(open(&mut model, b"f", create), None);
        assert_eq!(open(&mut model, b"l", nofollow), Some(Errno::EACCES));
        model.hardening = crate::Hardening {
            hardlinks: true,
            symlinks: true,
            regular: 1,
        };
        assert_eq!(
            model.resolve(Ino::ROOT, b"l", true, &root),
            Err(Errno::EACCES)
        );
        assert_eq!(model.resolve(Ino::ROOT, b"l/.", true, &root), Ok(Ino::ROOT));
        assert_eq!(model.resolve(Ino::ROOT, b"l", true, &user), Ok(Ino::ROOT));
        assert_eq!(open(&mut model, b"f", create), Some(Errno::EACCES));
        assert_eq!(open(&mut model, b"f", libc::O_RDONLY), None);
    }

    #[test]
    fn forty_links_are_followed_and_no_more() {
        let mut model = Model::new(0);
        let root = Cred::superuser();
        model.mkdir_at(Ino::ROOT, b"0", 0o755, &root, 1).unwrap();
        for link in 1..=41 {
            let (target, name) = ((link - 1).to_string(), link.to_string());
            model
                .symlink_at(target.as_bytes(), Ino::ROOT, name.as_bytes(), &root, 1)
                .unwrap();
        }
        assert!(model.resolve(Ino::ROOT, b"40", true, &root).is_ok());
        assert_eq!(
            model.resolve(Ino::ROOT, b"41", true, &root),
            Err(Errno::ELOOP)
        );
    }
}
