//! The file system as its adapters use it: names and directories, what is read and written, opening
//! and closing, damage, memories and disks that fail.

mod access_times;
mod basics;
mod closing;
mod damage;
mod damaged_areas;
mod damaged_names;
mod durability;
mod eviction;
mod evolving;
mod listing;
mod logged_failing;
mod lost_pages;
mod moves;
mod namespaces;
mod paths;
mod reading;
mod room;
mod scale;
mod split_failing;
mod tables;
