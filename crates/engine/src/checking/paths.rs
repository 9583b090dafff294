//! Concurrent moves of whole directories, evolving areas, and lookups of whole paths.

use super::world::{World, explore, together};

use crate::error::Error;
use crate::fs::{Cred, RenameFlags};

/// Names change below a moving directory and around it; no thread finds one missing or twice.
#[test]
fn a_directory_moves_with_its_contents_during_changes() {
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
                let mut position = crate::fs::ListPosition::default();
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

/// A file created in an empty directory while that is renamed has the path that the directory has
/// then.
#[test]
fn an_empty_directory_moves_during_creations_in_it() {
    explore(1000, |world| {
        drop((world.mkdir("/d").unwrap(), world.mkdir("/a").unwrap()));
        world.split(&world.node("/a").unwrap());
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

/// A round of evolving makes a directory the root of an area, while the directory changes and is
/// renamed.
#[test]
fn areas_evolve_during_changes() {
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

/// Two movers, one of which moves the target of the other's directory, and eviction.
#[test]
fn directories_with_names_move_concurrently() {
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

/// Known paths are looked up again while a directory along them moves.
#[test]
fn a_path_is_not_found_after_a_move_of_a_directory_above() {
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

/// Areas along a path come and go, and cachelets are evicted and reused, while the path is looked
/// up: prefixes whose bytes the table holds, and longer ones.
#[test]
fn a_path_is_found_while_areas_come_and_go() {
    explore(500, |world| {
        let long = format!("/a/{}", "b".repeat(120));
        let (short, deep) = ("/a/s/f", format!("{long}/f"));
        drop((world.mkdir("/a").unwrap(), world.mkdir("/a/s").unwrap()));
        drop(world.mkdir(&long).unwrap());
        let inos = [short, &deep].map(|path| world.file(path).unwrap().ino());
        let look = {
            let deep = deep.clone();
            move |w: World| {
                for _ in 0..2 {
                    let seen = [short, &deep].map(|path| w.see(path).unwrap().ino);
                    assert_eq!(seen, inos);
                }
            }
        };
        look(world.clone());
        let root = world.node("/a").unwrap();
        together!(
            world,
            move |w: World| {
                w.split(&root);
                w.merge(&root);
            },
            |w: World| {
                w.squeeze();
                w.forget("/a/s");
                drop(w.mkdir("/n").unwrap());
            },
            look.clone(),
        );
        look(world.clone());
    });
}

#[test]
fn a_directory_closed_during_lookups_stays_closed() {
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
fn a_directory_recreated_during_lookups_is_the_new_one() {
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

/// A file is created by its whole path, which is known, in the directory that exists at that time.
#[test]
fn a_file_is_created_by_its_path_during_a_move_of_a_directory_above() {
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
fn a_file_is_created_by_its_path_during_a_removal_of_its_directory() {
    explore(1000, |world| {
        for dir in ["/a", "/a/b", "/a/b/c"] {
            drop(world.mkdir(dir).unwrap());
        }
        // The path is known from before.
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

/// An area is removed during the first lookups in its directories. They find no damage.
#[test]
fn an_area_is_removed_during_first_lookups() {
    explore(1000, |world| {
        let paths = ["/d", "/d/0", "/d/1", "/d/2", "/d/3", "/d/4"];
        let dirs = paths.map(|path| world.mkdir(path).unwrap());
        drop(world.file("/d/4/f").unwrap());
        world.split(&dirs[0]);
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
            move |w: World| w.merge(&root),
            look(some),
            look(others)
        );
        assert!(!world.fs.is_damaged());
        assert!(world.see("/d/4/f").is_some());
    });
}

/// A directory that was removed while open belongs to no area. Lookups in it find no damage.
#[test]
fn lookups_in_a_removed_directory_find_no_damage_while_its_area_goes() {
    explore(700, |world| {
        let above = world.mkdir("/d").unwrap();
        let removed = world.mkdir("/d/e").unwrap();
        drop((world.file("/d/e/dead").unwrap(), world.mkdir("/n").unwrap()));
        world.unlink("/d/e/dead").unwrap();
        world.split(&above);
        world.unindex(&removed);
        let forgotten = removed.clone();
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
                w.unindex(&forgotten);
                w.merge(&above);
                // The line of its name belongs to another area.
                w.split(&w.node("/n").unwrap());
                w.unindex(&forgotten);
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

/// A directory with names is moved into one that is open and is removed meanwhile: one of the two
/// fails.
#[test]
fn a_directory_moves_into_one_that_is_removed() {
    explore(1000, |world| {
        for dir in ["/a", "/t", "/t/u"] {
            drop(world.mkdir(dir).unwrap());
        }
        let ino = world.file("/a/f").unwrap().ino();
        let (root, to) = (world.node("/").unwrap(), world.node("/t/u").unwrap());
        let done = together!(
            world,
            move |w: World| {
                let (cred, flags) = (Cred::root(), RenameFlags::empty());
                w.fs.rename(&cred, &root, b"a", &to, b"a", flags)
            },
            |w: World| {
                w.rmdir("/t/u")?;
                w.rmdir("/t").unwrap();
                w.squeeze();
                Ok(())
            },
        );
        match done.as_slice() {
            [Ok(()), Err(Error::NotEmpty)] => {
                assert_eq!(world.see("/t/u/a/f").unwrap().ino, ino);
            }
            [Err(Error::NotFound), Ok(())] => assert_eq!(world.see("/a/f").unwrap().ino, ino),
            done => panic!("{done:?}"),
        }
        assert!(!world.fs.is_damaged());
    });
}

/// An empty directory's area is removed during lookups in it and the creation of its first name.
#[test]
fn an_empty_area_is_removed_during_lookups_and_a_creation() {
    explore(1000, |world| {
        let dir = world.mkdir("/d").unwrap();
        world.split(&dir);
        let (looked, made) = (dir.clone(), dir.clone());
        together!(
            world,
            move |w: World| w.merge(&dir),
            move |w: World| {
                for _ in 0..2 {
                    let found = w.fs.lookup(&Cred::root(), &looked, b"none");
                    assert!(matches!(found, Err(Error::NotFound)), "{found:?}");
                }
            },
            move |w: World| {
                let (cred, kind) = (Cred::root(), vellum_layout::FileKind::File);
                drop(w.fs.mknod(&cred, &made, b"f", kind, 0o644, 0).unwrap());
            }
        );
        assert!(world.see("/d/f").is_some());
        assert!(!world.fs.is_damaged());
    });
}
