//! A repair that is being planned: words overlaid on an image that is never written, and the
//! reasons.

use std::cell::{Cell, Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io;

use vellum_check::survey::Survey;
use vellum_check::{Class, Image};
use vellum_layout::{
    BLOCK_BYTES, Geometry, IdentityWord, Inode, InodeState, SLOT_BYTES, Superblock, TablePlan,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::plan::Action;
use crate::room::{Tail, Taken};

/// An image overlaid by words, with zeros in place of lost blocks.
pub(crate) struct Overlay<'a> {
    image: &'a dyn Image,
    /// Unreadable blocks, by offset.
    lost: &'a BTreeSet<u64>,
    words: RefCell<BTreeMap<u64, u64>>,
    /// Counts changes.
    version: Cell<u64>,
}

impl<'a> Overlay<'a> {
    pub(crate) fn new(image: &'a dyn Image, lost: &'a BTreeSet<u64>) -> Self {
        Self {
            image,
            lost,
            words: RefCell::default(),
            version: Cell::new(0),
        }
    }

    /// Unreadable blocks, by offset.
    pub(crate) fn lost(&self) -> &'a BTreeSet<u64> {
        self.lost
    }

    /// The same image without the overlay.
    pub(crate) fn without_words(&self) -> Overlay<'a> {
        Self::new(self.image, self.lost)
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.get()
    }

    /// The word at pool offset `at`; zero if it is unreadable.
    pub(crate) fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }

    pub(crate) fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut out = [0; N];
        if self.read(at, &mut out).is_err() {
            out.fill(0);
        }
        out
    }

    /// The image's own word at `at`.
    fn original(&self, at: u64) -> u64 {
        let mut out = [0; 8];
        match self.read_below(at, &mut out) {
            Ok(()) => u64::from_le_bytes(out),
            Err(_) => 0,
        }
    }

    /// Reads from beneath the overlay.
    fn read_below(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let (first, end) = (
            at / BLOCK_BYTES * BLOCK_BYTES,
            at.saturating_add(out.len() as u64),
        );
        if self.lost.range(first..end.max(first)).next().is_none() {
            return self.image.read(at, out);
        }
        let mut done = 0;
        while done < out.len() {
            let from = at + done as u64;
            let block = from / BLOCK_BYTES * BLOCK_BYTES;
            let part = (block + BLOCK_BYTES - from).min((out.len() - done) as u64) as usize;
            let to = &mut out[done..done + part];
            if self.lost.contains(&block) {
                to.fill(0);
            } else {
                self.image.read(from, to)?;
            }
            done += part;
        }
        Ok(())
    }

    pub(crate) fn set(&self, at: u64, value: u64) {
        if self.word(at) == value {
            return;
        }
        self.version.set(self.version.get() + 1);
        if self.original(at) == value {
            self.words.borrow_mut().remove(&at);
        } else {
            self.words.borrow_mut().insert(at, value);
        }
    }

    /// Overlays `bytes` (whole words) from `at` on.
    pub(crate) fn set_bytes(&self, at: u64, bytes: &[u8]) {
        for (word, at) in bytes.as_chunks::<8>().0.iter().zip((at..).step_by(8)) {
            self.set(at, u64::from_le_bytes(*word));
        }
    }

    /// The words that differ from the image.
    pub(crate) fn words(&self) -> Ref<'_, BTreeMap<u64, u64>> {
        self.words.borrow()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.borrow().is_empty()
    }

    /// Whether a word that differs from the image lies at an offset for which `fits` is true.
    pub(crate) fn touches(&self, fits: impl Fn(u64) -> bool) -> bool {
        self.words.borrow().keys().any(|&at| fits(at))
    }
}

impl Image for Overlay<'_> {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn own_len(&self) -> u64 {
        self.image.own_len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_below(at, out)?;
        let end = at.saturating_add(out.len() as u64);
        for (&place, value) in self.words.borrow().range(at.saturating_sub(7)..end) {
            for (i, &byte) in value.to_le_bytes().iter().enumerate() {
                let to = (place + i as u64).checked_sub(at);
                if let Some(to) = to.and_then(|to| out.get_mut(to as usize)) {
                    *to = byte;
                }
            }
        }
        Ok(())
    }
}

/// One bit for each metadata slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotSet(Vec<u64>);

impl SlotSet {
    pub(crate) fn new(slots: u64) -> Self {
        Self(vec![0; slots.div_ceil(64) as usize])
    }

    pub(crate) fn has(&self, slot: u64) -> bool {
        let word = self.0.get((slot / 64) as usize);
        word.is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    pub(crate) fn add(&mut self, slot: u64) {
        if let Some(word) = self.0.get_mut((slot / 64) as usize) {
            *word |= 1 << (slot % 64);
        }
    }
}

/// A repair that is being planned.
pub(crate) struct Draft<'a> {
    pub(crate) overlay: &'a Overlay<'a>,
    pub(crate) superblock: &'a Superblock,
    pub(crate) geometry: Geometry,
    /// Time of the created entries.
    pub(crate) now_ns: i64,
    /// Whether damage may hide names, so that an inode without a name may belong to a file.
    pub(crate) hidden: bool,
    /// Whether whole inodes may be lost, too.
    pub(crate) lossy: bool,
    declined: &'a BTreeSet<Class>,
    pub(crate) actions: Vec<Action>,
    /// Slots that the image or any state of the draft uses. New structures avoid them, so that no
    /// reachable structure is overwritten while a repair is written.
    pub(crate) reserved: SlotSet,
    /// Slots of the valid entries of files that the logs of the image named; ascending.
    pub(crate) named: Vec<u64>,
    /// Whether lost+found is full.
    pub(crate) full: bool,
    /// Whether slots for a new structure were missing.
    pub(crate) lacked_room: bool,
    /// The ends of logs, in this round.
    pub(crate) tails: HashMap<u64, Tail>,
    /// Paths of directories that got a name in this round, by inode.
    pub(crate) paths: HashMap<u64, Vec<u8>>,
    /// Directories (inodes) and cookies of the existing names, if the round asked for them.
    pub(crate) cookies: HashSet<(u64, u64)>,
    pub(crate) taken: Taken,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(
        overlay: &'a Overlay<'a>,
        superblock: &'a Superblock,
        declined: &'a BTreeSet<Class>,
        now_ns: i64,
    ) -> Self {
        let geometry = superblock.geometry();
        Self {
            overlay,
            superblock,
            geometry,
            now_ns,
            hidden: false,
            lossy: false,
            declined,
            actions: Vec::new(),
            reserved: SlotSet::new(geometry.meta_slots()),
            named: Vec::new(),
            full: false,
            lacked_room: false,
            tails: HashMap::new(),
            paths: HashMap::new(),
            cookies: HashSet::new(),
            taken: Taken::default(),
        }
    }

    /// Where the words of the table of blocks lie.
    pub(crate) fn table_plan(&self) -> TablePlan {
        TablePlan::of(&self.geometry, |at| self.word(at))
    }

    /// Begins a round with the findings of `survey`.
    pub(crate) fn begin_round(&mut self, survey: &Survey) {
        self.tails.clear();
        self.paths.clear();
        self.cookies.clear();
        self.taken = Taken::default();
        let chunks = self.geometry.chunks();
        let slots = chunks.flat_map(|chunk| self.geometry.slots_of_chunk(chunk));
        for slot in slots.filter(|&slot| survey.is_used(slot)) {
            self.reserved.add(slot);
        }
    }

    /// Whether damage of `class` may be mended.
    pub(crate) fn wants(&self, class: Class) -> bool {
        !self.declined.contains(&class)
    }

    /// Records what is done about damage of `class`; `false` if it must not be mended.
    #[must_use]
    pub(crate) fn mend(
        &mut self,
        class: Class,
        place: impl fmt::Display,
        what: impl fmt::Display,
    ) -> bool {
        self.note(class, &place, &what, false)
    }

    /// As [`Self::mend`], for something unreadable that is lost.
    #[must_use]
    pub(crate) fn give_up(
        &mut self,
        class: Class,
        place: impl fmt::Display,
        what: impl fmt::Display,
    ) -> bool {
        self.note(class, &place, &what, true)
    }

    fn note(
        &mut self,
        class: Class,
        place: &dyn fmt::Display,
        what: &dyn fmt::Display,
        loses: bool,
    ) -> bool {
        let wanted = self.wants(class);
        if wanted {
            self.actions.push(Action {
                class,
                place: place.to_string(),
                what: what.to_string(),
                loses,
            });
        }
        wanted
    }

    pub(crate) fn word(&self, at: u64) -> u64 {
        self.overlay.word(at)
    }

    pub(crate) fn set(&self, at: u64, value: u64) {
        self.overlay.set(at, value);
    }

    /// Pool offset of a field of an inode.
    pub(crate) fn field(&self, ino: u64, field: u64) -> u64 {
        self.geometry.slot_at(ino) + field
    }

    pub(crate) fn inode(&self, ino: u64) -> Inode {
        let bytes: [u8; SLOT_BYTES as usize] = self.overlay.bytes(self.geometry.slot_at(ino));
        Inode::read_from_bytes(&bytes).unwrap_or_default()
    }

    /// Overlays an inode, with a correct checksum.
    pub(crate) fn put_inode(&self, ino: u64, mut inode: Inode) {
        inode.checksum = inode.expected_checksum(ino);
        let at = self.geometry.slot_at(ino);
        self.overlay.set_bytes(at, inode.as_bytes());
    }

    /// Frees an inode; it keeps its generation.
    pub(crate) fn free_inode(&self, ino: u64) {
        let at = self.field(ino, Inode::IDENTITY);
        let freed = IdentityWord(self.word(at)).with_state(InodeState::Free);
        self.set(at, freed.0);
    }
}
