//! How a pool is opened: what its medium is taken for, and for what.

/// What to take the medium for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MediaChoice {
    /// Whatever it turns out to be: DAX if the kernel grants `MAP_SYNC`, memory on tmpfs, ramfs and
    /// hugetlbfs, otherwise a file.
    #[default]
    Auto,
    /// Persistent memory, or an error.
    Dax,
    /// A file through the page cache, whatever it is.
    File,
    /// Memory that need not survive, whatever it is: `sync` does nothing.
    Memory,
    /// A file, in which a log makes durable what is worked on in memory. Asked for when a pool is
    /// made; later on the pool says it.
    Logged,
}

/// How to open a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Leave the file alone. The pool is mapped copy-on-write, so the engine may still store into
    /// it (to replay a journal, say): what it stores is seen by this mapping alone and forgotten
    /// when it is dropped. Several may read, none while somebody writes.
    pub read_only: bool,
    /// What to take the medium for.
    pub media: MediaChoice,
    /// Fault in every page before returning.
    pub populate: bool,
}
