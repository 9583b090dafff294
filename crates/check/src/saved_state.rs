//! Compares the allocator state that a clean close saved with the mapping table.

use std::collections::HashMap;
use std::ops::Range;

use vellum_layout::{
    ChainLink, Geometry, Homes, LINE_ENTRIES, MapState, MapWord, SavedStateHead, SavedStatePlan,
    Summing,
};
use zerocopy::FromBytes;

use crate::image::{View, for_each_word};
use crate::report::{Class, Location, Sink};
use crate::trees::Trees;

/// The allocator state according to the mapping.
struct Table {
    /// Blocks that are UNWRITTEN or MAPPED.
    used: u64,
    /// One bit per block: FREE.
    free: Vec<u64>,
    /// One bit per block: LIMBO.
    limbo: Vec<u64>,
    /// Blocks outside their home line, by home line.
    counts: Vec<u64>,
    /// The chain of each block outside its home line.
    chains: HashMap<u64, u64>,
}

impl Table {
    /// The allocator state according to the trees.
    fn of_trees(geometry: &Geometry, trees: &Trees, in_data: &[Range<u64>]) -> Self {
        let blocks = geometry.segment_blocks;
        let mut free: Vec<_> = (0..blocks.div_ceil(64))
            .map(|index| u64::MAX >> (64 - (blocks - index * 64).min(64)))
            .collect();
        let metadata = in_data.iter().cloned().flatten();
        let of_files = trees.blocks.iter().map(|tree| tree.block);
        let mut used = 0;
        for block in of_files.chain(metadata) {
            used += 1;
            free[(block / 64) as usize] &= !(1 << (block % 64));
        }
        Self {
            used,
            limbo: vec![0; free.len()],
            free,
            counts: Vec::new(),
            chains: HashMap::new(),
        }
    }

    fn read(view: &View, geometry: &Geometry, homes: &Homes, in_data: &[Range<u64>]) -> Self {
        let (blocks, lines) = (geometry.segment_blocks, geometry.table_lines());
        let map = vec![0u64; blocks.div_ceil(64) as usize];
        let metadata = in_data.iter().map(|blocks| blocks.end - blocks.start);
        let mut table = Self {
            used: metadata.sum(),
            free: map.clone(),
            limbo: map,
            counts: vec![0; lines as usize],
            chains: HashMap::new(),
        };
        for_each_word(view, geometry.table_at, blocks, |block, word| {
            let word = MapWord(word);
            let (index, bit) = ((block / 64) as usize, 1 << (block % 64));
            match word.state() {
                MapState::Free => table.free[index] |= bit,
                MapState::Limbo => table.limbo[index] |= bit,
                MapState::Unwritten | MapState::Mapped => {
                    table.used += 1;
                    let (id, logical) = (word.id(), word.logical());
                    let home = homes.line(id, logical);
                    if block / LINE_ENTRIES != home {
                        table.counts[home as usize] += 1;
                        table.chains.insert(block, homes.chain(id, logical));
                    }
                }
            }
        });
        table
    }
}

/// Checks what the close of `epoch` saved, in a pool that is otherwise sound.
pub(crate) fn judge(
    view: &View,
    geometry: &Geometry,
    seed: u64,
    (trees, in_data): (&Trees, &[Range<u64>]),
    epoch: u32,
    sink: &mut Sink,
) {
    let plan = geometry.saved_state();
    let bytes = view.bytes::<{ size_of::<SavedStateHead>() }>(plan.at);
    if bytes.iter().all(|&byte| byte == 0) {
        // Nothing was saved: the next opening reads the table.
        return;
    }
    let head = SavedStateHead::read_from_bytes(&bytes).unwrap_or_default();
    let mut damage =
        |detail: std::fmt::Arguments| sink.damage(Class::SavedState, Location::Saved, detail);
    if !head.is_sound(epoch) || head.reserved != [0; 4] || head.displaced > plan.blocks {
        return damage(format_args!("the head is not sound, or of another close"));
    }
    let mut sum = Summing::default();
    let words = plan.body_words(head.displaced);
    for_each_word(view, plan.free_at(), words, |_, word| {
        sum.add_words(&[word])
    });
    if sum.finish() != head.body_check {
        return damage(format_args!("do not fit their checksum"));
    }
    let has_trees = !geometry.mapping.has_home_lines();
    let mut table = if has_trees {
        Table::of_trees(geometry, trees, in_data)
    } else {
        Table::read(view, geometry, &geometry.homes(seed), in_data)
    };
    if head.used != table.used {
        damage(format_args!(
            "{} blocks in use were saved, {} are",
            head.used, table.used
        ));
    }
    for_each_word(view, plan.free_at(), plan.free_words(), |index, saved| {
        let (free, limbo) = (table.free[index as usize], table.limbo[index as usize]);
        // A used block may be marked free: the allocator finds out when it tries the block. A block
        // in limbo must not be marked, nor any used block if there is no table to find out from.
        let taken = if has_trees { !free } else { limbo };
        let wrong = free & !saved | taken & saved;
        if wrong != 0 {
            let block = index * 64 + u64::from(wrong.trailing_zeros());
            damage(format_args!(
                "block {block} is marked wrongly in the free bitmap"
            ));
        }
    });
    for_each_word(
        view,
        plan.counts_at(),
        plan.count_words(),
        |index, saved| {
            for (line, count) in (index * 8..).zip(saved.to_le_bytes()) {
                let found = table.counts.get(line as usize).map_or(0, |count| *count);
                // A counter of 255 stands for higher numbers too, and stays.
                if u64::from(count) != found && count != 255 {
                    damage(format_args!(
                        "{count} blocks displaced from line {line}, not {found}"
                    ));
                }
            }
        },
    );
    judge_chains(view, &plan, head.displaced, &mut table.chains, &mut damage);
}

/// Checks that every displaced block is once on its chain, and nothing else is on any chain.
fn judge_chains(
    view: &View,
    plan: &SavedStatePlan,
    displaced: u64,
    expected: &mut HashMap<u64, u64>,
    damage: &mut dyn FnMut(std::fmt::Arguments),
) {
    let mut map = Vec::new();
    for_each_word(view, plan.map_at(), plan.map_words(), |index, word| {
        let bits = (0..64).filter(|bit| word >> bit & 1 == 1);
        map.extend(bits.map(|bit| index * 64 + bit));
    });
    let mut chains = map.into_iter();
    let mut chain = chains.next();
    let mut ended = true;
    for_each_word(
        view,
        plan.links_at(),
        displaced.div_ceil(2),
        |index, word| {
            for (number, link) in [
                (2 * index, word as u32),
                (2 * index + 1, (word >> 32) as u32),
            ] {
                if number >= displaced {
                    return;
                }
                let link = ChainLink(link);
                let block = u64::from(link.block());
                if expected.remove(&block) != chain {
                    damage(format_args!(
                        "block {block} is on chain {chain:?}, which is not its"
                    ));
                }
                ended = link.is_last();
                if ended {
                    chain = chains.next();
                }
            }
        },
    );
    if !ended || chain.is_some() {
        damage(format_args!("the chains do not fit the chain map"));
    }
    if let Some((block, chain)) = expected.iter().min() {
        damage(format_args!("block {block} is missing on chain {chain}"));
    }
}
