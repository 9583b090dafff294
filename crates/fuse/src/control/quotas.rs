//! Requests about quotas, and their bytes.

use vellum::QuotaKind;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A request about quotas. The answer depends on who asks, as [`vellum::Fs`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaRequest {
    /// Turns quotas on or off.
    Switch {
        /// Whether they are on from now on.
        is_on: bool,
    },
    /// Usage and limits.
    Report {
        /// Whose. `None`: of all that the caller may see.
        of: Option<(QuotaKind, u32)>,
    },
    /// Sets limits.
    Set {
        /// Whose.
        of: (QuotaKind, u32),
        /// The limits.
        limits: LimitsChange,
    },
    /// Leaves an id the limits of all ids.
    Reset {
        /// Whose.
        of: (QuotaKind, u32),
    },
    /// What holds for all ids of a kind, after this change.
    Defaults {
        /// The kind.
        kind: QuotaKind,
        /// Their limits.
        limits: LimitsChange,
        /// How long a soft limit of bytes may be exceeded [ns]. `None` leaves it as it is.
        bytes_grace_ns: Option<u64>,
        /// The same for inodes.
        inodes_grace_ns: Option<u64>,
    },
}

/// Limits to set. `None` leaves one as it is; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of QuotaLimits")]
pub struct LimitsChange {
    pub hard_bytes: Option<u64>,
    pub soft_bytes: Option<u64>,
    pub hard_inodes: Option<u64>,
    pub soft_inodes: Option<u64>,
}

/// The bytes of a request about quotas, behind the head.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct Body {
    what: u64,
    kind: u64,
    id: u64,
    /// A bit for each value that is given.
    given: u64,
    /// The limits in the order of their fields; then the grace periods.
    values: [u64; 6],
}

const OFF: u64 = 1;
const ON: u64 = 2;
const REPORT_ALL: u64 = 3;
const REPORT_ONE: u64 = 4;
const SET: u64 = 5;
const RESET: u64 = 6;
const DEFAULTS: u64 = 7;

impl QuotaRequest {
    pub(super) fn body(self) -> Body {
        let of = |what, (kind, id): (QuotaKind, u32)| Body {
            what,
            kind: kind as u64,
            id: id.into(),
            ..Body::default()
        };
        let all = |what| of(what, (QuotaKind::User, 0));
        match self {
            Self::Switch { is_on: false } => all(OFF),
            Self::Switch { is_on: true } => all(ON),
            Self::Report { of: None } => all(REPORT_ALL),
            Self::Report { of: Some(whose) } => of(REPORT_ONE, whose),
            Self::Set { of: whose, limits } => of(SET, whose).with(limits, [None; 2]),
            Self::Reset { of: whose } => of(RESET, whose),
            Self::Defaults {
                kind,
                limits,
                bytes_grace_ns,
                inodes_grace_ns,
            } => of(DEFAULTS, (kind, 0)).with(limits, [bytes_grace_ns, inodes_grace_ns]),
        }
    }

    pub(super) fn of(body: &Body) -> Option<Self> {
        let mut kinds = QuotaKind::ALL.into_iter();
        let kind = kinds.find(|&kind| kind as u64 == body.kind)?;
        let of = (kind, u32::try_from(body.id).ok()?);
        let value = |at: usize| (body.given & 1 << at != 0).then_some(body.values[at]);
        let limits = LimitsChange {
            hard_bytes: value(0),
            soft_bytes: value(1),
            hard_inodes: value(2),
            soft_inodes: value(3),
        };
        Some(match body.what {
            OFF => Self::Switch { is_on: false },
            ON => Self::Switch { is_on: true },
            REPORT_ALL => Self::Report { of: None },
            REPORT_ONE => Self::Report { of: Some(of) },
            SET => Self::Set { of, limits },
            RESET => Self::Reset { of },
            DEFAULTS => Self::Defaults {
                kind,
                limits,
                bytes_grace_ns: value(4),
                inodes_grace_ns: value(5),
            },
            _ => return None,
        })
    }
}

impl Body {
    fn with(mut self, limits: LimitsChange, graces: [Option<u64>; 2]) -> Self {
        let LimitsChange {
            hard_bytes,
            soft_bytes,
            hard_inodes,
            soft_inodes,
        } = limits;
        let limits = [hard_bytes, soft_bytes, hard_inodes, soft_inodes];
        for (at, value) in limits.into_iter().chain(graces).enumerate() {
            if let Some(value) = value {
                self.given |= 1 << at;
                self.values[at] = value;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_sent() {
        let of = (QuotaKind::Project, u32::MAX - 1);
        let limits = LimitsChange {
            hard_bytes: Some(u64::MAX),
            soft_inodes: Some(0),
            ..LimitsChange::default()
        };
        for request in [
            QuotaRequest::Switch { is_on: false },
            QuotaRequest::Switch { is_on: true },
            QuotaRequest::Report { of: None },
            QuotaRequest::Report { of: Some(of) },
            QuotaRequest::Set { of, limits },
            QuotaRequest::Reset { of },
            QuotaRequest::Defaults {
                kind: QuotaKind::Group,
                limits,
                bytes_grace_ns: None,
                inodes_grace_ns: Some(7),
            },
        ] {
            assert_eq!(QuotaRequest::of(&request.body()), Some(request));
        }
    }

    #[test]
    fn unknown_requests_are_none() {
        let known = QuotaRequest::Report { of: None }.body();
        for body in [
            Body { what: 0, ..known },
            Body { what: 8, ..known },
            Body { kind: 3, ..known },
            Body {
                id: 1 << 32,
                ..known
            },
        ] {
            assert_eq!(QuotaRequest::of(&body), None);
        }
    }
}
