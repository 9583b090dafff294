//! Whole operations beside each other.

use super::world::{World, explore};
use vellum_layout::Inode;

use crate::Error;
use crate::fs::{Cred, RenameFlags};

macro_rules! together {
    ($world:expr, $($job:expr),+ $(,)?) => {
        $world.together(vec![$(Box::new($job)),+])
    };
}

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
fn links_made_beside_the_last_unlink_keep_the_file_or_fail() {
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
fn names_removed_beside_eviction_stay_removed() {
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
fn a_listing_beside_recycling_and_compaction_gives_each_name_once() {
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
fn a_name_removed_as_soon_as_it_is_made_stays_removed() {
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
fn cachelets_come_and_go_beside_lookups_and_removals() {
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

#[test]
fn a_directory_with_work_to_do_is_not_evicted() {
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
fn an_inode_being_made_has_one_cachelet() {
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
                if let Ok(above) = w.fs.lookup(&crate::Cred::root(), &inner, b"..") {
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

/// A write took its time before a rename, and showed it afterwards.
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

/// Two names of a file that come and go at once.
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

/// Set-id bits were looked for before the file was locked: those that somebody set meanwhile stayed on what
/// was written behind them.
#[test]
fn a_write_behind_a_change_of_mode_drops_set_id_bits() {
    explore(2000, |world| {
        let file = world.file("/f").unwrap();
        world.chmod(&file, 0o777);
        let user = Cred {
            uid: 5,
            gid: 5,
            groups: Vec::new(),
            privileged: false,
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

/// Names change below a directory that is moved, and around it; nobody finds one missing or twice.
#[test]
fn a_directory_moves_with_what_is_below_beside_changes() {
    explore(1000, |world| {
        drop((world.mkdir("/d").unwrap(), world.mkdir("/d/e").unwrap()));
        let stays = world.file("/d/e/stays").unwrap().ino();
        drop((world.file("/d/goes").unwrap(), world.mkdir("/p").unwrap()));
        let inner = world.node("/d/e").unwrap();
        together!(
            world,
            |w: World| w.rename("/d", "/p/n", RenameFlags::empty()).unwrap(),
            |w: World| {
                for path in ["/d/goes", "/p/n/goes"] {
                    drop(w.unlink(path));
                }
            },
            {
                let inner = inner.clone();
                move |w: World| {
                    let (cred, name) = (Cred::root(), b"new");
                    let kind = vellum_layout::FileKind::File;
                    drop(w.fs.mknod(&cred, &inner, name, kind, 0o644, 0).unwrap());
                }
            },
            move |w: World| {
                let found = w.fs.lookup(&Cred::root(), &inner, b"stays");
                assert_eq!(found.unwrap().ino(), stays);
                let mut names = Vec::new();
                let mut position = crate::ListPosition::default();
                let listed = w.fs.list(&inner, 0, &mut position, &mut |entry| {
                    names.push(entry.name.to_vec());
                    true
                });
                listed.unwrap();
                names.retain(|name| name != b"new");
                assert_eq!(names, [b"stays".to_vec()]);
            }
        );
        assert!(world.see("/d").is_none());
        assert_eq!(world.see("/p/n/e/stays").unwrap().ino, stays);
        assert!(world.see("/p/n/e/new").is_some());
    });
}

/// What is made in an empty directory while that gets another name has the path that the directory has then.
#[test]
fn an_empty_directory_moves_beside_creations_in_it() {
    explore(1000, |world| {
        drop((world.mkdir("/d").unwrap(), world.mkdir("/a").unwrap()));
        // Only one namespace has areas.
        drop(world.fs.split(&world.node("/a").unwrap()));
        let dir = world.node("/d").unwrap();
        let make = |name: &'static [u8], kind| {
            let dir = dir.clone();
            move |w: World| match kind {
                vellum_layout::FileKind::Directory => {
                    drop(w.fs.mkdir(&Cred::root(), &dir, name, 0o755).unwrap());
                }
                kind => drop(
                    w.fs.mknod(&Cred::root(), &dir, name, kind, 0o644, 0)
                        .unwrap(),
                ),
            }
        };
        together!(
            world,
            |w: World| {
                w.rename("/d", "/e", RenameFlags::empty()).unwrap();
                w.rename("/e", "/a/n", RenameFlags::empty()).unwrap();
            },
            make(b"f", vellum_layout::FileKind::File),
            make(b"g", vellum_layout::FileKind::Directory)
        );
        drop(world.file("/a/n/g/h").unwrap());
        assert!(world.see("/a/n/f").is_some());
    });
}

/// A round of evolving, in which a directory becomes the root of an area, beside changes in it and its rename.
#[test]
fn areas_evolve_beside_changes() {
    explore(500, |world| {
        drop(world.mkdir("/d").unwrap());
        let names: Vec<String> = (0..10).map(|number| format!("{number}")).collect();
        for name in &names {
            drop(world.file(&format!("/d/{name}")).unwrap());
        }
        world.rename("/d", "/e", RenameFlags::empty()).unwrap();
        let dir = world.node("/e").unwrap();
        together!(
            world,
            // Only one namespace has areas.
            |w: World| drop(w.fs.evolve()),
            |w: World| w.rename("/e", "/n", RenameFlags::empty()).unwrap(),
            {
                let dir = dir.clone();
                move |w: World| {
                    let (cred, kind) = (Cred::root(), vellum_layout::FileKind::File);
                    w.fs.unlink(&cred, &dir, b"0").unwrap();
                    drop(w.fs.mknod(&cred, &dir, b"0", kind, 0o644, 0).unwrap());
                }
            },
            move |w: World| {
                let found = w.fs.lookup(&Cred::root(), &dir, b"9");
                assert!(found.is_ok());
            }
        );
        let listed = world.list("/n").unwrap();
        let mut listed: Vec<String> = listed.into_iter().map(|(name, _)| name).collect();
        listed.sort();
        assert_eq!(listed, names);
        assert!(world.see("/e").is_none());
    });
}

/// Two movers, of which one moves what the other's directory is moved to, and eviction.
#[test]
fn directories_with_names_move_beside_each_other() {
    explore(1000, |world| {
        drop((world.mkdir("/a").unwrap(), world.file("/a/f").unwrap()));
        drop((world.mkdir("/b").unwrap(), world.file("/b/g").unwrap()));
        let [f, g] = ["/a/f", "/b/g"].map(|path| world.see(path).unwrap().ino);
        let done = together!(
            world,
            |w: World| w.rename("/a", "/b/a", RenameFlags::empty()).is_ok(),
            |w: World| w.rename("/b", "/c", RenameFlags::empty()).is_ok(),
            |w: World| {
                w.squeeze();
                w.forget("/a");
                true
            }
        );
        assert!(done[1]);
        let above = if done[0] { "/c/a/f" } else { "/a/f" };
        assert_eq!(world.see(above).unwrap().ino, f);
        assert_eq!(world.see("/c/g").unwrap().ino, g);
    });
}

/// Paths that were looked up before, and are again, beside a move of a directory that they lead through.
#[test]
fn a_path_is_not_found_behind_a_move_of_a_directory_above() {
    explore(1000, |world| {
        for dir in ["/a", "/a/b", "/a/b/c"] {
            drop(world.mkdir(dir).unwrap());
        }
        let ino = world.file("/a/b/c/f").unwrap().ino();
        assert_eq!(world.see("/a/b/c/f").unwrap().ino, ino);
        let watch = |w: World| {
            if w.see("/a/x/c/f").is_some() {
                assert!(w.see("/a/b/c/f").is_none());
            } else if w.see("/a/b/c/f").is_none() {
                assert!(w.see("/a/x/c/f").is_some());
            }
        };
        together!(
            world,
            |w: World| w.rename("/a/b", "/a/x", RenameFlags::empty()).unwrap(),
            watch,
            watch,
        );
        assert!(world.see("/a/b/c/f").is_none());
        assert_eq!(world.see("/a/x/c/f").unwrap().ino, ino);
    });
}

#[test]
fn a_directory_closed_beside_lookups_stays_closed() {
    explore(1000, |world| {
        for dir in ["/a", "/a/b", "/a/b/c"] {
            drop(world.mkdir(dir).unwrap());
        }
        drop(world.file("/a/b/c/f").unwrap());
        let closed = world.node("/a/b").unwrap();
        let look = |w: World| {
            for _ in 0..2 {
                assert!(w.see("/a/b/c/f").is_some());
            }
        };
        together!(world, move |w: World| w.chmod(&closed, 0o700), look, look);
        let seen = world
            .fs
            .stat_from_root(&Cred::user(1000, 1000), b"/a/b/c/f", false);
        assert!(matches!(seen, Err(Error::Access)), "{seen:?}");
    });
}

#[test]
fn a_directory_made_anew_beside_lookups_is_the_new_one() {
    explore(1000, |world| {
        for dir in ["/a", "/a/b", "/a/b/c"] {
            drop(world.mkdir(dir).unwrap());
        }
        drop(world.file("/a/b/c/f").unwrap());
        let look = |w: World| {
            for _ in 0..2 {
                let _seen = w.see("/a/b/c/f");
            }
        };
        let made = together!(
            world,
            |w: World| {
                w.unlink("/a/b/c/f").unwrap();
                w.rmdir("/a/b/c").unwrap();
                drop(w.mkdir("/a/b/c").unwrap());
                let ino = w.file("/a/b/c/f").unwrap().ino();
                assert_eq!(w.see("/a/b/c/f").unwrap().ino, ino);
                Some(ino)
            },
            move |w: World| {
                look(w);
                None
            },
            move |w: World| {
                look(w);
                None
            },
        );
        assert_eq!(world.see("/a/b/c/f").map(|seen| seen.ino), made[0]);
    });
}

/// A file that is made by its whole path, which was looked up before, is made in the directory that is there.
#[test]
fn a_file_is_made_by_its_path_beside_a_move_of_a_directory_above() {
    explore(1000, |world| {
        for dir in ["/a", "/a/b", "/a/b/c"] {
            drop(world.mkdir(dir).unwrap());
        }
        world.make("/a/b/c/f").unwrap();
        let make = |w: World| match w.make("/a/b/c/n") {
            Ok(ino) => Some(ino),
            Err(Error::NotFound) => {
                assert!(w.see("/a/x/c").is_some());
                None
            }
            Err(error) => panic!("{error:?}"),
        };
        let made = together!(
            world,
            |w: World| {
                w.rename("/a/b", "/a/x", RenameFlags::empty()).unwrap();
                None
            },
            make,
        );
        assert_eq!(world.see("/a/x/c/n").map(|seen| seen.ino), made[1]);
        assert!(world.make("/a/b/c/n").is_err());
    });
}

#[test]
fn a_file_is_made_by_its_path_beside_a_removal_of_its_directory() {
    explore(1000, |world| {
        for dir in ["/a", "/a/b", "/a/b/c"] {
            drop(world.mkdir(dir).unwrap());
        }
        // The path is known before.
        assert!(world.make("/a/b/c/f").is_ok());
        world.unlink("/a/b/c/f").unwrap();
        let made = together!(
            world,
            |w: World| match w.rmdir("/a/b/c") {
                Ok(()) => {
                    drop(w.mkdir("/a/b/c").unwrap());
                    None
                }
                Err(Error::NotEmpty) => None,
                Err(error) => panic!("{error:?}"),
            },
            |w: World| match w.make("/a/b/c/n") {
                Ok(ino) => Some(ino),
                Err(Error::NotFound) => None,
                Err(error) => panic!("{error:?}"),
            },
        );
        assert_eq!(world.see("/a/b/c/n").map(|seen| seen.ino), made[1]);
    });
}

/// An area that goes beside the first looks into directories there, which find that nothing is damaged.
#[test]
fn an_area_goes_beside_first_looks() {
    explore(1000, |world| {
        let paths = ["/d", "/d/0", "/d/1", "/d/2", "/d/3", "/d/4"];
        let dirs = paths.map(|path| world.mkdir(path).unwrap());
        drop(world.file("/d/4/f").unwrap());
        // Only one namespace has areas.
        drop(world.fs.split(&dirs[0]));
        let root = dirs[0].clone();
        dirs.iter().for_each(|dir| world.unindex(dir));
        let look = |dirs: Vec<_>| {
            move |w: World| {
                for dir in &dirs {
                    let found = w.fs.lookup(&Cred::root(), dir, b"none");
                    assert!(matches!(found, Err(Error::NotFound)), "{found:?}");
                }
            }
        };
        let (some, others) = (dirs[..3].to_vec(), dirs[3..].to_vec());
        together!(
            world,
            move |w: World| drop(w.fs.merge(&root)),
            look(some),
            look(others)
        );
        assert!(!world.fs.is_damaged());
        assert!(world.see("/d/4/f").is_some());
    });
}

/// A directory that was removed and is still open is in no area, and nothing is damaged.
#[test]
fn a_removed_directory_is_looked_into_beside_the_end_of_its_area() {
    explore(700, |world| {
        let above = world.mkdir("/d").unwrap();
        let removed = world.mkdir("/d/e").unwrap();
        drop(world.fs.split(&above));
        world.unindex(&removed);
        let look = {
            let removed = removed.clone();
            move |w: World| {
                for _ in 0..2 {
                    let found = w.fs.lookup(&Cred::root(), &removed, b"none");
                    assert!(matches!(found, Err(Error::NotFound)), "{found:?}");
                }
            }
        };
        together!(
            world,
            move |w: World| {
                w.rmdir("/d/e").unwrap();
                drop(w.fs.merge(&above));
                w.squeeze();
                drop(w.file("/d/f").unwrap());
            },
            look
        );
        let (cred, kind) = (Cred::root(), vellum_layout::FileKind::File);
        let made = world.fs.mknod(&cred, &removed, b"f", kind, 0o644, 0);
        assert!(matches!(made, Err(Error::NotFound)));
        assert!(!world.fs.is_damaged());
    });
}
