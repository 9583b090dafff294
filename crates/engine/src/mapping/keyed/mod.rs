//! What mappings with one table for all files and entries found by keys have in common: [lines] of
//! entries, [blocks] for these entries, [moves](moves) of entries during lookups,
//! [searches](search) for one block or many, and [recovery](rebuild).

pub(super) mod blocks;
pub(super) mod lines;
pub(super) mod moves;
pub(super) mod rebuild;
pub(super) mod search;
