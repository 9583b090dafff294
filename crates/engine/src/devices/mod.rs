//! The files and devices with the bytes of a pool: data segments, external data devices, their
//! sessions, and the metadata replica on them.

pub(crate) mod data;
pub(crate) mod medium;
pub(crate) mod replica;
pub(crate) mod segments;
pub(crate) mod session;
pub(crate) mod superblock;
