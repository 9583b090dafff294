//! Where the bytes of a pool live: the files and devices that hold them, the segments of data,
//! an external data device, and the metadata replica that it carries.

pub(crate) mod data;
pub(crate) mod medium;
pub(crate) mod replica;
pub(crate) mod segments;
pub(crate) mod session;
pub(crate) mod superblock;
