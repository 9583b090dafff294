//! Mounts over or below a mount, which hide it or keep it from being unmounted.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::{FS_TYPE, Line, path};

/// The mounts over or below a mount, in its mount namespace. Ending the mount must not detach them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// The mounts, in the order in which they can be unmounted.
    mounts: Vec<Other>,
}

/// A mount of any type.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Other {
    dir: PathBuf,
    fs_type: String,
    source: String,
    /// Whether it hides the mount, or is below a mount that does.
    is_over: bool,
}

impl Others {
    /// Finds the mounts over and below a mount in the kernel's table, which names the parent of
    /// each. Returns `None` if there are none.
    pub(super) fn find(id: u64, table: &[u8]) -> Option<Self> {
        let all: Vec<Line<'_>> = table.split(|&b| b == b'\n').filter_map(Line::of).collect();
        let own = all.iter().find(|line| line.id == id)?;
        let over = on(hiding(own, &all), &all);
        let below = all.iter().filter(|line| line.parent == id && line.id != id);
        let mut below = on(below.collect(), &all);
        below.retain(|line| !over.iter().any(|known| known.id == line.id));
        // Mounts that hide it come first, and deeper mounts before those above them.
        let over = over.into_iter().rev().map(|line| Other::of(line, true));
        let below = below.into_iter().rev().map(|line| Other::of(line, false));
        let mounts: Vec<_> = over.chain(below).collect();
        (!mounts.is_empty()).then_some(Self { mounts })
    }

    /// The mounts that hide the mount, if there are any.
    pub(super) fn over(mut self) -> Option<Self> {
        self.mounts.retain(|other| other.is_over);
        (!self.mounts.is_empty()).then_some(self)
    }

    /// The mounts that an error is about.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// The commands that unmount them, in this order: the words before the directory, and the
    /// directory.
    pub fn commands(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.mounts.iter().map(|other| {
            let program = match other.fs_type.as_str() {
                FS_TYPE => "vellum umount",
                _ => "umount",
            };
            (program, other.dir.as_path())
        })
    }
}

/// The given mounts and all mounts below them, however deep.
fn on<'a, 't>(mut found: Vec<&'a Line<'t>>, all: &'a [Line<'t>]) -> Vec<&'a Line<'t>> {
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|line| line.id) {
        found.extend(
            all.iter()
                .filter(|line| line.parent == parent && line.id != parent),
        );
        next += 1;
    }
    found
}

/// The mounts that hide a mount: those on its directory or on a directory above it, on the file
/// systems along its path.
fn hiding<'a, 't>(own: &'a Line<'t>, all: &'a [Line<'t>]) -> Vec<&'a Line<'t>> {
    let mut found = Vec::new();
    let mut on_the_way = own;
    let is_hidden_by =
        |line: &Line<'_>, what: &Line<'_>| path(what.dir).starts_with(path(line.dir));
    found.extend(
        all.iter()
            .filter(|line| line.parent == own.id && line.id != own.id && line.dir == own.dir),
    );
    // The root mount is its own parent, or its parent is not shown.
    while let Some(above) = all
        .iter()
        .find(|line| line.id == on_the_way.parent && line.id != on_the_way.id)
    {
        let on_the_way_id = on_the_way.id;
        found.extend(all.iter().filter(|line| {
            line.parent == above.id
                && line.id != on_the_way_id
                && line.id != above.id
                && is_hidden_by(line, on_the_way)
        }));
        on_the_way = above;
    }
    found
}

impl Other {
    fn of(line: &Line<'_>, is_over: bool) -> Self {
        Self {
            dir: path(line.dir),
            fs_type: String::from_utf8_lossy(line.fs_type).into_owned(),
            source: path(line.source).display().to_string(),
            is_over,
        }
    }

    fn named(&self) -> String {
        let Self {
            dir,
            fs_type,
            source,
            ..
        } = self;
        let dir = dir.display();
        match source.as_str() {
            "none" | "" => format!("{dir} ({fs_type})"),
            source if source == fs_type => format!("{dir} ({fs_type})"),
            source => format!("{dir} ({fs_type} from {source})"),
        }
    }
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for (is_over, how) in [(true, "over"), (false, "below")] {
            let those = self.mounts.iter().filter(|other| other.is_over == is_over);
            let names: Vec<_> = those.map(Other::named).collect();
            let are = match names.len() {
                0 => continue,
                1 => "is",
                _ => "are",
            };
            write!(f, "{before}{} {are} mounted {how} it", names.join(", "))?;
            before = ", and ";
        }
        Ok(())
    }
}

impl std::error::Error for Others {}

impl From<Others> for io::Error {
    fn from(others: Others) -> Self {
        Self::new(io::ErrorKind::ResourceBusy, others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(others: &Others) -> Vec<String> {
        let all = others.commands();
        all.map(|(program, dir)| format!("{program} {}", dir.display()))
            .collect()
    }

    #[test]
    fn mounts_below_are_listed_in_the_order_of_unmounting() {
        let table = b"\
            36 25 0:41 / /m rw shared:9 - fuse.vellum /p.img rw\n\
            38 37 0:43 / /m/a/b rw - fuse.vellum /q.img rw\n\
            37 36 0:42 / /m/a\\040c rw - tmpfs none rw\n\
            39 25 0:44 / /n rw - tmpfs none rw\n\
            1 1 0:2 / / rw - rootfs none rw\n";
        let below = Others::find(36, table).expect("two");
        assert_eq!(
            below.to_string(),
            "/m/a/b (fuse.vellum from /q.img), /m/a c (tmpfs) are mounted below it"
        );
        assert_eq!(commands(&below), ["vellum umount /m/a/b", "umount /m/a c"]);
        assert_eq!(below.clone().over(), None);
        for nothing in [38, 39, 1] {
            assert_eq!(Others::find(nothing, table), None);
        }
        let error = io::Error::from(below.clone());
        assert_eq!(Others::of(&error), Some(&below));
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert_eq!(Others::of(&io::ErrorKind::ResourceBusy.into()), None);
    }

    #[test]
    fn mounts_over_and_below_are_distinguished() {
        let table = b"\
            1 1 0:2 / / rw - rootfs none rw\n\
            25 1 0:3 / /w rw - tmpfs w rw\n\
            36 25 0:41 / /w/m rw - fuse.vellum /p.img rw\n\
            37 36 0:42 / /w/m/a rw - tmpfs a rw\n\
            40 36 0:45 / /w/m rw - tmpfs t rw\n\
            41 40 0:46 / /w/m/b rw - ext4 /dev/sdz rw\n\
            42 25 0:47 / /w/mm rw - tmpfs none rw\n";
        let both = Others::find(36, table).expect("three");
        assert_eq!(
            both.to_string(),
            "/w/m/b (ext4 from /dev/sdz), /w/m (tmpfs from t) are mounted over it, and /w/m/a \
             (tmpfs from a) is mounted below it"
        );
        assert_eq!(
            commands(&both),
            ["umount /w/m/b", "umount /w/m", "umount /w/m/a"]
        );
        let over = both.over().expect("two");
        assert_eq!(commands(&over), ["umount /w/m/b", "umount /w/m"]);
        // A mount over another one is not below it.
        assert_eq!(Others::find(42, table), None);
    }

    #[test]
    fn a_mount_over_a_parent_directory_hides_the_mount() {
        let table = b"\
            1 1 0:2 / / rw - rootfs none rw\n\
            30 1 0:7 / /w/d rw - tmpfs older rw\n\
            25 1 0:3 / /w rw - tmpfs w rw\n\
            36 25 0:41 / /w/d/m rw - fuse.vellum /p.img rw\n\
            40 25 0:45 / /w/d rw - tmpfs t rw\n";
        let over = Others::find(36, table).expect("one");
        assert_eq!(over.to_string(), "/w/d (tmpfs from t) is mounted over it");
        assert_eq!(commands(&over), ["umount /w/d"]);
    }
}
