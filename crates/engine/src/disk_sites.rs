//! Every sync of the disk under a logged pool, and an order that hangs on them, as in `docs/CRASH.md`. Nothing else is a persistent step on such a pool once it is
//! made: those of [`sites`](crate::sites) are stores to memory there.

vellum_media::sites! {
    /// What an earlier process wrote to the log, before it is read.
    LOG_INHERITED_DURABLE = "log/inherited-durable",
    /// The bytes of files that an earlier process wrote to a medium of their own, before anybody reads them.
    LOG_INHERITED_DATA = "log/inherited-data",
    /// The bytes of files, before a record refers to them.
    LOG_DATA_DURABLE = "log/data-durable",
    /// Bytes of files that records have, on a medium of their own, before the records are given up.
    LOG_RIDES_DURABLE = "log/rides-durable",
    /// An epoch.
    LOG_RECORD_DURABLE = "log/record-durable",
    /// What home's sum will be, before any line of a checkpoint is written there.
    LOG_TARGET_DURABLE = "log/target-durable",
    /// Lines of records where they belong, before the records are given up.
    LOG_HOME_DURABLE = "log/home-durable",
    /// That they are given up, before anything is written over them.
    LOG_ANCHOR_DURABLE = "log/anchor-durable",
    /// That the image of a killed process is none any more, before anything is written that it does not have.
    LOG_IMAGE_OVER = "log/image-over",
    /// Which image in shared memory belongs to the log, before the first operation.
    LOG_IMAGE_NAMED = "log/image-named",
    /// An order: the record of the epoch that gave a block up, before anything is written over the block.
    LOG_BLOCK_FREE = "log/block-free",
}
