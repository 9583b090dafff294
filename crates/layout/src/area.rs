//! Areas of the namespace *adaptive*: a directory, the area's *root*, and the names below it down
//! to the next roots.
//!
//! The *area table* has a line for each area. Entries ([`crate::PathEntryHead`]) lie in *extents*
//! of an areas chunk: a head, the *state-map* with two bits per slot, and the slots. The state-map
//! records which entries exist; each entry records its area.

use vellum_media::LINE_BYTES;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::checksum::checksum_words;
use crate::{BLOCK_BYTES, SLOT_BYTES, SLOTS_PER_BLOCK, TableRoot};

/// Lines of a block of the area table, the head among them.
pub const AREA_TABLE_LINES: u64 = 64;
/// The area of the dataset's root.
pub const ROOT_AREA: u32 = 1;
/// Area numbers are below this: a directory's location has this many bits for one.
pub const AREA_LIMIT: u32 = 1 << 24;

/// The fields of a superblock about areas; zeros with other namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaPlan {
    /// Metadata slot of the first block of the area table.
    pub table: u64,
    /// Bytes of an extent, a power of two from 4096 to a chunk.
    pub bytes: u32,
    /// Slots above which an area, or a renamed directory, counts as large (Size_Max, Size_Min).
    pub size_max: u32,
}

impl AreaPlan {
    /// The usual plan for a pool with chunks of this many bytes: the table begins in chunk 1.
    pub fn usual(chunk_bytes: u64) -> Self {
        let bytes = chunk_bytes.min(2 << 20);
        Self {
            table: chunk_bytes / SLOT_BYTES,
            bytes: bytes as u32,
            size_max: (bytes / SLOT_BYTES / 4) as u32,
        }
    }

    /// Whether this plan is possible in a pool with areas, this many slots and chunks of this many
    /// bytes.
    pub fn is_sound(&self, meta_slots: u64, chunk_bytes: u64) -> bool {
        let bytes = u64::from(self.bytes);
        self.table != 0
            && self.table.is_multiple_of(SLOTS_PER_BLOCK)
            && self.table < meta_slots
            && bytes.is_power_of_two()
            && (BLOCK_BYTES..=chunk_bytes).contains(&bytes)
            && (1..=bytes / SLOT_BYTES).contains(&u64::from(self.size_max))
    }

    /// Metadata slots of an extent, including those of its head and its map.
    pub fn slots(&self) -> u64 {
        u64::from(self.bytes) / SLOT_BYTES
    }

    /// Number of the first slot for entries in an extent.
    pub fn first(&self) -> u64 {
        (AreaExtentHead::STATES + self.words() * 8).div_ceil(SLOT_BYTES)
    }

    /// Words of an extent's state-map; each is for a *group*, the slots of one block.
    pub fn words(&self) -> u64 {
        u64::from(self.bytes) / BLOCK_BYTES
    }

    /// Offset, in the metadata region, of the state-map's word for the group of metadata slot
    /// `slot`.
    pub fn states_at(&self, slot: u64) -> u64 {
        let extent = slot / self.slots();
        let word = slot % self.slots() / SLOTS_PER_BLOCK;
        extent * u64::from(self.bytes) + AreaExtentHead::STATES + word * 8
    }

    /// Slots whose states are in one cache line of a state-map.
    pub fn slots_per_states_line(&self) -> u64 {
        self.slots().min(LINE_BYTES / 8 * SLOTS_PER_BLOCK)
    }

    /// Whether an entry of `slots` slots may begin at metadata slot `slot`: behind the map, inside
    /// its group.
    pub fn has_room(&self, slot: u64, slots: u64) -> bool {
        slot % self.slots() >= self.first() && slot % SLOTS_PER_BLOCK + slots <= SLOTS_PER_BLOCK
    }
}

/// One life of an area number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaLife {
    /// The number.
    pub number: u32,
    /// Grows whenever the number is reused.
    pub generation: u32,
}

/// Line 0 of a block of the area table.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct AreaTableHead {
    /// Metadata slot of the next block, or 0. Changed by one 8-byte store.
    pub next: u64,
    /// Derived: bit *i* is set if line *i* belongs to an area.
    pub taken: u64,
    /// Number of the block, counted from 0 along the chain.
    pub number: u32,
    /// CRC-32C of the block's metadata slot and its number, each as a word.
    pub checksum: u32,
    /// In the first block: metadata slot of the list of an unfinished move
    /// ([`crate::MoveListHead`]), or 0. Changed by one 8-byte store.
    pub moving: u64,
    /// Reserved, zero.
    pub reserved: [u64; 4],
}

const _: () = assert!(size_of::<AreaTableHead>() == 64);

impl AreaTableHead {
    /// Offset of `next`.
    pub const NEXT: u64 = 0;
    /// Offset of `taken`.
    pub const TAKEN: u64 = 8;
    /// Offset of `moving`.
    pub const MOVING: u64 = 24;

    /// A sound head of block `number`, at metadata slot `at`.
    pub fn new(at: u64, number: u32) -> Self {
        Self {
            number,
            checksum: checksum_words(&[at, number.into()]),
            ..Self::default()
        }
    }

    /// Whether the head is sound for block `number` at metadata slot `at`.
    pub fn is_sound(&self, at: u64, number: u32) -> bool {
        let fits = |head: &Self| (head.number, head.checksum, head.reserved);
        self.next.is_multiple_of(SLOTS_PER_BLOCK) && fits(self) == fits(&Self::new(at, number))
    }
}

/// The phase of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AreaPhase {
    /// The line is free.
    Free = 0,
    /// The area is not in use yet: recovery frees it.
    Forming = 1,
    /// In use.
    Live = 2,
    /// No longer in use; its entries are still being cleared.
    Going = 3,
}

impl AreaPhase {
    /// The phase with this number.
    pub fn from_u8(number: u8) -> Option<Self> {
        [Self::Free, Self::Forming, Self::Live, Self::Going]
            .into_iter()
            .find(|phase| *phase as u8 == number)
    }
}

/// The committing word of an area's line: phase (bits 0..2), check (48..64). Free is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AreaWord(pub u64);

impl AreaWord {
    /// The word of a free line.
    pub const FREE: Self = Self(0);

    /// Packs the word of area `number`.
    pub fn new(number: u32, phase: AreaPhase) -> Self {
        match phase as u64 {
            0 => Self::FREE,
            low => Self(low | u64::from(checksum_words(&[number.into(), low])) << 48),
        }
    }

    /// The phase, if the word is sound for area `number`.
    pub fn phase(self, number: u32) -> Option<AreaPhase> {
        let phase = AreaPhase::from_u8(self.0 as u8 & 3)?;
        (Self::new(number, phase) == self).then_some(phase)
    }
}

/// A line of the area table.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct AreaLine {
    /// [`AreaWord`].
    pub word: u64,
    /// Inode slot of the root directory.
    pub root: u64,
    /// Generation of the area: which life of its number this is.
    pub generation: u32,
    /// Generation of the root's inode.
    pub root_generation: u32,
    /// [`TableRoot`]; derived.
    pub table: u64,
    /// On a clean pool: [`AreaCounts`].
    pub saved: u64,
    /// Check of `saved` and `table` for one epoch.
    pub saved_check: u64,
    /// When the area was formed, in seconds since 1970, and by which numbers.
    pub formed: Formed,
    /// CRC-32C of the area's number, `root`, and both generations as one word.
    pub checksum: u32,
}

const _: () = assert!(size_of::<AreaLine>() == 64);

/// When an area was formed, and by which numbers. Only people read this.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct Formed {
    /// Seconds since 1970; 0: not known.
    pub seconds: u32,
    /// Slots that the names below the directory took at that time; 0: not counted.
    pub slots: u32,
    /// Recent lookups in the directory and below.
    pub reads: u32,
}

impl Formed {
    /// Formed at `ns` nanoseconds since 1970, because of these numbers.
    pub fn at(ns: i64, slots: u64, reads: u64) -> Self {
        let seconds = u32::try_from(ns / 1_000_000_000).unwrap_or(0);
        let [slots, reads] = [slots, reads].map(|number| number.try_into().unwrap_or(u32::MAX));
        Self {
            seconds,
            slots,
            reads,
        }
    }
}

impl AreaLine {
    /// Offset of the committing word.
    pub const WORD: u64 = 0;
    /// Offset of the root's inode slot.
    pub const ROOT: u64 = 8;
    /// Offset of the two generations.
    pub const LIVES: u64 = 16;
    /// Offset of the hash table's root.
    pub const TABLE: u64 = 24;
    /// Offset of the counts that a close saves.
    pub const SAVED: u64 = 32;
    /// Offset of their check.
    pub const SAVED_CHECK: u64 = 40;
    /// Offset of the first word of [`Formed`].
    pub const FORMED: u64 = 48;
    /// Offset of the word with the last field of [`Formed`] in its low half and the checksum in its
    /// high half.
    pub const CHECK: u64 = 56;

    /// A sound line of an area without a table. Its root is the directory at inode slot `root`, of
    /// `root_generation`.
    pub fn new(area: AreaLife, phase: AreaPhase, root: u64, root_generation: u32) -> Self {
        let mut line = Self {
            word: AreaWord::new(area.number, phase).0,
            root,
            generation: area.generation,
            root_generation,
            ..Self::default()
        };
        line.checksum = line.expected_checksum(area.number);
        line
    }

    /// The line with the table and the counts that a close saves in `epoch` of the state word.
    pub fn saving(mut self, number: u32, epoch: u32, table: TableRoot, counts: AreaCounts) -> Self {
        self.table = table.0;
        self.saved = counts.word();
        self.saved_check = saved_check(number, epoch, self.table, self.saved);
        self
    }

    /// The table and the counts, if the close in `epoch` saved them.
    pub fn saved(&self, number: u32, epoch: u32) -> Option<(TableRoot, AreaCounts)> {
        let check = saved_check(number, epoch, self.table, self.saved);
        let saved = (TableRoot(self.table), AreaCounts::from_word(self.saved));
        (self.saved_check == check).then_some(saved)
    }

    /// The phase, if the line is sound for area `number`. Of a free line only the word is checked.
    pub fn phase(&self, number: u32) -> Option<AreaPhase> {
        let phase = AreaWord(self.word).phase(number)?;
        let is_sound = phase == AreaPhase::Free
            || self.root != 0 && self.checksum == self.expected_checksum(number);
        is_sound.then_some(phase)
    }

    /// The area in its present life.
    pub fn life(&self, number: u32) -> AreaLife {
        AreaLife {
            number,
            generation: self.generation,
        }
    }

    fn expected_checksum(&self, number: u32) -> u32 {
        let lives = u64::from(self.generation) | u64::from(self.root_generation) << 32;
        checksum_words(&[number.into(), self.root, lives])
    }
}

/// Never 0, so zeros never pass for saved counts.
fn saved_check(number: u32, epoch: u32, table: u64, saved: u64) -> u64 {
    let sum = checksum_words(&[number.into(), epoch.into(), table, saved]);
    u64::from(sum) | 1 << 32
}

/// The counts that a close saves of an area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AreaCounts {
    /// Names in the area.
    pub names: u32,
    /// Directories of the area, except its root, that deny search permission to somebody.
    pub restricting: u32,
}

impl AreaCounts {
    fn word(self) -> u64 {
        u64::from(self.names) | u64::from(self.restricting) << 32
    }

    fn from_word(word: u64) -> Self {
        Self {
            names: word as u32,
            restricting: (word >> 32) as u32,
        }
    }
}

/// The head of an extent of entries.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct AreaExtentHead {
    /// Derived: number of the area that the extent is reserved for; 0: shared.
    pub area: u32,
    /// Generation of that area.
    pub generation: u32,
    /// CRC-32C of three words: the extent's metadata slot, `area`, `generation`; 0 if the extent is
    /// shared.
    pub checksum: u32,
    /// Reserved, zero.
    pub reserved: [u32; 13],
}

const _: () = assert!(size_of::<AreaExtentHead>() as u64 == AreaExtentHead::STATES);

impl AreaExtentHead {
    /// Offset of the state-map in the extent.
    pub const STATES: u64 = 64;

    /// The head of an extent at metadata slot `at` that is reserved for an area.
    pub fn new(at: u64, area: AreaLife) -> Self {
        Self {
            area: area.number,
            generation: area.generation,
            checksum: checksum_words(&[at, area.number.into(), area.generation.into()]),
            ..Self::default()
        }
    }

    /// The area that the extent at metadata slot `at` is reserved for; `None` if it is shared or
    /// unsound.
    pub fn owner(&self, at: u64) -> Option<AreaLife> {
        let area = AreaLife {
            number: self.area,
            generation: self.generation,
        };
        (area.number != 0 && *self == Self::new(at, area)).then_some(area)
    }
}

/// The state of a slot in the state-map. The state of an entry stands at its first slot; all other
/// slots are [`EntryState::None`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EntryState {
    /// No entry begins here.
    None = 0,
    /// An entry: of a small directory that was not renamed recently, or of anything else.
    Cold = 1,
    /// An entry of a small directory that was renamed recently, or of a large one.
    Warm = 2,
    /// An entry of a large directory that was renamed recently.
    Hot = 3,
}

impl EntryState {
    /// The state with this number.
    pub fn from_u8(number: u8) -> Option<Self> {
        [Self::None, Self::Cold, Self::Warm, Self::Hot]
            .into_iter()
            .find(|state| *state as u8 == number)
    }
}

/// A word of a state-map: bits 2 *i* and 2 *i* + 1 are the state of slot *i* of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateMapWord(pub u64);

impl StateMapWord {
    /// The state of a slot, by its number in the group or in the pool.
    pub fn get(self, slot: u64) -> EntryState {
        match self.0 >> Self::shift(slot) & 3 {
            0 => EntryState::None,
            1 => EntryState::Cold,
            2 => EntryState::Warm,
            _ => EntryState::Hot,
        }
    }

    /// The word with another state for a slot.
    pub fn with(self, slot: u64, state: EntryState) -> Self {
        Self(self.0 & !Self::mask(slot) | (state as u64) << Self::shift(slot))
    }

    /// The bits of a slot.
    pub const fn mask(slot: u64) -> u64 {
        3 << Self::shift(slot)
    }

    /// The slots of the group at which an entry begins, ascending.
    pub fn entries(self) -> impl Iterator<Item = u64> {
        (0..SLOTS_PER_BLOCK).filter(move |&slot| self.get(slot) != EntryState::None)
    }

    const fn shift(slot: u64) -> u64 {
        slot % SLOTS_PER_BLOCK * 2
    }
}

/// The location of a directory's names, as stored in its inode: the slot of its own entry (bits
/// 0..32; 0 for the dataset's root) and the number of the area whose root it is (32..56; 0: none).
/// It is a hint that every reader verifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirLocation(pub u64);

impl DirLocation {
    /// Packs the word.
    pub fn new(entry: u64, area: u32) -> Self {
        Self(entry & 0xFFFF_FFFF | u64::from(area % AREA_LIMIT) << 32)
    }

    /// Metadata slot of the directory's own entry.
    pub fn entry(self) -> u64 {
        self.0 & 0xFFFF_FFFF
    }

    /// The area whose root the directory is.
    pub fn area(self) -> u32 {
        (self.0 >> 32) as u32 % AREA_LIMIT
    }

    /// Whether all reserved bits are zero.
    pub fn is_sound(self) -> bool {
        self.0 >> 56 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: AreaLife = AreaLife {
        number: 65,
        generation: 3,
    };

    fn plan(bytes: u32) -> AreaPlan {
        AreaPlan {
            bytes,
            ..AreaPlan::usual(2 << 20)
        }
    }

    #[test]
    fn extents_have_room_behind_their_maps() {
        for (bytes, first, words) in [(4096, 1, 1), (1 << 16, 2, 16), (2 << 20, 33, 512)] {
            let plan = plan(bytes);
            assert_eq!((plan.first(), plan.words()), (first, words), "{bytes}");
            assert!(plan.first() * SLOT_BYTES >= AreaExtentHead::STATES + plan.words() * 8);
            let last = plan.slots() * 5 - 1;
            let end = plan.states_at(last) + 8;
            assert_eq!(end % u64::from(bytes), 64 + words * 8, "{bytes}");
            assert!(plan.has_room(last, 1) && !plan.has_room(last, 2));
            assert!(!plan.has_room(plan.slots() + first - 1, 1));
            assert!(plan.has_room(plan.slots() + first, 9));
        }
        assert_eq!(plan(4096).slots() - 1, 31);
        assert_eq!(plan(2 << 20).slots() - 33, 16351);
    }

    #[test]
    fn plans_that_no_pool_can_have_are_refused() {
        let usual = AreaPlan::usual(1 << 16);
        let sound = |plan: AreaPlan| plan.is_sound(4096, 1 << 16);
        assert_eq!(
            (usual.table, usual.bytes, usual.size_max),
            (512, 1 << 16, 128)
        );
        assert!(sound(usual));
        let changes: [fn(&mut AreaPlan); 9] = [
            |plan| plan.table = 0,
            |plan| plan.table = 33,
            |plan| plan.table = 4096,
            |plan| plan.bytes = 0,
            |plan| plan.bytes = 2048,
            |plan| plan.bytes = 12288,
            |plan| plan.bytes = 1 << 17,
            |plan| plan.size_max = 0,
            |plan| plan.size_max = 513,
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut changed = usual;
            change(&mut changed);
            assert!(!sound(changed), "change {i}");
        }
        assert!(!sound(AreaPlan::default()));
    }

    #[test]
    fn a_table_block_is_sound_at_its_own_place_only() {
        let mut head = AreaTableHead::new(64, 2);
        (head.next, head.taken) = (96, 7);
        assert!(head.is_sound(64, 2));
        assert!(!head.is_sound(96, 2) && !head.is_sound(64, 3));
        head.next = 97;
        assert!(!head.is_sound(64, 2));
        assert!(
            !AreaTableHead::default().is_sound(64, 0),
            "zeros are no head"
        );
    }

    #[test]
    fn a_word_is_sound_only_for_its_area() {
        for phase in [AreaPhase::Forming, AreaPhase::Live, AreaPhase::Going] {
            let word = AreaWord::new(65, phase);
            assert_eq!((word.phase(65), word.phase(66)), (Some(phase), None));
            for bit in 0..64 {
                assert_eq!(AreaWord(word.0 ^ 1 << bit).phase(65), None, "bit {bit}");
            }
        }
        assert_eq!(AreaWord::new(65, AreaPhase::Free), AreaWord::FREE);
        assert_eq!(AreaWord::FREE.phase(9), Some(AreaPhase::Free));
        assert_eq!(AreaWord(1 << 20).phase(9), None);
    }

    #[test]
    fn a_line_is_sound_only_for_its_area_and_lives() {
        let line = AreaLine::new(AREA, AreaPhase::Live, 1 << 20, 7);
        assert_eq!(line.phase(65), Some(AreaPhase::Live));
        assert_eq!(line.phase(66), None);
        assert_eq!(line.life(65), AREA);
        let changes: [fn(&mut AreaLine); 4] = [
            |line| line.root += 1,
            |line| line.generation += 1,
            |line| line.root_generation += 1,
            |line| line.checksum ^= 1,
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut changed = line;
            change(&mut changed);
            assert_eq!(changed.phase(65), None, "change {i}");
            changed.word = 0;
            assert_eq!(changed.phase(65), Some(AreaPhase::Free), "change {i}");
        }
        let nowhere = AreaLine::new(AREA, AreaPhase::Live, 0, 7);
        assert_eq!(nowhere.phase(65), None);
    }

    #[test]
    fn what_a_close_saved_is_of_its_epoch_only() {
        let counts = AreaCounts {
            names: 5,
            restricting: 2,
        };
        let bare = AreaLine::new(AREA, AreaPhase::Live, 1, 0);
        let line = bare.saving(65, 9, TableRoot::new(64, 2), counts);
        assert_eq!(line.saved(65, 9), Some((TableRoot::new(64, 2), counts)));
        assert_eq!((line.saved(65, 10), line.saved(66, 9)), (None, None));
        assert_eq!(AreaLine { table: 0, ..line }.saved(65, 9), None);
        assert_eq!(AreaLine { saved: 6, ..line }.saved(65, 9), None);
        assert_eq!(
            (line.phase(65), bare.saved(65, 0)),
            (Some(AreaPhase::Live), None)
        );
    }

    #[test]
    fn an_extent_is_its_owners_at_its_place() {
        let head = AreaExtentHead::new(512, AREA);
        assert_eq!(head.owner(512), Some(AREA));
        assert_eq!(head.owner(1024), None);
        assert_eq!(
            AreaExtentHead {
                generation: 4,
                ..head
            }
            .owner(512),
            None
        );
        assert_eq!(
            AreaExtentHead {
                reserved: [1; 13],
                ..head
            }
            .owner(512),
            None
        );
        assert_eq!(AreaExtentHead::default().owner(512), None);
        let nobody = AreaLife { number: 0, ..AREA };
        assert_eq!(AreaExtentHead::new(512, nobody).owner(512), None);
    }

    #[test]
    fn states_are_two_bits_a_slot() {
        let word = StateMapWord::default()
            .with(3, EntryState::Hot)
            .with(3, EntryState::Cold)
            .with(31 + 64, EntryState::Warm);
        assert_eq!(word.0, 1 << 6 | 2 << 62);
        assert_eq!(word.entries().collect::<Vec<_>>(), [3, 31]);
        assert_eq!(
            (word.get(31), word.get(4)),
            (EntryState::Warm, EntryState::None)
        );
        assert_eq!(word.with(31, EntryState::None).0, 1 << 6);
        assert_eq!(StateMapWord::mask(33), 0b1100);
    }

    #[test]
    fn places_give_back_what_was_packed() {
        let place = DirLocation::new(u64::from(u32::MAX), AREA_LIMIT - 1);
        assert_eq!(
            (place.entry(), place.area()),
            (u64::from(u32::MAX), AREA_LIMIT - 1)
        );
        assert!(place.is_sound() && !DirLocation(1 << 56).is_sound());
    }
}
