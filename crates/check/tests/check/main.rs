//! The checker: every class of damage made on purpose, and what it says of sound pools and of any
//! bytes.

mod area_classes;
mod areas;
mod classes;
mod cuckoo;
mod damage;
mod fuzz;
mod inspect;
mod journals;
mod level;
mod places;
mod sound;
#[path = "../testimage/mod.rs"]
mod testimage;
mod trees;
