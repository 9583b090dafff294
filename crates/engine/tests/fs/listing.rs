//! Listings while their own users rename, replace and remove names.

use std::collections::BTreeMap;

use vellum::{CreateOptions, NamespaceKind, Pool, RenameFlags, Volume};

/// More names than a listing takes from the file system at once.
const FILES: usize = 300;

fn with_files(namespace: NamespaceKind) -> (Pool, Volume) {
    let options = CreateOptions::new(16 << 20).namespace(namespace);
    let pool = options.create_in_memory().unwrap();
    let volume = pool.volume();
    volume.create_dir("/d").unwrap();
    for number in 0..FILES {
        volume.write(format!("/d/{number}"), b"").unwrap();
    }
    (pool, volume)
}

/// How often a listing returns each name, with a call of `each` for every returned name.
fn listed(volume: &Volume, mut each: impl FnMut(&str)) -> BTreeMap<String, u32> {
    let mut times = BTreeMap::new();
    for entry in volume.read_dir("/d").unwrap() {
        let name = entry.unwrap().name().to_str().unwrap().to_owned();
        each(&name);
        *times.entry(name).or_default() += 1;
        assert!(times.len() <= 3 * FILES, "the listing does not end");
    }
    times
}

fn rename(volume: &Volume, from: &str, to: &str) {
    volume
        .rename(format!("/d/{from}"), format!("/d/{to}"))
        .unwrap();
}

#[test]
fn a_listing_ends_although_each_listed_name_is_renamed() {
    for namespace in NamespaceKind::ALL {
        let (_pool, volume) = with_files(namespace);
        let times = listed(&volume, |name| rename(&volume, name, &format!("x{name}")));
        assert_eq!(times.len(), FILES, "{namespace:?}");
        assert!(times.values().all(|&times| times == 1), "{namespace:?}");
        let times = listed(&volume, |name| {
            rename(&volume, name, "elsewhere");
            rename(&volume, "elsewhere", name);
        });
        assert_eq!(times.len(), FILES, "{namespace:?}");
        assert!(times.values().all(|&times| times == 1), "{namespace:?}");
    }
}

/// As programs do that write a new file and rename it over the old one.
#[test]
fn a_listing_ends_although_each_listed_name_is_replaced() {
    for namespace in NamespaceKind::ALL {
        let (_pool, volume) = with_files(namespace);
        let times = listed(&volume, |name| {
            volume.write("/d/new", b"other").unwrap();
            rename(&volume, "new", name);
        });
        assert_eq!(times.len(), FILES, "{namespace:?}");
        assert!(times.values().all(|&times| times <= 2), "{namespace:?}");
    }
}

#[test]
fn a_name_that_is_replaced_before_it_is_listed_is_returned() {
    for namespace in NamespaceKind::ALL {
        let (_pool, volume) = with_files(namespace);
        let last = format!("{}", FILES - 1);
        let mut replaced = false;
        let times = listed(&volume, |_| {
            if !std::mem::replace(&mut replaced, true) {
                volume.write("/d/new", b"other").unwrap();
                rename(&volume, "new", &last);
            }
        });
        assert_eq!(times.get(&last), Some(&1), "{namespace:?}");
        assert_eq!(times.len(), FILES, "{namespace:?}");
    }
}

#[test]
fn names_that_are_exchanged_before_they_are_listed_are_returned() {
    for namespace in NamespaceKind::ALL {
        let (pool, volume) = with_files(namespace);
        volume.create_dir("/e").unwrap();
        volume.write("/e/other", b"").unwrap();
        let last = format!("/d/{}", FILES - 1);
        let mut exchanged = false;
        let times = listed(&volume, |_| {
            if !std::mem::replace(&mut exchanged, true) {
                volume
                    .rename_with(&last, "/e/other", RenameFlags::EXCHANGE)
                    .unwrap();
            }
        });
        assert_eq!(times.len(), FILES, "{namespace:?}");
        drop(volume);
        pool.close().unwrap();
    }
}
