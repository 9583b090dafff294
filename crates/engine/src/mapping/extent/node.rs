//! Nodes as arrays of words: finding an entry, and the contents of rewritten nodes.

use vellum_layout::{
    BLOCK_BYTES, EXTENT_ENTRIES, EXTENT_MAX_BLOCKS, ExtentBody, ExtentKey, ExtentKind,
    ExtentNodeHead, ExtentSeal, MapState,
};
use vellum_media::LINE_BYTES;
use zerocopy::IntoBytes;

/// Adjoining logical blocks of a file on adjoining data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) logical: u32,
    pub(super) len: u32,
    pub(super) block: u32,
    /// UNWRITTEN or MAPPED.
    pub(super) state: MapState,
}

impl Extent {
    /// The extent of a leaf's entry. `None` if the entry holds no extent.
    pub(super) fn of(key: ExtentKey, body: ExtentBody) -> Option<Self> {
        Some(Self {
            logical: key.logical(),
            len: key.len(),
            block: body.place().wrapping_add(key.logical()),
            state: body.kind()?.state()?,
        })
    }

    pub(super) fn first(&self) -> u64 {
        self.logical.into()
    }

    pub(super) fn end(&self) -> u64 {
        self.first() + u64::from(self.len)
    }

    /// The place that the entry's body records: the difference of block and logical block.
    pub(super) fn place(&self) -> u32 {
        self.block.wrapping_sub(self.logical)
    }

    /// The part of the extent in `[first, end)`.
    pub(super) fn part(&self, first: u64, end: u64) -> Option<Self> {
        let (from, to) = (first.max(self.first()), end.min(self.end()));
        (from < to).then(|| Self {
            logical: from as u32,
            len: (to - from) as u32,
            block: self.block + (from - self.first()) as u32,
            state: self.state,
        })
    }

    /// Whether `next` continues this extent, in the file and on the medium.
    pub(super) fn adjoins(&self, next: &Self) -> bool {
        self.end() == next.first() && self.place() == next.place()
    }

    /// This extent and `next` as one, if they can be joined.
    pub(super) fn joined(&self, next: &Self) -> Option<Self> {
        let len = self.len.checked_add(next.len)?;
        let one = self.adjoins(next) && self.state == next.state && len <= EXTENT_MAX_BLOCKS;
        one.then_some(Self { len, ..*self })
    }

    pub(super) fn key(&self, seal: ExtentSeal) -> ExtentKey {
        ExtentKey::new(seal, self.logical, self.len, true)
    }

    pub(super) fn body(&self, seal: ExtentSeal) -> ExtentBody {
        ExtentBody::new(seal, self.place(), ExtentKind::of_state(self.state))
    }
}

/// Offset in a node of the line with entry `index`; a key and its body share it.
pub(super) fn line_of(index: usize) -> u64 {
    key_at(index) / LINE_BYTES * LINE_BYTES
}

/// Offset in a node of the key of entry `index`.
pub(super) fn key_at(index: usize) -> u64 {
    ExtentNodeHead::ENTRIES_AT + index as u64 * ExtentKey::ENTRY_BYTES + ExtentKey::AT
}

/// Offset in a node of the body of entry `index`.
pub(super) fn body_at(index: usize) -> u64 {
    ExtentNodeHead::ENTRIES_AT + index as u64 * ExtentKey::ENTRY_BYTES + ExtentBody::AT
}

/// The last used entry, valid or not, whose key is not above `logical`. `load` returns a word of
/// the node by its offset.
pub(super) fn floor(load: impl Fn(u64) -> u64, logical: u64) -> Option<usize> {
    let is_below = |index| {
        let key = ExtentKey(load(key_at(index)));
        key.is_used() && u64::from(key.logical()) <= logical
    };
    let (mut below, mut above) = (0, EXTENT_ENTRIES);
    while below < above {
        let middle = usize::midpoint(below, above);
        if is_below(middle) {
            below = middle + 1;
        } else {
            above = middle;
        }
    }
    below.checked_sub(1)
}

/// An entry of a node to be written.
pub(super) type Entry = (ExtentKey, ExtentBody);

/// The bytes of a node.
pub(super) fn encode(head: &ExtentNodeHead, entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK_BYTES as usize);
    bytes.extend_from_slice(head.as_bytes());
    for (key, body) in entries {
        bytes.extend_from_slice([key.0, body.0].as_bytes());
    }
    bytes.resize(BLOCK_BYTES as usize, 0);
    bytes
}

/// Removes `[first, end)` from extents in order.
pub(super) fn cut(list: &mut Vec<Extent>, first: u64, end: u64) {
    *list = list
        .iter()
        .flat_map(|extent| [extent.part(0, first), extent.part(end, u64::MAX)])
        .flatten()
        .collect();
}

/// Inserts an extent into a hole of extents in order.
pub(super) fn add(list: &mut Vec<Extent>, new: Extent) {
    let at = list.partition_point(|extent| extent.logical < new.logical);
    list.insert(at, new);
}

/// Changes the state of the blocks of `[first, end)` in extents in order.
pub(super) fn set_state(list: &mut Vec<Extent>, first: u64, end: u64, state: MapState) {
    let inside: Vec<Extent> = list
        .iter()
        .filter_map(|extent| extent.part(first, end))
        .collect();
    cut(list, first, end);
    for extent in inside {
        add(list, Extent { state, ..extent });
    }
}

/// Joins adjoining MAPPED extents. UNWRITTEN ones stay separate, so that those that a write has
/// just claimed become MAPPED by one store each.
pub(super) fn join(list: &mut Vec<Extent>) {
    list.dedup_by(|next, before| {
        let joined = before
            .joined(next)
            .filter(|one| one.state == MapState::Mapped);
        if let Some(one) = joined {
            *before = one;
        }
        joined.is_some()
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(logical: u32, len: u32, block: u32, state: MapState) -> Extent {
        Extent {
            logical,
            len,
            block,
            state,
        }
    }

    fn word(node: &[u8], at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(node[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn the_floor_is_found_among_valid_and_invalid_entries() {
        let seal = ExtentSeal::new(1);
        let entries: Vec<Entry> = (0..100)
            .map(|i| {
                let one = extent(10 + i * 10, 5, 900 + i, MapState::Mapped);
                let key = ExtentKey::new(seal, one.logical, one.len, i % 3 > 0);
                (key, one.body(seal))
            })
            .collect();
        for count in [0, 1, 2, 99, 100] {
            let node = encode(&ExtentNodeHead::new(1, 1, 0, 0, 1), &entries[..count]);
            assert_eq!(node.len(), 4096);
            for logical in 0..1100 {
                let expected = entries[..count]
                    .iter()
                    .rposition(|(key, _)| u64::from(key.logical()) <= logical);
                assert_eq!(floor(|at| word(&node, at), logical), expected);
            }
        }
    }

    #[test]
    fn a_full_node_has_a_floor_everywhere() {
        let seal = ExtentSeal::new(1);
        let entries: Vec<Entry> = (0..EXTENT_ENTRIES as u32)
            .map(|i| extent(2 * i, 1, i, MapState::Mapped))
            .map(|extent| (extent.key(seal), extent.body(seal)))
            .collect();
        let node = encode(&ExtentNodeHead::new(1, 1, 0, 0, 1), &entries);
        for logical in 0..2 * EXTENT_ENTRIES as u64 {
            let found = floor(|at| word(&node, at), logical);
            assert_eq!(found, Some((logical / 2) as usize));
        }
        let last = floor(|at| word(&node, at), u64::from(u32::MAX));
        assert_eq!(last, Some(EXTENT_ENTRIES - 1));
    }

    #[test]
    fn an_extent_that_begins_later_has_the_same_body() {
        let seal = ExtentSeal::new(9);
        let whole = extent(u32::MAX - 20, 10, 3, MapState::Mapped);
        let part = whole.part(whole.first() + 4, u64::MAX).unwrap();
        assert_eq!((part.len, part.block), (6, 7));
        assert_eq!(part.body(seal), whole.body(seal));
        assert_eq!(Extent::of(part.key(seal), part.body(seal)), Some(part));
    }

    fn expand(list: &[Extent]) -> Vec<Option<(u32, MapState)>> {
        let mut blocks = vec![None; 300];
        for extent in list {
            for i in 0..extent.len {
                let at = (extent.logical + i) as usize;
                assert!(blocks[at].is_none(), "two extents overlap");
                blocks[at] = Some((extent.block + i, extent.state));
            }
        }
        blocks
    }

    proptest! {
        /// Cutting, adding, changing states and joining, compared with an array of blocks.
        #[test]
        fn edits_are_those_of_an_array(
            steps in prop::collection::vec((0..3u8, 0u32..250, 1u32..40, any::<bool>()), 1..40)
        ) {
            let mut list = Vec::new();
            let mut model = vec![None; 300];
            for (i, (what, first, len, mapped)) in steps.into_iter().enumerate() {
                let state = if mapped { MapState::Mapped } else { MapState::Unwritten };
                let (from, to) = (u64::from(first), u64::from(first + len));
                let range = first as usize..(first + len) as usize;
                match what {
                    0 => {
                        cut(&mut list, from, to);
                        model[range].fill(None);
                    }
                    1 => {
                        set_state(&mut list, from, to, state);
                        model[range].iter_mut().flatten().for_each(|(_, old)| *old = state);
                    }
                    _ => {
                        cut(&mut list, from, to);
                        // Half of them continue the preceding extent.
                        let block = if i % 2 == 0 { 1000 + first } else { 5000 * i as u32 };
                        add(&mut list, extent(first, len, block, state));
                        for (at, cell) in range.clone().zip(&mut model[range]) {
                            *cell = Some((block + at as u32 - first, state));
                        }
                    }
                }
                join(&mut list);
                prop_assert!(list.is_sorted_by_key(|extent| extent.logical));
                prop_assert_eq!(&expand(&list), &model);
            }
        }
    }
}
