//! What makes an operation last: the journal of small changes, commits to the logs
//! ([`crate::logs`]), times of names, and notes of what is being overwritten.

pub(crate) mod commit;
pub(crate) mod journal;
pub(crate) mod name_times;
pub(crate) mod overwrite;
