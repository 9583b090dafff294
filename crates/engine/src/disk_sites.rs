//! Every sync of the disk under a logged pool, and an order that depends on them
//! (`docs/crash/log.md`). A logged pool has no other persistent steps once it is formatted: there
//! the steps of [`sites`](crate::sites) are stores to memory.
//!
//! Also the steps of split pools, whose metadata lie in persistent memory and whose data lie on a
//! disk, and those of tools that change a pool's table of datasets (`docs/crash/split.md`). This
//! list and [`sites`](crate::sites) have no number in common. The comments are like those of
//! [`sites`](crate::sites).

vellum_media::sites! {
    from 1 << 14;
    /// Everything that an earlier process wrote to the log, before it is read.
    LOG_INHERITED_DURABLE = "log/inherited-durable",
    /// The bytes of files that an earlier process wrote to an external data device, before they are
    /// read.
    LOG_INHERITED_DATA = "log/inherited-data",
    /// The bytes of files, before a record refers to them.
    LOG_DATA_DURABLE = "log/data-durable",
    /// Journaled data where they belong, before their records are freed.
    LOG_RIDES_DURABLE = "log/rides-durable",
    /// The epoch is committed.
    LOG_RECORD_DURABLE = "log/record-durable",
    /// The checksum that home will have, before any line of a checkpoint is written there.
    LOG_TARGET_DURABLE = "log/target-durable",
    /// Lines of records where they belong, before the records are freed.
    LOG_HOME_DURABLE = "log/home-durable",
    /// The records are freed, before anything is written over them.
    LOG_ANCHOR_DURABLE = "log/anchor-durable",
    /// The log names no image of a killed process any more, before anything is written that the
    /// image does not have.
    LOG_IMAGE_OVER = "log/image-over",
    /// The log names its image in shared memory, before the first operation.
    LOG_IMAGE_NAMED = "log/image-named",
    /// An order: the record of the epoch that freed a block, before anything is written over the
    /// block.
    LOG_BLOCK_FREE = "log/block-free",
    /// The old bytes of an undo granule, before a transaction first stores to it.
    VERSIONS_ORIGINAL = "versions/original",
    /// Before that store: a power cut may undo it from then on.
    VERSIONS_ORIGINAL_DURABLE = "versions/original-durable",
    /// The bytes of files, including those that a killed process wrote, before the transaction that
    /// leads to them is committed.
    VERSIONS_DATA_DURABLE = "versions/data-durable",
    /// The number of a transaction that is committed, or that has been undone.
    VERSIONS_COMMITTED = "versions/committed",
    /// Before the commit is reported, before blocks that it freed are allocated, and before its
    /// undo records are overwritten.
    VERSIONS_COMMITTED_DURABLE = "versions/committed-durable",
    /// An order: that number, before anything is written over a block that the transaction freed.
    VERSIONS_BLOCK_FREE = "versions/block-free",
    /// Everything that a killed process left in the processor's caches, before anything relies on
    /// it.
    VERSIONS_INHERITED = "versions/inherited",
    /// The old bytes of an undo granule, from before transactions that were not committed.
    VERSIONS_TAKEN_BACK = "versions/taken-back",
    /// Before their undo records are void.
    VERSIONS_TAKEN_BACK_DURABLE = "versions/taken-back-durable",
    /// The marks of the blocks that the metadata replica lacks, before the transaction that changed
    /// them is committed.
    CARRIED_CHANGED = "carried/changed",
    /// The same, before a store to a granule without an undo record.
    CARRIED_CHANGED_DURABLE = "carried/changed-durable",
    /// The replica is stale, before anything of the pool changes.
    CARRIED_STALE_DURABLE = "carried/stale-durable",
    /// The blocks and their checksums, before the replica counts as whole.
    CARRIED_BLOCKS_DURABLE = "carried/blocks-durable",
    /// The replica is whole, before that is reported.
    CARRIED_WHOLE_DURABLE = "carried/whole-durable",
    /// The map of changed blocks belongs to this replica; otherwise all blocks count as changed.
    CARRIED_SINCE = "carried/since",
    /// From here on the next export copies the blocks that change, and no others.
    CARRIED_SINCE_DURABLE = "carried/since-durable",
    /// Superblocks of earlier contents, where a pool is created from a metadata replica.
    ATTACH_WIPE = "attach/wipe",
    /// Before anything else of them is overwritten.
    ATTACH_WIPE_DURABLE = "attach/wipe-durable",
    /// The replica, and what depends on its new path.
    ATTACH_POOL = "attach/pool",
    /// Before the device belongs to this pool.
    ATTACH_POOL_DURABLE = "attach/pool-durable",
    /// The device belongs to the new pool, before that is reported, and before the copy of its head
    /// is overwritten.
    ATTACH_MEDIUM_DURABLE = "attach/medium-durable",
    /// The copy of its head.
    ATTACH_MEDIUM_COPY_DURABLE = "attach/medium-copy-durable",
    /// The session in the copy of an external data device's head, before the head is written, and
    /// in the head, before the pool stores the session.
    SESSION_MEDIUM_DURABLE = "session/medium-durable",
    /// A superblock whose table has one dataset more or less.
    PARTS_TABLE = "parts/table",
    /// Before the first copy is written, while that or the second one is sound; and before the
    /// change is reported.
    PARTS_TABLE_DURABLE = "parts/table-durable",
    /// Superblocks of a dataset that is in no table any more.
    PARTS_WIPE = "parts/wipe",
    /// Before its bytes are reused.
    PARTS_WIPE_DURABLE = "parts/wipe-durable",
}
