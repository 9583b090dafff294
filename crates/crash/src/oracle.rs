//! What a crash may show, as answered by whatever knows what ran.

use vellum_media::{Event, Op};

use crate::judge::Wrong;
use crate::report::Kind;
use crate::tree::Tree;

/// What had returned when the power failed, as far as an oracle distinguishes moments. Each oracle
/// has its own encoding. A run begins at the default, and markers in the log advance it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stage(pub(crate) u64);

/// Decides which trees recovery may find.
///
/// The result depends only on the tree and the stage: each pair is asked for once.
pub(crate) trait Oracle: Sync {
    /// The stage after `marker`, which follows `stage` in the log.
    fn after(&self, stage: Stage, marker: u64) -> Stage;

    /// What is wrong with `tree` if the power failed at `stage`; empty if the tree is allowed.
    fn judge(&self, tree: &Tree, stage: Stage) -> Vec<(Kind, String)>;

    /// A step has just led to `stage` by returning. What is wrong, beyond the tree, with the
    /// `image` that a power cut leaves at that moment.
    fn broken_promise(&self, _stage: Stage, _image: &[u8]) -> Option<(Kind, String)> {
        None
    }

    /// Whether this error is allowed at `stage`, because it reports a loss where something may be
    /// lost.
    fn is_told(&self, _wrong: &Wrong, _stage: Stage) -> bool {
        false
    }

    /// The kind of operation that is in flight at `stage`, or was the last one.
    fn operation(&self, stage: Stage) -> &'static str;

    /// Describes what had returned and what was in flight at `stage`.
    fn describe(&self, stage: Stage) -> String;
}

/// The stage that `events` lead to from `stage`.
pub(crate) fn stage_after(oracle: &dyn Oracle, stage: Stage, events: &[Event]) -> Stage {
    events.iter().fold(stage, |stage, event| match event.op {
        Op::Marker(marker) => oracle.after(stage, marker),
        _ => stage,
    })
}
