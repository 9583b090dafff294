//! Quotas: hard limits, as the model has them.

use std::collections::BTreeMap;

use vellum::media::Memories;
use vellum::{Cred, Error, Fs, Quota, QuotaLimits, Result};
use vellum_model::{Op, Payload, QuotaKind, Space, quota_attribute};

use crate::Driver;

fn kind_of(kind: QuotaKind) -> vellum::QuotaKind {
    match kind {
        QuotaKind::User => vellum::QuotaKind::User,
        QuotaKind::Group => vellum::QuotaKind::Group,
        QuotaKind::Project => vellum::QuotaKind::Project,
    }
}

fn used(quota: &Quota) -> Space {
    Space {
        bytes: quota.bytes,
        inodes: quota.inodes,
    }
}

fn limits(quota: &Quota) -> Space {
    Space {
        bytes: quota.limits.hard_bytes,
        inodes: quota.limits.hard_inodes,
    }
}

impl<M: Memories> Driver<M> {
    pub(crate) fn on_quotas(&self, op: &Op, cred: &Cred) -> Result<Payload> {
        let fs = self.fs();
        match op {
            Op::SetQuotas { is_on } => fs.set_quotas(cred, *is_on)?,
            Op::SetQuota { kind, id, limits } => {
                let limits = limits.map(|limits| QuotaLimits {
                    hard_bytes: limits.bytes,
                    hard_inodes: limits.inodes,
                    ..QuotaLimits::default()
                });
                fs.set_quota(cred, kind_of(*kind), *id, limits.as_ref())?;
            }
            Op::GetQuota { kind, id } => {
                let quota = fs.quota(cred, kind_of(*kind), *id)?;
                return Ok(Payload::Quota([used(&quota), limits(&quota)]));
            }
            _ => unreachable!("the caller sends only operations on quotas"),
        }
        Ok(Payload::Done)
    }
}

/// What each user, group and project uses. `None` while quotas are off.
///
/// # Errors
/// Fails with the engine's errors.
pub fn usage_of<M: Memories>(fs: &Fs<M>) -> Result<Option<BTreeMap<(QuotaKind, u32), Space>>> {
    let all = quotas_of(fs)?.into_iter();
    let all = all.map(|(key, quota)| (key, used(&quota)));
    let users = all.filter(|(_, used)| *used != Space::default());
    Ok(fs.has_quotas().then(|| users.collect()))
}

/// All limits, as a snapshot of the model shows them.
pub(crate) fn limits_of<M: Memories>(fs: &Fs<M>) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let own = quotas_of(fs)?.into_iter();
    let own = own.filter(|(_, quota)| quota.has_own_limits);
    let named = own.map(|((kind, id), quota)| quota_attribute(kind, id, limits(&quota)));
    Ok(named.collect())
}

/// All quotas with kind and id, none while they are off.
fn quotas_of<M: Memories>(fs: &Fs<M>) -> Result<Vec<((QuotaKind, u32), Quota)>> {
    let all = match fs.quotas(&Cred::root()) {
        Ok(all) => all.into_iter(),
        Err(Error::NoQuotas) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let keyed = |quota: Quota| {
        let mut kinds = QuotaKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind_of(*kind) == quota.kind)?;
        Some(((kind, quota.id), quota))
    };
    Ok(all.filter_map(keyed).collect())
}
