//! `git checkout` between two commits of a tree of sources, in mounted pools.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use vellum::NamespaceKind;
use vellum::media::count::Counts;

use super::subjects::{BASELINE, DEFAULT, Room, Setting, pool_path};
use super::tree::Tree;
use crate::Result;
use crate::error::{Error, doing, expect};
use crate::figure::{Axis, Scale};
use crate::library::Library;
use crate::mapping::{Grid, Sample};
use crate::mount::{self, Mount};
use crate::peer::Peer;
use crate::report::Outcome;
use crate::side::Side;

const LABELS: [&str; 2] = ["checkout", "status"];
/// The branches, which differ in a tenth of the files and in the name of one directory.
const FIRST: &str = "first";
const SECOND: &str = "second";
const CHANGED_PART: usize = 10;
const RENAMED: &str = "a-renamed-directory";
/// The directory of the tree in the repository.
const BELOW: &str = "tree";
/// The space for the repository: it contains every file once more, and the differences.
const COPIES: u64 = 4;
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

/// A directory where `git` works.
enum Target {
    Pool {
        mount: Mount,
        _dir: tempfile::TempDir,
    },
    Peer(Box<Peer>),
}

pub(super) fn measure(setting: &Setting<'_>) -> Result<Outcome> {
    let options = setting.options;
    let tree = Tree::of(options)?;
    let grid = Grid::bars(
        "git",
        "Two commits of a tree of sources",
        "command",
        &LABELS,
    )
    .of(Axis::of("time of a command", "ms", Scale::Linear))
    .claim(
        "The paper does not measure this; areas are made for names that come and go all over a \
             tree.",
    )
    .note(tree.note(options))
    .note(format!(
        "`git checkout` of two branches in turn, which differ in every {CHANGED_PART}th file and \
             in the name of a directory; `git status` after each. Pools are mounted through FUSE, \
             peers by the kernel."
    ));
    if let Some(why) = missing() {
        let mut figure = grid.figure();
        figure.notes.push(format!("Left out: {why}."));
        return Ok(Outcome::new(vec![figure], Vec::new()));
    }
    let room = Room::for_names(3 * tree.names()).and_files(COPIES * tree.bytes());
    let places = places(setting, room)?;
    let names = places.iter().map(|(name, _)| name.clone()).collect();
    let mut grid = grid.named(names, DEFAULT, BASELINE);
    for (_, place) in &places {
        setting.check()?;
        place.prepare(&tree)?;
    }
    for round in 0..=options.rounds {
        for (side, (_, place)) in places.iter().enumerate() {
            setting.check()?;
            for (label, sample) in place.round()?.into_iter().enumerate() {
                grid.add(round, side, label, sample);
            }
        }
    }
    Ok(Outcome::new(vec![grid.figure()], Vec::new()))
}

/// Why nothing can be measured here.
fn missing() -> Option<String> {
    let git = Command::new("git").arg("--version").output();
    let git = git.err().map(|error| format!("git: {error}"));
    git.or_else(mount::missing)
}

fn places(setting: &Setting<'_>, room: Room) -> Result<Vec<(String, Target)>> {
    let mut places = Vec::new();
    for namespace in NamespaceKind::ALL {
        let dir = setting.dir()?;
        let pool = pool_path(dir.path());
        Library::make(&pool, &room.pool(namespace))?;
        let mount = Mount::of_pool(&pool)?;
        places.push((
            namespace.name().to_owned(),
            Target::Pool { mount, _dir: dir },
        ));
    }
    for peer in setting.peers(room)? {
        places.push((peer.kind.to_owned(), Target::Peer(Box::new(peer))));
    }
    Ok(places)
}

impl Target {
    fn dir(&self) -> &Path {
        match self {
            Self::Pool { mount, .. } => mount.dir(),
            Self::Peer(peer) => peer.dir(),
        }
    }

    fn side(&self) -> &impl Side {
        match self {
            Self::Pool { mount, .. } => &mount.kernel,
            Self::Peer(peer) => &peer.kernel,
        }
    }

    fn repository(&self) -> PathBuf {
        self.dir().join("repository")
    }

    /// Runs `git` in the repository; returns its output.
    fn git(&self, words: &[&str]) -> Result<String> {
        let settings = SETTINGS.iter().flat_map(|setting| ["-c", setting]);
        let output = Command::new("git")
            .args(settings)
            .args(words)
            .current_dir(self.repository())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LC_ALL", "C")
            .output()
            .map_err(doing("run git"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(Error::Tool {
                command: format!("git {}", words.join(" ")),
                said: text(&output.stderr),
            })
        }
    }

    /// Creates the repository with both commits, and checks out the first one.
    fn prepare(&self, tree: &Tree) -> Result<()> {
        let root = self.repository();
        std::fs::create_dir(&root).map_err(doing("make a repository"))?;
        self.git(&["init", "--quiet"])?;
        for dir in &tree.dirs {
            std::fs::create_dir_all(root.join(dir.path(BELOW)))
                .map_err(doing("make a directory"))?;
        }
        self.write(tree, 1)?;
        self.commit()?;
        self.git(&["checkout", "--quiet", "-b", SECOND])?;
        self.write(tree, CHANGED_PART)?;
        let mut renamed = tree.dirs.iter().skip(1);
        if let Some(dir) = renamed.find(|dir| !dir.files.is_empty()) {
            let (from, to) = (root.join(dir.path(BELOW)), root.join(BELOW).join(RENAMED));
            std::fs::rename(from, to).map_err(doing("rename a directory"))?;
        }
        self.commit()?;
        self.git(&["checkout", "--quiet", FIRST]).map(drop)
    }

    /// Writes every `part`th file; its content says which file it is and what it is for.
    fn write(&self, tree: &Tree, part: usize) -> Result<()> {
        let files = tree.dirs.iter().flat_map(|dir| {
            let path = self.repository().join(dir.path(BELOW));
            dir.files
                .iter()
                .map(move |file| (path.join(file.name.to_string_lossy().as_ref()), file.bytes))
        });
        for (number, (path, bytes)) in files.enumerate().step_by(part) {
            let line = format!("file {number}, every {part}th\n");
            let text = line.repeat(bytes.div_ceil(line.len()).max(1));
            std::fs::write(&path, text).map_err(doing(format!("write {}", path.display())))?;
        }
        Ok(())
    }

    fn commit(&self) -> Result<()> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", "a state"])
            .map(drop)
    }

    /// Checks out the other branch and then the first one again, with a `git status` after each.
    fn round(&self) -> Result<Vec<Sample>> {
        let mut samples = [Sample::default(); LABELS.len()];
        for branch in [SECOND, FIRST] {
            let commands: [&[&str]; 2] =
                [&["checkout", "--quiet", branch], &["status", "--porcelain"]];
            for (sample, words) in samples.iter_mut().zip(commands) {
                self.side().settle()?;
                let (before, start) = (self.side().counts(), Instant::now());
                let said = self.git(words)?;
                sample.value += start.elapsed().as_secs_f64() * 1e3 / 2.0;
                self.side().settle()?;
                let counts: Counts = self.side().counts() - before;
                sample.counts += counts;
                sample.ops += 1;
                expect("what git says", said.as_str(), "")?;
            }
        }
        Ok(samples.into())
    }
}
