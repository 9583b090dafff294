//! The directories' logs of the namespace *tree*: blocks with records of created and removed names,
//! up to the tail that the directory's inode holds.

use std::collections::HashSet;

use vellum_layout::{
    BLOCK_BYTES, ChunkKind, Geometry, Inode, LogExtentHead, LogOwner, LogPosition, NAME_MAX,
    NameRecord, RECORD_MAX_BYTES, RecordKind, Recorded, Records, SLOT_BYTES, SLOTS_PER_BLOCK,
    TargetWord, name_hash,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::header::Chunks;
use crate::image::View;
use crate::inodes::{Found, Node, Nodes};
use crate::journal::generation_of;
use crate::logs::{COOKIE_MAX, COOKIE_MIN, Extent, Logs, Name, hash_of};
use crate::report::{Class, Location};

/// A log being read.
struct Log<'n> {
    directory: u32,
    node: &'n Node,
    owner: LogOwner,
    tail: LogPosition,
    /// Pool offset of the word that leads to the block being read.
    word_at: u64,
    /// Where the records of the previous block end.
    end: LogPosition,
    /// The lowest possible next cookie.
    cookie: u64,
    /// Index of the first name of this log.
    first_name: usize,
}

impl Logs {
    /// Reads the logs of all directories in `nodes`.
    pub(crate) fn read_records(
        &mut self,
        view: &View,
        geometry: &Geometry,
        chunks: &Chunks,
        nodes: &Nodes,
        seed: u64,
    ) {
        let mut visited = HashSet::new();
        for (directory, node) in nodes.list.iter().enumerate() {
            if node.kind != vellum_layout::FileKind::Directory {
                continue;
            }
            let mut log = Log {
                directory: directory as u32,
                node,
                owner: LogOwner {
                    slot: node.slot,
                    generation: node.identity.generation(),
                },
                tail: LogPosition(node.detail),
                word_at: geometry.slot_at(node.slot) + Inode::ROOT,
                end: LogPosition::NONE,
                cookie: COOKIE_MIN,
                first_name: self.names.len(),
            };
            self.read_log(view, geometry, chunks, nodes, seed, &mut visited, &mut log);
        }
    }

    /// Reports that the log must end behind its last sound record.
    fn cut(&mut self, geometry: &Geometry, log: &Log<'_>, class: Class, detail: &str) {
        let place = Location::Inode(log.node.slot);
        self.issue(log.directory, class, place, log.word_at, detail);
        let tail_at = geometry.slot_at(log.node.slot) + Inode::DETAIL;
        self.instead(vec![(log.word_at, 0), (tail_at, log.end.0)]);
    }

    #[allow(clippy::too_many_arguments)]
    fn read_log(
        &mut self,
        view: &View,
        geometry: &Geometry,
        chunks: &Chunks,
        nodes: &Nodes,
        seed: u64,
        visited: &mut HashSet<u64>,
        log: &mut Log<'_>,
    ) {
        let mut reached_tail = log.tail == LogPosition::NONE;
        let mut slot = log.node.root;
        while slot != 0 {
            let head = match find_block(view, geometry, chunks, nodes, log.owner, slot) {
                Ok(head) => head,
                Err((class, detail)) => return self.cut(geometry, log, class, &detail),
            };
            // A sound head names its owner, so a block seen before was seen in this very log.
            if !visited.insert(slot) {
                let detail = format!("it comes back to the block at slot {slot}");
                return self.cut(geometry, log, Class::LogLoop, &detail);
            }
            self.extents.push(Extent {
                directory: log.directory,
                slot,
                slots: SLOTS_PER_BLOCK,
            });
            if !reached_tail {
                if !(log.cookie..=COOKIE_MAX).contains(&head.base_cookie) {
                    let detail = format!(
                        "the block at slot {slot} begins with cookie {}",
                        head.base_cookie
                    );
                    self.cut(geometry, log, Class::Cookies, &detail);
                }
                log.cookie = log.cookie.max(head.base_cookie);
                self.read_block(view, geometry, seed, slot, log);
                reached_tail = log.tail.slot() == slot;
            }
            log.word_at = geometry.slot_at(slot) + LogExtentHead::NEXT;
            slot = head.next;
        }
        if !reached_tail {
            let detail = format!("the tail, at slot {}, is not in it", log.tail.slot());
            self.cut(geometry, log, Class::LogUnsound, &detail);
        }
    }

    fn read_block(
        &mut self,
        view: &View,
        geometry: &Geometry,
        seed: u64,
        slot: u64,
        log: &mut Log<'_>,
    ) {
        let mut bytes = [0; BLOCK_BYTES as usize];
        view.read(geometry.slot_at(slot), &mut bytes);
        let tail = Some(log.tail).filter(|tail| tail.slot() == slot);
        log.end = LogPosition::new(slot, NameRecord::FIRST);
        for found in Records::of(&bytes, slot, log.owner, tail) {
            let found = match found {
                Ok(found) => found,
                Err(unsound) => {
                    let place = Location::Slot(slot);
                    let detail = format!("record at byte {} of the block", unsound.place.byte());
                    let at = geometry.slot_at(slot) + unsound.place.byte();
                    self.issue(log.directory, Class::EntryUnsound, place, at, detail);
                    let tail_at = geometry.slot_at(log.node.slot) + Inode::DETAIL;
                    let ends = tail.map_or((at, 0), |_| (tail_at, unsound.place.0));
                    let filled = unsound
                        .next
                        .and_then(|next| fill(unsound.place, next, log.owner));
                    let stores =
                        filled.map_or(vec![ends], |words| (at..).step_by(8).zip(words).collect());
                    self.instead(stores);
                    continue;
                }
            };
            self.take_record(geometry, seed, log, &found);
            let past = found.place.byte() + NameRecord::bytes_for(found.name.len());
            log.end = LogPosition::new(slot, past);
        }
    }

    fn take_record(
        &mut self,
        geometry: &Geometry,
        seed: u64,
        log: &mut Log<'_>,
        found: &Recorded<'_>,
    ) {
        let record = &found.record;
        let at = geometry.slot_at(found.place.slot()) + found.place.byte();
        if record.kind() == Some(RecordKind::Went) {
            let names = &mut self.names[log.first_name..];
            let came = names.binary_search_by_key(&record.cookie, |name| name.cookie);
            if let Ok(index) = came {
                names[index].alive = false;
                names[index].ns = names[index].ns.max(record.ns());
            }
            return;
        }
        let head_as = |record: NameRecord| {
            let sealed = record.sealed(found.name, found.place, log.owner);
            let (words, _) = sealed.as_bytes().as_chunks::<8>();
            u64::from_le_bytes(words[0])
        };
        // An error in a record that stays would remain if the name were only removed.
        let nothing = head_as(NameRecord {
            kind: RecordKind::Went as u8,
            cookie: 0,
            ..*record
        });
        let without = head_as(NameRecord {
            kind: RecordKind::Gone as u8,
            ..*record
        });
        let place = Location::Slot(found.place.slot());
        let mut issue = |class, detail: String| {
            self.issue(log.directory, class, place, at, detail);
            self.instead(vec![(at, nothing), (at + NameRecord::COOKIE, 0)]);
        };
        let target = TargetWord(record.target);
        let Some(kind) = target.kind().filter(|_| !target.has_reserved()) else {
            return issue(
                Class::EntryUnsound,
                "it names a file of unknown kind".into(),
            );
        };
        if record.name_hash != name_hash(seed, found.name) {
            return issue(
                Class::EntryUnsound,
                "its hash is not that of its name".into(),
            );
        }
        let is_bad = |byte: &u8| matches!(byte, 0 | b'/');
        if matches!(found.name, b"." | b"..") || found.name.iter().any(is_bad) {
            let text = found.name.escape_ascii().to_string();
            return issue(Class::EntryName, format!("{text:?}"));
        }
        if !(log.cookie..=COOKIE_MAX).contains(&record.cookie) {
            let detail = format!("has cookie {} behind {}", record.cookie, log.cookie - 1);
            return issue(Class::Cookies, detail);
        }
        log.cookie = record.cookie + 1;
        self.names.push(Name {
            word_at: at,
            word_without: without,
            text_at: at + NameRecord::NAME,
            text_len: record.name_len,
            slot: found.place.slot(),
            slots: 0,
            kind,
            alive: record.kind() == Some(RecordKind::Came),
            directory: log.directory,
            sequence: (self.names.len() - log.first_name) as u32,
            ino: target.ino(),
            generation: record.generation,
            cookie: record.cookie,
            hash: hash_of(found.name),
            ns: record.ns(),
        });
    }
}

/// Words of records from `place` up to `next` without effect: removals of names that were never
/// created.
fn fill(place: LogPosition, next: LogPosition, owner: LogOwner) -> Option<Vec<u64>> {
    const NAME: [u8; NAME_MAX] = [0; NAME_MAX];
    let (mut at, mut words) = (place, Vec::new());
    while at != next {
        let gap = next.byte().checked_sub(at.byte())?;
        let bare = NameRecord::bytes_for(0);
        // The remainder is empty or long enough for another record.
        let most = gap.min(NameRecord::bytes_for(NAME_MAX - 7));
        let bytes = if gap - most < bare && gap != most {
            most.checked_sub(bare)?
        } else {
            most
        };
        let name = NAME.get(..usize::try_from(bytes.checked_sub(bare)?).ok()?)?;
        let record = NameRecord {
            kind: RecordKind::Went as u8,
            ..NameRecord::new_zeroed()
        };
        let mut buffer = [0; RECORD_MAX_BYTES];
        let used = record.encode(name, at, owner, &mut buffer);
        let (own, _) = buffer[..used].as_chunks::<8>();
        words.extend(own.iter().map(|word| u64::from_le_bytes(*word)));
        at = LogPosition::new(at.slot(), at.byte() + used as u64);
    }
    Some(words)
}

/// The head of the block that should be at `slot` of `owner`'s log.
fn find_block(
    view: &View,
    geometry: &Geometry,
    chunks: &Chunks,
    nodes: &Nodes,
    owner: LogOwner,
    slot: u64,
) -> Result<LogExtentHead, (Class, String)> {
    let unsound = |what: &str| Err((Class::LogUnsound, format!("slot {slot} {what}")));
    match chunks.kind_of(slot) {
        Some(ChunkKind::Blocks) if slot.is_multiple_of(SLOTS_PER_BLOCK) => {}
        Some(ChunkKind::Blocks) => return unsound("begins no metadata block"),
        Some(kind) => {
            let detail = format!("slot {slot} is in a chunk of {kind:?}");
            return Err((Class::LogChunk, detail));
        }
        None => return unsound("is in no chunk"),
    }
    let bytes: [u8; size_of::<LogExtentHead>()] = view.bytes(geometry.slot_at(slot));
    let Ok(head) = LogExtentHead::read_from_bytes(&bytes) else {
        return unsound("holds no head");
    };
    if head.is_sound_of_records(slot, owner) {
        return Ok(head);
    }
    let other = match nodes.find(head.owner) {
        Found::Node(other) => nodes.list[other as usize].identity.generation(),
        _ => 0,
    };
    let other = LogOwner {
        slot: head.owner,
        generation: other,
    };
    if other.slot != owner.slot && head.is_sound_of_records(slot, other) {
        let detail = format!("the block at slot {slot} is inode {}'s", head.owner);
        return Err((Class::LogShared, detail));
    }
    unsound("holds a head that does not fit its checksum")
}

/// The checksum of the record at pool offset `at`, if it is sound.
pub(crate) fn checksum_at(view: &View, geometry: &Geometry, at: u64) -> Option<u32> {
    let inside = at.checked_sub(geometry.meta_at)?;
    let slot = inside / BLOCK_BYTES * SLOTS_PER_BLOCK;
    if slot + SLOTS_PER_BLOCK > geometry.meta_slots() {
        return None;
    }
    let mut block = [0; BLOCK_BYTES as usize];
    view.read(geometry.meta_at + slot * SLOT_BYTES, &mut block);
    let (head, _) = LogExtentHead::read_from_prefix(&block).ok()?;
    let owner = LogOwner {
        slot: head.owner,
        generation: generation_of(view, geometry, head.owner),
    };
    head.is_sound_of_records(slot, owner).then_some(())?;
    let place = LogPosition::new(slot, inside % BLOCK_BYTES);
    let bytes = block.get(place.byte() as usize..)?;
    NameRecord::decode(bytes, place, owner).map(|(record, _)| record.checksum)
}
