//! The library as programs use it: pools on each medium, the state after a kill, external data
//! devices, several datasets in a pool, and views of bytes.

mod adoption;
mod areas;
mod as_std;
mod committing;
mod copying;
mod datasets;
mod direct;
mod ending;
mod experiments;
mod external;
mod fixture;
mod forked;
mod full_memory;
mod growing;
mod logged;
mod metadata_in_data;
mod opening;
mod replica;
mod segments;
mod sharing;
mod sparse;
mod split;
mod views;
