//! What a crash may show, asked of whoever knows what ran.

use vellum_media::{Event, Op};

use crate::judge::Wrong;
use crate::report::Kind;
use crate::tree::Tree;

/// What had returned when the power failed, as far as an oracle tells moments apart: a key of its
/// own making. A run begins at the default; markers in the log move it on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stage(pub(crate) u64);

/// Knows which trees recovery may find.
///
/// What it says depends on nothing but the tree and the stage: it is asked once for each pair.
pub(crate) trait Oracle: Sync {
    /// The stage behind `marker`, which the log has at `stage`.
    fn after(&self, stage: Stage, marker: u64) -> Stage;

    /// What is wrong with `tree` if the power failed at `stage`: nothing, if it is allowed.
    fn judge(&self, tree: &Tree, stage: Stage) -> Vec<(Kind, String)>;

    /// What is wrong with the `image` that a power cut leaves at the moment that a step led to
    /// `stage` by returning, beyond what its tree says.
    fn broken_promise(&self, _stage: Stage, _image: &[u8]) -> Option<(Kind, String)> {
        None
    }

    /// Whether something wrong with an image is right all the same at `stage`: it says what was
    /// lost, where something may be.
    fn is_told(&self, _wrong: &Wrong, _stage: Stage) -> bool {
        false
    }

    /// The kind of operation that is in flight at `stage`, or was the last.
    fn operation(&self, stage: Stage) -> &'static str;

    /// What had returned and what was in flight at `stage`, for people.
    fn describe(&self, stage: Stage) -> String;
}

/// The stage that `events` lead to from `stage`.
pub(crate) fn stage_after(oracle: &dyn Oracle, stage: Stage, events: &[Event]) -> Stage {
    events.iter().fold(stage, |stage, event| match event.op {
        Op::Marker(marker) => oracle.after(stage, marker),
        _ => stage,
    })
}
