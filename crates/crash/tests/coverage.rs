//! Nothing that the engine or the model can do is left out of the workloads.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use vellum::RenameFlags;
use vellum_crash::{Step, Workload, pairs, single_operations};
use vellum_model::Op;

/// What only asks: no persistent step of its own but the access time of a read, which is explored.
const ASKS: &[&str] = &[
    "access",
    "attr",
    "cache_usage",
    "children",
    "find",
    "is_damaged",
    "is_read_only",
    "knows_read_costs",
    "list",
    "lookup",
    "media_kind",
    "node",
    "options",
    "parent_ino",
    "path_of",
    "read_at",
    "read_costs",
    "read_link",
    "read_rule",
    "root",
    "seek_data",
    "seek_hole",
    "set_read_costs",
    "set_read_rule",
    "stat",
    "stat_from_root",
    "stat_fs",
    "superblock",
    "view",
    "view_by",
];

/// Ways to what sessions call by another: both lead to the same persistent steps.
const OTHER_WAYS: &[(&str, &str)] = &[("create", "open"), ("open_node", "open")];

fn source(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).expect(path)
}

/// The sources in a directory and in all below it.
fn sources_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let sources = paths.flat_map(|path| match path.is_dir() {
        true => sources_in(&path),
        false => vec![path],
    });
    sources
        .filter(|path| path.extension() == Some("rs".as_ref()))
        .collect()
}

/// The public methods of `Fs` and `Handle`.
fn methods(text: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("impl") || line == "}" {
            inside = line.contains("> Fs<M> {") || line.contains("> Handle<M> {");
        }
        if let Some(rest) = line.strip_prefix("    pub fn ").filter(|_| inside) {
            let end = rest.find(['(', '<']).expect("a function has arguments");
            found.insert(rest[..end].to_owned());
        }
    }
    found
}

#[test]
fn every_operation_of_the_engine_is_explored() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let texts = sources_in(&root.join("crates/engine/src"));
    let texts = texts
        .iter()
        .map(|path| fs::read_to_string(path).expect("a source"));
    let all: BTreeSet<_> = texts.flat_map(|text| methods(&text)).collect();
    for known in ["rename", "write_at", "allocate", "maintain", "close"] {
        assert!(all.contains(known), "{known} was not found: {all:?}");
    }
    let session = source("crates/crash/src/session.rs");
    let is_called = |name: &str| session.contains(&format!(".{name}("));
    for name in &all {
        let other = OTHER_WAYS.iter().find(|(known, _)| known == name);
        let called = other.map_or(name.as_str(), |(_, other)| *other);
        assert!(
            ASKS.contains(&name.as_str()) || is_called(called),
            "`{name}` of the engine: let sessions do it and workloads explore it, or say that it asks"
        );
    }
    let listed = ASKS.iter().chain(OTHER_WAYS.iter().map(|(name, _)| name));
    for name in listed {
        assert!(
            all.contains(*name),
            "`{name}` is listed, but the engine has no such method"
        );
    }
}

/// The names of the variants of a public enum.
fn variants(text: &str, name: &str) -> BTreeSet<String> {
    let head = format!("pub enum {name} {{");
    let body = text.split(&head).nth(1).expect("the enum");
    let body = body.split("\n}").next().expect("its end");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()));
    names
        .map(|line| {
            line.split([' ', '(', ','])
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

#[test]
fn every_operation_of_the_model_is_explored_alone() {
    let explored: BTreeSet<String> = single_operations()
        .iter()
        .filter_map(|workload| workload.explored[0].op().map(|op| format!("{op:?}")))
        .map(|text| text.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    let known = variants(&source("crates/model/src/ops.rs"), "Op");
    assert!(known.len() > 30 && known.contains("Rename"), "{known:?}");
    let missing: Vec<_> = known.difference(&explored).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_kind_of_step_is_explored_alone() {
    let explored: BTreeSet<String> = single_operations()
        .iter()
        .map(|workload| format!("{:?}", workload.explored[0]))
        .map(|text| text.split('(').next().unwrap_or_default().to_owned())
        .collect();
    let known = variants(&source("crates/crash/src/workload.rs"), "Step");
    assert!(known.contains("Recover"), "{known:?}");
    assert_eq!(known, explored);
}

/// The names of the fields of a public struct.
fn fields(text: &str, name: &str) -> BTreeSet<String> {
    let head = format!("pub struct {name} {{");
    let body = text.split(&head).nth(1).expect("the struct");
    let body = body.split("\n}").next().expect("its end");
    let lines = body
        .lines()
        .filter_map(|line| line.strip_prefix("    pub "));
    lines
        .map(|line| line.split(':').next().unwrap_or_default().to_owned())
        .collect()
}

/// The fields of [`vellum::SetAttr`] that an operation gives a value.
fn attributes_of(op: &Op) -> BTreeSet<&'static str> {
    let given = match op {
        Op::Truncate { .. } => vec![("size", true)],
        Op::Chmod { .. } => vec![("mode", true)],
        Op::Chown { uid, gid, .. } => vec![("uid", uid.is_some()), ("gid", gid.is_some())],
        Op::Utimens { atime, mtime, .. } => {
            vec![("atime", atime.is_some()), ("mtime", mtime.is_some())]
        }
        _ => Vec::new(),
    };
    let given = given.into_iter().filter(|(_, is_given)| *is_given);
    given.map(|(name, _)| name).collect()
}

/// The fields of [`vellum::OpenOptions`] that an operation sets.
fn options_of(op: &Op) -> BTreeSet<&'static str> {
    let Op::Open { flags, .. } = *op else {
        return BTreeSet::new();
    };
    let has = |flag| flags & flag != 0;
    let access = flags & libc::O_ACCMODE;
    let given = [
        ("read", access != libc::O_WRONLY),
        ("write", access != libc::O_RDONLY),
        ("append", has(libc::O_APPEND)),
        ("truncate", has(libc::O_TRUNC)),
        ("create", has(libc::O_CREAT)),
        ("create_new", has(libc::O_EXCL)),
        ("no_follow", has(libc::O_NOFOLLOW)),
        ("directory", has(libc::O_DIRECTORY)),
        ("no_atime", has(libc::O_NOATIME)),
        ("mode", has(libc::O_CREAT)),
    ];
    let given = given.into_iter().filter(|(_, is_given)| *is_given);
    given.map(|(name, _)| name).collect()
}

/// Every attribute that a call can change is changed alone, and all of them in one call.
#[test]
fn every_attribute_is_changed_alone_and_with_all_others() {
    let known = fields(&source("crates/engine/src/fs/attr.rs"), "SetAttr");
    assert!(known.contains("size"), "{known:?}");
    let same = |found: &BTreeSet<&str>| found.iter().copied().eq(known.iter());
    let alone: Vec<_> = explored_ops().iter().map(attributes_of).collect();
    let changed = alone.iter().flatten().copied().collect();
    assert!(same(&changed), "{changed:?}, but {known:?}");

    let singles = single_operations();
    let together = singles.iter().filter_map(|one| match &one.explored[0] {
        Step::Together(ops) => Some(ops.iter().flat_map(attributes_of).collect()),
        _ => None,
    });
    let together: Vec<BTreeSet<&str>> = together.collect();
    assert!(together.iter().any(same), "{together:?}, but {known:?}");

    let times = explored_ops().into_iter().flat_map(|op| match op {
        Op::Utimens { atime, mtime, .. } => vec![atime, mtime],
        _ => Vec::new(),
    });
    let times = times.flatten().map(|time| format!("{time:?}"));
    let times: BTreeSet<_> = times
        .map(|text| text.split('(').next().unwrap_or_default().to_owned())
        .collect();
    let known = variants(&source("crates/engine/src/fs/attr.rs"), "SetTime");
    assert_eq!(times, known, "ways to set a time");
}

/// Every way to open a file is taken by what is explored alone, or by what prepares that.
#[test]
fn every_way_to_open_a_file_is_explored() {
    let known = fields(&source("crates/engine/src/fs/open.rs"), "OpenOptions");
    assert!(known.contains("truncate"), "{known:?}");
    let singles = single_operations();
    let steps = singles
        .iter()
        .flat_map(|workload| workload.setup.iter().chain(&workload.explored));
    let set: BTreeSet<&str> = steps.filter_map(Step::op).flat_map(options_of).collect();
    assert!(
        set.iter().copied().eq(known.iter()),
        "{set:?}, but {known:?}"
    );
}

/// The operations that single workloads explore.
fn explored_ops() -> Vec<Op> {
    let singles = single_operations();
    let steps = singles.iter().map(|workload| &workload.explored[0]);
    steps.filter_map(Step::op).cloned().collect()
}

/// Whatever the engine's calls take one of (a kind of file, a mode of allocation) and each of their flags is taken by some
/// operation that is explored alone.
#[test]
fn every_choice_that_the_engine_offers_is_explored_alone() {
    let ops = explored_ops();
    let made: BTreeSet<String> = ops
        .iter()
        .filter_map(|op| match op {
            Op::Mknod { kind, .. } => Some(format!("{kind:?}")),
            Op::Mkdir { .. } => Some("Directory".to_owned()),
            Op::Symlink { .. } => Some("Symlink".to_owned()),
            _ => None,
        })
        .collect();
    let kinds = variants(&source("crates/layout/src/inode.rs"), "FileKind");
    assert_eq!(made, kinds, "kinds of files");

    let modes = |op: &Op| match op {
        Op::Fallocate { mode, .. } | Op::FallocateSlot { mode, .. } => Some(*mode),
        _ => None,
    };
    let modes: BTreeSet<i32> = ops.iter().filter_map(modes).collect();
    let known = variants(&source("crates/engine/src/fs/file/allocate.rs"), "Allocate");
    assert_eq!(modes.len(), known.len(), "{modes:?}, but {known:?}");

    let flags = ops.iter().filter_map(|op| match op {
        Op::Rename { flags, .. } => Some(*flags),
        _ => None,
    });
    let flags = flags.fold(0, |all, flags| all | flags);
    assert_eq!(flags, RenameFlags::all().bits(), "flags of renaming");
}

/// Each kind of operation that is explored alone is the second of a pair too.
#[test]
fn every_kind_of_operation_is_in_a_pair() {
    let kinds = |workloads: Vec<Workload>| -> BTreeSet<&str> {
        let explored = workloads
            .iter()
            .flat_map(|workload| &workload.explored[workload.covered..]);
        explored.map(Step::operation).collect()
    };
    assert_eq!(kinds(pairs()), kinds(single_operations()));
}
