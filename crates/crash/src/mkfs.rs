//! Crashes of making a pool: what they leave is no pool, or a whole one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use vellum::{Error, FormatOptions, MappingKind, format};
use vellum_check::{Class, Finding, MemoryImage, Options as CheckOptions, Severity, check};
use vellum_layout::SuperblockError;
use vellum_media::{CrashPoints, Event};

use crate::id::{CrashId, Cut, Mode};
use crate::memories::{Explored, Shared};
use crate::plan::plan;
use crate::report::{Kind, Violation};
use crate::run::Rewrite;
use crate::session::{CLOCK_AFTER, CLOCK_START, POOL_BYTES, Result, Session, blank_image, mount};
use crate::tree::{Tree, read_tree};
use crate::workload::Step;

const OLD: [u8; 16] = [7; 16];
const NEW: [u8; 16] = [8; 16];

/// A pool being made.
pub(crate) struct Making {
    pub(crate) name: &'static str,
    /// What was there before.
    base: Vec<u8>,
    /// The tree of the pool that was there before.
    old: Option<Tree>,
    /// Ends with a marker: it was made.
    pub(crate) log: Vec<Event>,
}

/// Pools made where nothing was, where anything was, and where a pool was.
///
/// # Errors
/// The engine fails even without a crash.
pub(crate) fn makings() -> Result<Vec<Making>> {
    let noise = (0..POOL_BYTES / 8).flat_map(|word| (word | 0xDEAD_BEEF << 32).to_le_bytes());
    let pool = Shared::of(blank_image(2, MappingKind::default()));
    let mut session: Session = Session::new(pool.clone(), 64);
    for line in [
        "open-pool",
        "create f 644 -",
        "append f 5 5000",
        "close-pool",
    ] {
        session.step(&Step::parse(line))?;
    }
    let of = |name, base: Vec<u8>, known_zero| Making::record(name, base, known_zero);
    Ok(vec![
        of("mkfs/in-zeros", vec![0; POOL_BYTES as usize], true)?,
        of("mkfs/over-noise", noise.collect(), false)?,
        of("mkfs/over-pool", pool.0.image(), false)?,
    ])
}

impl Making {
    fn record(name: &'static str, base: Vec<u8>, known_zero: bool) -> Result<Self> {
        let old = look(&base).ok().map(|(_, tree)| tree);
        let pool = Shared::of(base.clone());
        pool.0.start_recording();
        let options = FormatOptions {
            thread_slots: Some(2),
            uuid: NEW,
            hash_seed: 0x5EED,
            now_ns: CLOCK_START,
            known_zero,
            ..FormatOptions::default()
        };
        format(&*pool.0, &options)?;
        pool.0.marker(1);
        Ok(Self {
            name,
            base,
            old,
            log: pool.0.take_log(),
        })
    }

    /// Explores the crashes, up to the first that is wrong: how many, and which.
    pub(crate) fn explore(
        &self,
        rewrite: Option<&Rewrite<'_>>,
        states: usize,
    ) -> (u64, Option<Violation>) {
        let log = rewrite.map_or_else(|| self.log.clone(), |rewrite| rewrite(&self.log));
        let points = || CrashPoints::new(self.base.clone(), &log);
        let plan = plan(points(), &log, 0, states);
        let (mut walk, mut done) = (points(), 0);
        for quota in plan.quotas.iter().map(|quota| quota.states) {
            let Some(point) = walk.next_point() else {
                break;
            };
            for state in point.states(quota, point.events_done() as u64) {
                done += u64::from(quota > 0);
                let made = point.marker().is_some();
                let Err((kind, detail)) = self.judge(&point.image(&state), made) else {
                    continue;
                };
                let cut = Cut {
                    events: point.events_done(),
                    choice: state.choice,
                };
                let id = CrashId {
                    mode: Mode::X86,
                    workload: self.name.to_owned(),
                    cuts: vec![cut],
                };
                let violation = Violation {
                    id: id.to_string(),
                    kind,
                    detail,
                    operation: "mkfs".to_owned(),
                    states: 1,
                    moment: if made {
                        "the pool had been made"
                    } else {
                        "the pool was being made"
                    }
                    .to_owned(),
                    missing: Vec::new(),
                    minimised: None,
                };
                return (done, Some(violation));
            }
        }
        (done, None)
    }

    /// What is wrong with what a crash left, before the pool was made or after.
    fn judge(&self, image: &[u8], made: bool) -> std::result::Result<(), (Kind, String)> {
        let looked = catch_unwind(AssertUnwindSafe(|| look(image)));
        let looked = looked.map_err(|_| (Kind::Panic, "opening panics".to_owned()))?;
        let (uuid, tree) = match looked {
            Ok(found) => found,
            Err(Error::Superblock(SuperblockError::NotVellum | SuperblockError::Damaged))
                if !made =>
            {
                return Ok(());
            }
            Err(error) => return Err((Kind::Recovery, error.to_string())),
        };
        match &self.old {
            Some(old) if uuid == OLD && !made => {
                let is_whole = tree.nodes == old.nodes;
                return if is_whole {
                    Ok(())
                } else {
                    Err((Kind::Tree, "part of the pool that was there".to_owned()))
                };
            }
            _ => {}
        }
        if uuid != NEW || tree.nodes.len() != 1 {
            return Err((Kind::Tree, "not the new pool".to_owned()));
        }
        let report = check(
            &MemoryImage(&*Shared::of(image.to_vec()).0),
            CheckOptions::default(),
        );
        // Until the pool is made, a copy of the superblock may be torn.
        let counts = |finding: &&Finding| {
            finding.severity == Severity::Damage && (made || finding.class != Class::SuperblockCopy)
        };
        let damage = report.findings.iter().find(counts);
        damage.map_or(Ok(()), |finding| Err((Kind::Damage, finding.to_string())))
    }
}

/// Which pool an image holds, and its tree.
fn look(image: &[u8]) -> Result<([u8; 16], Tree)> {
    let fs = mount::<Explored>(&Shared::of(image.to_vec()), 64, CLOCK_AFTER)?;
    Ok((fs.superblock().uuid, read_tree(&fs)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_mkfs_leaves_no_pool_or_a_whole_one() {
        for making in makings().unwrap() {
            let (done, wrong) = making.explore(None, 64);
            assert!(done > 50, "{} states of {}", done, making.name);
            assert_eq!(wrong, None, "{}", making.name);
        }
    }
}
