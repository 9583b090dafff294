//! What makes an operation last: the journal of small changes, commits, the redo log, the undo
//! log of split pools, and overwrites of records that span lines.

pub(crate) mod commit;
pub(crate) mod journal;
pub(crate) mod name_times;
pub(crate) mod overwrite;
