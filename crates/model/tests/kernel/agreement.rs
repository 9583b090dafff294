//! Compares the kernel's results with the model's.

use std::sync::atomic::{AtomicBool, Ordering};
use vellum_model::{
    ACL_DEFAULT, APPEND_ONLY, CAPABILITY, Cred, Errno, Hardening, Ino, Kind, Model, Op, Outcome,
    Payload, StatView, Step, XATTR_VALUE_MAX, apply,
};

/// Units of 512 bytes that ext4 may add to a file's blocks for its extent tree.
const EXTENT_TREE_SLACK: u64 = 24;

/// Whether the kernel's file system is ext4, not a mount of Vellum.
pub static ON_EXT4: AtomicBool = AtomicBool::new(true);

/// The comparable bits of the mode: on a mount the kernel keeps the set-group-ID bit when another
/// user writes, unless the group may execute (FUSE's rule).
pub fn told_mode(mode: u32) -> u32 {
    let on_mount = !ON_EXT4.load(Ordering::Relaxed);
    if on_mount && mode & 0o2010 == 0o2000 {
        mode & !0o2000
    } else {
        mode
    }
}

fn blurred(view: &StatView) -> StatView {
    let mode = match view.kind {
        Kind::Dir => view.mode,
        _ => told_mode(view.mode),
    };
    StatView {
        mode,
        ..view.clone()
    }
}

/// Whether the outcomes are equal, except where ext4 is free to choose: blocks of its extent tree
/// count in a file's blocks, and preallocated blocks may be reported as data once they are zeroed
/// or cached.
pub fn agree(op: &Op, model: &Outcome, kernel: &Outcome, preallocated: bool) -> bool {
    match (op, model, kernel) {
        (_, Outcome::Ok(Payload::Stat(model)), Outcome::Ok(Payload::Stat(kernel))) => {
            let (model, kernel) = (blurred(model), blurred(kernel));
            let mut same = kernel.clone();
            same.blocks = model.blocks;
            let slack = if ON_EXT4.load(Ordering::Relaxed) {
                EXTENT_TREE_SLACK
            } else {
                0
            };
            same == model && (model.blocks..=model.blocks + slack).contains(&kernel.blocks)
        }
        (Op::SeekData { .. }, Outcome::Err(_), Outcome::Ok(_)) if preallocated => true,
        (
            Op::SeekData { .. },
            Outcome::Ok(Payload::Offset(model)),
            Outcome::Ok(Payload::Offset(kernel)),
        ) if preallocated => kernel <= model,
        (
            Op::SeekHole { .. },
            Outcome::Ok(Payload::Offset(model)),
            Outcome::Ok(Payload::Offset(kernel)),
        ) if preallocated => kernel >= model,
        // If a set-group-ID bit that the kernel keeps is the only change, the kernel does not call
        // the mount.
        (
            Op::Chown {
                uid: None,
                gid: None,
                ..
            },
            Outcome::Err(Errno::EPERM),
            Outcome::Ok(_),
        ) if !ON_EXT4.load(Ordering::Relaxed) => true,
        // The kernel does not know a mount's flags, and makes its other checks first.
        (_, Outcome::Err(Errno::EPERM), Outcome::Err(_)) if !ON_EXT4.load(Ordering::Relaxed) => {
            true
        }
        _ => model == kernel,
    }
}

/// Whether the step is skipped: project ids, which few of the kernel's file systems have; on a
/// mount append-only files, since each write there is checked by itself.
pub fn sets_what_is_missing(step: &Step) -> bool {
    match step.op {
        Op::SetProject { .. } => true,
        Op::SetFlags { flags, .. } => flags & APPEND_ONLY != 0 && !ON_EXT4.load(Ordering::Relaxed),
        _ => false,
    }
}

/// Whether the step is skipped: on a mount the kernel opens immutable files, and answers by itself
/// what changes nothing.
pub fn is_decided_by_the_kernel(step: &Step, model: &Outcome) -> bool {
    let is_decided = match &step.op {
        Op::Open { .. } | Op::Create { .. } | Op::Access { .. } => true,
        Op::Write { len, .. } | Op::Append { len, .. } | Op::WriteSlot { len, .. } => *len == 0,
        Op::SetXattr { name, .. } | Op::RemoveXattr { name, .. } => name == ACL_DEFAULT,
        _ => false,
    };
    !ON_EXT4.load(Ordering::Relaxed) && is_decided && *model == Outcome::Err(Errno::EPERM)
}

/// Whether the step is skipped: before the kernel calls a mount for a change of content by an
/// ordinary user, it removes the set-id bits, even if the mount then finds the file too large. On
/// ext4 it knows the limit of file sizes.
pub fn drops_set_ids_first(step: &Step, model: &Outcome) -> bool {
    let changes = matches!(
        step.op,
        Op::Write { .. }
            | Op::WriteSlot { .. }
            | Op::Append { .. }
            | Op::Fallocate { .. }
            | Op::FallocateSlot { .. }
    );
    let too_large = *model == Outcome::Err(Errno::EFBIG);
    !ON_EXT4.load(Ordering::Relaxed) && changes && too_large && !step.cred.is_superuser()
}

/// Whether the step is skipped: a mount takes `chown` without owner and group of a file with
/// capabilities for a write, which does not drop set-id bits here.
pub fn looks_like_a_write(model: &Model, step: &Step) -> bool {
    let Op::Chown {
        path,
        uid: None,
        gid: None,
        follow,
    } = &step.op
    else {
        return false;
    };
    let root = &Cred::superuser();
    let ino = model.resolve(Ino::ROOT, path, *follow, root);
    let capability = ino.and_then(|ino| model.xattr(ino, CAPABILITY, root));
    !ON_EXT4.load(Ordering::Relaxed) && capability.is_ok()
}

/// Whether the step is skipped: a mount is not asked to remove or insert ranges; and ext4 keeps
/// blocks past the end of file when it does that, and changes times before it refuses.
pub fn shifts_in_other_ways(model: &Model, step: &Step) -> bool {
    let (Op::Fallocate { path, .. }, Some(_)) = (&step.op, step.op.shifted()) else {
        return false;
    };
    let ino = model.resolve(Ino::ROOT, path, true, &Cred::superuser());
    let attr = ino.and_then(|ino| model.getattr(ino));
    let has_blocks_behind = attr.is_ok_and(|attr| attr.blocks * 512 > attr.size);
    let shifted = apply(&mut model.clone(), &step.op, &step.cred, 0);
    !ON_EXT4.load(Ordering::Relaxed) || has_blocks_behind || matches!(shifted, Outcome::Err(_))
}

/// Whether there is room for all extended attributes of the file after the step. ext4 has a block
/// for them, and a little room in the inode.
pub fn has_room(model: &Model, step: &Step) -> bool {
    const ROOM: usize = 3000;
    const OF_RECORD: usize = 20;
    let Op::SetXattr {
        path,
        name,
        value,
        follow,
        ..
    } = &step.op
    else {
        return true;
    };
    if !ON_EXT4.load(Ordering::Relaxed) {
        return true;
    }
    let root = &Cred::superuser();
    let len = value.bytes().len();
    let Ok(ino) = model.resolve(Ino::ROOT, path, *follow, root) else {
        return true;
    };
    let names = model.xattr_names(ino, root).unwrap_or_default();
    let others = names.iter().filter(|other| *other != name);
    let of_others = others.map(|name| {
        let value = model.xattr(ino, name, root).unwrap_or_default();
        OF_RECORD + name.len() + value.len()
    });
    len > XATTR_VALUE_MAX || of_others.sum::<usize>() + OF_RECORD + name.len() + len <= ROOM
}

/// The settings by which this kernel refuses to follow or open files of others.
pub fn hardening() -> Hardening {
    let setting = |name: &str| -> u8 {
        let text = std::fs::read_to_string(format!("/proc/sys/fs/protected_{name}"));
        text.ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    };
    Hardening {
        hardlinks: setting("hardlinks") != 0,
        symlinks: setting("symlinks") != 0,
        regular: setting("regular"),
    }
}
