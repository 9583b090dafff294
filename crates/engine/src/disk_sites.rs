//! Every sync of the disk under a logged pool, and an order that depends on them
//! (`docs/crash/log.md`). Nothing else is a persistent step on such a pool once it is made: those
//! of [`sites`](crate::sites) are stores to memory there.
//!
//! Also the steps for metadata in persistent memory whose data lie on a disk, and those of tools
//! that change the table of the file systems of a pool (`docs/crash/split.md`). This list and
//! [`sites`](crate::sites) have no number in common.

vellum_media::sites! {
    from 1 << 14;
    /// What an earlier process wrote to the log, before it is read.
    LOG_INHERITED_DURABLE = "log/inherited-durable",
    /// The bytes of files that an earlier process wrote to a medium of their own, before anybody
    /// reads them.
    LOG_INHERITED_DATA = "log/inherited-data",
    /// The bytes of files, before a record refers to them.
    LOG_DATA_DURABLE = "log/data-durable",
    /// Bytes of files that records have, before the records are given up.
    LOG_RIDES_DURABLE = "log/rides-durable",
    /// An epoch.
    LOG_RECORD_DURABLE = "log/record-durable",
    /// What home's sum will be, before any line of a checkpoint is written there.
    LOG_TARGET_DURABLE = "log/target-durable",
    /// Lines of records where they belong, before the records are given up.
    LOG_HOME_DURABLE = "log/home-durable",
    /// That they are given up, before anything is written over them.
    LOG_ANCHOR_DURABLE = "log/anchor-durable",
    /// That the image of a killed process is none any more, before anything is written that it does
    /// not have.
    LOG_IMAGE_OVER = "log/image-over",
    /// Which image in shared memory belongs to the log, before the first operation.
    LOG_IMAGE_NAMED = "log/image-named",
    /// An order: the record of the epoch that gave a block up, before anything is written over the
    /// block.
    LOG_BLOCK_FREE = "log/block-free",
    /// What a piece of metadata holds, before a transaction first stores to it.
    VERSIONS_ORIGINAL = "versions/original",
    /// Before that store: a power cut may take it back from then on.
    VERSIONS_ORIGINAL_DURABLE = "versions/original-durable",
    /// The bytes of files, those that a killed process wrote, too, before the transaction that
    /// leads to them is committed.
    VERSIONS_DATA_DURABLE = "versions/data-durable",
    /// The number of a transaction that is committed, or of which nothing is left to be taken back.
    VERSIONS_COMMITTED = "versions/committed",
    /// Before anybody is told, before a block that it gave up is anybody's, and before one of its
    /// versions is written over.
    VERSIONS_COMMITTED_DURABLE = "versions/committed-durable",
    /// An order: that number, before anything is written over a block that the transaction gave up.
    VERSIONS_BLOCK_FREE = "versions/block-free",
    /// What a process that was killed left in the processor's caches, before anything builds upon
    /// it.
    VERSIONS_INHERITED = "versions/inherited",
    /// What a piece held before transactions that were not committed.
    VERSIONS_TAKEN_BACK = "versions/taken-back",
    /// Before their versions are void.
    VERSIONS_TAKEN_BACK_DURABLE = "versions/taken-back-durable",
    /// Which blocks of metadata the copy on the external data device lacks, before the transaction
    /// that changed them is committed.
    CARRIED_CHANGED = "carried/changed",
    /// The same, before a store to a piece that is not kept.
    CARRIED_CHANGED_DURABLE = "carried/changed-durable",
    /// That the copy is stale, before anything of the pool changes.
    CARRIED_STALE_DURABLE = "carried/stale-durable",
    /// The blocks and their sums, before the copy counts as whole.
    CARRIED_BLOCKS_DURABLE = "carried/blocks-durable",
    /// That it is whole, before anybody is told.
    CARRIED_WHOLE_DURABLE = "carried/whole-durable",
    /// That it lacks nothing; otherwise all blocks count as changed.
    CARRIED_SINCE = "carried/since",
    /// Behind which the next copy takes what changes from now on, and no more.
    CARRIED_SINCE_DURABLE = "carried/since-durable",
    /// Superblocks of what lay where a pool is made of a carried copy.
    ATTACH_WIPE = "attach/wipe",
    /// Before anything else of it is written over.
    ATTACH_WIPE_DURABLE = "attach/wipe-durable",
    /// The copy, and what belongs to the place where it is now.
    ATTACH_POOL = "attach/pool",
    /// Before the medium is this pool's.
    ATTACH_POOL_DURABLE = "attach/pool-durable",
    /// Whose the medium is, before anybody is told, and before the copy of its head is written
    /// over.
    ATTACH_MEDIUM_DURABLE = "attach/medium-durable",
    /// That copy.
    ATTACH_MEDIUM_COPY_DURABLE = "attach/medium-copy-durable",
    /// Of which session an external data device is: in the copy of its head, before the head is
    /// written, and in the head, before the pool says so.
    SESSION_MEDIUM_DURABLE = "session/medium-durable",
    /// A superblock whose table has a file system more, or less.
    PARTS_TABLE = "parts/table",
    /// Before the first copy is written, while that or the second one is sound; and before anybody
    /// is told.
    PARTS_TABLE_DURABLE = "parts/table-durable",
    /// Superblocks of a file system that no table has any more.
    PARTS_WIPE = "parts/wipe",
    /// Before its bytes are anybody's.
    PARTS_WIPE_DURABLE = "parts/wipe-durable",
}
