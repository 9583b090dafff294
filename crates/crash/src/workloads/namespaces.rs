//! Names kept otherwise than usual: every operation on names alone and in chosen pairs, and what
//! only one way of keeping them does.

use vellum::NamespaceKind;
use vellum_model::Op;

use super::{FILE, areas, chosen, single_operations, sites};
use crate::workload::{Step, Workload};

pub(super) fn workloads() -> Vec<Workload> {
    super::other_namespaces()
        .flat_map(|namespace| {
            let usual = single_operations().into_iter().chain(chosen::pairs());
            let usual = usual.chain(sites::workloads());
            let own = match namespace {
                NamespaceKind::Direct => Vec::new(),
                NamespaceKind::Adaptive => [adaptive(), moves(), areas::workloads()].concat(),
                NamespaceKind::Tree => tree(),
            };
            let has_room =
                move |one: &Workload| namespace != NamespaceKind::Adaptive || !is_nearly_full(one);
            usual
                .filter(fits)
                .filter(has_room)
                .chain(own)
                .map(move |workload| workload.within(namespace))
        })
        .collect()
}

/// Whether a workload is one for every namespace. What is cut is cut behind a step of the usual
/// way; what is full is full of it.
pub(super) fn fits(one: &Workload) -> bool {
    one.concerns_names() && one.cut.is_none() && !one.fills_the_pool()
}

/// Whether a setup takes nearly all blocks that the usual way leaves for metadata: an area's table
/// and map need some, too.
fn is_nearly_full(one: &Workload) -> bool {
    let ops = one.setup.iter().filter_map(Step::op);
    ops.filter(|op| matches!(op, Op::Symlink { .. })).count() > 50
}

fn of(name: &str, setup: &[&str], explored: &[&str]) -> Workload {
    Workload::new(name, setup, explored)
}

/// States and log words of names that come, go and are moved, and recovery of what is between them.
fn adaptive() -> Vec<Workload> {
    let dir = ["mkdir d 755", FILE];
    let closed = ["open-pool", "close-pool"];
    let again = [
        "open-pool",
        "create e 644 -",
        "create d/h 644 -",
        "close-pool",
    ];
    let dead = [
        &dir[..],
        &["110* link f d/%(6ex38)#", "110* unlink d/%(6ex38)#"],
    ]
    .concat();
    vec![
        of("recover-create-close", &dir, &closed).cut(
            "create d/g 644 -",
            "create/entry-durable",
            false,
        ),
        of("recover-create", &dir, &again).cut("create d/g 644 -", "create/entry-durable", false),
        of("recover-created", &dir, &again).cut(
            "create d/g 644 -",
            "create/log-word-durable",
            true,
        ),
        of("recover-link", &dir, &again).cut("link f d/g", "link/entry-durable", false),
        of("recover-unlink", &dir, &again).cut("unlink f", "remove/life-durable", true),
        of("recover-rename", &dir, &again).cut("rename f d/g 0", "journal/record-durable", true),
        of(
            "recover-mkdir-in-directory",
            &dir,
            &["open-pool", "create d/e/f 644 -", "close-pool"],
        )
        .cut("mkdir d/e 755", "create/log-word-durable", true),
        of(
            "recover-renamed-directory",
            &dir,
            &["open-pool", "create e/f 644 -", "close-pool"],
        )
        .cut("rename d e 0", "journal/record-durable", true),
        of(
            "recover-recycling",
            &dead,
            &["open-pool", "maintain", "create d/g 644 -", "close-pool"],
        )
        .cut("maintain", "recycle/words-durable", true),
        of(
            "renamed-directory-has-names",
            &dir,
            &["rename d e 0", "create e/f 644 -", "unlink e/f"],
        ),
        of(
            "slots-used-again",
            &dead,
            &["maintain", "create d/g 644 -", "link f e", "symlink x d/s"],
        ),
    ]
}

/// Directories that are moved with what is below them: the windows behind the commit, what uses
/// slots again that are free then, and recovery.
fn moves() -> Vec<Workload> {
    let tree = [
        "mkdir d 755",
        "mkdir d/e 755",
        FILE,
        "link f d/g",
        "create d/e/h 644 -",
    ];
    let two = [&tree[..], &["mkdir x 755", "create x/y 644 -"]].concat();
    // Which names die, and which are made, tells whether an entry or its copy was meant.
    let changes = [
        "unlink d/g",
        "create d/g 644 -",
        "110* link f d/e/%(6ex38)#",
        "110* unlink d/e/%(6ex38)#",
    ];
    let used = [&tree[..], &changes].concat();
    let deep = format!("mkdir {} 755", "%(61x250)");
    let deeper = format!("mkdir {} 755", ["%(61x250)"; 2].join("/"));
    let deepest = format!("mkdir {} 755", ["%(61x250)"; 3].join("/"));
    let inside = format!("create {}/f 644 -", ["%(61x250)"; 3].join("/"));
    let long = [
        "mkdir d 755",
        &deep,
        &deeper,
        &deepest,
        &inside,
        "mkdir d/%(62x250) 755",
    ];
    let away = "rename %(61x250) d/%(62x250)/%(61x250) 0";
    let back = "rename d/%(62x250)/%(61x250) %(61x250) 0";
    let again = ["open-pool", "create n/e/k 644 -", "close-pool"];
    vec![
        of("move", &tree, &["rename d n 0"]),
        of(
            "move-onto-empty",
            &two,
            &["unlink x/y", "rename d x 0", "close-pool"],
        ),
        of("move-across", &two, &["rename d/e x/e 0", "rename x d/x 0"]),
        of("move-exchange", &two, &["rename d x 2", "close-pool"]),
        of(
            "move-exchange-below",
            &two,
            &["rename d/e x 2", "unlink x/h"],
        ),
        of(
            "move-back-and-forth",
            &tree,
            &["rename d n 0", "rename n d 0"],
        ),
        of(
            "move-and-remove",
            &tree,
            &[
                "rename d n 0",
                "unlink n/e/h",
                "rmdir n/e",
                "unlink n/g",
                "rmdir n",
            ],
        ),
        of(
            "move-and-recycle",
            &used,
            &[
                "rename d n 0",
                "maintain",
                "create n/e/k 644 -",
                "close-pool",
            ],
        ),
        of(
            "move-and-use-slots",
            &tree,
            &[
                "rename d n 0",
                "symlink %(74x4095) s",
                "link f n/k",
                "link f n/l",
            ],
        ),
        of(
            "move-away-from-long-paths",
            &[&long[..], &[away]].concat(),
            &[back, "close-pool"],
        ),
        of("move-to-long-paths", &long, &[away, "close-pool"]),
        of("recover-move", &tree, &again).cut("rename d n 0", "journal/retire-durable", true),
        of("recover-move-applied", &tree, &again).cut("rename d n 0", "move/done-durable", true),
        of(
            "recover-move-undone",
            &tree,
            &["open-pool", "create d/e/k 644 -", "close-pool"],
        )
        .cut("rename d n 0", "move/copies-durable", false),
        of(
            "recover-move-and-use-slots",
            &tree,
            &["open-pool", "symlink %(74x4095) s", "link f n/k", "recover"],
        )
        .cut("rename d n 0", "journal/record-durable", true),
    ]
}

/// Logs of records that grow, are copied, and are used again; recovery of what a record ties
/// together.
fn tree() -> Vec<Workload> {
    // A block of a log takes 50 names of 39 or 40 bytes, and then no record more.
    let dir = ["mkdir d 755", FILE];
    let grown = [&dir[..], &["50* link f d/%(6ex38)#"]].concat();
    let dead = [&grown[..], &["50* unlink d/%(6ex38)#"]].concat();
    let texts = ["a", "b", "c", "e", "g", "h"].map(|name| format!("symlink %(74x4095) {name}"));
    let texts = texts.each_ref().map(String::as_str);
    let closed = ["open-pool", "close-pool"];
    let full_block = [&dir[..], &["50* link f d/%(6ex38)#"]].concat();
    vec![
        of("log-begins", &dir, &["create d/g 644 -"]),
        of("log-grows", &full_block, &["link f d/%(6ex38)x"]),
        of(
            "log-grows-by-a-removal",
            &full_block,
            &["unlink d/%(6ex38)1"],
        ),
        of(
            "log-ends-in-used-block",
            &[
                &[
                    "6* symlink %(74x4095) s#",
                    "6* unlink s#",
                    "maintain",
                    "2* symlink %(74x4095) t#",
                ],
                &full_block[..],
            ]
            .concat(),
            &["link f d/%(6ex38)x", "unlink d/%(6ex38)x"],
        ),
        of(
            "removal-without-room",
            &[&full_block[..], &["57* symlink %(74x4000) s#"]].concat(),
            &["unlink d/%(6ex38)1", "close-pool"],
        ),
        of("log-is-copied", &dead, &["maintain"]),
        of(
            "log-is-copied-and-used",
            &dead,
            &["maintain", texts[0], texts[1], texts[2], texts[3]],
        ),
        of(
            "log-is-copied-with-names",
            &[
                &dir[..],
                &["20* link f d/stays#", "90* link f d/#", "90* unlink d/#"],
            ]
            .concat(),
            &["maintain", "create d/g 644 -", "close-pool"],
        ),
        of("recover-create-close", &dir, &closed).cut(
            "create d/g 644 -",
            "tree/create-durable",
            false,
        ),
        of("recover-create", &dir, &closed).cut("create d/g 644 -", "journal/record-durable", true),
        of("recover-link", &dir, &closed).cut("link f d/g", "journal/record-durable", true),
        of("recover-unlink", &[FILE, "append f 5 9000"], &closed).cut(
            "unlink f",
            "journal/record-durable",
            true,
        ),
        of(
            "recover-unlink-create",
            &[FILE, "append f 5 9000"],
            &["open-pool", "create g 644 -", "append g 7 9000"],
        )
        .cut("unlink f", "journal/record-durable", true),
        of("recover-rename", &dir, &["open-pool", "chmod d/g 600"]).cut(
            "rename f d/g 0",
            "journal/record-durable",
            true,
        ),
        of(
            "recover-growth",
            &full_block,
            &["open-pool", "link f d/g", "close-pool"],
        )
        .cut("link f d/%(6ex38)x", "tree/grow-link-durable", false),
    ]
}
