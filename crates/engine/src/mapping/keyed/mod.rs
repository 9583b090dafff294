//! What mappings have in common that keep one table for all files and look entries up by their
//! keys: [lines] of entries, [blocks] that they are given and give back, entries that [move](moves)
//! while others look for them, [searches](search) for one block or for many, and what
//! [recovery](rebuild) does.

pub(super) mod blocks;
pub(super) mod lines;
pub(super) mod moves;
pub(super) mod rebuild;
pub(super) mod search;
