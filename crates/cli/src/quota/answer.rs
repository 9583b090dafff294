//! What a file system answers to requests about quotas: that of a pool which the command opened,
//! or that of a mount.

use serde::{Deserialize, Serialize};
use vellum::{Cred, Error, QuotaKind, QuotaLimits, RealFs};
use vellum_fuse::{LimitsChange, QuotaRequest};

/// Whose files a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    User,
    Group,
    Project,
}

/// The answer of a file system.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done(Told),
    Refused(Refusal),
}

/// What holds now.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(super) is_on: bool,
    pub(super) quotas: Vec<Line>,
    pub(super) defaults: Option<Defaults>,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Why {
    Off,
    NotPermitted,
    ReadOnly,
    /// A limit or a grace period is invalid.
    Invalid,
    Other,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(super) why: Why,
    pub(super) text: String,
}

/// Usage and limits of a user, a group or a project.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(super) kind: Kind,
    pub(super) id: u32,
    pub(super) bytes: Use,
    pub(super) files: Use,
    /// Whether the limits are its own, not the defaults.
    pub(super) own_limits: bool,
}

/// Usage and limits of bytes or files. `None`: no limit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Use {
    pub(super) used: u64,
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
    /// When the soft limit may no longer be exceeded, in nanoseconds since 1970, if it is.
    pub(super) until_ns: Option<i64>,
}

/// What holds for all ids of a kind that have no limits of their own.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Defaults {
    pub(super) kind: Kind,
    pub(super) bytes: Limits,
    pub(super) files: Limits,
}

/// Limits and the grace period of bytes or files. `None`: no limit.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(super) soft: Option<u64>,
    pub(super) hard: Option<u64>,
    pub(super) grace_s: u64,
}

impl From<QuotaKind> for Kind {
    fn from(kind: QuotaKind) -> Self {
        match kind {
            QuotaKind::User => Self::User,
            QuotaKind::Group => Self::Group,
            QuotaKind::Project => Self::Project,
        }
    }
}

/// Answers a request of a user.
pub(crate) fn answer(fs: &RealFs, cred: &Cred, request: QuotaRequest) -> Answer {
    match done(fs, cred, request) {
        Ok(told) => Answer::Done(Told {
            is_on: fs.has_quotas(),
            ..told
        }),
        Err(error) => Answer::Refused(Refusal::of(&error)),
    }
}

fn done(fs: &RealFs, cred: &Cred, request: QuotaRequest) -> vellum::Result<Told> {
    match request {
        QuotaRequest::Switch { is_on } => fs.set_quotas(cred, is_on)?,
        QuotaRequest::Report { of } => return report(fs, cred, of),
        QuotaRequest::Set { of, limits } => {
            let now = fs.quota(cred, of.0, of.1)?.limits;
            fs.set_quota(cred, of.0, of.1, Some(&changed(now, limits)))?;
            return report(fs, cred, Some(of));
        }
        QuotaRequest::Reset { of } => {
            fs.set_quota(cred, of.0, of.1, None)?;
            return report(fs, cred, Some(of));
        }
        QuotaRequest::Defaults {
            kind,
            limits,
            bytes_grace_ns,
            inodes_grace_ns,
        } => {
            let old = fs.quota_defaults(kind)?;
            let ns =
                |new: Option<u64>, old| new.map_or(old, |ns| ns.try_into().unwrap_or(i64::MAX));
            let new = vellum::QuotaDefaults {
                limits: changed(old.limits, limits),
                bytes_grace_ns: ns(bytes_grace_ns, old.bytes_grace_ns),
                inodes_grace_ns: ns(inodes_grace_ns, old.inodes_grace_ns),
            };
            if new != old {
                fs.set_quota_defaults(cred, kind, &new)?;
            }
            return Ok(Told {
                defaults: Some(Defaults::of(kind, &new)),
                ..Told::default()
            });
        }
    }
    Ok(Told::default())
}

/// Usage and limits of one id, or of all that the user may see.
fn report(fs: &RealFs, cred: &Cred, of: Option<(QuotaKind, u32)>) -> vellum::Result<Told> {
    let quotas = match of {
        Some((kind, id)) => vec![fs.quota(cred, kind, id)?],
        None if cred.privileged => fs.quotas(cred)?,
        None => own(fs, cred)?,
    };
    Ok(Told {
        quotas: quotas.iter().map(Line::of).collect(),
        ..Told::default()
    })
}

/// Usage and limits of the user, and of the user's groups that have files or limits.
fn own(fs: &RealFs, cred: &Cred) -> vellum::Result<Vec<vellum::Quota>> {
    let mut quotas = vec![fs.quota(cred, QuotaKind::User, cred.uid)?];
    let mut groups = cred.groups.clone();
    groups.push(cred.gid);
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let quota = fs.quota(cred, QuotaKind::Group, group)?;
        if quota.inodes != 0 || quota.has_own_limits {
            quotas.push(quota);
        }
    }
    Ok(quotas)
}

fn changed(now: QuotaLimits, change: LimitsChange) -> QuotaLimits {
    QuotaLimits {
        hard_bytes: change.hard_bytes.unwrap_or(now.hard_bytes),
        soft_bytes: change.soft_bytes.unwrap_or(now.soft_bytes),
        hard_inodes: change.hard_inodes.unwrap_or(now.hard_inodes),
        soft_inodes: change.soft_inodes.unwrap_or(now.soft_inodes),
    }
}

fn limit(limit: u64) -> Option<u64> {
    (limit != 0).then_some(limit)
}

impl Line {
    fn of(quota: &vellum::Quota) -> Self {
        let limits = &quota.limits;
        Self {
            kind: quota.kind.into(),
            id: quota.id,
            bytes: Use {
                used: quota.bytes,
                soft: limit(limits.soft_bytes),
                hard: limit(limits.hard_bytes),
                until_ns: quota.bytes_until_ns,
            },
            files: Use {
                used: quota.inodes,
                soft: limit(limits.soft_inodes),
                hard: limit(limits.hard_inodes),
                until_ns: quota.inodes_until_ns,
            },
            own_limits: quota.has_own_limits,
        }
    }
}

impl Use {
    /// Whether more is used than a limit allows, even if only for a while.
    pub(super) fn is_over(&self) -> bool {
        let mut limits = [self.soft, self.hard].into_iter().flatten();
        limits.any(|limit| self.used > limit)
    }
}

impl Defaults {
    fn of(kind: QuotaKind, defaults: &vellum::QuotaDefaults) -> Self {
        let limits = &defaults.limits;
        let seconds = |ns: i64| ns.unsigned_abs() / 1_000_000_000;
        Self {
            kind: kind.into(),
            bytes: Limits {
                soft: limit(limits.soft_bytes),
                hard: limit(limits.hard_bytes),
                grace_s: seconds(defaults.bytes_grace_ns),
            },
            files: Limits {
                soft: limit(limits.soft_inodes),
                hard: limit(limits.hard_inodes),
                grace_s: seconds(defaults.inodes_grace_ns),
            },
        }
    }
}

impl Refusal {
    fn of(error: &Error) -> Self {
        let why = match error {
            Error::NoQuotas => Why::Off,
            Error::NotPermitted => Why::NotPermitted,
            Error::ReadOnly => Why::ReadOnly,
            Error::Invalid(_) => Why::Invalid,
            _ => Why::Other,
        };
        let text = match error {
            Error::Invalid(what) => (*what).to_owned(),
            Error::OutOfMemory(_) => {
                "too many users, groups and projects are counted to add one".into()
            }
            Error::AttributesFull => "there are too many ids with limits of their own".into(),
            error => error.to_string(),
        };
        Self { why, text }
    }
}
