//! The workloads leave out nothing that the engine or the model can do.

mod api;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use api::Engine;
use vellum::RenameFlags;
use vellum_crash::{Step, Workload, logged_workloads, pairs, single_operations, workloads};
use vellum_model::Op;

/// Exported names that lead to no pool: plain values, aliases of types, crates.
const PLAIN: &[&str] = &[
    "Access",
    "AccessPolicy",
    "AccessTimes",
    "Allocate",
    "Area",
    "AttachOptions",
    "Attr",
    "CacheUsage",
    "ExportedReplica",
    "Clock",
    "Copied",
    "CopyError",
    "CopyScope",
    "Costs",
    "Cred",
    "ExternalData",
    "DataOptions",
    "Decided",
    "Durability",
    "Error",
    "Evolution",
    "FileFlags",
    "FileKind",
    "Dataset",
    "FileType",
    "FormatOptions",
    "Formed",
    "FoundImage",
    "FsNameError",
    "GeometryError",
    "HeldLock",
    "ImageLocation",
    "LINK_MAX",
    "Label",
    "Layout",
    "ListEntry",
    "ListPosition",
    "LockCancel",
    "LockKind",
    "LockOwner",
    "LockRange",
    "LockWait",
    "LogCounts",
    "MappingKind",
    "MappingTime",
    "MappingTimer",
    "MediaChoice",
    "MediaError",
    "MediaKind",
    "MediumError",
    "MergeReason",
    "Merged",
    "MergedArea",
    "Metadata",
    "MountOptions",
    "NamespaceKind",
    "OpenOptions",
    "Opened",
    "Outcome",
    "PageTable",
    "DatasetError",
    "Permissions",
    "Location",
    "PoolPath",
    "Quota",
    "QuotaDefaults",
    "QuotaKind",
    "QuotaLimits",
    "RENAMED_ROUNDS",
    "RealFs",
    "RenameFlags",
    "ResizeError",
    "Result",
    "Rule",
    "SetAttr",
    "SetTime",
    "Settings",
    "StatFs",
    "SuperblockError",
    "UndoCounts",
    "ViewSource",
    "XattrMode",
    "SegmentError",
    "media",
    "prefer_thread_slot",
    "simulate",
    "uuid_text",
];

/// Functions that only read, or change volatile state alone: their only persistent step is the
/// access time of a read, which is explored.
const ASKS: &[&str] = &[
    "CreateOptions::mapping",
    "CreateOptions::new",
    "DirEntry::file_name",
    "DirEntry::file_type",
    "DirEntry::ino",
    "DirEntry::metadata",
    "DirEntry::name",
    "DirEntry::path",
    "File as Read::read",
    "File as Seek::seek",
    "File as Write::flush",
    "File::find_lock",
    "File::handle",
    "File::lock",
    "File::lock_range",
    "File::lock_shared",
    "File::metadata",
    "File::read_at",
    "File::read_exact_at",
    "File::try_lock",
    "File::try_lock_shared",
    "File::unlock",
    "File::unlock_range",
    "File::view",
    "File::view_by",
    "Fs::access",
    "Fs::areas",
    "Fs::attr",
    "Fs::birth_time_ns",
    "Fs::cache_usage",
    "Fs::cancel_lock_waits",
    "Fs::check_use",
    "Fs::children",
    "Fs::commit_every",
    "Fs::commits",
    "Fs::copy_into",
    "Fs::data_devices",
    "Fs::decisions",
    "Fs::durability",
    "Fs::end",
    "Fs::find",
    "Fs::has_barriers",
    "Fs::has_lost_image",
    "Fs::grows_to",
    "Fs::has_quotas",
    "Fs::image",
    "Fs::image_dir",
    "Fs::has_replica",
    "Fs::is_damaged",
    "Fs::is_direct",
    "Fs::is_log_half_full",
    "Fs::is_read_only",
    "Fs::isa",
    "Fs::keep_barriers",
    "Fs::knows_read_costs",
    "Fs::leave_out_barriers",
    "Fs::list",
    "Fs::lock_waits",
    "Fs::log_counts",
    "Fs::lookup",
    "Fs::media_kind",
    "Fs::merged_areas",
    "Fs::node",
    "Fs::node_of",
    "Fs::parent_ino",
    "Fs::path_of",
    "Fs::project",
    "Fs::quota",
    "Fs::quota_defaults",
    "Fs::quotas",
    "Fs::read_costs",
    "Fs::read_link",
    "Fs::read_rule",
    "Fs::root",
    "Fs::set_read_costs",
    "Fs::set_read_rule",
    "Fs::snapshot",
    "Fs::stat",
    "Fs::stat_from_root",
    "Fs::stat_fs",
    "Fs::stat_fs_of",
    "Fs::superblock",
    "Fs::undo_counts",
    "Fs::wake_when_half_full",
    "Fs::xattr",
    "Fs::xattrs",
    "Handle::attr",
    "Handle::check_use",
    "Handle::find_lock",
    "Handle::lock",
    "Handle::lock_file",
    "Handle::lock_range",
    "Handle::lock_shared",
    "Handle::node",
    "Handle::options",
    "Handle::read_at",
    "Handle::read_costs",
    "Handle::release_process_locks",
    "Handle::seek_data",
    "Handle::seek_hole",
    "Handle::try_lock",
    "Handle::try_lock_shared",
    "Handle::unlock",
    "Handle::unlock_range",
    "Handle::view",
    "Handle::view_by",
    "MappingProbe::evict",
    "MappingProbe::forget",
    "MappingProbe::lookup",
    "MappingProbe::search",
    "Node::flags",
    "Node::fs",
    "Node::generation",
    "Node::ino",
    "Node::kind",
    "Pool::datasets",
    "Pool::fs",
    "Pool::opened",
    "Pool::superblock",
    "Pool::volume",
    "PoolOptions::new",
    "ReadDir as Iterator::next",
    "View as Drop::drop",
    "View::check",
    "View::place",
    "Volume::canonicalize",
    "Volume::created",
    "Volume::cred",
    "Volume::exists",
    "Volume::flags",
    "Volume::fs",
    "Volume::metadata",
    "Volume::project",
    "Volume::read_link",
    "Volume::symlink_metadata",
    "Volume::try_exists",
    "Volume::with_cred",
    "Volume::with_umask",
    "Volume::xattr",
    "Volume::xattrs",
    "Walk as Iterator::next",
    "Walk::skip_current_dir",
    "boot_id",
    "find_data",
    "gather_metadata",
    "media_of_new_pool",
    "open_bytes",
    "own_bytes",
    "page_table",
    "pool_of_data",
];

/// Functions for tests that bypass the file system: they change the medium as no operation does.
const FAULTS: &[&str] = &["Fs::pool", "Fs::take_away"];

/// Functions that store one word and sync it: after a crash the word is the old or the new one, and
/// the pool is valid with either.
const ONE_WORD: &[&str] = &["Pool::force_data_device"];

/// Functions that sessions call under another name: both take the same persistent steps.
const OTHER_WAYS: &[(&str, &str)] = &[
    ("Fs::create", "open"),
    ("Fs::evolve_resting", "evolve"),
    ("Fs::open_checked", "open"),
    ("Fs::open_node", "open"),
    ("Fs::set_flags_and_project", "set_flags"),
    ("Fs::set_quota_defaults", "set_quota"),
    ("Handle as Drop::drop", "remove"),
    ("Handle::set_attr", "set_attr"),
    ("Handle::write_back_at", "write_at"),
    ("Node as Drop::drop", "find"),
    ("Pool::add_data", "write_table"),
    ("Pool::add_dataset", "write_table"),
    ("Pool::attach", "attach_copy"),
    ("Pool::open_all", "attach"),
    ("Pool::remove_empty_dataset", "remove_dataset"),
    ("Pool::remove_dataset", "remove_dataset"),
    ("Pool::settle_image", "attach"),
];

/// Functions that programs call instead, and the changes that they consist of. Each change is
/// explored by itself, and a crash leaves some of them done.
const THROUGH: &[(&str, &[&str])] = &[
    (
        "File as Write::write",
        &["Handle::append", "Handle::write_at"],
    ),
    ("File::set_len", &["Handle::truncate"]),
    ("File::set_modified", &["Handle::set_attr"]),
    ("File::set_permissions", &["Handle::set_attr"]),
    ("File::sync_all", &["Handle::sync"]),
    ("File::sync_data", &["Handle::sync"]),
    ("File::write_all_at", &["Handle::write_at"]),
    ("File::write_at", &["Handle::write_at"]),
    ("Pool as Drop::drop", &["Fs::close"]),
    ("Pool::close", &["Fs::close"]),
    ("Pool::close_and_export", &["Fs::close_and_export"]),
    (
        "Pool::create",
        &[
            "Fs::checkpoint",
            "Fs::evolve_resting",
            "Fs::maintain",
            "Fs::sync",
            "attach",
            "format",
        ],
    ),
    ("Pool::grow", &["Fs::grow"]),
    (
        "Pool::memory",
        &[
            "Fs::checkpoint",
            "Fs::evolve_resting",
            "Fs::maintain",
            "Fs::sync",
            "attach",
            "format",
        ],
    ),
    (
        "CreateOptions::create",
        &[
            "Fs::checkpoint",
            "Fs::evolve_resting",
            "Fs::maintain",
            "Fs::sync",
            "attach",
            "format",
        ],
    ),
    (
        "CreateOptions::create_in_memory",
        &[
            "Fs::checkpoint",
            "Fs::evolve_resting",
            "Fs::maintain",
            "Fs::sync",
            "attach",
            "format",
        ],
    ),
    (
        "Pool::open",
        &[
            "Fs::checkpoint",
            "Fs::evolve_resting",
            "Fs::maintain",
            "Fs::sync",
            "attach",
        ],
    ),
    (
        "Volume::copy",
        &[
            "Fs::open",
            "Handle::set_attr",
            "Handle::truncate",
            "Handle::write_at",
        ],
    ),
    (
        "PoolOptions::open",
        &[
            "Fs::checkpoint",
            "Fs::evolve_resting",
            "Fs::maintain",
            "Fs::sync",
            "attach",
        ],
    ),
    (
        "Volume::copy",
        &[
            "Fs::open",
            "Handle::set_attr",
            "Handle::truncate",
            "Handle::write_at",
        ],
    ),
    ("Volume::create", &["Fs::open"]),
    ("Volume::create_dir", &["Fs::mkdir"]),
    ("Volume::create_dir_all", &["Fs::mkdir"]),
    ("Volume::create_unnamed", &["Fs::create_unnamed"]),
    ("Volume::hard_link", &["Fs::link"]),
    ("Volume::link_file", &["Fs::link"]),
    ("Volume::open", &["Fs::open"]),
    ("Volume::open_with", &["Fs::open"]),
    ("Volume::read", &["Fs::open"]),
    ("Volume::read_dir", &["Fs::open"]),
    ("Volume::read_to_string", &["Fs::open"]),
    ("Volume::remove_dir", &["Fs::rmdir"]),
    ("Volume::remove_dir_all", &["Fs::rmdir", "Fs::unlink"]),
    ("Volume::remove_file", &["Fs::unlink"]),
    ("Volume::remove_xattr", &["Fs::remove_xattr"]),
    ("Volume::rename", &["Fs::rename"]),
    ("Volume::rename_with", &["Fs::rename"]),
    ("Volume::set_attr", &["Fs::set_attr"]),
    ("Volume::set_flags", &["Fs::set_flags"]),
    ("Volume::set_permissions", &["Fs::set_attr"]),
    ("Volume::set_project", &["Fs::set_project"]),
    ("Volume::set_xattr", &["Fs::set_xattr"]),
    ("Volume::symlink", &["Fs::symlink"]),
    ("Volume::sync", &["Fs::sync"]),
    ("Volume::walk", &["Fs::open"]),
    ("Volume::write", &["Fs::open", "Handle::write_at"]),
];

fn source(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).expect(path)
}

/// A new function that changes a pool must be called by sessions, or be listed with the explored
/// functions that it calls.
#[test]
fn every_operation_of_the_engine_is_explored() {
    let all = Engine::read().public();
    let of_pools = |name: &&String| !PLAIN.contains(&owner(name));
    let all: BTreeSet<&str> = all.iter().filter(of_pools).map(String::as_str).collect();
    for known in [
        "Fs::rename",
        "Handle::write_at",
        "MappingProbe::insert",
        "Volume::write",
        "File as Write::write",
        "Pool as Drop::drop",
        "attach",
        "settle",
    ] {
        assert!(all.contains(known), "{known} was not found: {all:?}");
    }
    let through: Vec<&str> = THROUGH.iter().map(|(name, _)| *name).collect();
    // Sessions and their driver, the code for media that are moved, and the code for tables of
    // datasets.
    let session = [
        "crash/src/session",
        "driver/src/lib",
        "driver/src/paths",
        "driver/src/quotas",
        "driver/src/xattr",
        "crash/src/replica",
        "crash/src/datasets",
    ]
    .map(|module| source(&format!("crates/{module}.rs")));
    let session = session.concat();
    for name in &all {
        if [ASKS, FAULTS, ONE_WORD, &through].concat().contains(name) {
            continue;
        }
        let other = OTHER_WAYS.iter().find(|(known, _)| known == name);
        let called = other.map_or(name.rsplit(':').next(), |(_, other)| Some(*other));
        assert!(
            called.is_some_and(|called| is_called(&session, called)),
            "`{name}`: let sessions do it and workloads explore it, or say that it asks, or to \
             what it comes"
        );
    }
    let others: Vec<&str> = OTHER_WAYS.iter().map(|(name, _)| *name).collect();
    let listed: BTreeSet<&str> = [ASKS, FAULTS, ONE_WORD, &others, &through]
        .concat()
        .into_iter()
        .collect();
    let unknown: Vec<_> = listed.difference(&all).collect();
    assert!(unknown.is_empty(), "no such function: {unknown:?}");
}

/// The type of a function, or the name of a free function.
fn owner(name: &str) -> &str {
    name.split([' ', ':']).next().unwrap_or_default()
}

/// Whether a source calls a function of that name.
fn is_called(source: &str, name: &str) -> bool {
    let calls = source.match_indices(name).filter(|(at, _)| {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let behind = &source[at + name.len()..];
        !source[..*at].ends_with(is_name) && (behind.starts_with('(') || behind.starts_with("::<"))
    });
    calls.count() > 0
}

/// The functions of types that lead to a pool are examined; such types are not plain values.
#[test]
fn everything_that_the_engine_exports_is_known() {
    let engine = Engine::read();
    let public = engine.public();
    let acts = |name: &&String| public.iter().any(|function| owner(function) == *name);
    let acting = engine.exported.iter().filter(acts).map(String::as_str);
    let known: BTreeSet<&str> = acting.chain(PLAIN.iter().copied()).collect();
    let exported: BTreeSet<&str> = engine.exported.iter().map(String::as_str).collect();
    assert_eq!(exported, known);
}

/// The changing functions that the functions of volumes, files and pools call in the end.
fn engine_ways() -> BTreeMap<String, Vec<String>> {
    let engine = Engine::read();
    let public = engine.public();
    let ways = engine.ways(&[
        "pool/mod.rs",
        "pool/options.rs",
        "pool/workers.rs",
        "pool/volume/mod.rs",
        "pool/volume/copy.rs",
        "pool/volume/file.rs",
        "pool/volume/flags.rs",
        "pool/volume/locks.rs",
        "pool/volume/remove.rs",
        "pool/volume/xattr.rs",
    ]);
    let ways = ways.into_iter();
    let ways = ways.filter(|(name, _)| public.contains(name) && !PLAIN.contains(&owner(name)));
    let changing = |way: &String| !ASKS.contains(&way.as_str());
    ways.map(|(name, ways)| (name, ways.into_iter().filter(changing).collect()))
        .collect()
}

/// Volumes, files and pools change nothing by themselves.
#[test]
fn what_programs_call_ends_in_explored_operations() {
    let found: BTreeMap<String, Vec<String>> = engine_ways()
        .into_iter()
        .filter(|(_, ways)| !ways.is_empty())
        .collect();
    let known: BTreeMap<String, Vec<String>> = THROUGH
        .iter()
        .map(|(name, ways)| {
            (
                (*name).to_owned(),
                ways.iter().map(ToString::to_string).collect(),
            )
        })
        .collect();
    assert_eq!(found, known);
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
    // Steps that exist only on pools with a log, and steps that exist only with areas.
    let is_alone = |workload: &Workload| workload.explored.len() == 1;
    let others = logged_workloads().into_iter().chain(workloads());
    let explored: BTreeSet<String> = single_operations()
        .into_iter()
        .chain(others.filter(is_alone))
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

/// The fields of [`vellum::SetAttr`] that an operation sets.
fn attributes_of(op: &Op) -> BTreeSet<&'static str> {
    let given = match op {
        Op::Truncate { .. } => vec![("size", true)],
        Op::Chmod { .. } => vec![("mode", true)],
        Op::Chown { uid, gid, .. } => vec![
            ("uid", uid.is_some()),
            ("gid", gid.is_some()),
            ("chown", true),
        ],
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

/// Every option of opening a file is used by a single explored operation, or by its setup.
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

/// The operations of workloads with a single explored step.
fn explored_ops() -> Vec<Op> {
    let singles = single_operations();
    let steps = singles.iter().map(|workload| &workload.explored[0]);
    steps.filter_map(Step::op).cloned().collect()
}

/// Every value of an enum that the engine's calls take (kinds of files, modes of allocation), and
/// each of their flags, is used by a single explored operation.
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

/// Each kind of operation that is explored alone is also the second of a pair.
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
