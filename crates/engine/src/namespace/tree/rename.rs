//! Rename and exchange: records in one log or two, which are committed together.

use vellum_layout::{FileKind, LogPosition, NameRecord};
use vellum_media::Memories;

use super::create::Coming;
use super::log::{Names, Told};
use super::radix::Leaf;
use super::remove::{Victim, Way};
use super::{Name, Tree};
use crate::core::Core;
use crate::core::alloc::SPARE_BLOCKS;
use crate::core::cachelet::{Cachelet, flag};
use crate::core::slots::Op;
use crate::core::times::Change;
use crate::durability::journal::Record;
use crate::error::{Error, Result};
use crate::namespace::Rename;
use crate::namespace::common::moving::Allow;
use crate::sites;

/// The locked names of one directory, or of two.
struct Both<'o, 'a, M: Memories> {
    from: Names<'o, 'a, M>,
    /// `None`: the same directory.
    to: Option<Names<'o, 'a, M>>,
}

impl<'o, 'a, M: Memories> Both<'o, 'a, M> {
    /// Keeps others from changing names of both directories. Locks the lower cachelet first.
    fn hold(op: &'o Op<'a, M>, from: Cachelet, to: Cachelet) -> Result<Self> {
        if from == to {
            let (from, to) = (op.names(from)?, None);
            return Ok(Self { from, to });
        }
        loop {
            // A holder of names builds no tree, because that would lock more names.
            op.ensure_tree_counted(from)?;
            op.ensure_tree_counted(to)?;
            let (first, second) = if from.0 < to.0 {
                (from, to)
            } else {
                (to, from)
            };
            let both = [first, second].map(|dir| op.lock_names(dir));
            if !both.iter().all(Names::are_known) {
                continue;
            }
            let [first, second] = both;
            let (from, to) = if first.dir == from {
                (first, second)
            } else {
                (second, first)
            };
            let to = Some(to);
            return Ok(Self { from, to });
        }
    }

    fn to(&mut self) -> &mut Names<'o, 'a, M> {
        self.to.as_mut().unwrap_or(&mut self.from)
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Names<'o, 'a, M>> {
        std::iter::once(&mut self.from).chain(&mut self.to)
    }
}

/// A name that exists.
#[derive(Clone, Copy)]
struct There<'n> {
    name: Name<'n>,
    leaf: Leaf,
    file: Cachelet,
}

/// The two names of a rename.
struct Ends<'n> {
    from: There<'n>,
    to: Name<'n>,
    target: Option<There<'n>>,
}

impl Tree {
    /// Renames, replaces or exchanges.
    pub(super) fn move_name<M: Memories>(
        op: &Op<'_, M>,
        rename: &Rename<'_>,
        allow: Allow<'_>,
    ) -> Result<()> {
        let from = Name::new(op.core, rename.from_name)?;
        let to = match Name::new(op.core, rename.to_name) {
            Ok(to) => to,
            // A missing old name is reported first.
            Err(error) => {
                let found = Self::find(op, rename.from_dir, from)?;
                return Err(found.map_or(Error::NotFound, |_| error));
            }
        };
        while !Self::try_rename(op, rename, (from, to), allow)? {}
        Ok(())
    }

    /// Makes one attempt. `false`: a name changed meanwhile; look it up again.
    fn try_rename<M: Memories>(
        op: &Op<'_, M>,
        rename: &Rename<'_>,
        (from, to): (Name<'_>, Name<'_>),
        allow: Allow<'_>,
    ) -> Result<bool> {
        let is_dir = |file: Cachelet| op.core.kind(file) == FileKind::Directory;
        let source = Self::find(op, rename.from_dir, from)?.ok_or(Error::NotFound)?;
        let target = Self::find(op, rename.to_dir, to)?;
        if let Some(target) = target.filter(|&target| is_dir(target)) {
            op.ensure_tree_counted(target)?;
        }
        let across = rename.is_across();
        let moves_dir = across && (is_dir(source) || rename.exchange && target.is_some_and(is_dir));
        let _lock = moves_dir.then(|| op.lock_renames());
        let mut both = Both::hold(op, rename.from_dir, rename.to_dir)?;
        let there = |names: &Names<'_, '_, M>, name| -> Result<Option<There<'_>>> {
            let Some((_, leaf)) = names.find(name)? else {
                return Ok(None);
            };
            let file = Self::load(op, names.dir, leaf)?;
            Ok(Some(There { name, leaf, file }))
        };
        let found = there(&both.from, from)?;
        let ends = Ends {
            from: found.ok_or(Error::NotFound)?,
            to,
            target: there(both.to(), to)?,
        };
        if ends.from.file != source || ends.target.map(|there| there.file) != target {
            return Ok(false);
        }
        if !op.check_rename(rename, source, target, allow)? {
            return Ok(true);
        }
        match ends.target {
            Some(target) if rename.exchange => {
                Self::swap(op, rename, &mut both, ends.from, target)?;
            }
            _ => Self::replace(op, rename, &mut both, &ends)?,
        }
        Ok(true)
    }

    /// Moves to a name that does not exist, or onto one that does.
    fn replace<M: Memories>(
        op: &Op<'_, M>,
        rename: &Rename<'_>,
        both: &mut Both<'_, '_, M>,
        ends: &Ends<'_>,
    ) -> Result<()> {
        let core = op.core;
        let way = both.make_room(rename, ends)?;
        let coming = match ends.target {
            None => Some(Coming::begin(op, rename.to_dir)?),
            Some(target) if core.kind(target.file) == FileKind::Directory => {
                op.end_children(target.file)?;
                None
            }
            Some(_) => None,
        };
        both.make_busy(core, ends);
        let insertion = match (&coming, both.to()) {
            (Some(_), to) => match to.prepare(op, ends.to) {
                Ok(insertion) => Some(insertion),
                Err(error) => {
                    both.from.quieten(core, ends.from.name);
                    return Err(error);
                }
            },
            (None, _) => None,
        };
        let now = op.both_times(rename);
        let target = ends.target.map(|target| target.file);
        let (mut moved, mut victim) = (None, None);
        let (first, second) = op.begin_moving(ends.from.file, target);
        for change in std::iter::once(first).chain(second) {
            if change.file == ends.from.file {
                moved = Some(change);
            } else {
                victim = Some(Victim::new(core, change));
            }
        }
        let mut record = Record::new();
        let new = both
            .to()
            .welcome(core, ends.to, ends.from.file, now, &mut record);
        if let Some(target) = ends.target {
            let way = (target.leaf, Way::Appended);
            both.to().bury(core, way, now, &mut record);
        }
        let white = rename.whiteout.map(|file| {
            let name = ends.from.name;
            both.from.welcome(core, name, file, now, &mut record)
        });
        both.from
            .bury(core, (ends.from.leaf, way), now, &mut record);
        both.each().for_each(|names| names.record_tail(&mut record));
        let came = op.record_parent(&mut record, rename, ends.from.file);
        if let Some(victim) = &victim {
            victim.record(core, &mut record);
        }
        Self::carry_out(op, both, &record, moved.as_slice(), victim.as_ref(), now);
        moved.into_iter().for_each(|change| change.show(None, now));
        let gone = victim.map(|victim| victim.show(core, now));
        let replaced = i64::from(target.is_some_and(|file| core.kind(file) == FileKind::Directory));
        op.note_change(rename.to_dir, now, came - replaced);
        op.note_change(rename.from_dir, now, -came);
        match rename.whiteout {
            Some(file) => {
                core.clear_flag(file, flag::NAMING | flag::UNLINKED);
                op.records_died(rename.from_dir, 2);
            }
            None => op.name_left(rename.from_dir, if way == Way::Appended { 2 } else { 1 }),
        }
        // The new name comes first, so that a lookup that misses the old one finds it.
        match insertion {
            Some(insertion) => {
                core.radix_publish(rename.to_dir, insertion);
                both.to().show(op, ends.to);
            }
            None => {
                op.records_died(rename.to_dir, 2);
                both.to().change(core, ends.to, new);
            }
        }
        match white {
            Some(place) => both.from.change(core, ends.from.name, place),
            None => both.from.forget(core, ends.from.name),
        }
        coming.into_iter().for_each(Coming::keep);
        gone.into_iter().for_each(|gone| gone.settle(core));
        Ok(())
    }

    /// Swaps the files of two names.
    fn swap<M: Memories>(
        op: &Op<'_, M>,
        rename: &Rename<'_>,
        both: &mut Both<'_, '_, M>,
        from: There<'_>,
        to: There<'_>,
    ) -> Result<()> {
        let core = op.core;
        let bytes = |there: There<'_>| {
            NameRecord::bytes_for(there.name.bytes.len()) + NameRecord::bytes_for(0)
        };
        if let Some(names) = &mut both.to {
            names.make_room(bytes(to), SPARE_BLOCKS)?;
            both.from.make_room(bytes(from), SPARE_BLOCKS)?;
        } else {
            both.from.make_room(bytes(from) + bytes(to), SPARE_BLOCKS)?;
        }
        both.from.make_busy(core, from.name);
        both.to().make_busy(core, to.name);
        let now = op.both_times(rename);
        let (first, second) = op.begin_moving(from.file, Some(to.file));
        let mut record = Record::new();
        let at_to = both
            .to()
            .welcome(core, to.name, from.file, now, &mut record);
        both.to()
            .bury(core, (to.leaf, Way::Appended), now, &mut record);
        let at_from = both
            .from
            .welcome(core, from.name, to.file, now, &mut record);
        both.from
            .bury(core, (from.leaf, Way::Appended), now, &mut record);
        both.each().for_each(|names| names.record_tail(&mut record));
        let came = op.record_parent(&mut record, rename, from.file);
        let back = Rename {
            from_dir: rename.to_dir,
            to_dir: rename.from_dir,
            ..*rename
        };
        let went = op.record_parent(&mut record, &back, to.file);
        let changes: Vec<_> = std::iter::once(first).chain(second).collect();
        Self::carry_out(op, both, &record, &changes, None, now);
        changes
            .into_iter()
            .for_each(|change| change.show(None, now));
        op.note_change(rename.from_dir, now, went - came);
        op.note_change(rename.to_dir, now, came - went);
        op.records_died(rename.from_dir, 2);
        op.records_died(rename.to_dir, 2);
        // Lookups of the second name wait until it is changed, too, so nobody sees one file under
        // both names.
        both.to().change(core, to.name, at_to);
        both.from.change(core, from.name, at_from);
        Ok(())
    }

    /// Commits and applies a record that moves files.
    fn carry_out<M: Memories>(
        op: &Op<'_, M>,
        both: &mut Both<'_, '_, M>,
        record: &Record,
        moved: &[Change<'_, M>],
        victim: Option<&Victim<'_, M>>,
        now: i64,
    ) {
        op.journal_commit(record);
        let times = moved.iter();
        times.for_each(|change| op.store_change_time(change, now));
        victim
            .into_iter()
            .for_each(|victim| victim.store_time(op, now));
        op.journal_apply(record);
        op.journal_retire();
        both.each().for_each(Names::advance);
    }
}

impl<M: Memories> Both<'_, '_, M> {
    /// Makes space for the records of a rename that is no exchange. Returns how the removal of the
    /// old name is recorded.
    fn make_room(&mut self, rename: &Rename<'_>, ends: &Ends<'_>) -> Result<Way> {
        let came = NameRecord::bytes_for(ends.to.bytes.len());
        let went = NameRecord::bytes_for(0);
        let white = match rename.whiteout {
            Some(_) => NameRecord::bytes_for(ends.from.name.bytes.len()),
            None => 0,
        };
        let goes = u64::from(self.to.is_none()) + u64::from(ends.target.is_some());
        let beside = if self.to.is_none() { white } else { 0 };
        self.to()
            .make_room(came + goes * went + beside, SPARE_BLOCKS)?;
        match self.to {
            Some(_) if white > 0 => {
                self.from.make_room(white + went, SPARE_BLOCKS)?;
                Ok(Way::Appended)
            }
            Some(_) => self.from.make_way(went),
            None => Ok(Way::Appended),
        }
    }

    /// Makes lookups of both names wait.
    fn make_busy(&mut self, core: &Core<M>, ends: &Ends<'_>) {
        self.from.make_busy(core, ends.from.name);
        if ends.target.is_some() {
            self.to().make_busy(core, ends.to);
        }
    }
}

impl<M: Memories> Names<'_, '_, M> {
    /// Writes a record that `file` gets a name, and binds the journal record to it. Returns its
    /// position.
    fn welcome(
        &mut self,
        core: &Core<M>,
        name: Name<'_>,
        file: Cachelet,
        now: i64,
        record: &mut Record,
    ) -> LogPosition {
        let told = Told::came(core, name, file, self.take_cookie(), now);
        let draft = self.draft(sites::TREE_RENAME_RECORD, &told, name.bytes);
        draft.witness(record);
        draft.place
    }

    /// Replaces the leaf of `name`.
    fn set(&self, core: &Core<M>, name: Name<'_>, leaf: impl Fn(Leaf) -> Leaf) {
        if let Some((at, there)) = core.radix_find(self.dir, name) {
            core.radix_set(at, leaf(there));
        }
    }

    fn make_busy(&self, core: &Core<M>, name: Name<'_>) {
        self.set(core, name, Leaf::busy);
    }

    fn quieten(&self, core: &Core<M>, name: Name<'_>) {
        self.set(core, name, Leaf::quiet);
    }

    /// Makes a name lead to the record at `place`. Lookups no longer wait.
    fn change(&self, core: &Core<M>, name: Name<'_>, place: LogPosition) {
        self.set(core, name, |_| Leaf::new(place, name.hash));
    }

    fn forget(&self, core: &Core<M>, name: Name<'_>) {
        if let Some((at, _)) = core.radix_find(self.dir, name) {
            core.radix_remove(at);
        }
    }
}
