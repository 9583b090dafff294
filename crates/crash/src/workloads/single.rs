//! Every operation with every class of arguments, alone (seq-1).

use super::FILE;
use crate::workload::Workload;

/// A name of 255 bytes, which takes an entry of three slots.
const LONG: &str = "%(6cx255)";

/// Every one.
pub(super) fn operations() -> Vec<Workload> {
    let families = [
        making(),
        removing(),
        renaming(),
        writing(),
        sizing(),
        attributes(),
    ];
    let rest = [directories(), reading(), past(), background()];
    families.into_iter().chain(rest).flatten().collect()
}

/// The workloads of a single operation each.
pub fn single_operations() -> Vec<Workload> {
    let mut all = operations();
    all.retain(|workload| workload.explored.len() == 1);
    all
}

fn one(name: &str, setup: &[&str], explored: &str) -> Workload {
    Workload::new(name, setup, &[explored])
}

fn making() -> Vec<Workload> {
    let long = format!("create {LONG} 644 exclusive");
    let long_link = format!("link f {LONG}");
    let target = "symlink %(74x128) s";
    let long_target = "symlink %(74x4095) s";
    vec![
        one("create-first", &[], "create f 644 exclusive"),
        one("create-second", &[FILE], "create g 600 exclusive"),
        one("create-exists", &[FILE], "create f 600 -"),
        one(
            "create-in-directory",
            &["mkdir d 755", "create d/a 644 -"],
            "create d/f 644 -",
        ),
        one(
            "create-first-in-directory",
            &["mkdir d 755"],
            "create d/f 644 -",
        ),
        one("create-long-name", &[FILE], &long),
        one(
            "create-reusing-inode",
            &[
                FILE,
                "10* create g# 644 -",
                "append f 5 9000",
                "unlink f",
                "maintain",
            ],
            "create again 644 -",
        ),
        one(
            "create-taking-inode-chunk",
            &["30* create f# 644 -"],
            "create last 644 -",
        ),
        one(
            "create-in-recycled-slots",
            &[
                "mkdir d 755",
                FILE,
                "110* link f d/%(6ex40)#",
                "110* unlink d/%(6ex40)#",
                "maintain",
                "mkdir e 755",
            ],
            "create e/f 644 -",
        ),
        one("mkdir-first", &[], "mkdir d 755"),
        one("mkdir-second", &["mkdir d 755"], "mkdir e 700"),
        one("mkdir-in-directory", &["mkdir d 755"], "mkdir d/e 755"),
        one("symlink-short", &[FILE], "symlink f s"),
        one("symlink-longest-in-slot", &[FILE], target),
        one("symlink-long", &[FILE], long_target),
        one("link", &[FILE], "link f g"),
        one("link-third", &[FILE, "link f g"], "link f h"),
        one("link-across", &[FILE, "mkdir d 755"], "link f d/g"),
        one("link-symlink", &["symlink nowhere s"], "link s t"),
        one("link-long-name", &[FILE], &long_link),
    ]
}

fn removing() -> Vec<Workload> {
    let long = format!("unlink {LONG}");
    let make_long = format!("create {LONG} 644 -");
    vec![
        one("unlink-empty", &[FILE], "unlink f"),
        one("unlink-last", &[FILE, "append f 5 9000"], "unlink f"),
        one(
            "unlink-one-of-two",
            &[FILE, "link f g", "append f 5 100"],
            "unlink f",
        ),
        one("unlink-long-name", &[&make_long], &long),
        one("unlink-symlink", &["symlink f s"], "unlink s"),
        one(
            "unlink-open",
            &[FILE, "append f 5 5000", "open 1 f 0"],
            "unlink f",
        ),
        one(
            "close-of-unlinked",
            &[FILE, "append f 5 5000", "open 1 f 0", "unlink f"],
            "close-slot 1",
        ),
        one(
            "append-to-unlinked",
            &[FILE, "append f 5 5000", "open+wronly 1 f 0", "unlink f"],
            "write-slot 1 5000 6 5000",
        ),
        one("rmdir", &["mkdir d 755"], "rmdir d"),
        one(
            "rmdir-used",
            &["mkdir d 755", "create d/f 644 -", "unlink d/f"],
            "rmdir d",
        ),
        one(
            "rmdir-in-directory",
            &["mkdir d 755", "mkdir d/e 755"],
            "rmdir d/e",
        ),
    ]
}

fn renaming() -> Vec<Workload> {
    let long = format!("rename f {LONG} 0");
    let tree = [
        "mkdir d 755",
        "mkdir e 755",
        "create d/f 644 -",
        "append d/f 5 100",
    ];
    let with = |more: &[&'static str]| [&tree[..], more].concat();
    [
        one("rename", &[FILE], "rename f g 0"),
        one("rename-long-name", &[FILE], &long),
        one("rename-no-replace", &[FILE], "rename f g 1"),
        one("rename-across", &tree, "rename d/f e/f 0"),
        one("rename-up", &tree, "rename d/f f 0"),
        one(
            "rename-over-file",
            &[FILE, "create g 600 -", "append g 5 9000"],
            "rename f g 0",
        ),
        one(
            "rename-over-file-across",
            &with(&["create e/g 600 -"]),
            "rename d/f e/g 0",
        ),
        one(
            "rename-over-link",
            &[FILE, "create g 600 -", "link g h"],
            "rename f g 0",
        ),
        one("rename-same-file", &[FILE, "link f g"], "rename f g 0"),
        one(
            "rename-over-open-file",
            &[FILE, "create g 600 -", "append g 5 5000", "open 1 g 0"],
            "rename f g 0",
        ),
        one("rename-symlink", &["symlink f s"], "rename s t 0"),
        one("rename-directory", &tree, "rename d g 0"),
        one("rename-directory-across", &tree, "rename d e/d 0"),
        one("rename-over-empty-directory", &tree, "rename d e 0"),
        one(
            "rename-over-empty-directory-across",
            &with(&["mkdir e/empty 700"]),
            "rename d e/empty 0",
        ),
        one(
            "exchange",
            &[FILE, "create g 600 -", "append g 5 100"],
            "rename f g 2",
        ),
        one(
            "exchange-across",
            &with(&["create e/g 600 -"]),
            "rename d/f e/g 2",
        ),
        one("exchange-directories", &tree, "rename d e 2"),
        one(
            "exchange-directory-and-file-across",
            &with(&["mkdir e/sub 755", "create e/sub/x 644 -"]),
            "rename d/f e/sub 2",
        ),
        one(
            "exchange-directories-across",
            &with(&["mkdir d/one 755", "mkdir e/two 700", "create e/two/x 644 -"]),
            "rename d/one e/two 2",
        ),
    ]
    .into()
}

fn writing() -> Vec<Workload> {
    let written = [FILE, "append f 5 10000"];
    vec![
        one("append-first", &[FILE], "append f 7 100"),
        one("append-first-block", &[FILE], "append f 7 4096"),
        one(
            "append-unaligned",
            &[FILE, "append f 5 1001"],
            "append f 7 777",
        ),
        one(
            "append-to-next-block",
            &[FILE, "append f 5 4000"],
            "append f 7 500",
        ),
        one(
            "append-aligned",
            &[FILE, "append f 5 8192"],
            "append f 7 4096",
        ),
        one("append-many-blocks", &written, "append f 7 41000"),
        one("append-byte", &[FILE, "append f 5 7"], "append f 7 1"),
        one("overwrite-word", &written, "write f 4096 7 8"),
        one("overwrite-unaligned", &written, "write f 4001 7 333"),
        one("overwrite-across-the-end", &written, "write f 9000 7 5000"),
        one(
            "overwrite-many-blocks",
            &[FILE, "append f 5 45000"],
            "write f 100 7 40000",
        ),
        one(
            "write-into-hole",
            &[FILE, "truncate f 20000"],
            "write f 5000 7 100",
        ),
        one(
            "write-into-holes",
            &[FILE, "truncate f 50000"],
            "write f 5000 7 40000",
        ),
        one(
            "write-into-hole-and-data",
            &[FILE, "append f 5 4096", "truncate f 20000"],
            "write f 4000 7 5000",
        ),
        one("write-past-gap", &written, "write f 30000 7 100"),
        one(
            "write-past-gap-in-block",
            &[FILE, "append f 5 100"],
            "write f 300 7 100",
        ),
        one(
            "write-past-gap-in-next-block",
            &[FILE, "append f 5 100"],
            "write f 5000 7 100",
        ),
        one("write-first-past-gap", &[FILE], "write f 9001 7 100"),
        one(
            "write-over-old-tail",
            &[FILE, "append f 5 4000", "truncate f 100"],
            "write f 200 7 100",
        ),
        one(
            "write-into-preallocated",
            &[FILE, "fallocate f 0 0 20000"],
            "write f 4100 7 5000",
        ),
        one(
            "append-into-preallocated",
            &[FILE, "append f 5 100", "fallocate f 1 0 20000"],
            "append f 7 9000",
        ),
        one(
            "append-into-freed-blocks",
            &[
                FILE,
                "create g 644 -",
                "append g 5 600000",
                "unlink g",
                "maintain",
            ],
            "append f 7 9000",
        ),
        one(
            "write-to-open-file",
            &[FILE, "open+rdwr 1 f 0"],
            "write-slot 1 0 7 5000",
        ),
    ]
}

fn sizing() -> Vec<Workload> {
    let written = [FILE, "append f 5 20000"];
    vec![
        one("truncate-up", &[FILE, "append f 5 1001"], "truncate f 3000"),
        one(
            "truncate-up-past-block",
            &[FILE, "append f 5 1001"],
            "truncate f 30000",
        ),
        one("truncate-up-from-nothing", &[FILE], "truncate f 5000"),
        one(
            "truncate-up-over-old-tail",
            &[FILE, "append f 5 4000", "truncate f 100"],
            "truncate f 3000",
        ),
        one("truncate-down", &written, "truncate f 9001"),
        one("truncate-down-in-block", &written, "truncate f 19000"),
        one("truncate-down-aligned", &written, "truncate f 8192"),
        one("truncate-to-zero", &written, "truncate f 0"),
        one("truncate-same", &written, "truncate f 20000"),
        one(
            "truncate-preallocated",
            &[FILE, "fallocate f 1 0 30000"],
            "truncate f 0",
        ),
        one("truncate-at-open", &written, "open+wronly+trunc 1 f 0"),
        one("fallocate-first", &[FILE], "fallocate f 0 0 9000"),
        one(
            "fallocate-growing",
            &[FILE, "append f 5 1001"],
            "fallocate f 0 500 9000",
        ),
        one(
            "fallocate-inside",
            &[FILE, "truncate f 20000"],
            "fallocate f 0 0 9000",
        ),
        one(
            "fallocate-keeping-size",
            &[FILE, "append f 5 1001"],
            "fallocate f 1 0 20000",
        ),
        one("fallocate-many-blocks", &[FILE], "fallocate f 0 0 100000"),
        one("punch-blocks", &written, "fallocate f 3 4096 8192"),
        one("punch-unaligned", &written, "fallocate f 3 3000 9001"),
        one("punch-in-block", &written, "fallocate f 3 4100 99"),
        one("punch-to-the-end", &written, "fallocate f 3 9000 90000"),
        one("punch-all", &written, "fallocate f 3 0 20000"),
    ]
}

fn attributes() -> Vec<Workload> {
    [
        one("chmod", &[FILE], "chmod f 600"),
        one("chmod-directory", &["mkdir d 755"], "chmod d 1777"),
        one("chmod-root", &[FILE], "chmod . 711"),
        one("chown", &[FILE], "chown f 5 6 follow"),
        one(
            "chown-set-id",
            &[FILE, "chmod f 6755"],
            "chown f 5 - follow",
        ),
        one("chown-symlink", &["symlink f s"], "chown s 5 6 -"),
        one("utimens", &[FILE], "utimens f 1000 2000 follow"),
        one("utimens-now", &[FILE], "utimens f now now follow"),
        one(
            "utimens-directory",
            &["mkdir d 755", "create d/f 644 -"],
            "utimens d 1000 2000 -",
        ),
        one("utimens-access-only", &[FILE], "utimens f 1000 - follow"),
    ]
    .into()
}

fn directories() -> Vec<Workload> {
    vec![
        one(
            "log-second-extent",
            &["mkdir d 755", FILE, "12* link f d/#"],
            "link f d/one-more",
        ),
        one(
            "log-third-extent",
            &["mkdir d 755", FILE, "516* link f d/#"],
            "link f d/one-more",
        ),
        one(
            "log-second-extent-rename",
            &["mkdir d 755", FILE, "12* link f d/#"],
            "rename f d/f 0",
        ),
        one(
            "entry-chunk",
            &["mkdir d 755", FILE, "30* link f d/#"],
            "link f d/one-more",
        ),
        one(
            "create-after-recycling",
            &[
                "mkdir d 755",
                FILE,
                "110* link f d/#",
                "110* unlink d/#",
                "maintain",
            ],
            "create d/g 644 -",
        ),
        one(
            "create-after-compaction",
            &[
                "mkdir d 755",
                FILE,
                "530* link f d/#",
                "520* unlink d/#",
                "maintain",
            ],
            "create d/g 644 -",
        ),
    ]
}

/// What changes nothing but times of access, or nothing at all.
fn reading() -> Vec<Workload> {
    let written = [FILE, "append f 5 9000"];
    vec![
        one("open", &written, "open 1 f 0"),
        one("read", &written, "read f 100 5000"),
        one(
            "read-directory",
            &["mkdir d 755", "mkdir d/e 755"],
            "readdir d",
        ),
        one("read-symlink", &["symlink nowhere s"], "readlink s"),
        one("fsync", &written, "fsync f"),
    ]
}

/// What earlier lives of slots, and times set on purpose, may mislead.
fn past() -> Vec<Workload> {
    let long = format!("mkdir {LONG} 755");
    let into = format!("rename f {LONG}/f 0");
    let dead_twin = [
        "create f 644 -",
        "mkdir d 755",
        "maintain",
        "close-pool",
        "open-pool",
        "rename f d/f 0",
        "rename d/f f 0",
        "rmdir d",
        "maintain",
        "close-pool",
        "open-pool",
        &long,
    ];
    let removals = [
        "mkdir d 755",
        FILE,
        "110* link f d/#",
        "110* unlink d/#",
        "utimens d 1000 2000 -",
    ];
    let removed_after = [
        "mkdir d 755",
        FILE,
        "110* link f d/#",
        "utimens d 1000 2000 -",
    ];
    vec![
        // The new entry lies where a dead one of the same directory number, name and cookie lay: its
        // witness must tell the two apart, and the record must bring the life word.
        Workload::new("stale-witness", &dead_twin, &[&into]),
        Workload::new("set-times-recycle", &removals, &["maintain"]),
        Workload::new(
            "set-times-recycle-reopen",
            &removals,
            &["maintain", "close-pool", "open-pool"],
        ),
        Workload::new(
            "set-times-remove-recycle",
            &[
                &removed_after[..],
                &["110* unlink d/#", "utimens d 3000 4000 -"],
            ]
            .concat(),
            &["maintain", "unlink f"],
        ),
    ]
}

fn background() -> Vec<Workload> {
    vec![
        one(
            "bury-file",
            &[FILE, "append f 5 9000", "unlink f"],
            "maintain",
        ),
        one("bury-empty-file", &[FILE, "unlink f"], "maintain"),
        one(
            "bury-symlink",
            &["symlink %(74x3000) s", "unlink s"],
            "maintain",
        ),
        one(
            "bury-directory",
            &[
                "mkdir d 755",
                FILE,
                "15* link f d/#",
                "15* unlink d/#",
                "rmdir d",
            ],
            "maintain",
        ),
        one(
            "bury-several",
            &[
                FILE,
                "3* create g# 644 -",
                "append g1 5 9000",
                "append g2 6 5000",
                "3* unlink g#",
            ],
            "maintain",
        ),
        one(
            "recycle",
            &["mkdir d 755", FILE, "110* link f d/#", "105* unlink d/#"],
            "maintain",
        ),
        one(
            "compact",
            &[
                "mkdir d 755",
                FILE,
                "20* link f d/stays#",
                "525* link f d/#",
                "520* unlink d/#",
            ],
            "maintain",
        ),
        one(
            "compact-behind-a-full-extent",
            &[
                "mkdir d 755",
                FILE,
                "516* link f d/stays#",
                "518* link f d/#",
                "512* unlink d/#",
            ],
            "maintain",
        ),
        one(
            "compact-to-nothing",
            &["mkdir d 755", FILE, "520* link f d/#", "520* unlink d/#"],
            "maintain",
        ),
        one(
            "reclaim-blocks",
            &[FILE, "append f 5 30000", "truncate f 100"],
            "maintain",
        ),
        one(
            "close-pool",
            &["mkdir d 755", FILE, "append f 5 9000", "link f d/g"],
            "close-pool",
        ),
        one(
            "close-pool-with-work",
            &[
                "mkdir d 755",
                FILE,
                "append f 5 9000",
                "link f d/g",
                "unlink d/g",
                "unlink f",
            ],
            "close-pool",
        ),
        one(
            "open-pool",
            &["mkdir d 755", FILE, "append f 5 9000", "close-pool"],
            "open-pool",
        ),
        // Many blocks are outside their home lines, and the aids tell of them.
        one(
            "close-pool-with-displaced",
            &[FILE, "append f 5 300000"],
            "close-pool",
        ),
        one(
            "open-pool-with-displaced",
            &[FILE, "append f 5 300000", "close-pool"],
            "open-pool",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Step;
    use crate::{Mode, Options, workloads};
    use std::collections::BTreeSet;

    /// Each operation that changes a pool, or might, is explored by itself under every model.
    #[test]
    fn every_operation_is_explored() {
        let explored: Vec<String> = single_operations()
            .iter()
            .map(|workload| match &workload.explored[0] {
                Step::Op(op) => op.to_string(),
                step => format!("{step:?}"),
            })
            .collect();
        let has = |wanted: &str, end: &str| {
            explored
                .iter()
                .any(|line| line.starts_with(wanted) && line.ends_with(end))
        };
        let operations = [
            "create ",
            "open",
            "read ",
            "readdir ",
            "readlink ",
            "write ",
            "append ",
            "truncate ",
            "mkdir ",
            "rmdir ",
            "unlink ",
            "link ",
            "symlink ",
            "chmod ",
            "chown ",
            "utimens ",
            "fsync ",
            "close-slot ",
            "write-slot ",
            "fallocate f 0 ",
            "fallocate f 1 ",
            "fallocate f 3 ",
            "Maintain",
            "Close",
            "Open",
        ];
        for operation in operations {
            assert!(has(operation, ""), "{operation}");
        }
        for flags in [" 0", " 1", " 2"] {
            assert!(has("rename ", flags), "rename{flags}");
        }
        assert_eq!(Options::default().modes, Mode::ALL);
    }

    #[test]
    fn names_are_unique() {
        let all = workloads();
        let names: BTreeSet<_> = all.iter().map(|workload| &workload.name).collect();
        assert_eq!(names.len(), all.len());
        let plain = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        };
        assert!(names.iter().all(|name| plain(name)));
    }
}
