//! Rename and exchange (DirectFS III-E, III-F). The new entry is prepared without disturbing
//! others; the rename flags are set only while the journal record is committed and applied.

use vellum_layout::{Entry, FileKind, LifeWord, SLOT_BYTES, TargetWord};
use vellum_media::{Memories, Memory, Persistent};

use super::create::Draft;
use super::index::{Index, Pair, ValueWord};
use super::{Entries, Name};
use crate::core::alloc::Take;
use crate::core::cachelet::{CHILD_ONE, Cachelet, field, flag};
use crate::core::slots::{Op, pause};
use crate::durability::journal::Record;
use crate::error::{Error, Result, Retry};
use crate::namespace::Rename;
use crate::namespace::common::moving::{Allow, Moved};
use crate::sites;

/// The two names of a rename.
struct Ends {
    from: Pair,
    source: Cachelet,
    to: Option<(Pair, Cachelet)>,
    /// The index token under which `to` was looked up.
    token: u64,
}

/// Moved directories in which nothing is created until this is dropped.
struct KeptEmpty<'o, M: Memories> {
    op: &'o Op<'o, M>,
    dirs: [Option<Cachelet>; 2],
}

impl<M: Memories> Drop for KeptEmpty<'_, M> {
    fn drop(&mut self) {
        for dir in self.dirs.into_iter().flatten() {
            self.op.end_dying(dir);
        }
    }
}

impl<M: Memories> Op<'_, M> {
    /// Renames, replaces or exchanges.
    pub(crate) fn rename<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        allow: Allow<'_>,
    ) -> Result<()> {
        let from = Name::new(self.core, rename.from_name)?;
        let to = match Name::new(self.core, rename.to_name) {
            Ok(to) => to,
            // A missing old name is reported first.
            Err(error) => {
                let found = self.find_pair::<S>(rename.from_dir, from)?;
                return Err(found.map_or(Error::NotFound, |_| error));
            }
        };
        // Prefetching both overlaps the waits for the two buckets.
        let core = self.core;
        S::Index::prefetch(core, rename.from_dir, from);
        S::Index::prefetch(core, rename.to_dir, to);
        self.ensure_counted::<S>(rename.from_dir)?;
        self.ensure_counted::<S>(rename.to_dir)?;
        let mut tries = 0;
        loop {
            if self.try_rename::<S>(rename, from, to, allow)? {
                return Ok(());
            }
            pause(&core.arena, &mut tries);
        }
    }

    /// Makes one attempt. `false`: a name changed meanwhile; look it up again.
    fn try_rename<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        from: Name<'_>,
        to: Name<'_>,
        allow: Allow<'_>,
    ) -> Result<bool> {
        let core = self.core;
        let Some(ends) = self.find_ends::<S>(rename, from, to)? else {
            return Ok(false);
        };
        let target = ends.to.map(|(_, file)| file);
        let is_dir = |file| core.kind(file) == FileKind::Directory;
        let (source_is_dir, target_is_dir) = (is_dir(ends.source), target.is_some_and(is_dir));
        let moves_dir = rename.is_across() && (source_is_dir || rename.exchange && target_is_dir);
        let _lock = moves_dir.then(|| self.lock_renames());
        let _changing = core.change_paths(source_is_dir || target_is_dir);
        match self.check_rename(rename, ends.source, target, allow) {
            Ok(true) if self.is_prepared::<S>(rename, ends.source, target)? => {}
            Ok(true) => return Err(Error::Retry(Retry::Move)),
            // A result counts only if both names, and so their directories, are unchanged.
            _ if !self.are_there::<S>(&ends) => return Ok(false),
            answer => return answer.map(|_| true),
        }
        let renamed = match ends.to {
            Some(target) if rename.exchange => {
                self.try_exchange::<S>(rename, from, to, (ends.from, ends.source), target)
            }
            None if rename.exchange => Err(Error::NotFound),
            Some(target) => self.try_replace::<S>(rename, (from, to), &ends, target),
            None => self.try_move::<S>(rename, (from, to), &ends),
        };
        if matches!(renamed, Ok(true)) {
            let source = source_is_dir.then_some(ends.source);
            let exchanged = target.filter(|_| rename.exchange && target_is_dir);
            let dirs = source.into_iter().chain(exchanged);
            dirs.for_each(|dir| S::note_renamed(core, dir));
        }
        renamed
    }

    /// Whether the rename can be tried without preparation: moved directories whose names contain
    /// their location are empty, as far as is known, or prepared. A target directory with names
    /// makes the rename fail in any case.
    fn is_prepared<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        source: Cachelet,
        target: Option<Cachelet>,
    ) -> Result<bool> {
        let core = self.core;
        let is_dir = |file: &Cachelet| core.kind(*file) == FileKind::Directory;
        let tells = |(file, _): &(Cachelet, Cachelet)| is_dir(file) && S::tell_where(core, *file);
        let target_moves = target.filter(|_| rename.exchange);
        let moved = [
            Some((source, rename.to_dir)),
            target_moves.map(|file| (file, rename.from_dir)),
        ];
        let mut moved = moved.into_iter().flatten().filter(tells);
        if !S::TELL_PATHS {
            return Ok(true);
        }
        if let Some(whole) = rename.whole {
            return Ok(moved.all(|(dir, _)| whole.path_of(dir).is_some()));
        }
        let has_names = |dir: Cachelet| -> Result<bool> {
            self.ensure_counted::<S>(dir)?;
            Ok(core.children(dir) > 0)
        };
        let victim = target.filter(|file| !rename.exchange && is_dir(file));
        if victim.map(has_names).transpose()? == Some(true) {
            return Ok(true);
        }
        for (dir, to) in moved {
            if has_names(dir)? || S::would_leave_dead(core, dir, to)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn find_ends<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        from: Name<'_>,
        to: Name<'_>,
    ) -> Result<Option<Ends>> {
        let Some((from, source)) = self.find_target::<S>(rename.from_dir, from)? else {
            return Err(Error::NotFound);
        };
        let Some(token) = self.index_token(rename.to_dir) else {
            self.ensure_indexed::<S>(rename.to_dir)?;
            return Ok(None);
        };
        let to = self.find_target::<S>(rename.to_dir, to)?;
        let busy = |pair: Pair| pair.value.has(ValueWord::DELETING | ValueWord::RENAMING);
        if busy(from) || to.is_some_and(|(pair, _)| busy(pair)) {
            return Ok(None);
        }
        Ok(Some(Ends {
            from,
            source,
            to,
            token,
        }))
    }

    /// Whether both names are still as they were found.
    fn are_there<S: Entries<M>>(&self, ends: &Ends) -> bool {
        let to = ends.to.map(|(pair, _)| pair);
        let mut pairs = to.into_iter().chain([ends.from]);
        pairs.all(|pair| S::Index::reload(self.core, pair) == Some(pair))
    }

    fn flag<S: Entries<M>>(&self, pair: Pair) -> Option<Pair> {
        S::Index::update(self.core, pair, pair.value.with(ValueWord::RENAMING))
    }

    /// Flags the name of a moved file. If the file is a directory, keeps it empty.
    fn flag_to_move<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        (pair, file): (Pair, Cachelet),
    ) -> Result<Option<(Pair, KeptEmpty<'_, M>)>> {
        let Some(flagged) = self.flag::<S>(pair) else {
            return Ok(None);
        };
        let kept = self.keep_empty::<S>(rename, &[(file, rename.to_dir)]);
        let kept = kept.inspect_err(|_| self.unflag::<S>(flagged))?;
        Ok(Some((flagged, kept)))
    }

    /// Keeps moved directories empty, as if they were being removed, if their names contain their
    /// location and they are not prepared. Each of `files` comes with the directory that it is
    /// moved into.
    ///
    /// # Errors
    /// [`Error::Retry`] if one of them is not empty.
    fn keep_empty<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        files: &[(Cachelet, Cachelet)],
    ) -> Result<KeptEmpty<'_, M>> {
        let mut kept = KeptEmpty {
            op: self,
            dirs: [None; 2],
        };
        if !S::TELL_PATHS {
            return Ok(kept);
        }
        let is_prepared = |dir| {
            rename
                .whole
                .is_some_and(|whole| whole.path_of(dir).is_some())
        };
        let core = self.core;
        let to_keep = |(file, _): &&(Cachelet, Cachelet)| {
            let is_dir = core.kind(*file) == FileKind::Directory;
            is_dir && S::tell_where(core, *file) && !is_prepared(*file)
        };
        for (place, &(dir, to)) in kept.dirs.iter_mut().zip(files.iter().filter(to_keep)) {
            let begun = self
                .ensure_counted::<S>(dir)
                .and_then(|()| self.begin_dying_indexed::<S>(dir));
            begun.map_err(|error| match error {
                Error::NotEmpty => Error::Retry(Retry::Move),
                other => other,
            })?;
            *place = Some(dir);
            if S::would_leave_dead(core, dir, to)? {
                return Err(Error::Retry(Retry::Move));
            }
        }
        Ok(kept)
    }

    fn unflag<S: Entries<M>>(&self, flagged: Pair) {
        S::Index::update(
            self.core,
            flagged,
            flagged.value.without(ValueWord::RENAMING),
        );
    }

    fn target_word(&self, cachelet: Cachelet) -> (TargetWord, u32) {
        let core = self.core;
        let word = TargetWord::new(core.ino(cachelet), core.kind(cachelet));
        (word, core.identity(cachelet).generation())
    }

    /// Drafts an entry for `of`, before the names in `dying` die.
    #[track_caller]
    fn draft_for<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        to: (Cachelet, Name<'_>),
        of: Cachelet,
        now: i64,
        dying: [Option<Pair>; 2],
    ) -> Result<Draft> {
        let file = self.target_word(of);
        let [first, second] = dying.map(|pair| pair.map_or((0, 0), |pair| (self.life_at(pair), 8)));
        let next = [(self.core.inode_at(of), SLOT_BYTES), first, second];
        let next = (Take::Kept, next);
        let draft = self.draft_entry::<S>(sites::RENAME_ENTRY, to, file, now, next)?;
        let prepared = rename.whole.and_then(|whole| whole.path_of(of));
        let fits = prepared.map_or(Ok(true), |path| S::tells(self.core, draft.entry, path));
        match fits {
            Ok(true) => Ok(draft),
            // The directory has moved meanwhile.
            Ok(false) => {
                self.discard(&draft);
                Err(Error::Retry(Retry::Move))
            }
            Err(error) => {
                self.discard(&draft);
                Err(error)
            }
        }
    }

    /// Drafts an entry of the file that gets the old name, if one does.
    fn draft_whiteout<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        (from, now): (Name<'_>, i64),
        dying: [Option<Pair>; 2],
    ) -> Result<Option<(Draft, Cachelet)>> {
        let Some(file) = rename.whiteout else {
            return Ok(None);
        };
        let draft = self.draft_for::<S>(rename, (rename.from_dir, from), file, now, dying)?;
        Ok(Some((draft, file)))
    }

    /// Frees drafts that no log will name.
    fn discard_all(&self, draft: Option<&Draft>, whiteout: &Option<(Draft, Cachelet)>) {
        let whiteout = whiteout.as_ref().map(|(draft, _)| draft);
        draft
            .into_iter()
            .chain(whiteout)
            .for_each(|it| self.discard(it));
    }

    /// Adds the entries of the moved file and of the one that gets the old name to the record.
    #[inline]
    fn record_drafts<S: Entries<M>>(
        &self,
        record: &mut Record,
        moved: (&Draft, Cachelet),
        whiteout: Option<&(Draft, Cachelet)>,
    ) -> S::Held<'_> {
        let count = 1 + usize::from(whiteout.is_some());
        let second = whiteout.map_or(moved, |(draft, file)| (draft, *file));
        S::record(self, record, &[moved, second][..count])
    }

    /// The old name, which is durably gone, or durably that of another file.
    #[inline]
    fn leave_name<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        from: Pair,
        whiteout: Option<&(Draft, Cachelet)>,
        (now, subdirectories): (i64, i64),
    ) {
        match whiteout {
            Some(whiteout) => {
                self.show_whiteout::<S>(rename, from, whiteout, (now, subdirectories));
            }
            None => {
                self.entry_died(rename.from_dir, now, subdirectories);
                S::Index::remove(self, from);
            }
        }
    }

    #[cold]
    fn show_whiteout<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        from: Pair,
        &(ref draft, file): &(Draft, Cachelet),
        (now, subdirectories): (i64, i64),
    ) {
        let core = self.core;
        self.entry_changed(rename.from_dir, now, subdirectories);
        core.add_refs(file, S::Index::NAME_REFS);
        core.clear_flag(file, flag::NAMING | flag::UNLINKED);
        let value = ValueWord::of_cachelet(file, core.kind(file)).with(ValueWord::READABLE);
        S::Index::set(core, from, draft.entry, value.with(ValueWord::RENAMING));
        S::Index::release(core, from, value);
    }

    /// Moves to a name that does not exist.
    fn try_move<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        (from, to): (Name<'_>, Name<'_>),
        ends: &Ends,
    ) -> Result<bool> {
        let core = self.core;
        self.enter_children(rename.to_dir, CHILD_ONE)?;
        let now = self.both_times(rename);
        let (place, dying) = ((rename.to_dir, to), [Some(ends.from), None]);
        let whiteout = self.draft_whiteout::<S>(rename, (from, now), dying);
        let drafts = whiteout.and_then(|whiteout| {
            let draft = self.draft_for::<S>(rename, place, ends.source, now, dying);
            let draft = draft.inspect_err(|_| self.discard_all(None, &whiteout))?;
            Ok((draft, whiteout))
        });
        let (draft, whiteout) = match drafts {
            Ok(drafts) => drafts,
            Err(error) => {
                self.leave_children(rename.to_dir, CHILD_ONE);
                return Err(error);
            }
        };
        let value = ends.from.value.without(ValueWord::READABLE);
        let absent = (ends.token, None);
        let flagged = match self.insert_new::<S>(rename.to_dir, to, absent, draft.entry, value) {
            Ok(Some(new)) => match self.flag_to_move::<S>(rename, (ends.from, ends.source)) {
                Ok(Some((from, still))) => Ok((new, from, still)),
                failed => {
                    S::Index::remove(self, new);
                    Err(failed.map(|_| false))
                }
            },
            Ok(None) => Err(Ok(false)),
            Err(error) => Err(Err(error)),
        };
        let (new, from, _still) = match flagged {
            Ok(pairs) => pairs,
            Err(outcome) => {
                self.discard_all(None, &whiteout);
                self.discard_later::<S>(rename.to_dir, &draft);
                self.leave_children(rename.to_dir, CHILD_ONE);
                return outcome;
            }
        };
        let moved = self.begin_moving(ends.source, None);
        let mut record = Record::new();
        let moved_to = (&draft, ends.source);
        let held = self.record_drafts::<S>(&mut record, moved_to, whiteout.as_ref());
        self.record_death(&mut record, from, now);
        let came = self.record_parent(&mut record, rename, ends.source);
        record_whole(&mut record, rename);
        self.journal_commit(&record);
        // Lookups wait for both names until the old one is gone and the new one exists.
        S::Index::release(core, new, value.with(ValueWord::RENAMING));
        self.carry_out(rename, &record, moved, now);
        drop(held);
        S::moved(core, ends.source);
        if rename.is_across() {
            self.note_change(rename.to_dir, now, came);
        }
        self.leave_name::<S>(rename, from, whiteout.as_ref(), (now, -came));
        S::Index::release(core, new, value.with(ValueWord::READABLE));
        Ok(true)
    }

    /// Moves onto a name that exists.
    fn try_replace<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        (from, to): (Name<'_>, Name<'_>),
        ends: &Ends,
        (to_pair, victim): (Pair, Cachelet),
    ) -> Result<bool> {
        let core = self.core;
        let victim_is_dir = core.kind(victim) == FileKind::Directory;
        if victim_is_dir {
            self.ensure_counted::<S>(victim)?;
        }
        let now = self.both_times(rename);
        let (place, dying) = ((rename.to_dir, to), [Some(ends.from), Some(to_pair)]);
        let whiteout = self.draft_whiteout::<S>(rename, (from, now), dying)?;
        let draft = self.draft_for::<S>(rename, place, ends.source, now, dying);
        let draft = draft.inspect_err(|_| self.discard_all(None, &whiteout))?;
        let Some((from, old)) = self.flag_both::<S>(ends.from, to_pair) else {
            self.discard_all(Some(&draft), &whiteout);
            return Ok(false);
        };
        let dying = if victim_is_dir {
            self.begin_dying_indexed::<S>(victim)
        } else {
            Ok(())
        };
        let still = dying.and_then(|()| {
            let still = self.keep_empty::<S>(rename, &[(ends.source, rename.to_dir)]);
            still.inspect_err(|_| {
                if victim_is_dir {
                    self.end_dying(victim);
                }
            })
        });
        let _still = still.inspect_err(|_| {
            self.unflag::<S>(from);
            self.unflag::<S>(old);
            self.discard_all(Some(&draft), &whiteout);
        })?;
        let moved = self.begin_moving(ends.source, None);
        let mut record = Record::new();
        let moved_to = (&draft, ends.source);
        let held = self.record_drafts::<S>(&mut record, moved_to, whiteout.as_ref());
        self.record_death(&mut record, from, now);
        self.record_death(&mut record, old, now);
        let came = self.record_parent(&mut record, rename, ends.source);
        record_whole(&mut record, rename);
        self.journal_commit(&record);
        self.carry_out(rename, &record, moved, now);
        drop(held);
        S::moved(core, ends.source);
        let left = self.lower_links(victim);
        self.entry_changed(rename.to_dir, now, came - i64::from(victim_is_dir));
        self.leave_name::<S>(rename, from, whiteout.as_ref(), (now, -came));
        let value = from.value.without(ValueWord::RENAMING);
        S::Index::set(core, old, draft.entry, value.with(ValueWord::RENAMING));
        S::Index::release(core, old, value);
        self.name_gone(victim, left, now, S::Index::NAME_REFS);
        Ok(true)
    }

    /// Swaps the files of two names.
    fn try_exchange<S: Entries<M>>(
        &self,
        rename: &Rename<'_>,
        from: Name<'_>,
        to: Name<'_>,
        (from_pair, source): (Pair, Cachelet),
        (to_pair, target): (Pair, Cachelet),
    ) -> Result<bool> {
        let core = self.core;
        let now = self.both_times(rename);
        let dying = [Some(from_pair), Some(to_pair)];
        let places = [(rename.from_dir, from), (rename.to_dir, to)];
        let at_from = self.draft_for::<S>(rename, places[0], target, now, dying)?;
        let at_to = match self.draft_for::<S>(rename, places[1], source, now, dying) {
            Ok(draft) => draft,
            Err(error) => {
                self.discard(&at_from);
                return Err(error);
            }
        };
        let Some((first, second)) = self.flag_both::<S>(from_pair, to_pair) else {
            self.discard(&at_from);
            self.discard(&at_to);
            return Ok(false);
        };
        let moves = [(source, rename.to_dir), (target, rename.from_dir)];
        let still = self.keep_empty::<S>(rename, &moves);
        let _still = still.inspect_err(|_| {
            self.unflag::<S>(first);
            self.unflag::<S>(second);
            self.discard(&at_from);
            self.discard(&at_to);
        })?;
        let moved = self.begin_moving(source, Some(target));
        let mut record = Record::new();
        let held = S::record(self, &mut record, &[(&at_from, target), (&at_to, source)]);
        self.record_death(&mut record, first, now);
        self.record_death(&mut record, second, now);
        let came = self.record_parent(&mut record, rename, source);
        let back = Rename {
            from_dir: rename.to_dir,
            to_dir: rename.from_dir,
            ..*rename
        };
        let went = self.record_parent(&mut record, &back, target);
        record_whole(&mut record, rename);
        self.journal_commit(&record);
        self.carry_out(rename, &record, moved, now);
        drop(held);
        S::moved(core, source);
        S::moved(core, target);
        self.entry_changed(rename.from_dir, now, went - came);
        self.entry_changed(rename.to_dir, now, came - went);
        let clear = |pair: Pair| pair.value.without(ValueWord::RENAMING);
        // Both keep the flag until both are set, so that nobody sees one file under both names.
        S::Index::set(core, first, at_from.entry, second.value);
        S::Index::set(core, second, at_to.entry, first.value);
        S::Index::release(core, first, clear(second));
        S::Index::release(core, second, clear(first));
        Ok(true)
    }

    /// Applies and retires a committed record that moves files. Listings that begin while its
    /// stores are in flight wait, because an earlier listing may have seen some of them.
    ///
    /// Everything that goes past the cache is stored between the locked instructions that announce
    /// this, because each of these would wait for earlier stores past the cache.
    fn carry_out(&self, rename: &Rename<'_>, record: &Record, moved: Moved<'_, M>, now: i64) {
        let core = self.core;
        let count = |dir, count: u64| {
            core.arena
                .fetch_add(core.cachelet_at(dir, field::MOVING), count)
        };
        let moving = |more: u64| {
            count(rename.from_dir, more);
            if rename.is_across() {
                count(rename.to_dir, more);
            }
        };
        moving(1);
        let (first, second) = moved;
        self.store_change_time(&first, now);
        if let Some(second) = &second {
            self.store_change_time(second, now);
        }
        self.journal_store(record);
        moving(1u64.wrapping_neg());
        self.journal_settle();
        // The times are published only when they are durable. Until then the changes stay locked,
        // because others could not store over them in order.
        first.show(None, now);
        if let Some(second) = second {
            second.show(None, now);
        }
        self.journal_retire();
    }

    /// Flags two names in the order of their offsets, so that two renames cannot wait for each
    /// other.
    fn flag_both<S: Entries<M>>(&self, a: Pair, b: Pair) -> Option<(Pair, Pair)> {
        let (low, high) = if a.at < b.at { (a, b) } else { (b, a) };
        let low = self.flag::<S>(low)?;
        let Some(high) = self.flag::<S>(high) else {
            self.unflag::<S>(low);
            return None;
        };
        Some(if a.at < b.at {
            (low, high)
        } else {
            (high, low)
        })
    }

    /// Pool offset of the life word of a name's entry.
    fn life_at(&self, pair: Pair) -> u64 {
        self.core.geometry.slot_at(pair.entry.entry()) + Entry::LIFE
    }

    fn record_death(&self, record: &mut Record, pair: Pair, now: i64) {
        record.store(self.life_at(pair), LifeWord::dead(now).0);
    }

    /// Leaves a draft to recycling, as a dead entry. Its name was in the index for a moment, so
    /// others may be comparing names with it. The entry never lived, so it carries no time: the
    /// directory has not changed.
    pub(super) fn discard_later<S: Entries<M>>(&self, dir: Cachelet, draft: &Draft) {
        let core = self.core;
        let life = core.geometry.slot_at(draft.entry) + Entry::LIFE;
        core.set_word(life, LifeWord::dead(0).0);
        core.pool.flush(sites::RENAME_DISCARD_LIFE, life, 8);
        // A close takes the log word to be durable.
        let steps = [
            sites::RENAME_DISCARD_LIFE_DURABLE,
            sites::RENAME_DISCARD_LOG_WORD,
            sites::RENAME_DISCARD_DURABLE,
        ];
        // Counted before it can be recycled.
        let is_to_recycle = self.count_dead(dir);
        S::commit_entry(self, steps, draft, false);
        if is_to_recycle {
            core.queue_work(dir);
        }
    }
}

/// Adds to the record of a prepared move the word that leads to the work after the commit.
fn record_whole(record: &mut Record, rename: &Rename<'_>) {
    if let Some((at, value)) = rename.whole.and_then(|whole| whole.store) {
        record.store(at, value);
    }
}
