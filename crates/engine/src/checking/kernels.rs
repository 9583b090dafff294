//! Lock-free steps under each order of accesses that the model allows, with bounded preemptions.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use vellum_layout::{FileKind, Inode, LinksWord, MapState, MappingKind, NamespaceKind, TargetWord};
use vellum_media::{Memory, Persistent, Site};

use super::loom_memory::{Knowledge, LoomMemory, Loomed, Part, Swaps, beside, check};
use super::world::{POOL_BYTES, small_fs};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, field, flag};
use crate::core::slots::{Op, Tally, prefer_thread_slot};
use crate::fs::{Cred, Fs, Node, RenameFlags, SetAttr};
use crate::mapping::{BlockNo, Flush, Found, Step};
use crate::namespace::direct::Direct;
use crate::namespace::indexed::Name;
use crate::namespace::indexed::index::ValueWord;

/// A file system that the model's threads use.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(super) fs: Arc<Fs<Loomed>>,
}

pub(crate) type Job = Box<dyn FnOnce(Stage) + Send>;

pub(crate) fn explore(
    preemptions: usize,
    swaps: Swaps,
    kernel: impl Fn(Stage) + Send + Sync + 'static,
) {
    explore_on(MappingKind::HashFs, Some(8), preemptions, swaps, kernel);
}

/// Explores a kernel with every block of a file hashed separately.
fn explore_single_blocks(
    preemptions: usize,
    swaps: Swaps,
    kernel: impl Fn(Stage) + Send + Sync + 'static,
) {
    explore_on(MappingKind::HashFs, Some(1), preemptions, swaps, kernel);
}

/// Explores a kernel with a file mapping and, if it has home lines, runs of this many blocks.
pub(super) fn explore_on(
    mapping: MappingKind,
    run_blocks: Option<u32>,
    preemptions: usize,
    swaps: Swaps,
    kernel: impl Fn(Stage) + Send + Sync + 'static,
) {
    check(preemptions, swaps, move |known| {
        kernel(Stage::new(
            known,
            (NamespaceKind::Direct, mapping),
            run_blocks,
        ));
    });
}

fn into(to: MapState) -> Step {
    let flush = Some(Flush::all(Site::UNNAMED));
    Step { to, flush }
}

impl Stage {
    pub(crate) fn new(
        known: &Arc<Knowledge>,
        kinds: (NamespaceKind, MappingKind),
        run_blocks: Option<u32>,
    ) -> Self {
        let pool = LoomMemory::new(known, Part::Pool, POOL_BYTES);
        let arena = |len| LoomMemory::new(known, Part::Arena, len);
        Self {
            fs: small_fs::<Loomed>(pool, arena, 2, kinds, run_blocks),
        }
    }

    pub(crate) fn fs(&self) -> &Arc<Fs<Loomed>> {
        &self.fs
    }

    pub(crate) fn core(&self) -> &Core<Loomed> {
        &self.fs.core
    }

    /// Runs jobs concurrently.
    pub(crate) fn together(&self, jobs: Vec<Job>) {
        let job = |job: Job| {
            let stage = self.clone();
            Box::new(move || job(stage)) as Box<dyn FnOnce() + Send>
        };
        let jobs = jobs.into_iter().map(job).collect();
        beside(&[&self.core().pool, &self.core().arena], jobs);
    }

    pub(super) fn make(&self, name: &str) -> crate::error::Result<Node<Loomed>> {
        let (root, cred) = (self.fs.root(), Cred::root());
        self.fs
            .mknod(&cred, &root, name.as_bytes(), FileKind::File, 0o644, 0)
    }

    pub(super) fn find(&self, name: &str) -> crate::error::Result<Node<Loomed>> {
        self.fs
            .lookup(&Cred::root(), &self.fs.root(), name.as_bytes())
    }

    pub(super) fn unlink(&self, name: &str) {
        let (root, cred) = (self.fs.root(), Cred::root());
        self.fs.unlink(&cred, &root, name.as_bytes()).unwrap();
    }

    /// Claims a block for file `id` and stores the file's id in it.
    pub(super) fn claim(&self, op: &Op<'_, Loomed>, id: u32, logical: u32) -> BlockNo {
        let mapping = &self.fs.mapping;
        let mut reserved = mapping.reserve(op, 1).unwrap();
        let step = into(MapState::Unwritten);
        let mut block = [BlockNo(0)];
        mapping
            .claim(op, id, logical, step, &mut reserved, &mut block)
            .unwrap();
        let data = mapping.data_at(block[0]);
        op.core
            .pool
            .write_through(Site::UNNAMED, data, &u64::from(id).to_ne_bytes());
        op.core.pool.fence(Site::UNNAMED);
        mapping
            .set_state(op, id, logical, &block, into(MapState::Mapped))
            .unwrap();
        block[0]
    }

    /// The data of a block of file `id`, if it is found.
    pub(super) fn data(&self, op: &Op<'_, Loomed>, id: u32, logical: u32) -> Option<u64> {
        let mut found = [Found::Hole];
        self.fs.mapping.lookup(op, id, logical, &mut found).unwrap();
        let Found::Mapped(block) = found[0] else {
            return None;
        };
        let mut data = [0; 8];
        let at = self.fs.mapping.data_at(block);
        op.core.pool.read(at, &mut data);
        Some(u64::from_ne_bytes(data))
    }

    /// Files whose first blocks have the same home line.
    fn neighbours<const N: usize>(&self) -> [u32; N] {
        let core = self.core();
        let home = |id| core.geometry.homes(core.seed).line(id, 0);
        let mut ids = (100..).filter(|&id| home(id) == home(100));
        std::array::from_fn(|_| ids.next().unwrap())
    }

    /// Files, none of the first hundred thousand, whose first blocks have the same home line as the
    /// neighbours, and the same chain.
    fn chained<const N: usize>(&self) -> [u32; N] {
        let core = self.core();
        let homes = core.geometry.homes(core.seed);
        let place = |id| (homes.line(id, 0), homes.chain(id, 0));
        let line = homes.line(100, 0);
        let first = (100_000..).find(|&id| homes.line(id, 0) == line).unwrap();
        let mut ids = (first..).filter(|&id| place(id) == place(first));
        std::array::from_fn(|_| ids.next().unwrap())
    }
}

macro_rules! together {
    ($stage:expr, $($job:expr),+ $(,)?) => {
        $stage.together(vec![$(Box::new($job)),+])
    };
}

// --- Thread slots and epochs ---

#[test]
fn a_slot_is_leased_to_one_operation() {
    explore(5, Swaps::Plain, |stage| {
        let count = |stage: Stage| {
            let op = loop {
                match stage.core().enter_idle(0) {
                    Some(op) => break op,
                    None => stage.core().arena.relax(1),
                }
            };
            op.count(Tally::Names, 1);
        };
        together!(stage, count, count);
        assert_eq!(stage.core().total(Tally::Names), 2);
    });
}

#[test]
fn nothing_is_reused_while_an_operation_may_see_it() {
    // An object: a word that names it, and a word that records whether it was reused.
    const NAMED: u64 = field::SIZE;
    const REUSED: u64 = field::ATIME;
    const OBJECT: Cachelet = Cachelet(60);
    let see = |stage: Stage| {
        let core = stage.core();
        let _op = core.op_step();
        if core.get(OBJECT, NAMED) == 1 {
            assert_eq!(core.get(OBJECT, REUSED), 0);
        }
    };
    let reuse = |stage: Stage| {
        let core = stage.core();
        core.set(OBJECT, NAMED, 0);
        core.wait_for_readers();
        core.set(OBJECT, REUSED, 1);
    };
    // A slot that was in use before, and one that was never used.
    for slot in [0, 1] {
        for swaps in [Swaps::Plain, Swaps::Barriers] {
            explore(5, swaps, move |stage| {
                stage.core().set(OBJECT, NAMED, 1);
                prefer_thread_slot(slot);
                together!(stage, see, reuse);
            });
        }
    }
}

// --- Free lists and stacks ---

#[test]
fn a_free_cachelet_is_taken_once() {
    explore(3, Swaps::Plain, |stage| {
        for number in [50, 51, 52] {
            stage.core().free_cachelet(Cachelet(number));
        }
        let taken = Arc::new(Mutex::new(BTreeSet::new()));
        let take = |stage: &Stage| {
            let core = stage.core();
            core.take_cachelet(&core.op_step()).unwrap()
        };
        let keep = |taken: &Mutex<BTreeSet<u32>>, cachelet: Cachelet| {
            assert!(taken.lock().unwrap().insert(cachelet.0), "allocated twice");
        };
        let (one, other) = (Arc::clone(&taken), Arc::clone(&taken));
        together!(
            stage,
            move |stage: Stage| keep(&one, take(&stage)),
            move |stage: Stage| {
                let first = take(&stage);
                keep(&other, take(&stage));
                stage.core().free_cachelet(first);
            }
        );
        keep(&taken, take(&stage));
        keep(&taken, take(&stage));
    });
}

#[test]
fn work_is_taken_once_and_none_is_lost() {
    explore(4, Swaps::Plain, |stage| {
        let done = |stage: &Stage| {
            for cachelet in stage.core().take_work() {
                let at = stage.core().cachelet_at(cachelet, field::SIZE);
                stage.core().arena.fetch_add(at, 1);
            }
        };
        together!(
            stage,
            |stage: Stage| stage.core().queue_work(Cachelet(50)),
            |stage: Stage| stage.core().queue_work(Cachelet(51)),
            move |stage: Stage| done(&stage)
        );
        done(&stage);
        for number in [50, 51] {
            assert_eq!(stage.core().get(Cachelet(number), field::SIZE), 1);
        }
    });
}

// --- The index and the logs of directories ---

#[test]
fn a_name_found_is_whole() {
    explore(1, Swaps::Plain, |stage| {
        together!(
            stage,
            |stage: Stage| drop(stage.make("n").unwrap()),
            |stage: Stage| {
                if let Ok(node) = stage.find("n") {
                    assert_eq!(node.kind(), FileKind::File);
                    let attr = stage.fs.attr(&node).unwrap();
                    assert_eq!((attr.mode, attr.nlink, attr.size), (0o644, 1, 0));
                    let at = stage.core().inode_at(node.cachelet);
                    assert_eq!(
                        stage.core().word(at),
                        stage.core().identity(node.cachelet).0
                    );
                }
            }
        );
        assert!(stage.find("n").is_ok());
    });
}

#[test]
fn one_of_two_names_is_inserted() {
    explore(5, Swaps::Plain, |stage| {
        let root = stage.fs.root().cachelet;
        let value = ValueWord::of_inode(7, FileKind::File);
        let insert = || {
            let op = stage.core().op_step();
            let name = Name::new(op.core, b"n").unwrap();
            let target = TargetWord::new(7, FileKind::File);
            let entry = op
                .draft_entry::<Direct>(
                    Site::UNNAMED,
                    (root, name),
                    (target, 1),
                    10,
                    Default::default(),
                )
                .unwrap()
                .entry;
            move |stage: Stage| {
                let op = stage.core().op_step();
                let inserted = op.core.index_insert::<Direct>(&op, 1, name, entry, value);
                let inserted = inserted.unwrap();
                let (Ok(pair) | Err(pair)) = inserted;
                assert_eq!(inserted.is_ok(), pair.entry.entry() == entry);
                let found = op.core.index_find::<Direct>(1, name).unwrap();
                assert_eq!((found.entry, found.value), (pair.entry, value));
            }
        };
        together!(stage, insert(), insert());
        assert_eq!(stage.core().total(Tally::Names), 1);
    });
}

#[test]
fn a_pair_is_found_while_others_come_and_go() {
    explore(2, Swaps::Plain, |stage| {
        drop((stage.make("stays").unwrap(), stage.make("goes").unwrap()));
        together!(
            stage,
            |stage: Stage| {
                stage.unlink("goes");
                drop(stage.make("comes").unwrap());
            },
            |stage: Stage| {
                assert!(stage.find("stays").is_ok());
                drop(stage.find("goes"));
            }
        );
    });
}

#[test]
fn a_pair_used_again_has_nothing_of_the_name_before() {
    explore(2, Swaps::Plain, |stage| {
        let place = |name: &str| {
            let core = stage.core();
            let name = Name::new(core, name.as_bytes()).unwrap();
            core.index_find::<Direct>(1, name).unwrap().at
        };
        drop(stage.make("goes").unwrap());
        let pair = place("goes");
        // A name with the same home: it gets the freed pair.
        stage.unlink("goes");
        let comes = (0..).map(|i| format!("{i}")).find(|name| {
            drop(stage.make(name).unwrap());
            let same = place(name) == pair;
            stage.unlink(name);
            same
        });
        let comes = comes.unwrap();
        let gone = stage.make("goes").unwrap().ino();
        assert_eq!(place("goes"), pair);
        let sought = comes.clone();
        together!(
            stage,
            move |stage: Stage| {
                stage.unlink("goes");
                drop(stage.make(&comes).unwrap());
            },
            move |stage: Stage| {
                if let Ok(node) = stage.find("goes") {
                    assert_eq!(node.ino(), gone);
                }
                if let Ok(node) = stage.find(&sought) {
                    assert_ne!(node.ino(), gone);
                }
            }
        );
    });
}

#[test]
fn a_file_found_is_not_freed_under_the_finder() {
    for swaps in [Swaps::Plain, Swaps::Barriers] {
        explore(2, swaps, |stage| {
            let was = stage.make("n").unwrap();
            let (ino, generation) = (was.ino(), was.generation());
            drop(was);
            together!(
                stage,
                move |stage: Stage| {
                    if let Ok(node) = stage.find("n") {
                        assert_eq!((node.ino(), node.generation()), (ino, generation));
                    }
                },
                |stage: Stage| {
                    stage.unlink("n");
                    stage.fs.maintain().unwrap();
                    drop(stage.make("m").unwrap());
                }
            );
            stage.fs.maintain().unwrap();
            assert_eq!(stage.core().total(Tally::Inodes), 2);
        });
    }
}

#[test]
fn a_name_missing_after_a_rename_exists_under_the_new_name() {
    explore(3, Swaps::Plain, |stage| {
        drop(stage.make("old").unwrap());
        together!(
            stage,
            |stage: Stage| {
                let (root, cred) = (stage.fs.root(), Cred::root());
                let flags = RenameFlags::empty();
                let done = stage.fs.rename(&cred, &root, b"old", &root, b"new", flags);
                done.unwrap();
            },
            |stage: Stage| {
                if stage.find("old").is_err() {
                    assert!(stage.find("new").is_ok());
                }
            }
        );
    });
}

#[test]
fn a_directory_is_filled_or_removed() {
    explore(1, Swaps::Plain, |stage| {
        let (root, cred) = (stage.fs.root(), Cred::root());
        let dir = stage.fs.mkdir(&cred, &root, b"d", 0o755).unwrap();
        let filled = dir.clone();
        together!(
            stage,
            move |stage: Stage| {
                let made = stage
                    .fs
                    .mknod(&Cred::root(), &filled, b"f", FileKind::File, 0o644, 0);
                assert_eq!(made.is_ok(), stage.find("d").is_ok());
            },
            |stage: Stage| {
                let root = stage.fs.root();
                let removed = stage.fs.rmdir(&Cred::root(), &root, b"d");
                assert_eq!(removed.is_err(), stage.find("d").is_ok());
            }
        );
        drop(dir);
    });
}

#[test]
fn log_words_are_claimed_once_while_the_log_grows() {
    explore(5, Swaps::Plain, |stage| {
        for i in 0..11 {
            drop(stage.make(&format!("{i}")).unwrap());
        }
        let root = stage.fs.root().cachelet;
        let claim = move |stage: Stage| {
            let op = stage.core().op_step();
            let claim = op.log_claim::<Direct>(root).unwrap();
            assert!((14..20).contains(&claim.cookie), "{claim:?}");
            let before = op.core.pool.fetch_add(claim.at, claim.cookie);
            assert_eq!(before, 0, "claimed twice");
        };
        together!(stage, claim, claim);
    });
}

// --- Eviction ---

#[test]
fn a_cachelet_found_by_number_is_not_evicted() {
    for swaps in [Swaps::Plain, Swaps::Barriers] {
        explore(2, swaps, |stage| {
            let was = stage.make("n").unwrap();
            let (ino, generation) = (was.ino(), was.generation());
            drop(was);
            crate::namespace::forget_names(stage.core(), stage.fs.root().cachelet);
            together!(
                stage,
                move |stage: Stage| {
                    let node = stage.fs.node(ino, generation).unwrap();
                    assert_eq!((node.ino(), node.generation()), (ino, generation));
                },
                |stage: Stage| stage.fs.reclaim_now().unwrap()
            );
            let found = stage.find("n").unwrap();
            let by_number = stage.fs.node(ino, generation).unwrap();
            assert_eq!(found.cachelet, by_number.cachelet);
        });
    }
}

#[test]
fn a_cachelet_that_a_name_gets_is_whole() {
    explore(2, Swaps::Plain, |stage| {
        let was = stage.make("n").unwrap();
        let ino = was.ino();
        drop((was, stage.make("m").unwrap()));
        stage.fs.reclaim_now().unwrap();
        stage.fs.reclaim_now().unwrap();
        // The index has the inode of the other name too, but no cachelet for it.
        assert!(stage.find("m").is_ok());
        let find = move |stage: Stage| {
            let root = stage.fs.root();
            let attr = stage.fs.stat(&Cred::root(), &root, b"n", false).unwrap();
            assert_eq!((attr.ino, attr.mode, attr.nlink), (ino, 0o644, 1));
        };
        together!(stage, find, find);
    });
}

#[test]
fn a_name_is_found_while_its_directory_is_evicted() {
    explore(2, Swaps::Plain, |stage| {
        drop(stage.make("n").unwrap());
        let root = stage.fs.root().cachelet;
        together!(
            stage,
            |stage: Stage| assert!(stage.find("n").is_ok()),
            move |stage: Stage| {
                crate::namespace::forget_names(stage.core(), root);
            }
        );
    });
}

#[test]
fn a_name_made_while_its_directory_is_evicted_is_found() {
    explore(2, Swaps::Plain, |stage| {
        let root = stage.fs.root().cachelet;
        together!(
            stage,
            |stage: Stage| {
                drop(stage.make("n").unwrap());
                assert!(stage.find("n").is_ok());
            },
            move |stage: Stage| {
                crate::namespace::forget_names(stage.core(), root);
            }
        );
        let name = Name::new(stage.core(), b"n").unwrap();
        assert!(
            stage
                .core()
                .index_find::<Direct>(1, name)
                .is_none_or(|pair| pair.value.is_settled())
        );
    });
}

// --- The mapping ---

#[test]
fn a_block_is_claimed_once() {
    explore(3, Swaps::Plain, |stage| {
        let ids = stage.neighbours();
        one_block_each(&stage, ids);
    });
}

#[test]
fn a_block_that_two_hashes_point_at_is_claimed_once() {
    explore_single_blocks(3, Swaps::Plain, |stage| {
        // The last free block of their line: one of the two is displaced.
        let [a, b, c, d, e, f, g, one, two] = stage.neighbours();
        for id in [a, b, c, d, e, f, g] {
            stage.claim(&stage.core().op_step(), id, 0);
        }
        one_block_each(&stage, [one, two]);
    });
}

/// Both files get a block concurrently, and keep it.
fn one_block_each(stage: &Stage, ids: [u32; 2]) {
    for id in ids {
        assert_eq!(stage.data(&stage.core().op_step(), id, 0), None);
    }
    let job = |id: u32| {
        move |stage: Stage| {
            let op = stage.core().op_step();
            stage.claim(&op, id, 0);
            assert_eq!(stage.data(&op, id, 0), Some(u64::from(id)));
        }
    };
    together!(stage, job(ids[0]), job(ids[1]));
    for id in ids {
        let data = stage.data(&stage.core().op_step(), id, 0);
        assert_eq!(data, Some(u64::from(id)));
    }
}

#[test]
fn blocks_outside_their_home_line_are_found_while_others_come_and_go() {
    explore(5, Swaps::Plain, |stage| {
        // Blocks 0 and 1 of a file are on the same chain; another is displaced from the same line.
        let [full, file, comes] = stage.neighbours();
        {
            let op = stage.core().op_step();
            for logical in 0..8 {
                stage.claim(&op, full, logical);
            }
            for logical in [0, 1] {
                stage.claim(&op, file, logical);
            }
        }
        together!(
            stage,
            move |stage: Stage| {
                let op = stage.core().op_step();
                assert_eq!(stage.data(&op, file, 0), Some(u64::from(file)));
            },
            move |stage: Stage| {
                let op = stage.core().op_step();
                stage
                    .fs
                    .mapping
                    .release(Flush::all(Site::UNNAMED), &op, file, 1, 2, 2)
                    .unwrap();
                stage.claim(&op, comes, 0);
            }
        );
        let op = stage.core().op_step();
        assert_eq!(stage.data(&op, comes, 0), Some(u64::from(comes)));
        assert_eq!(stage.data(&op, file, 1), None);
    });
}

#[test]
fn single_blocks_outside_their_home_line_are_found_while_others_come_and_go() {
    explore_single_blocks(5, Swaps::Plain, |stage| {
        let full: [u32; 8] = stage.neighbours();
        let [stays, goes, comes] = stage.chained();
        for id in full.into_iter().chain([goes, stays]) {
            stage.claim(&stage.core().op_step(), id, 0);
        }
        together!(
            stage,
            move |stage: Stage| {
                let op = stage.core().op_step();
                assert_eq!(stage.data(&op, stays, 0), Some(u64::from(stays)));
            },
            move |stage: Stage| {
                let op = stage.core().op_step();
                let mapping = &stage.fs.mapping;
                mapping
                    .release(Flush::all(Site::UNNAMED), &op, goes, 0, 1, 1)
                    .unwrap();
                stage.claim(&op, comes, 0);
            }
        );
        let op = stage.core().op_step();
        assert_eq!(stage.data(&op, comes, 0), Some(u64::from(comes)));
        assert_eq!(stage.data(&op, goes, 0), None);
    });
}

#[test]
fn a_block_found_keeps_its_bytes_until_the_operation_ends() {
    for swaps in [Swaps::Plain, Swaps::Barriers] {
        explore(3, swaps, |stage| {
            let [old, new] = stage.neighbours();
            stage.claim(&stage.core().op_step(), old, 0);
            together!(
                stage,
                move |stage: Stage| {
                    let op = stage.core().op_step();
                    let data = stage.data(&op, old, 0);
                    assert!(data.is_none_or(|data| data == u64::from(old)), "{data:?}");
                },
                move |stage: Stage| {
                    let core = stage.core();
                    stage
                        .fs
                        .mapping
                        .release(Flush::all(Site::UNNAMED), &core.op_step(), old, 0, 8, 1)
                        .unwrap();
                    core.try_advance();
                    core.try_advance();
                    stage.fs.mapping.reclaim(core);
                    stage.claim(&core.op_step(), new, 0);
                }
            );
        });
    }
}

#[test]
fn a_block_on_its_way_from_limbo_counts_as_free() {
    explore(2, Swaps::Plain, |stage| {
        let core = stage.core();
        let all = stage.fs.mapping.usage(core).free;
        let [file, _] = stage.neighbours();
        stage.claim(&core.op_step(), file, 0);
        let mapping = &stage.fs.mapping;
        mapping
            .release(Flush::all(Site::UNNAMED), &core.op_step(), file, 0, 8, 1)
            .unwrap();
        core.try_advance();
        core.try_advance();
        together!(
            stage,
            move |stage: Stage| assert!(stage.fs.mapping.usage(stage.core()).free >= all),
            |stage: Stage| _ = stage.fs.mapping.reclaim(stage.core())
        );
    });
}

#[test]
fn a_read_returns_bytes_of_its_file_only() {
    explore(2, Swaps::Plain, |stage| {
        let options = crate::fs::OpenOptions {
            read: true,
            write: true,
            ..Default::default()
        };
        let open = |name: &str| {
            let node = stage.make(name).unwrap();
            stage.fs.open_node(&Cred::root(), &node, &options).unwrap()
        };
        let (old, new) = (Arc::new(open("old")), open("new"));
        old.write_at(0, b"old file").unwrap();
        let reader = Arc::clone(&old);
        together!(
            stage,
            move |_: Stage| {
                let mut bytes = [0; 8];
                let len = reader.read_at(0, &mut bytes).unwrap();
                assert!(len == 0 || &bytes == b"old file", "{bytes:?}");
            },
            move |stage: Stage| {
                old.truncate(0).unwrap();
                let core = stage.core();
                core.try_advance();
                core.try_advance();
                stage.fs.mapping.reclaim(core);
                new.write_at(0, b"new file").unwrap();
            }
        );
    });
}

/// Whether the root's inode agrees with its cachelet, or the cachelet is marked as not written
/// back.
fn is_root_written_back_or_marked(stage: &Stage) -> bool {
    let (core, root) = (stage.core(), stage.fs.root);
    let word = |field| core.word(core.inode_at(root) + field);
    let times = core.times(root);
    let known = [
        core.get(root, field::LINKS),
        times.mtime as u64,
        times.ctime as u64,
    ];
    let links = u64::from(LinksWord(word(Inode::LINKS)).links());
    core.has_flag(root, flag::DIRTY) || known == [links, word(Inode::MTIME), word(Inode::CTIME)]
}

/// Creates a directory in the root while the root is written back, as its recycling does.
fn change_and_write_back(stage: Stage) {
    let (op, root) = (stage.core().op_step(), stage.fs.root);
    op.note_change(root, op.change_time(root), 1);
    op.write_back([Site::UNNAMED; 2], root);
}

#[test]
fn a_directory_written_back_twice_at_once_has_its_last_state() {
    explore(3, Swaps::Plain, |stage| {
        together!(stage, change_and_write_back, change_and_write_back);
        assert!(is_root_written_back_or_marked(&stage));
    });
}

#[test]
fn a_directory_written_back_during_a_change_of_mode_keeps_both_times() {
    explore(2, Swaps::Plain, |stage| {
        together!(stage, change_and_write_back, |stage: Stage| {
            let set = SetAttr {
                mode: Some(0o700),
                ..SetAttr::default()
            };
            let (root, cred) = (stage.fs.root(), Cred::root());
            stage.fs.set_attr(&cred, &root, &set).unwrap();
        });
        assert!(is_root_written_back_or_marked(&stage));
    });
}
