//! Adding names to logs of records (the namespace *tree*).

use vellum_check::survey::Survey;
use vellum_layout::{
    BLOCK_BYTES, ChunkKind, Inode, LogExtentHead, LogOwner, LogPosition, NameRecord,
    RECORD_MAX_BYTES, SLOTS_PER_BLOCK,
};
use zerocopy::IntoBytes;

use crate::draft::Draft;
use crate::room::{Directory, Named, Tail, Target};

impl Draft<'_> {
    /// Adds a name to a directory whose log is sound; `None` if there is no space for it.
    pub(crate) fn append_record(
        &mut self,
        survey: &Survey,
        dir: Directory,
        name: &[u8],
        target: Target,
    ) -> Option<()> {
        let owner = LogOwner {
            slot: dir.ino,
            generation: dir.generation,
        };
        let cookie = self.next_cookie(survey, dir);
        let bytes = NameRecord::bytes_for(name.len());
        let place = self.place_record(survey, owner, bytes, cookie)?;
        let named = Named {
            target,
            cookie,
            ns: self.now_ns,
        };
        let record = named.record(name, self.superblock.hash_seed);
        let mut buffer = [0; RECORD_MAX_BYTES];
        let used = record.encode(name, place, owner, &mut buffer);
        let (words, _) = buffer[..used].as_chunks::<8>();
        let at = self.geometry.slot_at(place.slot()) + place.byte();
        for (at, word) in (at..).step_by(8).zip(words) {
            self.set(at, u64::from_le_bytes(*word));
        }
        let tail = LogPosition::new(place.slot(), place.byte() + bytes);
        self.set(self.field(dir.ino, Inode::DETAIL), tail.0);
        self.tails.insert(dir.ino, Tail::of_records(cookie + 1));
        Some(())
    }

    /// A cookie above those of all names in `dir`.
    pub(crate) fn next_cookie(&self, survey: &Survey, dir: Directory) -> u64 {
        if let Some(tail) = self.tails.get(&dir.ino) {
            return tail.above;
        }
        let own = survey
            .logs
            .names
            .iter()
            .filter(|name| survey.nodes.list[name.directory as usize].slot == dir.ino);
        let last = own.map(|name| name.cookie).max().unwrap_or(0);
        Tail::of_records(last + 1).above
    }

    /// The position of a record of this length in a log, which may grow.
    fn place_record(
        &mut self,
        survey: &Survey,
        owner: LogOwner,
        bytes: u64,
        cookie: u64,
    ) -> Option<LogPosition> {
        let tail = LogPosition(self.word(self.field(owner.slot, Inode::DETAIL)));
        let link = if tail == LogPosition::NONE {
            self.field(owner.slot, Inode::ROOT)
        } else {
            self.geometry.slot_at(tail.slot()) + LogExtentHead::NEXT
        };
        let next = self.word(link);
        if tail != LogPosition::NONE && next == 0 && tail.byte() + bytes <= NameRecord::LIMIT {
            return Some(tail);
        }
        if next != 0 {
            return Some(LogPosition::new(next, NameRecord::FIRST));
        }
        let slot = self.take_slots(survey, ChunkKind::Blocks, SLOTS_PER_BLOCK)?;
        let mut block = [0; BLOCK_BYTES as usize];
        let head = LogExtentHead::of_records(slot, owner, cookie);
        block[..size_of::<LogExtentHead>()].copy_from_slice(head.as_bytes());
        self.put_slots(slot, SLOTS_PER_BLOCK, &block);
        if tail != LogPosition::NONE {
            let end = self.geometry.slot_at(tail.slot()) + tail.byte();
            self.set(end, 0);
        }
        self.set(link, slot);
        Some(LogPosition::new(slot, NameRecord::FIRST))
    }
}
