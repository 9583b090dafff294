//! How a pool is opened: how its medium is treated, and for which accesses.

/// How to treat the medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MediaChoice {
    /// As detected: DAX if the kernel grants `MAP_SYNC`, memory on tmpfs, ramfs and hugetlbfs,
    /// otherwise a file.
    #[default]
    Auto,
    /// Persistent memory; an error on other media.
    Dax,
    /// A file through the page cache, whatever it is.
    File,
    /// Memory that need not survive, whatever it is: `sync` does nothing.
    Memory,
    /// A file whose redo log makes an image in memory durable. Used for formatting; later the pool
    /// itself records it.
    Logged,
}

/// How to open a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// Leave the file unchanged. The pool is mapped copy-on-write, so the engine may still store
    /// into it (for example to replay a journal): only this mapping sees these stores, and they are
    /// discarded when it is dropped. Several processes may read, but none while another one writes.
    pub read_only: bool,
    /// How to treat the medium.
    pub media: MediaChoice,
    /// Fault in every page before returning.
    pub populate: bool,
}
