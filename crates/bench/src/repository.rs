//! A repository of `git` with two branches of a tree of sources.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::error::doing;
use crate::tool;
use crate::tree::Tree;

/// The branches, which differ in every [`CHANGED_PART`]th file and in the name of one directory.
pub(crate) const FIRST: &str = "first";
pub(crate) const SECOND: &str = "second";
pub(crate) const CHANGED_PART: usize = 10;
const RENAMED: &str = "a-renamed-directory";
/// The directory of the tree in the repository.
const BELOW: &str = "tree";
/// Settings of `git` that replace those of the machine. Objects are stored uncompressed and without
/// syncs, so that only the file system is timed.
const SETTINGS: [&str; 8] = [
    "user.name=bench",
    "user.email=bench@localhost",
    "core.compression=0",
    "core.fsync=none",
    "gc.auto=0",
    "init.defaultBranch=first",
    "advice.detachedHead=false",
    "safe.directory=*",
];

/// The command `git`, independent of the machine's settings.
pub(crate) fn git() -> Command {
    let mut git = Command::new("git");
    git.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("LC_ALL", "C");
    git
}

/// A repository.
pub(crate) struct Repository(pub(crate) PathBuf);

impl Repository {
    /// Creates it with both branches, and checks out the first one.
    pub(crate) fn create(root: PathBuf, tree: &Tree) -> Result<Self> {
        std::fs::create_dir(&root).map_err(doing("make a repository"))?;
        let repository = Self(root);
        repository.git(&["init", "--quiet"])?;
        tree.write(&repository.0.join(BELOW), 1)?;
        repository.commit()?;
        repository.git(&["checkout", "--quiet", "-b", SECOND])?;
        tree.write(&repository.0.join(BELOW), CHANGED_PART)?;
        let mut renamed = tree.dirs.iter().skip(1);
        if let Some(dir) = renamed.find(|dir| !dir.files.is_empty()) {
            let (from, to) = (dir.path(BELOW), Path::new(BELOW).join(RENAMED));
            std::fs::rename(repository.0.join(from), repository.0.join(to))
                .map_err(doing("rename a directory"))?;
        }
        repository.commit()?;
        repository.git(&["checkout", "--quiet", FIRST])?;
        Ok(repository)
    }

    fn commit(&self) -> Result<()> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", "a state"])
            .map(drop)
    }

    /// Runs `git` in it; returns its output.
    pub(crate) fn git(&self, words: &[&str]) -> Result<String> {
        tool::run(git().args(words).current_dir(&self.0))
    }
}
