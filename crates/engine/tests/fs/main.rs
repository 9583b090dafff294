//! The file system as its adapters use it: names and directories, reads and writes, opening and
//! closing, damage, failing memories and disks.

mod access_times;
mod acls;
mod basics;
mod closing;
mod damage;
mod damaged_areas;
mod damaged_names;
mod durability;
mod eviction;
mod evolving;
mod exerciser;
mod flags;
mod listing;
mod logged_failing;
mod lost_pages;
mod moves;
mod namespaces;
mod paths;
mod quotas;
mod reading;
mod room;
mod scale;
mod split_failing;
mod tables;
mod unnamed;
mod xattrs;
