//! Executes an [`Op`] on the model.

use crate::attr::{SetAttr, TimeSet};
use crate::xattr::{check_name, check_value};
use crate::{Cred, Errno, Handle, Ino, Model, Op, Outcome, Payload, Result, pattern};

const ROOT: Ino = Ino::ROOT;

/// Applies one operation to the model.
pub fn apply(model: &mut Model, op: &Op, cred: &Cred, now: i64) -> Outcome {
    match run(model, op, cred, now) {
        Ok(payload) => Outcome::Ok(payload),
        Err(errno) => Outcome::Err(errno),
    }
}

fn run(model: &mut Model, op: &Op, cred: &Cred, now: i64) -> Result<Payload> {
    let done = |()| Payload::Done;
    if let Some(slot) = op.handle_slot() {
        let handle = *model.slots.get(&slot).ok_or(Errno::EBADF)?;
        return with_handle(model, handle, op, cred, now);
    }
    if let Some((path, flags)) = op.opens() {
        let handle = model.open_at(ROOT, path, flags, 0, cred, now)?;
        let outcome = with_handle(model, handle, op, cred, now);
        model.close(handle)?;
        return outcome;
    }
    match op {
        Op::Create {
            path,
            mode,
            exclusive,
        } => {
            let flags = libc::O_CREAT | libc::O_WRONLY | if *exclusive { libc::O_EXCL } else { 0 };
            let handle = model.open_at(ROOT, path, flags, *mode, cred, now)?;
            model.close(handle).map(done)
        }
        Op::Mkdir { path, mode } => model
            .mkdir_at(ROOT, path, *mode, cred, now)
            .map(|_| Payload::Done),
        Op::Mknod {
            path,
            kind,
            mode,
            device,
        } => model
            .mknod_at(ROOT, path, (*kind, *mode, *device), cred, now)
            .map(|_| Payload::Done),
        Op::Symlink { target, path } => model
            .symlink_at(target, ROOT, path, cred, now)
            .map(|_| Payload::Done),
        Op::Link { from, to } => model.link_at(ROOT, from, to, cred, now).map(done),
        Op::Unlink { path } => model.unlink_at(ROOT, path, cred, now).map(done),
        Op::Rmdir { path } => model.rmdir_at(ROOT, path, cred, now).map(done),
        Op::Rename { from, to, flags } => {
            model.rename_at(ROOT, from, to, *flags, cred, now).map(done)
        }
        Op::Readlink { path } => {
            let ino = model.resolve(ROOT, path, false, cred)?;
            model.readlink(ino, now).map(Payload::Bytes)
        }
        Op::Truncate { path, size } => model.truncate_at(ROOT, path, *size, cred, now).map(done),
        Op::Chmod { .. } | Op::Chown { .. } | Op::Utimens { .. } => {
            set_attributes(model, op, cred, now)
        }
        Op::SetXattr { .. }
        | Op::RemoveXattr { .. }
        | Op::GetXattr { .. }
        | Op::ListXattr { .. } => extended_attributes(model, op, cred, now),
        Op::Stat { path, follow } => {
            let ino = model.resolve(ROOT, path, *follow, cred)?;
            Ok(Payload::Stat(model.getattr(ino)?.into()))
        }
        Op::Times { path } => {
            let attr = model.getattr(model.resolve(ROOT, path, false, cred)?)?;
            Ok(Payload::Times([
                Some(attr.atime),
                Some(attr.mtime),
                Some(attr.ctime),
            ]))
        }
        Op::Access { path, mask } => {
            let ino = model.resolve(ROOT, path, true, cred)?;
            model.access(ino, *mask, cred).map(done)
        }
        Op::SetQuotas { is_on } => model.set_quotas(*is_on, cred).map(done),
        Op::SetQuota { kind, id, limits } => model.set_quota(*kind, *id, *limits, cred).map(done),
        Op::GetQuota { kind, id } => model.quota(*kind, *id, cred).map(Payload::Quota),
        Op::Sync => Ok(Payload::Done),
        Op::Open {
            slot,
            path,
            flags,
            mode,
        } => {
            let handle = model.open_at(ROOT, path, *flags, *mode, cred, now)?;
            match model.slots.insert(*slot, handle) {
                Some(earlier) => model.close(earlier).map(done),
                None => Ok(Payload::Done),
            }
        }
        Op::CloseSlot { slot } => {
            let handle = model.slots.remove(slot).ok_or(Errno::EBADF)?;
            model.close(handle).map(done)
        }
        _ => unreachable!("operations with a path to open or a handle are handled above"),
    }
}

/// Names and values are checked before the path.
fn extended_attributes(model: &mut Model, op: &Op, cred: &Cred, now: i64) -> Result<Payload> {
    match op {
        Op::SetXattr {
            path,
            name,
            value,
            mode,
            follow,
        } => {
            let value = &value.bytes()[..];
            check_name(name).and(check_value(value))?;
            let ino = model.resolve(ROOT, path, *follow, cred)?;
            model.set_xattr(ino, (name, value, *mode), cred, now)?;
        }
        Op::RemoveXattr { path, name, follow } => {
            check_name(name)?;
            let ino = model.resolve(ROOT, path, *follow, cred)?;
            model.remove_xattr(ino, name, cred, now)?;
        }
        Op::GetXattr { path, name, follow } => {
            check_name(name)?;
            let ino = model.resolve(ROOT, path, *follow, cred)?;
            return model.xattr(ino, name, cred).map(Payload::Bytes);
        }
        Op::ListXattr { path, follow } => {
            let ino = model.resolve(ROOT, path, *follow, cred)?;
            return model.xattr_names(ino, cred).map(Payload::Xattrs);
        }
        _ => unreachable!("the caller sends only operations on extended attributes"),
    }
    Ok(Payload::Done)
}

fn set_attributes(model: &mut Model, op: &Op, cred: &Cred, now: i64) -> Result<Payload> {
    match op {
        Op::Chmod { path, mode } => {
            let ino = model.resolve(ROOT, path, true, cred)?;
            let set = SetAttr {
                mode: Some(*mode),
                ..SetAttr::default()
            };
            model.setattr(ino, &set, cred, now)?;
        }
        Op::Chown {
            path,
            uid,
            gid,
            follow,
        } => {
            let ino = model.resolve(ROOT, path, *follow, cred)?;
            model.chown(ino, *uid, *gid, cred, now)?;
        }
        Op::Utimens {
            atime: None,
            mtime: None,
            ..
        } => {}
        Op::Utimens {
            path,
            atime,
            mtime,
            follow,
        } => {
            let ino = model.resolve(ROOT, path, *follow, cred)?;
            let set = SetAttr {
                atime: *atime,
                mtime: *mtime,
                ..SetAttr::default()
            };
            model.setattr(ino, &set, cred, now)?;
            let attr = model.getattr(ino)?;
            let explicit =
                |set: Option<TimeSet>, value| matches!(set, Some(TimeSet::At(_))).then_some(value);
            return Ok(Payload::Times([
                explicit(*atime, attr.atime),
                explicit(*mtime, attr.mtime),
                None,
            ]));
        }
        _ => unreachable!("the caller sends only changes of attributes"),
    }
    Ok(Payload::Done)
}

fn with_handle(
    model: &mut Model,
    handle: Handle,
    op: &Op,
    cred: &Cred,
    now: i64,
) -> Result<Payload> {
    match op {
        Op::Write {
            offset, seed, len, ..
        }
        | Op::WriteSlot {
            offset, seed, len, ..
        } => model
            .write(handle, *offset, &pattern(*seed, *len), cred, now)
            .map(Payload::Count),
        Op::Append { seed, len, .. } => model
            .append(handle, &pattern(*seed, *len), cred, now)
            .map(Payload::Count),
        Op::Read { range, .. } | Op::ReadSlot { range, .. } => model
            .read(handle, range.offset, range.len, now)
            .map(Payload::Bytes),
        Op::Fallocate { mode, range, .. } | Op::FallocateSlot { mode, range, .. } => model
            .fallocate(handle, *mode, *range, cred, now)
            .map(|()| Payload::Done),
        Op::TruncateSlot { size, .. } => model
            .truncate(handle, *size, cred, now)
            .map(|()| Payload::Done),
        Op::SeekData { offset, .. } => model.seek_data(handle, *offset).map(Payload::Offset),
        Op::SeekHole { offset, .. } => model.seek_hole(handle, *offset).map(Payload::Offset),
        Op::StatSlot { .. } => Ok(Payload::Stat(model.handle_attr(handle)?.into())),
        Op::Readdir { .. } | Op::ReaddirSlot { .. } => {
            let list = model.handle_readdir(handle, now)?;
            Ok(Payload::Names(
                list.into_iter()
                    .map(|entry| (entry.name, entry.kind))
                    .collect(),
            ))
        }
        Op::SetFlags { flags, .. } => {
            let ino = model.handle_ino(handle)?;
            model.set_flags(ino, (Some(*flags), None), cred, now)?;
            Ok(Payload::Done)
        }
        Op::SetProject { project, .. } => {
            let ino = model.handle_ino(handle)?;
            model.set_flags(ino, (None, Some(*project)), cred, now)?;
            Ok(Payload::Done)
        }
        Op::GetFlags { .. } => {
            let (flags, project) = model.flags(model.handle_ino(handle)?)?;
            Ok(Payload::Flags(flags, project))
        }
        Op::Fsync { .. } | Op::FsyncSlot { .. } => Ok(Payload::Done),
        Op::FlockSlot { kind, .. } => model.flock(handle, *kind).map(|()| Payload::Done),
        Op::LockSlot {
            owner, kind, range, ..
        } => model
            .set_lock(handle, *owner, *kind, *range)
            .map(|()| Payload::Done),
        Op::GetLockSlot {
            owner, kind, range, ..
        } => model
            .get_lock(handle, *owner, *kind, *range)
            .map(Payload::Lock),
        _ => unreachable!("the caller sends only operations on handles"),
    }
}

/// Runs steps on an empty tree, each a line with its outcome.
#[cfg(test)]
pub(crate) fn run_lines(steps: &[(&str, &str)]) {
    let mut model = Model::new(0);
    for (now, (line, expected)) in (1..).zip(steps) {
        let crate::Step { cred, op } = line.parse().expect("a step");
        let outcome = apply(&mut model, &op, &cred, now);
        assert_eq!(outcome.to_string(), *expected, "{line}");
    }
}
