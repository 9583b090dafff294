//! Extended attributes, with what a kernel checks before it looks for the file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use vellum::media::Memories;
use vellum::{Cred, Error, Fs, Node, Result, XattrMode};
use vellum_model::{Op, Payload, XATTR_NAME_MAX, XATTR_VALUE_MAX};

use crate::Driver;
use crate::quotas::limits_of;

fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        1..=XATTR_NAME_MAX => Ok(()),
        _ => Err(Error::AttributeName),
    }
}

fn mode_of(mode: vellum_model::XattrMode) -> XattrMode {
    match mode {
        vellum_model::XattrMode::Any => XattrMode::Any,
        vellum_model::XattrMode::Create => XattrMode::Create,
        vellum_model::XattrMode::Replace => XattrMode::Replace,
    }
}

impl<M: Memories> Driver<M> {
    pub(crate) fn change_xattr(&self, op: &Op, cred: &Cred) -> Result<()> {
        match op {
            Op::SetXattr {
                path,
                name,
                value,
                mode,
                follow,
            } => {
                let value = value.bytes();
                check_name(name)?;
                if value.len() > XATTR_VALUE_MAX {
                    return Err(Error::AttributeTooLong);
                }
                let file = self.find(cred, path, *follow)?;
                self.fs()
                    .set_xattr(cred, &file, name, &value, mode_of(*mode))
            }
            Op::RemoveXattr { path, name, follow } => {
                check_name(name)?;
                let file = self.find(cred, path, *follow)?;
                self.fs().remove_xattr(cred, &file, name)
            }
            _ => unreachable!("the caller sends only changes of extended attributes"),
        }
    }

    pub(crate) fn read_xattr(&self, op: &Op, cred: &Cred) -> Result<Payload> {
        match op {
            Op::GetXattr { path, name, follow } => {
                check_name(name)?;
                let file = self.find(cred, path, *follow)?;
                self.fs().xattr(cred, &file, name).map(Payload::Bytes)
            }
            Op::ListXattr { path, follow } => {
                let file = self.find(cred, path, *follow)?;
                let names = names_of(&self.fs().xattrs(cred, &file)?)?;
                Ok(Payload::Xattrs(names))
            }
            _ => unreachable!("the caller sends only reads of extended attributes"),
        }
    }
}

/// The names in a list. A zero byte ends each name.
///
/// # Errors
/// A name is empty, unfinished, or there twice.
fn names_of(list: &[u8]) -> Result<BTreeSet<Vec<u8>>> {
    let mut names = BTreeSet::new();
    for name in list.split_inclusive(|&byte| byte == 0) {
        match name {
            [name @ .., 0] if !name.is_empty() && names.insert(name.to_vec()) => {}
            _ => return Err(Error::Invalid("a list of attributes is malformed")),
        }
    }
    Ok(names)
}

/// All extended attributes of a file, as the superuser sees them. Limits of quotas are among those
/// of the root directory.
///
/// # Errors
/// Fails with the engine's errors, and if the list of names is malformed.
pub fn xattrs_of<M: Memories>(
    fs: &Arc<Fs<M>>,
    node: &Node<M>,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let root = Cred::root();
    let names = names_of(&fs.xattrs(&root, node)?)?;
    let value = |name: Vec<u8>| Ok((name.clone(), fs.xattr(&root, node, &name)?));
    let mut all: BTreeMap<_, _> = names.into_iter().map(value).collect::<Result<_>>()?;
    if node.ino() == fs.root().ino() {
        all.extend(limits_of(fs)?);
    }
    Ok(all)
}
