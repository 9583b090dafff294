//! How operations become durable: the journal of small changes, commits to the logs
//! ([`crate::logs`]), times of names, and records of overwritten blocks.

pub(crate) mod commit;
pub(crate) mod journal;
pub(crate) mod name_times;
pub(crate) mod overwrite;
