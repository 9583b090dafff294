//! Evolving: decides which directories should be roots of areas.
//!
//! A round adds up the sampled lookups along the directories above each one, labels directories by
//! size and renames, and decides what to do: split off a hot directory, merge an area that is
//! small, was not renamed for long and is read less than others, or let a directory that is most of
//! an area inherit it. Sizes are counted along the logs, within a limit for each round.

use std::collections::BTreeMap;

use vellum_layout::{
    EntryState, FileKind, Formed, Inode, InodeState, LifeWord, MergeReason, PathEntryHead,
    ROOT_AREA, ROOT_SLOT, TargetWord,
};
use vellum_media::Memories;

use super::moves::Becomes;
use super::status::{DirKey, Status};
use super::{Adaptive, moves};
use crate::core::Core;
use crate::core::cachelet::{Cachelet, flag};
use crate::core::slots::Op;
use crate::error::{Error, Result, Retry};
use crate::namespace::common::Bodies;
use crate::namespace::common::log::scan_log;
use crate::namespace::{
    Area, Areas, Decided, Evolution, Label, MergedArea, Outcome, RENAMED_ROUNDS, Rename,
};

/// Limit of the slots of names that one round moves.
const MOVED_MAX: u64 = 65_536;
/// Limit of the slots of names that a round counts below the directories that it knows, and again
/// in areas. The last count may exceed it.
const COUNTED_MAX: u64 = 2 * MOVED_MAX;

/// Number of names below a directory, down to the next roots, and of the slots that their entries
/// take.
#[derive(Clone, Copy, Default)]
struct Size {
    names: u64,
    slots: u64,
}

/// A directory that a round considers.
struct Known {
    status: Status,
    /// Number of the area of which it is the root, or 0.
    root_of: u32,
    /// Number of the area of the names in it.
    area: u32,
    /// Metadata slot of its own entry.
    entry: u64,
    /// Slots below it, if they were counted.
    slots: Option<u64>,
}

/// An area, and what a round knows of its root.
struct KnownArea {
    number: u32,
    root: DirKey,
    /// Lookups in it, without those in the areas below.
    reads: u64,
    rounds_since_renamed: u64,
}

/// A round of evolving.
struct Round<'a, M: Memories> {
    core: &'a Core<M>,
    number: u64,
    /// Slots that may still be counted.
    to_count: u64,
}

impl Known {
    fn is_renamed(&self, round: u64) -> bool {
        let renamed = self.status.renamed;
        renamed.is_some_and(|renamed| round.saturating_sub(renamed) < RENAMED_ROUNDS)
    }
}

/// Rounds since a directory was renamed, or since the opening.
fn since(round: u64, status: Option<&Status>) -> u64 {
    round.saturating_sub(status.and_then(|status| status.renamed).unwrap_or(0))
}

impl<M: Memories> Core<M> {
    /// The directory, if it still exists.
    fn directory(&self, op: &Op<'_, M>, key: DirKey) -> Option<Cachelet> {
        let is_there = self.is_inode_slot(key.ino()) && {
            let identity = self.identity_on_pool(key.ino());
            identity.state() != Some(InodeState::Free)
                && identity.kind() == Some(FileKind::Directory)
                && identity.generation() == key.generation()
        };
        let found = is_there.then(|| self.load_cachelet(op, key.ino()).ok());
        found
            .flatten()
            .filter(|&dir| !self.has_flag(dir, flag::UNLINKED))
    }

    /// The root of the area with this number, if names in the directory with inode `ino` are still
    /// in that area. The number of an area that is gone may be reused.
    fn key_of_root_over(&self, ino: u64, area: u32) -> Result<DirKey> {
        let _op = self.op_step();
        let root = self
            .root_of_area(area)
            .filter(|&root| self.is_inode_slot(root));
        let root = root.ok_or(Error::NotFound)?;
        if !self.is_inode_slot(ino) || self.area_of(ino)? != area {
            return Err(Error::NotFound);
        }
        Ok(DirKey::new(root, self.identity_on_pool(root).generation()))
    }

    /// The directory itself and those above it, up to the file system's root. Fewer if they change
    /// meanwhile.
    fn upwards(&self, ino: u64) -> impl Iterator<Item = u64> {
        let above = |&ino: &u64| {
            let parent = self.word(self.geometry.slot_at(ino) + Inode::PARENT);
            (ino != ROOT_SLOT && self.is_inode_slot(parent)).then_some(parent)
        };
        std::iter::successors(Some(ino), above).take(self.geometry.meta_slots() as usize)
    }

    /// The size of what is below the directory with inode `ino`, down to the next roots. Counting
    /// stops above `most` slots.
    fn size_below(&self, ino: u64, most: u64) -> Result<Size> {
        let (mut size, mut dirs) = (Size::default(), vec![ino]);
        while let Some(dir) = dirs.pop() {
            // Slots of removed names are not reused while the lease is held.
            let op = self.op_step();
            let root = self.word(self.geometry.slot_at(dir) + Inode::ROOT);
            let counted = scan_log(self, dir, root, &mut |logged| {
                let entry = logged.word.entry();
                if size.slots > most {
                    return Err(Error::TooLarge);
                }
                if !Adaptive::is_there(self, entry) {
                    return Ok(());
                }
                let at = self.slot_at(entry)?;
                if LifeWord(self.word(at + PathEntryHead::LIFE)).is_alive() {
                    let len = self.word(at + PathEntryHead::PATH_WORD) as u16;
                    size.names += 1;
                    size.slots += PathEntryHead::slots_for(len.into());
                    let target = TargetWord(self.word(at + PathEntryHead::TARGET));
                    let is_dir = target.kind() == Some(FileKind::Directory);
                    if is_dir && self.is_inode_slot(target.ino()) {
                        let is_root = self.place_of_directory(target.ino()).area() != 0;
                        dirs.extend((!is_root).then_some(target.ino()));
                    }
                }
                Ok(())
            });
            op.check_media()?;
            match counted {
                Err(Error::TooLarge) => break,
                counted => counted.map(drop)?,
            }
        }
        Ok(size)
    }

    /// The label of the entry at metadata slot `entry` in the state-map.
    fn label_of(&self, entry: u64) -> Label {
        match self.states(entry).get(entry) {
            EntryState::Hot => Label::Hot,
            EntryState::Warm => Label::Warm,
            EntryState::None | EntryState::Cold => Label::Cold,
        }
    }
}

impl<M: Memories> Op<'_, M> {
    /// Stores a label in the state-map. Not flushed, because nothing relies on labels.
    fn store_label(&self, entry: u64, label: Label) {
        let core = self.core;
        let state = match label {
            Label::Cold => EntryState::Cold,
            Label::Warm => EntryState::Warm,
            Label::Hot => EntryState::Hot,
        };
        if core.label_of(entry) == label {
            return;
        }
        let _held = self.hold_states(&[entry]);
        let states = core.states(entry);
        if states.get(entry) != EntryState::None {
            core.set_word(core.states_at(entry), states.with(entry, state).0);
        }
    }
}

impl<'a, M: Memories> Round<'a, M> {
    /// Begins a round: halves the lookups that are known, then adds the sampled ones.
    fn begin(core: &'a Core<M>) -> Self {
        let (number, sampled) = core.begin_round();
        for status in core.statuses() {
            core.age(&status);
        }
        let op = core.op_step();
        let mut reads = BTreeMap::<DirKey, u64>::new();
        for (dir, lookups) in sampled {
            if core.directory(&op, dir).is_some() {
                for ino in core.upwards(dir.ino()) {
                    let key = DirKey::new(ino, core.identity_on_pool(ino).generation());
                    *reads.entry(key).or_default() += lookups;
                }
            }
        }
        for (dir, lookups) in reads {
            core.add_reads(dir, lookups);
        }
        drop(op);
        Self {
            core,
            number,
            to_count: COUNTED_MAX,
        }
    }

    /// The slots below a directory, unless the limit of the round is used up.
    fn count(&mut self, ino: u64) -> Result<Option<u64>> {
        if self.to_count == 0 {
            return Ok(None);
        }
        let size = self.core.size_below(ino, MOVED_MAX)?;
        self.to_count = self.to_count.saturating_sub(size.slots + 1);
        Ok(Some(size.slots))
    }

    /// Returns the known directories, those that were renamed first, then by lookups. Includes
    /// their sizes, as far as the limit allows.
    fn look(&mut self) -> Result<Vec<Known>> {
        let core = self.core;
        let mut known = Vec::new();
        for status in core.statuses() {
            let op = core.op_step();
            let Some(dir) = core.directory(&op, status.dir) else {
                core.forget_status(&status);
                continue;
            };
            let place = core.place_of_directory(core.ino(dir));
            known.push(Known {
                status,
                root_of: place.area(),
                area: core.area_of(core.ino(dir))?,
                entry: place.entry(),
                slots: None,
            });
        }
        let round = self.number;
        known.sort_by_key(|known| {
            let Status { reads, dir, .. } = known.status;
            (!known.is_renamed(round), std::cmp::Reverse(reads), dir)
        });
        for known in &mut known {
            let ino = known.status.dir.ino();
            if ino != ROOT_SLOT {
                known.slots = self.count(ino)?;
            }
        }
        Ok(known)
    }

    /// Labels the directories whose sizes are known.
    fn label(&self, known: &[Known]) {
        let op = self.core.op_step();
        for known in known {
            if let Some(slots) = known.slots {
                op.store_label(known.entry, self.label_for(known, slots));
            }
        }
    }

    fn label_for(&self, known: &Known, slots: u64) -> Label {
        let size_max = u64::from(self.core.geometry.areas.size_max);
        Label::of(slots > size_max, known.is_renamed(self.number))
    }

    fn decided(&self, what: Evolution, known: &Known, slots: u64, average_reads: u64) -> Decided {
        let Status { dir, reads, .. } = known.status;
        Decided {
            round: self.number,
            what,
            outcome: if slots > MOVED_MAX {
                Outcome::TooLarge
            } else {
                Outcome::Done
            },
            ino: dir.ino(),
            generation: dir.generation(),
            area: known.area,
            slots,
            reads,
            average_reads,
            rounds_since_renamed: since(self.number, Some(&known.status)),
        }
    }

    /// Decides to split off hot directories that are not roots. The smallest come first, so that of
    /// two nested ones the inner one is split off first.
    fn splits(&self, known: &[Known]) -> Vec<Decided> {
        let mut sums = BTreeMap::<u32, (u64, u64)>::new();
        for known in known {
            let (reads, count) = sums.entry(known.area).or_default();
            (*reads, *count) = (*reads + known.status.reads, *count + 1);
        }
        let average = |area| sums.get(&area).map_or(0, |(reads, count)| reads / count);
        let hot = known.iter().filter_map(|known| {
            let slots = known.slots.filter(|_| known.root_of == 0)?;
            let is_hot = self.label_for(known, slots) == Label::Hot;
            is_hot.then(|| self.decided(Evolution::Split, known, slots, average(known.area)))
        });
        let mut hot: Vec<Decided> = hot.collect();
        hot.sort_by_key(|decided| decided.slots);
        hot
    }

    /// Returns all areas but the first, with the lookups in each, and the average lookups of all
    /// areas including the first.
    fn areas(&self) -> Result<(Vec<KnownArea>, u64)> {
        let core = self.core;
        let mut reads = BTreeMap::<u32, u64>::new();
        let mut areas = Vec::new();
        for (number, line) in core.live_areas() {
            let root = DirKey::new(line.root, line.root_generation);
            let status = core.status_of(root);
            let in_it = status.map_or(0, |status| status.reads);
            *reads.entry(number).or_default() += in_it;
            if number == ROOT_AREA {
                continue;
            }
            let above = core.area_above(line.root)?;
            let of_above = reads.entry(above).or_default();
            *of_above = of_above.wrapping_sub(in_it);
            areas.push(KnownArea {
                number,
                root,
                reads: 0,
                rounds_since_renamed: since(self.number, status.as_ref()),
            });
        }
        // Lookups in an area also count in the areas above it, except for those that were counted
        // between the two loads.
        let reads_of = |number: u32| (reads[&number] as i64).max(0) as u64;
        for area in &mut areas {
            area.reads = reads_of(area.number);
        }
        let sum: u64 = reads.keys().map(|&number| reads_of(number)).sum();
        Ok((areas, sum / reads.len().max(1) as u64))
    }

    /// Decides which areas to merge or to let a directory inherit.
    fn merges(&mut self, known: &[Known]) -> Result<Vec<Decided>> {
        let core = self.core;
        let size_max = u64::from(core.geometry.areas.size_max);
        let (mut areas, average) = self.areas()?;
        areas.retain(|area| area.rounds_since_renamed >= RENAMED_ROUNDS);
        let cursor = core.merge_cursor();
        areas.sort_by_key(|area| (area.number < cursor, area.number));
        self.to_count = COUNTED_MAX;
        let mut decided = Vec::new();
        for area in areas {
            let Some(slots) = self.count(area.root.ino())? else {
                core.set_merge_cursor(area.number);
                break;
            };
            if let Some((heir, of_heir)) = heir(&area, slots, known, size_max) {
                let reads = core.status_of(area.root).map_or(0, |status| status.reads);
                decided.push(self.decided(Evolution::Inherit, heir, of_heir, reads));
            } else if slots <= size_max && area.reads <= average {
                decided.push(Decided {
                    round: self.number,
                    what: Evolution::Merge,
                    outcome: Outcome::Done,
                    ino: area.root.ino(),
                    generation: area.root.generation(),
                    area: area.number,
                    slots,
                    reads: area.reads,
                    average_reads: average,
                    rounds_since_renamed: area.rounds_since_renamed,
                });
            }
        }
        Ok(decided)
    }
}

/// The directory that inherits an area of `slots` slots, with its own slots. It is large, has over
/// half of the slots and three quarters of the lookups, and the rest is small.
fn heir<'k>(
    area: &KnownArea,
    slots: u64,
    known: &'k [Known],
    size_max: u64,
) -> Option<(&'k Known, u64)> {
    let root = known.iter().find(|known| known.status.dir == area.root)?;
    let is_heir = |&(known, of_it): &(&Known, u64)| {
        known.area == area.number
            && known.root_of == 0
            && of_it > size_max
            && of_it * 2 > slots
            && slots.saturating_sub(of_it) <= size_max
            && slots <= MOVED_MAX
            && known.status.reads > 0
            && known.status.reads * 4 >= root.status.reads * 3
    };
    let sized = known.iter().filter_map(|known| Some((known, known.slots?)));
    sized.filter(is_heir).max_by_key(|(_, of_it)| *of_it)
}

impl<M: Memories> Areas<M> for Adaptive {
    fn plan(&self, core: &Core<M>) -> Result<Vec<Decided>> {
        core.check_writable()?;
        let mut round = Round::begin(core);
        let known = round.look()?;
        round.label(&known);
        let mut decided = round.splits(&known);
        decided.extend(round.merges(&known)?);
        let mut moved = 0;
        decided.retain(|decided| {
            let is_move = decided.outcome == Outcome::Done;
            moved += if is_move { decided.slots } else { 0 };
            moved <= MOVED_MAX
        });
        Ok(decided)
    }

    fn carry_out(&self, core: &Core<M>, decided: &Decided) -> Result<Outcome> {
        let at = Formed::at(core.clock.now(), decided.slots, decided.reads);
        let root = Becomes::Root(at);
        let part = |reason| Becomes::part(reason, at, decided.average_reads);
        let set = |key: DirKey, becomes| {
            let op = core.op_step();
            let dir = core.directory(&op, key).ok_or(Error::NotFound)?;
            drop(op);
            // The lease keeps the cachelet from eviction.
            moves::set_root(core, dir, becomes, true)
        };
        let dir = DirKey::new(decided.ino, decided.generation);
        let done = match decided.what {
            Evolution::Split => set(dir, root),
            Evolution::Merge => set(dir, part(MergeReason::Small)),
            Evolution::Inherit => {
                core.key_of_root_over(dir.ino(), decided.area)
                    .and_then(|above| {
                        if set(dir, root)? {
                            set(above, part(MergeReason::Inherited))
                        } else {
                            Ok(false)
                        }
                    })
            }
        };
        match done {
            Ok(true) => Ok(Outcome::Done),
            Ok(false) | Err(Error::NotFound) => Ok(Outcome::Gone),
            Err(Error::NoSpace(_) | Error::OutOfMemory(_)) => Ok(Outcome::NoRoom),
            Err(Error::Retry(Retry::Wait)) => Ok(Outcome::GaveWay),
            Err(error) => Err(error),
        }
    }

    fn is_above(&self, core: &Core<M>, above: u64, below: u64) -> bool {
        core.upwards(below).any(|ino| ino == above)
    }

    fn note(&self, core: &Core<M>, decided: &Decided) {
        core.note_decision(decided);
    }

    fn decisions(&self, core: &Core<M>) -> Vec<Decided> {
        core.kept_decisions()
    }

    fn list(&self, core: &Core<M>) -> Result<Vec<Area>> {
        let areas = core.live_areas().into_iter().map(|(number, line)| {
            let size = core.size_below(line.root, u64::MAX)?;
            let status = core.status_of(DirKey::new(line.root, line.root_generation));
            let is_first = number == ROOT_AREA;
            Ok(Area {
                number,
                root: line.root,
                generation: line.root_generation,
                above: if is_first {
                    0
                } else {
                    core.area_above(line.root)?
                },
                label: if is_first {
                    Label::Cold
                } else {
                    core.label_of(core.place_of_directory(line.root).entry())
                },
                names: size.names,
                slots: size.slots,
                reads: status.map_or(0, |status| status.reads),
                formed: line.formed,
            })
        });
        areas.collect()
    }

    fn merged(&self, core: &Core<M>) -> Vec<MergedArea> {
        core.merged_areas()
    }

    fn root_large(&self, core: &Core<M>, rename: &Rename<'_>) -> Result<bool> {
        let size_max = u64::from(core.geometry.areas.size_max);
        let mut any = false;
        for (dir, _) in moves::find(core, rename)? {
            let ino = core.ino(dir);
            let slots = core.size_below(ino, size_max)?.slots;
            if slots <= size_max {
                continue;
            }
            let key = DirKey::new(ino, core.identity(dir).generation());
            let (area, status) = (core.area_of(ino)?, core.status_of(key));
            let reads = status.map_or(0, |status| status.reads);
            let formed = Formed::at(core.clock.now(), slots, reads);
            if moves::set_root(core, dir, Becomes::Root(formed), false)? {
                any = true;
                let decided = Decided {
                    round: core.rounds(),
                    what: Evolution::Split,
                    outcome: Outcome::Done,
                    ino,
                    generation: key.generation(),
                    area,
                    slots,
                    reads,
                    average_reads: 0,
                    rounds_since_renamed: since(core.rounds(), status.as_ref()),
                };
                tracing::info!(?decided, "before a rename");
                core.note_decision(&decided);
            }
        }
        Ok(any)
    }
}
