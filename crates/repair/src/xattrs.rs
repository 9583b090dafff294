//! Extended attributes: unsound sets, sets in slots of another structure, and wrong flags.

use std::ops::Range;

use vellum_check::survey::{Holder, Node, Survey};
use vellum_check::{Class, counted};
use vellum_layout::{
    BLOCK_BYTES, ChunkKind, FileKind, IdentityWord, Inode, XATTR_SET_MAX, XattrHead, XattrRecord,
    read_xattrs, xattr_flags, xattr_home,
};
use zerocopy::FromBytes;

use crate::draft::Draft;

/// Permission bits of the group.
const GROUP: u16 = 0o070;

/// Replaces unsound sets by what is sound at their front.
pub(crate) fn unsound(draft: &mut Draft, survey: &Survey) {
    if !draft.wants(Class::XattrUnsound) {
        return;
    }
    for number in survey.unsound_xattrs() {
        let node = &survey.nodes.list[number];
        let set = survey.xattrs(node);
        let front = sound_front(&set.bytes);
        let what = match read_xattrs(front) {
            Some(kept) => {
                let kept = counted(kept.len() as u64, "attribute");
                format!("{kept} before the damage in new slots; others are lost")
            }
            None => "removed: no attribute can be read".to_owned(),
        };
        replace(draft, survey, (node, Class::XattrUnsound), (front, &what));
    }
}

/// Gives sets whose slots something else holds too slots of their own.
pub(crate) fn shared(draft: &mut Draft, survey: &Survey) {
    if !draft.wants(Class::SlotShared) {
        return;
    }
    let holders = survey.shared().iter();
    let mut numbers: Vec<usize> = holders
        .filter_map(|holder| match *holder {
            Holder::Xattrs(number, _) => Some(number),
            _ => None,
        })
        .collect();
    numbers.dedup();
    for number in numbers {
        let node = &survey.nodes.list[number];
        let set = survey.xattrs(node);
        let what = "the attributes get new slots";
        replace(draft, survey, (node, Class::SlotShared), (&set.bytes, what));
    }
}

/// Sets the flags that follow from the attributes.
pub(crate) fn flags(draft: &mut Draft, survey: &Survey) {
    for &(number, flags) in survey.wrong_flags() {
        let node = &survey.nodes.list[number];
        let what = match loses_list(node, flags) {
            true => "set by the attributes; without an access list the group has no permissions",
            false => "set by the attributes",
        };
        if draft.mend(Class::XattrFlags, format_args!("inode {}", node.slot), what) {
            set_flags(draft, node, flags);
        }
    }
}

/// Puts a set into new slots. If there is no space for it, or it is empty, the inode has no
/// attributes then.
fn replace(
    draft: &mut Draft,
    survey: &Survey,
    (node, class): (&Node, Class),
    (set, what): (&[u8], &str),
) {
    let laid = lay(draft, survey, node, set);
    let what = match laid {
        None if !set.is_empty() => "removed: no metadata slots are free for the attributes",
        _ => what,
    };
    let flags = match (laid, read_xattrs(set)) {
        (Some(_), Some(kept)) => xattr_flags(&kept),
        _ => 0,
    };
    let loses = class == Class::XattrUnsound || laid.is_none();
    let place = format_args!("inode {}", node.slot);
    let wanted = match loses {
        true => draft.give_up(class, place, what),
        false => draft.mend(class, place, what),
    };
    if wanted {
        let at = draft.field(node.slot, Inode::XATTR_ROOT);
        draft.set(at, laid.unwrap_or(0));
        set_flags(draft, node, flags);
    }
}

/// Writes a set into new slots; returns the first. `None` if it is empty or there is no space.
fn lay(draft: &mut Draft, survey: &Survey, node: &Node, set: &[u8]) -> Option<u64> {
    let (kind, count) = xattr_home(set.len());
    let parts: Vec<&[u8]> = set.chunks(XattrHead::BLOCK_MAX).collect();
    let slots = parts
        .iter()
        .map(|_| draft.take_slots(survey, kind, count))
        .collect::<Option<Vec<u64>>>()?;
    let mut next = None;
    for (part, &slot) in parts.iter().zip(&slots).rev() {
        let generation = node.identity.generation();
        let piece = XattrHead::piece(node.slot, generation, next.unwrap_or(0), part);
        draft.put_slots(slot, count, &piece);
        next = Some(slot);
    }
    next
}

/// The longest sound set at the beginning of `set`; empty if there is none.
fn sound_front(set: &[u8]) -> &[u8] {
    let (mut ends, mut end) = (vec![0], 0);
    while let Some((word, _)) = set.get(end..).and_then(|rest| rest.split_first_chunk()) {
        let word = XattrRecord(u32::from_le_bytes(*word));
        end += size_of::<XattrRecord>() + word.name_len() + word.value_len();
        ends.push(end);
    }
    let is_sound = |end: usize| {
        let front = set.get(..end);
        end == 0 || front.is_some_and(|front| read_xattrs(front).is_some())
    };
    let sound = ends.partition_point(|&end| is_sound(end));
    &set[..ends[sound - 1]]
}

/// Whether an inode with these flags loses its access list. The permission bits of the group are
/// then only what the list granted at most: the group itself may have had less.
fn loses_list(node: &Node, flags: u64) -> bool {
    let (had, has) = (node.identity.0, flags);
    had & !has & IdentityWord::ACCESS_LIST != 0 && node.kind != FileKind::Symlink
}

/// One word: what a power cut leaves of it is mended to the same.
fn set_flags(draft: &Draft, node: &Node, flags: u64) {
    let mode = match loses_list(node, flags) {
        true => node.identity.mode() & !GROUP,
        false => node.identity.mode(),
    };
    let identity = node.identity.with_mode(mode).with_xattr_flags(flags);
    draft.set(draft.field(node.slot, Inode::IDENTITY), identity.0);
}

/// The kind of a chunk with these slots, if a piece of a set lies in them. Chunk words are not
/// read.
pub(crate) fn kind_by_pieces(
    draft: &Draft,
    survey: &Survey,
    slots: Range<u64>,
) -> Option<ChunkKind> {
    let nodes = survey.nodes.list.iter();
    let mut owners = nodes.filter(|node| node.xattr_root != 0);
    owners.find_map(|node| kind_by_set(draft, node, &slots))
}

fn kind_by_set(draft: &Draft, node: &Node, slots: &Range<u64>) -> Option<ChunkKind> {
    let mut slot = node.xattr_root;
    for number in 0..=XATTR_SET_MAX / XattrHead::BLOCK_MAX {
        let head = head_of(draft, node, slot)?;
        if slots.contains(&slot) {
            let is_whole = number == 0 && head.fits(ChunkKind::Entries);
            let kind = if is_whole {
                ChunkKind::Entries
            } else {
                ChunkKind::Blocks
            };
            return Some(kind);
        }
        slot = head.next;
    }
    None
}

/// The head of the sound piece at `slot` of a node's set.
fn head_of(draft: &Draft, node: &Node, slot: u64) -> Option<XattrHead> {
    if slot == 0 || slot >= draft.geometry.meta_slots() {
        return None;
    }
    let bytes: [u8; BLOCK_BYTES as usize] = draft.overlay.bytes(draft.geometry.slot_at(slot));
    let (head, records) = XattrHead::read_from_prefix(&bytes).ok()?;
    let records = records.get(..usize::from(head.len))?;
    let generation = node.identity.generation();
    (head.checksum == head.expected_checksum(node.slot, generation, records)).then_some(head)
}
