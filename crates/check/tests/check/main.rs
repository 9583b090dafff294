//! The checker: every injected class of damage, and its reports on sound pools and on any bytes.

mod area_classes;
mod areas;
mod classes;
mod cuckoo;
mod damage;
mod flags;
mod fuzz;
mod inspect;
mod journals;
mod level;
mod places;
mod sound;
#[path = "../testimage/mod.rs"]
mod testimage;
mod trees;
mod xattrs;
