//! Trees of names under every order of accesses that the memory model allows.

use std::sync::{Arc, Mutex};

use vellum_layout::{MappingKind, NamespaceKind, name_hash};

use super::kernels::{Job, Stage};
use super::loom_memory::{Swaps, check};
use crate::namespace;

/// Checks `kernel` with the namespace `tree`.
fn explore(preemptions: usize, kernel: impl Fn(Stage) + Send + Sync + 'static) {
    check(preemptions, Swaps::Plain, move |known| {
        let kinds = (NamespaceKind::Tree, MappingKind::HashFs);
        kernel(Stage::new(known, kinds, Some(8)));
    });
}

/// Names whose leaves part on the lowest levels: creating one moves another into new nodes below.
fn names_of_one_place(stage: &Stage) -> [String; 3] {
    let digits = |name: &String| name_hash(stage.core().seed, name.as_bytes()) & 0xFF;
    let all: Vec<String> = (0..4000).map(|number| format!("n{number}")).collect();
    let first = digits(&all[0]);
    let mut same = all.into_iter().filter(|name| digits(name) == first);
    std::array::from_fn(|_| same.next().unwrap())
}

#[test]
fn a_name_is_found_while_its_leaf_moves_below() {
    explore(3, |stage| {
        let [there, comes, absent] = names_of_one_place(&stage);
        stage.make(&there).unwrap();
        let jobs: Vec<Job> = vec![
            Box::new(move |stage: Stage| {
                assert!(stage.find(&there).is_ok());
                assert!(stage.find(&absent).is_err());
            }),
            Box::new(move |stage: Stage| {
                stage.make(&comes).unwrap();
                assert!(stage.find(&comes).is_ok());
            }),
        ];
        stage.together(jobs);
    });
}

#[test]
fn a_name_is_found_while_nodes_are_taken_out() {
    explore(3, |stage| {
        let [there, goes, _] = names_of_one_place(&stage);
        stage.make(&there).unwrap();
        stage.make(&goes).unwrap();
        stage.unlink(&goes);
        let root = stage.fs.root().cachelet;
        let jobs: Vec<Job> = vec![
            Box::new(move |stage: Stage| assert!(stage.find(&there).is_ok())),
            Box::new(move |stage: Stage| {
                stage
                    .fs
                    .namespace
                    .recycle(stage.core(), root, false)
                    .unwrap();
            }),
        ];
        stage.together(jobs);
    });
}

#[test]
fn a_name_is_found_while_its_tree_is_discarded() {
    explore(3, |stage| {
        stage.make("n").unwrap();
        let root = stage.fs.root().cachelet;
        let jobs: Vec<Job> = vec![
            Box::new(|stage: Stage| assert!(stage.find("n").is_ok())),
            Box::new(move |stage: Stage| namespace::forget_names(stage.core(), root)),
        ];
        stage.together(jobs);
    });
}

#[test]
fn changes_of_names_exclude_each_other() {
    explore(2, |stage| {
        let made = Arc::new(Mutex::new(0));
        let make = |made: Arc<Mutex<u32>>| {
            move |stage: Stage| *made.lock().unwrap() += u32::from(stage.make("n").is_ok())
        };
        let jobs: Vec<Job> = vec![
            Box::new(make(Arc::clone(&made))),
            Box::new(make(Arc::clone(&made))),
        ];
        stage.together(jobs);
        assert_eq!(*made.lock().unwrap(), 1);
        assert_eq!(stage.fs.children(&stage.fs.root()).unwrap(), 1);
    });
}
