//! Whole operations that run concurrently.

use super::world::{World, explore, together};
use vellum_layout::Inode;

use crate::error::Error;
use crate::fs::{Cred, RenameFlags};

#[test]
fn one_of_two_creations_of_a_name_wins() {
    explore(2000, |world| {
        let made = together!(world, |w: World| w.file("/n").is_ok(), |w: World| w
            .mkdir("/n")
            .is_ok());
        assert_eq!(made.into_iter().filter(|&made| made).count(), 1);
    });
}

#[test]
fn a_directory_is_removed_or_filled_but_not_both() {
    explore(2000, |world| {
        drop(world.mkdir("/d").unwrap());
        let done = together!(
            world,
            |w: World| w.file("/d/f").is_ok(),
            |w: World| w.rmdir("/d").is_ok(),
            |w: World| {
                w.squeeze();
                true
            }
        );
        assert!(done[0] != done[1], "{done:?}");
        assert_eq!(world.see("/d/f").is_some(), done[0]);
        assert_eq!(world.see("/d").is_some(), done[0]);
    });
}

#[test]
fn links_made_during_the_last_unlink_keep_the_file_or_fail() {
    explore(2000, |world| {
        let file = world.file("/a").unwrap();
        let done = together!(
            world,
            |w: World| w.unlink("/a").is_ok(),
            move |w: World| w.link(&file, "/b").is_ok(),
            |w: World| w.see("/a").is_none_or(|seen| seen.nlink > 0)
        );
        assert!(done[0]);
        assert_eq!(world.see("/b").is_some(), done[1]);
    });
}

#[test]
fn renames_that_cross_lose_nothing() {
    explore(2000, |world| {
        let (a, b) = (world.mkdir("/a").unwrap(), world.mkdir("/b").unwrap());
        let inner = world.file("/a/f").unwrap().ino();
        drop((a, b));
        let done = together!(
            world,
            |w: World| w.rename("/a/f", "/b/f", RenameFlags::empty()).is_ok(),
            |w: World| w.rename("/b", "/a/b", RenameFlags::empty()).is_ok(),
            |w: World| w.rename("/a", "/b/a", RenameFlags::empty()).is_ok(),
        );
        assert!(!(done[1] && done[2]), "a loop");
        let places = ["/a/f", "/b/f", "/a/b/f", "/b/a/f", "/a/b/a/f"];
        let found: Vec<_> = places.iter().filter_map(|path| world.see(path)).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].ino, inner);
    });
}

#[test]
fn a_replaced_name_is_there_all_the_time() {
    explore(2000, |world| {
        drop((world.file("/old").unwrap(), world.file("/new").unwrap()));
        together!(
            world,
            |w: World| w.rename("/old", "/new", RenameFlags::empty()).unwrap(),
            |w: World| assert!(w.see("/new").is_some()),
            |w: World| assert!(matches!(w.file("/new"), Err(Error::Exists)))
        );
    });
}

#[test]
fn eviction_hides_no_name() {
    explore(2000, |world| {
        drop((world.mkdir("/d").unwrap(), world.file("/d/stays").unwrap()));
        together!(
            world,
            |w: World| w.squeeze(),
            |w: World| assert!(w.see("/d/stays").is_some()),
            |w: World| assert!(matches!(w.mkdir("/d/stays"), Err(Error::Exists)))
        );
    });
}

#[test]
fn names_removed_during_eviction_stay_removed() {
    explore(3000, |world| {
        drop((world.mkdir("/d").unwrap(), world.file("/d/f").unwrap()));
        together!(
            world,
            |w: World| {
                w.unlink("/d/f").unwrap();
                assert!(w.see("/d/f").is_none());
            },
            |w: World| w.squeeze(),
            |w: World| w.glance("/d/f")
        );
        assert!(world.see("/d/f").is_none());
    });
}

#[test]
fn names_exchanged_are_there_all_the_time() {
    explore(2000, |world| {
        drop((world.file("/a").unwrap(), world.file("/b").unwrap()));
        together!(
            world,
            |w: World| drop(w.rename("/a", "/b", RenameFlags::EXCHANGE)),
            |w: World| assert!(w.see("/a").is_some()),
            |w: World| w.unlink("/b").unwrap()
        );
        assert!(world.see("/a").is_some() && world.see("/b").is_none());
    });
}

#[test]
fn a_listing_during_recycling_and_compaction_lists_each_name_once() {
    explore(100, |world| {
        drop(world.mkdir("/d").unwrap());
        drop(world.file("/d/first").unwrap());
        for _ in 0..600 {
            drop(world.file("/d/f").unwrap());
            world.unlink("/d/f").unwrap();
        }
        drop(world.file("/d/last").unwrap());
        together!(
            world,
            |w: World| w.maintain(),
            |w: World| drop(w.file("/d/new").unwrap()),
            |w: World| {
                let listed = w.list("/d").unwrap();
                let names: Vec<_> = listed.iter().map(|(name, _)| &name[..]).collect();
                assert!(
                    names == ["first", "last"] || names == ["first", "last", "new"],
                    "{names:?}"
                );
            }
        );
    });
}

#[test]
fn a_name_removed_as_soon_as_it_is_created_stays_removed() {
    explore(2000, |world| {
        let done = together!(
            world,
            |w: World| w.file("/n").is_ok(),
            |w: World| w.unlink("/n").is_ok(),
            |w: World| w.rename("/n", "/m", RenameFlags::empty()).is_ok(),
        );
        assert_eq!(world.see("/n").is_some(), !done[1] && !done[2]);
        assert_eq!(
            world.see("/m").is_some(),
            done[2] && world.see("/n").is_none()
        );
    });
}

#[test]
fn a_name_evicted_while_it_is_first_looked_up_holds_nothing() {
    explore(2000, |world| {
        drop((
            world.mkdir("/d").unwrap(),
            world.file("/d/f").unwrap(),
            world.file("/d/g").unwrap(),
        ));
        world.squeeze();
        world.squeeze();
        assert!(world.see("/d/g").is_some());
        together!(world, |w: World| w.forget("/d"), |w: World| assert!(
            w.see("/d/f").is_some()
        ));
        world.unlink("/d/f").unwrap();
    });
}

#[test]
fn a_removal_overtaken_by_eviction_drops_only_what_it_holds() {
    explore(3000, |world| {
        drop((
            world.mkdir("/d").unwrap(),
            world.file("/d/f").unwrap(),
            world.file("/d/g").unwrap(),
        ));
        together!(world, |w: World| w.unlink("/d/f").unwrap(), |w: World| {
            w.forget("/d");
            assert!(w.see("/d/g").is_some());
        });
    });
}

#[test]
fn a_removed_name_does_not_come_back_with_the_index() {
    explore(2000, |world| {
        drop((world.mkdir("/d").unwrap(), world.file("/d/f").unwrap()));
        together!(
            world,
            |w: World| {
                w.unlink("/d/f").unwrap();
                assert!(w.see("/d/f").is_none());
            },
            |w: World| {
                w.forget("/d");
                w.glance("/d/f");
            },
            |w: World| w.glance("/d/f")
        );
        assert!(world.see("/d/f").is_none());
    });
}

#[test]
fn a_creation_taken_back_hides_no_name() {
    explore(4000, |world| {
        drop(world.mkdir("/d").unwrap());
        let made = together!(world, |w: World| w.file("/d/n").is_ok(), |w: World| {
            let made = w.file("/d/n").map(drop);
            w.forget("/d");
            assert!(w.see("/d/n").is_some(), "{made:?}");
            made.is_ok()
        });
        assert!(made[0] != made[1], "{made:?}");
    });
}

#[test]
fn names_that_outlive_their_directorys_index_are_counted() {
    explore(3000, |world| {
        drop((world.mkdir("/d").unwrap(), world.file("/d/g").unwrap()));
        together!(
            world,
            |w: World| drop(w.file("/d/f").unwrap()),
            |w: World| w.forget("/d")
        );
        world.squeeze();
        world.squeeze();
        together!(
            world,
            |w: World| w.unlink("/d/f").unwrap(),
            |w: World| assert!(w.see("/d/g").is_some())
        );
    });
}

#[test]
fn a_file_whose_old_name_is_gone_has_its_new_one() {
    explore(3000, |world| {
        drop(world.file("/old").unwrap());
        together!(
            world,
            |w: World| w.rename("/old", "/new", RenameFlags::empty()).unwrap(),
            |w: World| {
                if w.see("/old").is_none() {
                    assert!(w.see("/new").is_some(), "neither name is there");
                }
            }
        );
    });
}

#[test]
fn cachelets_come_and_go_during_lookups_and_removals() {
    explore(2000, |world| {
        let file = world.file("/a").unwrap();
        world.link(&file, "/b").unwrap();
        drop(file);
        world.squeeze();
        world.squeeze();
        together!(
            world,
            |w: World| drop(w.node("/a")),
            |w: World| {
                drop(w.node("/b"));
                w.unlink("/b").unwrap();
            },
            |w: World| w.squeeze()
        );
        assert_eq!(world.see("/a").unwrap().nlink, 1);
    });
}

/// A name may record which cachelet its file had. Both files' cachelets are evicted and swap files
/// at the next lookups, during more evictions and the use of another file.
#[test]
fn a_name_whose_cachelet_was_reused_leads_to_its_own_file() {
    explore(1000, |world| {
        let paths = ["/a", "/b"];
        let inos = paths.map(|path| world.file(path).unwrap().ino());
        world.squeeze();
        world.squeeze();
        // The cachelet freed last is allocated first.
        let look = |order: [usize; 2]| {
            move |w: World| {
                for which in order.into_iter().chain(order) {
                    assert_eq!(w.see(paths[which]).unwrap().ino, inos[which]);
                }
            }
        };
        together!(
            world,
            look([0, 1]),
            look([1, 0]),
            |w: World| w.squeeze(),
            |w: World| drop(w.mkdir("/n").unwrap())
        );
        assert_eq!(paths.map(|path| world.see(path).unwrap().ino), inos);
    });
}

#[test]
fn a_directory_with_pending_work_is_not_evicted() {
    explore(500, |world| {
        drop(world.mkdir("/d").unwrap());
        for _ in 0..99 {
            drop(world.file("/d/f").unwrap());
            world.unlink("/d/f").unwrap();
        }
        drop(world.file("/d/f").unwrap());
        world.squeeze();
        together!(world, |w: World| w.unlink("/d/f").unwrap(), |w: World| w
            .squeeze());
        drop(world.file("/e").unwrap());
    });
}

#[test]
fn a_link_taken_back_is_the_last_name_too() {
    explore(2000, |world| {
        let file = world.file("/a").unwrap();
        together!(
            world,
            |w: World| w.unlink("/a").unwrap(),
            move |w: World| drop(w.link(&file, "/b")),
            |w: World| drop(w.mkdir("/b"))
        );
    });
}

#[test]
fn a_file_whose_names_go_at_once_is_freed() {
    explore(2000, |world| {
        let file = world.file("/a").unwrap();
        world.link(&file, "/b").unwrap();
        drop(file);
        together!(
            world,
            |w: World| w.unlink("/a").unwrap(),
            |w: World| w.unlink("/b").unwrap(),
            |w: World| drop(w.node("/a"))
        );
    });
}

#[test]
fn a_directory_removed_while_it_waits_for_recycling_is_freed() {
    explore(500, |world| {
        drop(world.mkdir("/d").unwrap());
        for _ in 0..100 {
            drop(world.file("/d/f").unwrap());
            world.unlink("/d/f").unwrap();
        }
        together!(world, |w: World| w.maintain(), |w: World| w
            .rmdir("/d")
            .unwrap());
    });
}

#[test]
fn an_inode_being_created_has_one_cachelet() {
    explore(2000, |world| {
        let ino = world.file("/a").unwrap().ino() + 1;
        together!(
            world,
            |w: World| drop(w.file("/b").unwrap()),
            move |w: World| assert!(w.fs.node(ino, 77).is_err())
        );
        let by_name = world.node("/b").unwrap();
        let by_number = world.fs.node(by_name.ino(), by_name.generation()).unwrap();
        assert_eq!(by_name.cachelet, by_number.cachelet);
    });
}

#[test]
fn a_removed_directory_and_the_one_above_lose_their_links_together() {
    explore(2000, |world| {
        let above = world.mkdir("/p").unwrap();
        let inner = world.mkdir("/p/q").unwrap();
        together!(
            world,
            |w: World| w.rmdir("/p/q").unwrap(),
            move |w: World| {
                let links = |node| w.fs.attr(node).unwrap().nlink;
                let before = links(&inner);
                assert!(before > 0 || links(&above) == 2);
                if links(&above) == 2 {
                    assert_eq!(links(&inner), 0);
                }
            }
        );
    });
}

#[test]
fn the_directory_above_a_removed_one_is_there_or_is_not() {
    explore(2000, |world| {
        drop(world.mkdir("/p").unwrap());
        let inner = world.mkdir("/p/q").unwrap();
        world.rmdir("/p/q").unwrap();
        together!(
            world,
            move |w: World| {
                if let Ok(above) = w.fs.lookup(&crate::fs::Cred::root(), &inner, b"..") {
                    drop(w.mkdir("/other"));
                    drop(above);
                }
            },
            |w: World| {
                w.rmdir("/p").unwrap();
                w.squeeze();
            }
        );
    });
}

/// A write reads the clock before a rename, and shows its time afterwards.
#[test]
fn a_change_time_never_goes_back() {
    explore(2000, |world| {
        let file = world.file("/a").unwrap();
        let (handle, seen) = (world.open(&Cred::root(), &file), file.clone());
        together!(
            world,
            |w: World| w.rename("/a", "/b", RenameFlags::empty()).unwrap(),
            move |_: World| assert_eq!(handle.write_at(0, b"bytes").unwrap(), 5),
            move |w: World| {
                let look = || w.fs.attr(&seen).unwrap().ctime_ns;
                let looks = [look(), look(), look()];
                assert!(looks.is_sorted(), "{looks:?}");
            }
        );
        let ctime = world.fs.attr(&file).unwrap().ctime_ns;
        assert_eq!(world.inode_word(&file, Inode::CTIME), ctime as u64);
    });
}

/// Two names of a file come and go at once.
#[test]
fn the_last_count_of_links_is_the_one_on_the_pool() {
    explore(2000, |world| {
        let file = world.file("/a").unwrap();
        world.link(&file, "/b").unwrap();
        let linked = file.clone();
        together!(
            world,
            |w: World| w.unlink("/b").unwrap(),
            move |w: World| w.link(&linked, "/c").unwrap(),
            |w: World| w.rename("/a", "/d", RenameFlags::empty()).unwrap()
        );
        let attr = world.fs.attr(&file).unwrap();
        assert_eq!(world.inode_word(&file, Inode::LINKS), 2);
        assert_eq!(world.inode_word(&file, Inode::CTIME), attr.ctime_ns as u64);
    });
}

/// A write must not check the set-id bits before it has locked the file: bits set in between would
/// stay on what it writes.
#[test]
fn a_write_after_a_change_of_mode_drops_set_id_bits() {
    explore(2000, |world| {
        let file = world.file("/f").unwrap();
        world.chmod(&file, 0o777);
        let user = Cred {
            uid: 5,
            gid: 5,
            groups: Vec::new(),
            privileged: false,
            umask: 0,
        };
        let (handle, set) = (world.open(&user, &file), file.clone());
        let was_first = together!(
            world,
            move |_: World| handle.write_at(0, b"new").unwrap() == 0,
            move |w: World| {
                w.chmod(&set, 0o6777);
                let mut bytes = [0; 3];
                w.open(&Cred::root(), &set).read_at(0, &mut bytes).unwrap() == 0
            }
        );
        let mode = world.fs.attr(&file).unwrap().mode;
        assert!(mode == 0o777 || !was_first[1], "{mode:o}");
    });
}
