//! The holder of each metadata slot; the texts of symlinks; the extended attributes; the live map
//! saved at clean close.

use std::ops::Range;

use vellum_layout::{
    FileKind, Geometry, IdentityWord, PoolState, SLOTS_PER_BLOCK, Summing, TEXT_MAX, text_check,
    text_home,
};

use crate::header::Chunks;
use crate::image::{View, Window, for_each_word};
use crate::inodes::{Node, Nodes};
use crate::logs::Logs;
use crate::report::{Class, Location, Sink};
use crate::trees::{TreeNode, Trees};
use crate::xattrs::{flags_text, read_set};

/// A structure that holds metadata slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A log extent: its number in [`Logs::extents`].
    Extent(usize),
    /// An entry: its number in [`Logs::names`].
    Name(usize),
    /// The text of a symlink: its number in [`Nodes::list`].
    Text(usize),
    /// A node of a file's tree: its number in [`Trees::nodes`].
    Tree(usize),
    /// A piece of an inode's extended attributes: the inode's number in [`Nodes::list`], and the
    /// first slot of the piece.
    Xattrs(usize, u64),
    /// A block of the area table, with this slot.
    AreaTable(u64),
    /// Another structure of areas, with this first slot: a head and a map, an invalid entry, or a
    /// block of a hash table.
    OfAreas(u64),
}

/// One bit for each metadata slot in use.
pub(crate) struct Slots {
    bits: Vec<u64>,
    /// Slots in use.
    pub(crate) used: u64,
    /// Structures that hold slots of another structure.
    pub(crate) shared: Vec<Holder>,
    /// Symlinks (by number) whose text cannot be read, and why.
    pub(crate) unsound_texts: Vec<(usize, &'static str)>,
    /// Inodes (by number) whose extended attributes are unsound, and why: a slot, and what is wrong
    /// with what lies there.
    pub(crate) unsound_xattrs: Vec<(usize, (u64, &'static str))>,
    /// Inodes (by number) whose flags do not fit their extended attributes, and the flags that do.
    pub(crate) wrong_flags: Vec<(usize, u64)>,
}

impl Slots {
    /// Claims every slot that something holds.
    pub(crate) fn claim(
        view: &View,
        geometry: &Geometry,
        chunks: &Chunks,
        nodes: &Nodes,
        logs: &Logs,
        trees: &Trees,
    ) -> Self {
        let mut slots = Self {
            bits: vec![0; geometry.meta_slots().div_ceil(64) as usize],
            used: 0,
            shared: Vec::new(),
            unsound_texts: Vec::new(),
            unsound_xattrs: Vec::new(),
            wrong_flags: Vec::new(),
        };
        for node in &nodes.list {
            slots.take(node.slot, 1);
        }
        for broken in &nodes.broken {
            slots.take(broken.slot, 1);
        }
        let kept = |directory: u32| nodes.list[directory as usize].kept;
        for (number, extent) in logs.extents.iter().enumerate() {
            if kept(extent.directory) {
                slots.hold(Holder::Extent(number), extent.slot, extent.slots);
            }
        }
        for (number, name) in logs.names.iter().enumerate() {
            if kept(name.directory) {
                slots.hold(Holder::Name(number), name.slot, u64::from(name.slots));
            }
        }
        for &slot in &logs.areas.blocks {
            slots.hold(Holder::AreaTable(slot), slot, SLOTS_PER_BLOCK);
        }
        for &(slot, count) in &logs.areas.held {
            slots.hold(Holder::OfAreas(slot), slot, count);
        }
        slots.claim_texts(view, geometry, chunks, nodes);
        for (number, node) in trees.nodes.iter().enumerate() {
            slots.hold(Holder::Tree(number), node.slot, SLOTS_PER_BLOCK);
        }
        slots.claim_xattrs(view, geometry, chunks, nodes);
        slots
    }

    fn claim_texts(&mut self, view: &View, geometry: &Geometry, chunks: &Chunks, nodes: &Nodes) {
        let mut links: Vec<_> = nodes
            .list
            .iter()
            .enumerate()
            .filter(|(_, node)| node.kept && node.kind == FileKind::Symlink)
            .collect();
        links.sort_unstable_by_key(|(_, node)| node.root);
        let mut window = Window::of_slots(view, geometry);
        for (number, node) in links {
            match read_text(&mut window, geometry, chunks, node) {
                Err(why) => self.unsound_texts.push((number, why)),
                Ok(text) => self.hold(Holder::Text(number), node.root, text_home(text.len()).1),
            }
        }
    }

    /// Claims the sound pieces of extended attributes. They are under a checksum with their inode,
    /// so they come last: what else holds their slots is more likely to be where it belongs.
    fn claim_xattrs(&mut self, view: &View, geometry: &Geometry, chunks: &Chunks, nodes: &Nodes) {
        let has_any =
            |node: &Node| node.xattr_root != 0 || node.identity.0 & IdentityWord::XATTR_FLAGS != 0;
        let numbered = nodes.list.iter().enumerate();
        let mut owners: Vec<_> = numbered
            .filter(|(_, node)| node.kept && has_any(node))
            .collect();
        owners.sort_unstable_by_key(|(number, node)| (node.xattr_root, *number));
        let mut window = Window::of_slots(view, geometry);
        for (number, node) in owners {
            let set = read_set(&mut window, geometry, chunks, node);
            for &(slot, count) in &set.pieces {
                self.hold(Holder::Xattrs(number, slot), slot, count);
            }
            match (set.fault, set.flags()) {
                (Some(fault), _) => self.unsound_xattrs.push((number, fault)),
                (_, Some(flags)) if node.identity.0 & IdentityWord::XATTR_FLAGS != flags => {
                    self.wrong_flags.push((number, flags));
                }
                _ => {}
            }
        }
    }

    /// Reports slots held twice, unreadable texts, and what is wrong with extended attributes.
    pub(crate) fn judge(&self, nodes: &Nodes, logs: &Logs, trees: &Trees, sink: &mut Sink) {
        let owner = |directory: u32| nodes.list[directory as usize].slot;
        for holder in &self.shared {
            let (slot, detail) = match *holder {
                Holder::Extent(number) => {
                    let extent = &logs.extents[number];
                    let owner = owner(extent.directory);
                    let detail = format!("the log extent of inode {owner}, and another");
                    (extent.slot, detail)
                }
                Holder::Name(number) => {
                    let name = &logs.names[number];
                    let owner = owner(name.directory);
                    (name.slot, format!("an entry of inode {owner}, and another"))
                }
                Holder::Text(number) => {
                    let node = &nodes.list[number];
                    let detail = format!("the text of inode {}, and something else", node.slot);
                    (node.root, detail)
                }
                Holder::Xattrs(number, slot) => {
                    let owner = nodes.list[number].slot;
                    let detail = format!("attributes of inode {owner}, and something else");
                    (slot, detail)
                }
                Holder::AreaTable(slot) => (slot, "the area table, and something else".into()),
                Holder::OfAreas(slot) => (slot, "something of areas, and something else".into()),
                Holder::Tree(number) => {
                    let TreeNode { slot, inode, .. } = trees.nodes[number];
                    (slot, format!("a tree node of inode {inode}, and another"))
                }
            };
            sink.damage(Class::SlotShared, Location::Slot(slot), detail);
        }
        for &(number, why) in &self.unsound_texts {
            let node = &nodes.list[number];
            let detail = format_args!("the text at slot {} {why}", node.root);
            sink.damage(Class::TextUnsound, Location::Inode(node.slot), detail);
        }
        self.judge_xattrs(nodes, sink);
    }

    fn judge_xattrs(&self, nodes: &Nodes, sink: &mut Sink) {
        for &(number, (slot, why)) in &self.unsound_xattrs {
            let place = Location::Inode(nodes.list[number].slot);
            let detail = format_args!("what lies at slot {slot} {why}");
            sink.damage(Class::XattrUnsound, place, detail);
        }
        for &(number, flags) in &self.wrong_flags {
            let node = &nodes.list[number];
            let (told, right) = (flags_text(node.identity.0), flags_text(flags));
            let detail = format_args!("{told}, but by its attributes: {right}");
            sink.damage(Class::XattrFlags, Location::Inode(node.slot), detail);
        }
    }

    /// Whether `slot` is in use.
    pub(crate) fn is_used(&self, slot: u64) -> bool {
        let word = self.bits.get((slot / 64) as usize);
        word.is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    fn hold(&mut self, holder: Holder, slot: u64, count: u64) {
        if !self.take(slot, count) {
            self.shared.push(holder);
        }
    }

    /// Claims `count` slots from `slot` on; returns whether all of them were free.
    fn take(&mut self, slot: u64, count: u64) -> bool {
        let mut free = true;
        for slot in slot..slot.saturating_add(count) {
            let Some(word) = self.bits.get_mut((slot / 64) as usize) else {
                return free;
            };
            let bit = 1 << (slot % 64);
            free &= *word & bit == 0;
            self.used += u64::from(*word & bit == 0);
            *word |= bit;
        }
        free
    }

    /// Compares the live map that a clean close saved with what is in use.
    pub(crate) fn judge_live_map(
        &self,
        view: &View,
        geometry: &Geometry,
        live: &[Range<u64>],
        sink: &mut Sink,
    ) {
        let mut leaked = Runs::default();
        let mut lost = Runs::default();
        for words in live {
            let first = words.start;
            let at = geometry.live_map_at + first * 8;
            for_each_word(view, at, words.end - first, |index, word| {
                let index = first + index;
                // Slot 0 is never used and may be marked either way.
                let ours = self.bits[index as usize] & !u64::from(index == 0);
                let saved = word & !u64::from(index == 0);
                let mut differ = ours ^ saved;
                while differ != 0 {
                    let bit = differ.trailing_zeros();
                    differ &= differ - 1;
                    let runs = if saved >> bit & 1 == 1 {
                        &mut leaked
                    } else {
                        &mut lost
                    };
                    runs.add(index * 64 + u64::from(bit));
                }
            });
        }
        for (runs, what) in [
            (leaked, "marked in use, but unused"),
            (lost, "in use, but marked free"),
        ] {
            for (first, last) in runs.0 {
                let detail = format_args!("slots {first} to {last} are {what}");
                sink.damage(Class::LiveMap, Location::LiveMap, detail);
            }
        }
    }
}

/// Most runs of slots that are kept.
const RUNS_MAX: usize = 1000;

#[derive(Default)]
struct Runs(Vec<(u64, u64)>);

impl Runs {
    fn add(&mut self, slot: u64) {
        if let Some((_, last)) = self.0.last_mut().filter(|run| run.1 + 1 == slot) {
            *last = slot;
        } else if self.0.len() < RUNS_MAX {
            self.0.push((slot, slot));
        }
    }
}

/// The text of a symlink.
pub(crate) fn read_text(
    window: &mut Window,
    geometry: &Geometry,
    chunks: &Chunks,
    link: &Node,
) -> Result<Vec<u8>, &'static str> {
    let len = usize::try_from(link.size)
        .ok()
        .filter(|len| (1..=TEXT_MAX).contains(len))
        .ok_or("has an impossible length")?;
    let (home, slots) = text_home(len);
    if link.root == 0 || !chunks.holds(link.root, slots, home) || !link.root.is_multiple_of(slots) {
        return Err("lies where no text can be");
    }
    let text = window
        .get(geometry.slot_at(link.root), len)
        .ok_or("lies where no text can be")?;
    if link.detail != text_check(link.slot, link.identity.generation(), text) {
        return Err("does not fit its checksum");
    }
    if text.contains(&0) {
        return Err("has a zero byte in it");
    }
    Ok(text.to_vec())
}

/// The second line of the state block, valid when clean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Saved {
    pub(crate) live_map_check: u64,
    pub(crate) inodes: u64,
    pub(crate) blocks: u64,
    check: u64,
}

impl Saved {
    pub(crate) fn read(view: &View, geometry: &Geometry) -> Self {
        let word = |offset| view.word(geometry.state_at + offset);
        Self {
            live_map_check: word(PoolState::LIVE_MAP_CHECK),
            inodes: word(PoolState::INODES),
            blocks: word(PoolState::BLOCKS),
            check: word(PoolState::SAVED_CHECK),
        }
    }

    /// Whether the line fits its checksum, which covers the epoch and the three words before, in
    /// order of address.
    pub(crate) fn is_sound(&self, epoch: u32) -> bool {
        let words = [epoch.into(), self.live_map_check, self.inodes, self.blocks];
        self.check == u64::from(vellum_layout::checksum_words(&words))
    }
}

/// CRC-32C of the words of the live map that were saved.
pub(crate) fn live_map_checksum(view: &View, geometry: &Geometry, live: &[Range<u64>]) -> u64 {
    let mut sum = Summing::default();
    for words in live {
        let mut map = vec![0; ((words.end - words.start) * 8) as usize];
        view.read(geometry.live_map_at + words.start * 8, &mut map);
        sum.add(&map);
    }
    u64::from(sum.finish())
}
