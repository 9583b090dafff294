//! The attributes that copies keep: owners, permission bits, access control lists, extended
//! attributes and times.

use std::fmt;

use super::tree::{Done, Meta, Tree, Trouble};

/// The prefix of the names of both access control lists.
const LISTS: &[u8] = b"system.posix_acl_";
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

/// Gets a description of an attribute that the copy does not have.
type Lose<'a> = dyn FnMut(fmt::Arguments<'_>) + 'a;

/// An extended attribute. The value of a list that could not be read is empty, which removes the
/// list.
type Xattr = (Vec<u8>, Vec<u8>);

/// Gives a file the attributes of another one.
///
/// The order matters:
/// 1. The owner. A change of owner drops set-id bits and capabilities.
/// 2. Extended attributes, which the owner of a read-only file could not set.
/// 3. Removal of the lists that it has, from its directory for example: with them, permission bits
///    of the group would permit others.
/// 4. Permission bits and times.
/// 5. Lists, because a change of permission bits changes them.
pub(super) fn keep<S: Tree, T: Tree>(
    (source, from): (&S, &S::Node),
    (target, to): (&T, &T::Node),
    meta: &Meta,
    lose: &mut Lose<'_>,
) -> Done {
    let is_privileged = target.is_privileged();
    if is_privileged {
        target.set_owner(to, meta)?;
    }
    let (lists, others) = read(source, from, is_privileged, lose);
    if !others.is_empty() && !is_privileged {
        permit_writing(target, to)?;
    }
    set(target, to, &others, lose);
    remove_lists(target, to, lose);
    let list = lists.iter().find(|(name, _)| name == ACCESS_LIST);
    let mode = list.map_or(meta.mode, |(_, list)| mode_without(list, meta.mode));
    target.set_mode_and_times(to, meta, mode)?;
    set(target, to, &lists, lose);
    Ok(())
}

/// Reads the lists, and the other extended attributes, except those that only a privileged user
/// can set. The list that decides comes first.
fn read<S: Tree>(
    source: &S,
    from: &S::Node,
    is_privileged: bool,
    lose: &mut Lose<'_>,
) -> (Vec<Xattr>, Vec<Xattr>) {
    let mut names = source.xattr_names(from).unwrap_or_else(|trouble| {
        lose(format_args!("extended attributes: {trouble}"));
        Vec::new()
    });
    names.retain(|name| is_privileged || !is_reserved(name));
    names.sort();
    let read = |name: Vec<u8>| match source.xattr(from, &name) {
        Ok(value) => Some((name, value?)),
        Err(trouble) => {
            lose_one(lose, &name, &trouble);
            name.starts_with(LISTS).then(|| (name, Vec::new()))
        }
    };
    let all = names.into_iter().filter_map(read);
    all.partition(|(name, _)| name.starts_with(LISTS))
}

/// Whether only a privileged user can set an attribute of this name.
fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(b"trusted.") || name.starts_with(b"security.")
}

fn set<T: Tree>(target: &T, to: &T::Node, xattrs: &[Xattr], lose: &mut Lose<'_>) {
    for (name, value) in xattrs {
        if let Err(trouble) = target.set_xattr(to, name, value) {
            lose_one(lose, name, &trouble);
        }
    }
}

fn lose_one(lose: &mut Lose<'_>, name: &[u8], trouble: &Trouble) {
    let name = String::from_utf8_lossy(name);
    lose(format_args!("extended attribute {name}: {trouble}"));
}

/// Lets the owner write a file, for the time being.
fn permit_writing<T: Tree>(target: &T, to: &T::Node) -> Done {
    const WRITE: u16 = 0o200;
    let mode = target.meta(to)?.mode;
    match mode & WRITE {
        0 => target.set_mode(to, mode | WRITE),
        _ => Ok(()),
    }
}

fn remove_lists<T: Tree>(target: &T, to: &T::Node, lose: &mut Lose<'_>) {
    let names = target.xattr_names(to).unwrap_or_else(|trouble| {
        lose(format_args!("extended attributes: {trouble}"));
        Vec::new()
    });
    for name in names.iter().filter(|name| name.starts_with(LISTS)) {
        if let Err(trouble) = target.remove_xattr(to, name) {
            lose_one(lose, name, &trouble);
        }
    }
}

/// The mode of a file whose list could not be copied: the group bits of `mode` are the list's mask,
/// and the owning group may be permitted less.
fn mode_without(list: &[u8], mode: u16) -> u16 {
    const OWNING_GROUP: [u8; 2] = 4_u16.to_le_bytes();
    let (_, entries) = list.split_at_checked(4).unwrap_or_default();
    let group = entries
        .chunks_exact(8)
        .find(|entry| entry[..2] == OWNING_GROUP);
    let permitted = group.map_or(0, |entry| u16::from_le_bytes([entry[2], entry[3]]) & 7);
    mode & !(0o070 & !(permitted << 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_its_list_a_file_permits_no_group_more() {
        let list = |permissions: u8| {
            let owner = [1, 0, 7, 0, 255, 255, 255, 255];
            let group = [4, 0, permissions, 0, 255, 255, 255, 255];
            [&[2, 0, 0, 0], &owner[..], &group].concat()
        };
        assert_eq!(mode_without(&list(5), 0o2760), 0o2740);
        assert_eq!(mode_without(&list(7), 0o760), 0o760);
        assert_eq!(mode_without(&list(0), 0o4777), 0o4707);
        assert_eq!(
            mode_without(&[], 0o777),
            0o707,
            "a list that could not be read"
        );
    }
}
