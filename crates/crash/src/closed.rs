//! What a close that returned has promised: the next opening need not recover anything.

use vellum_layout::{BLOCK_BYTES, PoolPhase, PoolState, StateWord, Superblock};
use vellum_media::{CrashPoints, Event, Op};

use crate::id::{CrashId, Cut, Mode};
use crate::record::Recorded;
use crate::report::{Kind, Violation};
use crate::workload::Step;

/// The first close in `log`, which is one of `recorded`'s, behind which a power cut leaves a pool
/// that does not say that it is closed.
pub(crate) fn find_left_open(recorded: &Recorded, log: &[Event]) -> Option<Violation> {
    let closes = |marker: u64| {
        let step = marker.checked_sub(1).map(|step| step as usize);
        step.and_then(|step| recorded.workload.explored.get(step)) == Some(&Step::Close)
    };
    let mut points = CrashPoints::new(recorded.image_before(), log);
    while let Some(point) = points.next_point() {
        let Op::Marker(marker) = log[point.events_done() - 1].op else {
            continue;
        };
        if closes(marker) && phase(point.durable()) != Some(PoolPhase::Clean) {
            let cut = Cut {
                events: point.events_done(),
                choice: Vec::new(),
            };
            let id = CrashId {
                mode: Mode::X86,
                workload: recorded.workload.name.clone(),
                cuts: vec![cut],
            };
            return Some(Violation {
                id: id.to_string(),
                kind: Kind::Unclean,
                detail: "a close has returned, but the pool does not say so".to_owned(),
                operation: Step::Close.operation().to_owned(),
                states: 1,
                moment: "every step up to the close had returned".to_owned(),
                missing: Vec::new(),
                minimised: None,
            });
        }
    }
    None
}

fn phase(image: &[u8]) -> Option<PoolPhase> {
    let superblock = Superblock::unseal(image.get(..BLOCK_BYTES as usize)?).ok()?;
    let at = (superblock.geometry().state_at + PoolState::WORD) as usize;
    let word = u64::from_ne_bytes(image.get(at..at + 8)?.try_into().ok()?);
    Some(StateWord(word).get()?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record, workloads};

    #[test]
    fn a_close_that_returned_survives() {
        let all = workloads();
        let closing = all
            .iter()
            .filter(|workload| workload.explored.contains(&Step::Close));
        let mut closes = 0;
        for workload in closing {
            let recorded = record(workload).unwrap();
            assert_eq!(find_left_open(&recorded, recorded.explored_log()), None);
            closes += 1;
        }
        assert!(closes > 10);
    }
}
