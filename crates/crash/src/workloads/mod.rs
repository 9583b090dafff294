//! The workloads: every single operation with every class of arguments, all pairs over a small
//! namespace, and states that only longer histories reach.

mod evolved;
pub(crate) mod files;
mod full;
#[cfg(test)]
mod level;
mod logged;
mod namespaces;
mod pairs;
mod random;
mod sample;
#[cfg(test)]
mod split;
mod text;
#[cfg(test)]
mod tried;
mod triples;

pub(crate) use evolved::evolved;
pub use files::single_operations;
pub use logged::logged_workloads;
pub use pairs::pairs;
pub use random::random;
pub use sample::sampled;
pub use text::{WorkloadError, WorkloadFile};
pub use triples::triples;

use std::sync::OnceLock;

use vellum::{MappingKind, NamespaceKind};
use xxhash_rust::xxh3::xxh3_64;

use crate::reduce;
use crate::workload::{PoolKind, Workload};

/// Creates the file that most generated workloads use.
const FILE: &str = "create f 644 -";

/// The catalog: single operations, and sequences chosen by hand. Those that concern the blocks of
/// files exist for every file mapping; for exactly full pools the other mappings have sequences of
/// their own. [`pairs`], [`triples`] and [`random`] histories are separate.
pub fn workloads() -> Vec<Workload> {
    catalog().to_vec()
}

/// The catalog, built once.
fn catalog() -> &'static [Workload] {
    static ALL: OnceLock<Vec<Workload>> = OnceLock::new();
    ALL.get_or_init(all)
}

fn all() -> Vec<Workload> {
    let mut all = single_operations();
    all.extend(files::chosen());
    all.extend(files::sites());
    for mapping in other_mappings().filter(|kind| kind.has_trees()) {
        all.extend(files::trees().into_iter().map(|one| one.on(mapping)));
    }
    all.extend(files::extents());
    all.extend(files::level());
    all.extend(files::cuckoo());
    all.extend(logged::growing(PoolKind::Memory));
    for (mapping, namespace) in [
        (MappingKind::HashFs, NamespaceKind::Direct),
        (MappingKind::Extent, NamespaceKind::Direct),
        (MappingKind::HashFs, NamespaceKind::Adaptive),
    ] {
        all.extend(files::narrow(mapping, namespace));
    }
    all.extend(full::workloads());
    all.extend(namespaces::workloads());
    for mapping in other_mappings() {
        let pairs = match mapping {
            // The page cache of this mapping stores the same as the mapping without it.
            MappingKind::ExtentCached => Vec::new(),
            _ => files::chosen(),
        };
        let others = single_operations().into_iter().chain(pairs);
        let concerned = others.filter(|one| one.concerns_blocks() && !one.fills_the_pool());
        all.extend(concerned.map(|workload| workload.on(mapping)));
    }
    all
}

/// The mappings except the default.
fn other_mappings() -> impl Iterator<Item = MappingKind> {
    let is_usual = |kind: &MappingKind| *kind == MappingKind::default();
    MappingKind::ALL
        .into_iter()
        .filter(move |kind| !is_usual(kind))
}

/// The namespaces except the default.
fn other_namespaces() -> impl Iterator<Item = NamespaceKind> {
    let is_usual = |kind: &NamespaceKind| *kind == NamespaceKind::default();
    NamespaceKind::ALL
        .into_iter()
        .filter(move |kind| !is_usual(kind))
}

/// The workload of that name from the catalog or the generated ones, possibly a reduced one.
pub fn find(name: &str) -> Option<Workload> {
    reduce::find(name, find_whole)
}

/// The generated `workloads` that concern blocks, each on a mapping other than the default, which
/// its name determines.
pub(crate) fn elsewhere(workloads: &[Workload]) -> Vec<Workload> {
    let concerned = workloads.iter().filter(|one| one.concerns_blocks());
    concerned
        .map(|one| one.clone().on(other_mapping(&one.name)))
        .collect()
}

fn other_mapping(name: &str) -> MappingKind {
    let others: Vec<_> = other_mappings().collect();
    others[(xxh3_64(name.as_bytes()) % others.len() as u64) as usize]
}

/// The generated `workloads` that concern names, each within a namespace other than the default,
/// which its name determines.
pub(crate) fn named_otherwise(workloads: &[Workload]) -> Vec<Workload> {
    let others: Vec<_> = other_namespaces().collect();
    let concerned = workloads.iter().filter(|one| namespaces::fits(one));
    let within = |one: &Workload| {
        let drawn = xxh3_64(one.name.as_bytes()) % others.len() as u64;
        one.clone().within(others[drawn as usize])
    };
    concerned.map(within).collect()
}

fn find_whole(name: &str) -> Option<Workload> {
    let elsewhere = || {
        MappingKind::ALL.into_iter().find_map(|mapping| {
            let name = name.strip_prefix(mapping.name())?.strip_prefix('-')?;
            Some(find_generated(name)?.on(mapping))
        })
    };
    let named_otherwise = || {
        NamespaceKind::ALL.into_iter().find_map(|namespace| {
            let name = name.strip_prefix(namespace.name())?.strip_prefix('-')?;
            Some(find_generated(name)?.within(namespace))
        })
    };
    let is_it = |workload: &Workload| workload.name == name;
    let logged = || {
        let mut grounds = PoolKind::ON_DISKS.into_iter();
        let pool_kind = grounds.find(|pool_kind| name.starts_with(pool_kind.name()))?;
        logged::on(pool_kind).into_iter().find(is_it)
    };
    let grown = || files::grown().into_iter().find(is_it);
    let of_catalog = catalog().iter().find(|workload| is_it(workload));
    of_catalog
        .cloned()
        .or_else(elsewhere)
        .or_else(|| evolved::find(name))
        .or_else(named_otherwise)
        .or_else(logged)
        .or_else(grown)
        .or_else(|| find_generated(name))
}

fn find_generated(name: &str) -> Option<Workload> {
    if let Some(workload) = random::find(name) {
        return Some(workload);
    }
    let family = if pairs::has_name(name) {
        pairs()
    } else if triples::has_name(name) {
        triples()
    } else {
        return None;
    };
    family.into_iter().find(|workload| workload.name == name)
}

#[cfg(test)]
mod tests {
    use crate::threads::all_thread_workloads;
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Mode, Options};

    #[test]
    fn names_are_unique() {
        let all = workloads();
        let names: BTreeSet<_> = all.iter().map(|workload| &workload.name).collect();
        assert_eq!(names.len(), all.len());
        let plain = |name: &str| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        assert!(names.iter().all(|name| plain(name)));
    }

    #[test]
    fn every_model_is_explored() {
        assert_eq!(Options::default().modes, Mode::ALL);
    }

    #[test]
    fn names_tell_what_a_pool_lies_on() {
        for workload in crate::all_workloads() {
            let told = PoolKind::of_workload(&workload.name);
            assert_eq!(told, workload.pool_kind, "{}", workload.name);
        }
        for workload in all_thread_workloads() {
            let told = PoolKind::of_workload(&workload.name);
            assert_eq!(told, workload.pool_kind, "{}", workload.name);
        }
    }
}
