//! Every place in the engine that flushes, fences, or stores past the cache, and every place that
//! relies on the order of two stores to one cache line. `docs/crash/operations.md` says in which
//! order each operation takes them.
//!
//! Each site is used in exactly one place; a mapping that gets one as an argument may use it in
//! several. A constant's name is that of its site. Sites of fences end in *durable*, those of
//! orders within a line in *behind*. The comment of a flush or a store names what is written. The
//! comment of a fence says what it commits, or what may happen only after it.

vellum_media::sites! {
    /// Both superblocks in front, zeroed.
    FORMAT_WIPE_FIRST = "format/wipe-first",
    /// The superblock at the end, zeroed.
    FORMAT_WIPE_REPLICA = "format/wipe-replica",
    /// Nothing of an earlier pool can be found any more.
    FORMAT_WIPE_DURABLE = "format/wipe-durable",
    /// State block, thread slots, metadata and table, zeroed.
    FORMAT_ZERO = "format/zero",
    /// The root directory's inode.
    FORMAT_ROOT = "format/root",
    /// The word of the chunk with the root directory's inode.
    FORMAT_CHUNK = "format/chunk",
    /// The area table, with the line of the root directory's area.
    FORMAT_AREA = "format/area",
    /// The first anchor of a log.
    FORMAT_LOG_ANCHOR = "format/log-anchor",
    /// The pool header of the undo log.
    FORMAT_VERSIONS = "format/versions",
    /// The root of a mapping table.
    FORMAT_TABLE = "format/table",
    /// The state word.
    FORMAT_STATE = "format/state",
    /// All metadata are durable before a superblock leads to them.
    FORMAT_STATE_DURABLE = "format/state-durable",
    /// One of the three superblocks.
    FORMAT_SUPERBLOCK = "format/superblock",
    /// The pool exists.
    FORMAT_SUPERBLOCK_DURABLE = "format/superblock-durable",
    /// Boot id, process, time, and the state word, dirty.
    OPEN_STATE = "open/state",
    /// What recovery stored, and the state, before anything that a close saved becomes wrong.
    OPEN_DURABLE = "open/durable",
    /// What a killed process left in the caches.
    RECOVER_INHERITED = "recover/inherited",
    /// Before recovery relies on it.
    RECOVER_INHERITED_DURABLE = "recover/inherited-durable",
    /// Blocks that a killed process was overwriting.
    RECOVER_INHERITED_DATA = "recover/inherited-data",
    /// The words of a committed record.
    RECOVER_JOURNAL_WORDS = "recover/journal-words",
    /// Before the record is forgotten.
    RECOVER_JOURNAL_WORDS_DURABLE = "recover/journal-words-durable",
    /// The record's head.
    RECOVER_JOURNAL_RETIRE = "recover/journal-retire",
    /// A word that the list of a move names.
    RECOVER_MOVED = "recover/moved",
    /// Before the list is forgotten.
    RECOVER_MOVED_DURABLE = "recover/moved-durable",
    /// The word that leads to the list, zeroed.
    RECOVER_MOVE_OVER = "recover/move-over",
    /// An inode without a name, now free.
    RECOVER_FREE_INODE = "recover/free-inode",
    /// A word of a directory's log that names no entry, zeroed.
    RECOVER_LOG_WORD = "recover/log-word",
    /// The line of an area whose root has no name any more.
    RECOVER_AREA = "recover/area",
    /// A word of a state-map with removed entries that no log names any more.
    RECOVER_STATES = "recover/states",
    /// A link count, as it was counted.
    RECOVER_LINKS = "recover/links",
    /// A directory's times, from its entries.
    RECOVER_TIMES = "recover/times",
    /// A line of the table with freed entries.
    RECOVER_TABLE = "recover/table",
    /// A word of a tree whose block is freed.
    RECOVER_TREE = "recover/tree",
    /// A word of an extent tree that is corrected.
    RECOVER_EXTENT = "recover/extent",
    /// A directory's link count.
    CLOSE_LINKS = "close/links",
    /// Times that the inode lacks.
    CLOSE_TIMES = "close/times",
    /// The live map.
    CLOSE_LIVE_MAP = "close/live-map",
    /// Its checksum and the counters.
    CLOSE_COUNTS = "close/counts",
    /// Table lines with words that became FREE without a flush.
    CLOSE_FREED = "close/freed",
    /// The saved state of the mapping's allocator.
    CLOSE_AIDS = "close/aids",
    /// Its head with checksum and epoch.
    CLOSE_AIDS_HEAD = "close/aids-head",
    /// All that a close saves, before the state word.
    CLOSE_SAVED_DURABLE = "close/saved-durable",
    /// The state word, clean.
    CLOSE_STATE = "close/state",
    /// The pool is closed.
    CLOSE_STATE_DURABLE = "close/state-durable",
    /// Head, checksum and pairs of a record.
    JOURNAL_RECORD = "journal/record",
    /// The record is committed.
    JOURNAL_RECORD_DURABLE = "journal/record-durable",
    /// The words that it names.
    JOURNAL_WORDS = "journal/words",
    /// Before the record is forgotten.
    JOURNAL_WORDS_DURABLE = "journal/words-durable",
    /// The record's head.
    JOURNAL_RETIRE = "journal/retire",
    /// Before the words lose their protection.
    JOURNAL_RETIRE_DURABLE = "journal/retire-durable",
    /// The text of a symlink.
    CREATE_TEXT = "create/text",
    /// A new set of extended attributes.
    XATTR_SET = "xattr/set",
    /// The set, before a record leads to it.
    XATTR_SET_DURABLE = "xattr/set-durable",
    /// The extended attributes of a new inode.
    CREATE_XATTRS = "create/xattrs",
    /// The new inode.
    CREATE_INODE = "create/inode",
    /// An inode without a name, before it can get one.
    CREATE_UNNAMED_DURABLE = "create/unnamed-durable",
    /// The new entry.
    CREATE_ENTRY = "create/entry",
    /// Inode and entry, before a log names them.
    CREATE_ENTRY_DURABLE = "create/entry-durable",
    /// The log word.
    CREATE_LOG_WORD = "create/log-word",
    /// The file exists.
    CREATE_LOG_WORD_DURABLE = "create/log-word-durable",
    /// The new entry.
    LINK_ENTRY = "link/entry",
    /// Before a log names it.
    LINK_ENTRY_DURABLE = "link/entry-durable",
    /// The log word.
    LINK_LOG_WORD = "link/log-word",
    /// The name exists.
    LINK_LOG_WORD_DURABLE = "link/log-word-durable",
    /// The state of a name's entry: it exists.
    NAME_STATE = "name/state",
    /// Link count and change time of the file.
    LINK_LINKS = "link/links",
    /// The entry's life word, dead.
    REMOVE_LIFE = "remove/life",
    /// The name is gone.
    REMOVE_LIFE_DURABLE = "remove/life-durable",
    /// Link count and change time of a file with further names.
    GONE_LINKS = "gone/links",
    /// An inode that nothing reaches, now free.
    FREE_INODE = "free/inode",
    /// The blocks of the inode, LIMBO.
    FREE_LIMBO = "free/limbo",
    /// Before the inode's number is used again.
    FREE_LIMBO_DURABLE = "free/limbo-durable",
    /// A further block of the area table.
    AREA_TABLE = "area/table",
    /// The line of an area whose root was removed: the area is free.
    AREA_GONE = "area/gone",
    /// The copy of an entry below a directory that is moved.
    MOVE_COPY = "move/copy",
    /// A block of the list of copies.
    MOVE_LIST = "move/list",
    /// Copies and list, before a record leads to the list.
    MOVE_COPIES_DURABLE = "move/copies-durable",
    /// The states of copies in a group of slots.
    MOVE_STATES = "move/states",
    /// Words of a directory's log, which now name copies.
    MOVE_WORDS = "move/words",
    /// The location of a directory whose own entry was copied.
    MOVE_PLACE = "move/place",
    /// The states of the copied entries in a group of slots: none.
    MOVE_CLEARED = "move/cleared",
    /// Everything in the list is done.
    MOVE_DONE_DURABLE = "move/done-durable",
    /// The word that leads to the list, zeroed.
    MOVE_OVER = "move/over",
    /// Before the copied entries, and the list, are reused.
    MOVE_OVER_DURABLE = "move/over-durable",
    /// A new entry.
    RENAME_ENTRY = "rename/entry",
    /// Times of the directory that is moved.
    RENAME_MOVED_TIMES = "rename/moved-times",
    /// Change time of the file that is moved.
    RENAME_MOVED_CTIME = "rename/moved-ctime",
    /// The life word of a discarded entry, dead.
    RENAME_DISCARD_LIFE = "rename/discard-life",
    /// Before a log names it.
    RENAME_DISCARD_LIFE_DURABLE = "rename/discard-life-durable",
    /// The log word of a discarded entry, for recycling to find.
    RENAME_DISCARD_LOG_WORD = "rename/discard-log-word",
    /// Before another thread closes the pool.
    RENAME_DISCARD_DURABLE = "rename/discard-durable",
    /// Blocks beyond the end, MAPPED.
    WRITE_CLAIM_END = "write/claim-end",
    /// UNWRITTEN blocks beyond the end, MAPPED.
    WRITE_PREALLOCATED = "write/preallocated",
    /// Zeros in front of the data in a new block.
    WRITE_BEFORE_DATA = "write/before-data",
    /// Zeros behind the data in a new block.
    WRITE_AFTER_DATA = "write/after-data",
    /// Zeros between the old end of file and the data.
    WRITE_GAP = "write/gap",
    /// The data.
    WRITE_DATA = "write/data",
    /// Times, and a first root, if the size does not change.
    WRITE_TIMES = "write/times",
    /// Before blocks or size show the data.
    WRITE_DATA_DURABLE = "write/data-durable",
    /// The blocks of holes, MAPPED.
    WRITE_FILLED = "write/filled",
    /// The same blocks, UNWRITTEN again where others found no space.
    WRITE_UNFILLED = "write/unfilled",
    /// Data over old bytes, by a write that also fills holes.
    WRITE_OVER = "write/over",
    /// Before the size can cover the filled blocks.
    WRITE_FILLED_DURABLE = "write/filled-durable",
    /// The size, behind times, root, and the first word of a tree.
    WRITE_SIZE_BEHIND = "write/size-behind",
    /// Times, root and size.
    WRITE_SIZE = "write/size",
    /// The bytes are the file's.
    WRITE_SIZE_DURABLE = "write/size-durable",
    /// The rest of the last block, zeroed.
    EXTEND_TAIL = "extend/tail",
    /// Before the size covers it.
    EXTEND_TAIL_DURABLE = "extend/tail-durable",
    /// The size, behind the times.
    EXTEND_SIZE_BEHIND = "extend/size-behind",
    /// Times, root and size.
    EXTEND_SIZE = "extend/size",
    /// The file is longer.
    EXTEND_SIZE_DURABLE = "extend/size-durable",
    /// The size, behind times and the root's flag.
    TRUNCATE_SIZE_BEHIND = "truncate/size-behind",
    /// Times, root and size.
    TRUNCATE_SIZE = "truncate/size",
    /// The file is shorter, before blocks are freed.
    TRUNCATE_SIZE_DURABLE = "truncate/size-durable",
    /// Blocks beyond the end, LIMBO.
    TRUNCATE_LIMBO = "truncate/limbo",
    /// Before the file can grow over them.
    TRUNCATE_LIMBO_DURABLE = "truncate/limbo-durable",
    /// Blocks that a write claimed and could not fill, LIMBO.
    WRITE_LIMBO = "write/limbo",
    /// Before the file can grow over them.
    WRITE_LIMBO_DURABLE = "write/limbo-durable",
    /// A first root, or the flag that blocks lie beyond the end.
    ALLOCATE_ROOT = "allocate/root",
    /// Before blocks are claimed.
    ALLOCATE_ROOT_DURABLE = "allocate/root-durable",
    /// Blocks, UNWRITTEN.
    ALLOCATE_BLOCKS = "allocate/blocks",
    /// The blocks are the file's.
    ALLOCATE_BLOCKS_DURABLE = "allocate/blocks-durable",
    /// Times, if the size does not change.
    ALLOCATE_TIMES = "allocate/times",
    /// The times.
    ALLOCATE_TIMES_DURABLE = "allocate/times-durable",
    /// The zeroed bytes of blocks that are not freed.
    PUNCH_EDGES = "punch/edges",
    /// Whole blocks, LIMBO.
    PUNCH_LIMBO = "punch/limbo",
    /// Times.
    PUNCH_TIMES = "punch/times",
    /// The hole.
    PUNCH_DURABLE = "punch/durable",
    /// The access time.
    READ_ATIME = "read/atime",
    /// What operations flushed without a fence.
    SYNC_DURABLE = "sync/durable",
    /// The life word of a dead entry that the listing skips.
    LIST_DEAD = "list/dead",
    /// Before a name is reported absent.
    LIST_DEAD_DURABLE = "list/dead-durable",
    /// A line of a log in which a creation is in flight.
    LIST_WORDS = "list/words",
    /// Before a name is reported.
    LIST_WORDS_DURABLE = "list/words-durable",
    /// The state of an entry that another operation may be creating.
    LIST_STATE = "list/state",
    /// A new node of a radix tree.
    RADIX_NODE = "radix/node",
    /// Before a word leads to it.
    RADIX_NODE_DURABLE = "radix/node-durable",
    /// The word that leads to it.
    RADIX_POINTER = "radix/pointer",
    /// A new node of an extent tree.
    EXTENT_NODE = "extent/node",
    /// Before a word leads to it.
    EXTENT_NODE_DURABLE = "extent/node-durable",
    /// The word that leads to it.
    EXTENT_LINK = "extent/link",
    /// The key of an entry, behind the body that it makes valid.
    EXTENT_KEY_BEHIND = "extent/key-behind",
    /// The shortened end of an extent, behind the key of the extent that takes over.
    EXTENT_BORDER_BEHIND = "extent/border-behind",
    /// The end of a leaf's last extent, behind the key of another that has its blocks, too.
    EXTENT_JOIN_BEHIND = "extent/join-behind",
    /// An extent over blocks that will leave another extent, in another line.
    EXTENT_BORDER = "extent/border",
    /// Before the blocks leave the other extent.
    EXTENT_BORDER_DURABLE = "extent/border-durable",
    /// The table word of an allocated chunk.
    CHUNK_WORD = "chunk/word",
    /// Before the chunk's slots are used.
    CHUNK_WORD_DURABLE = "chunk/word-durable",
    /// The words of blocks that become a chunk.
    CHUNK_BLOCKS = "chunk/blocks",
    /// The bytes of blocks that become a chunk, zeroed.
    CHUNK_ZERO = "chunk/zero",
    /// The generation of a dead inode in a chunk that had inodes before.
    CHUNK_GENERATION = "chunk/generation",
    /// The table word of a chunk that becomes data again.
    CHUNK_FREE = "chunk/free",
    /// Before its blocks can be a file's.
    CHUNK_FREE_DURABLE = "chunk/free-durable",
    /// The first extent of a log.
    GROW_FIRST = "grow/first",
    /// Before the inode names it.
    GROW_FIRST_DURABLE = "grow/first-durable",
    /// The inode's root.
    GROW_ROOT = "grow/root",
    /// The log has an extent.
    GROW_ROOT_DURABLE = "grow/root-durable",
    /// The words of a further extent, zeroed.
    GROW_WORDS = "grow/words",
    /// The head of a further extent.
    GROW_HEAD = "grow/head",
    /// Before the previous extent names it.
    GROW_EXTENT_DURABLE = "grow/extent-durable",
    /// The link of the previous extent.
    GROW_NEXT = "grow/next",
    /// The log is longer.
    GROW_NEXT_DURABLE = "grow/next-durable",
    /// The directory's link count.
    RECYCLE_LINKS = "recycle/links",
    /// The directory's times.
    RECYCLE_TIMES = "recycle/times",
    /// Before words of dead entries are zeroed.
    RECYCLE_TIMES_DURABLE = "recycle/times-durable",
    /// Words of dead entries, zeroed.
    RECYCLE_WORDS = "recycle/words",
    /// Before the entries are reused.
    RECYCLE_WORDS_DURABLE = "recycle/words-durable",
    /// The states of dead entries of a group: none.
    RECYCLE_STATES = "recycle/states",
    /// Before the slots are reused, and before another thread stores the group's states.
    RECYCLE_STATES_DURABLE = "recycle/states-durable",
    /// The words of a new extent, zeroed.
    COMPACT_WORDS_ZERO = "compact/words-zero",
    /// Head, link and words of a new extent.
    COMPACT_WORDS = "compact/words",
    /// Before the log names it.
    COMPACT_EXTENT_DURABLE = "compact/extent-durable",
    /// The link of the previous extent.
    COMPACT_NEXT = "compact/next",
    /// The log is shorter.
    COMPACT_NEXT_DURABLE = "compact/next-durable",
    /// The inode's root.
    COMPACT_ROOT = "compact/root",
    /// The log is shorter.
    COMPACT_ROOT_DURABLE = "compact/root-durable",
    /// A directory's link count.
    EVICT_LINKS = "evict/links",
    /// Times that the inode lacks.
    EVICT_TIMES = "evict/times",
    /// Before the cachelet is freed.
    EVICT_DURABLE = "evict/durable",
    /// The record of a new name and inode.
    TREE_CREATE_RECORD = "tree/create-record",
    /// Inode and record, before the tail counts the record and makes the inode live.
    TREE_CREATE_DURABLE = "tree/create-durable",
    /// The record of a further name.
    TREE_LINK_RECORD = "tree/link-record",
    /// The record of a removed name.
    TREE_WENT_RECORD = "tree/went-record",
    /// The record of a file's new name.
    TREE_RENAME_RECORD = "tree/rename-record",
    /// The head of a log's first block.
    TREE_GROW_HEAD = "tree/grow-head",
    /// Before the inode names it.
    TREE_GROW_HEAD_DURABLE = "tree/grow-head-durable",
    /// The inode's root.
    TREE_GROW_ROOT = "tree/grow-root",
    /// Before a record in the block can be valid.
    TREE_GROW_ROOT_DURABLE = "tree/grow-root-durable",
    /// The head of a further block.
    TREE_GROW_NEXT_HEAD = "tree/grow-next-head",
    /// The word behind the last record of the previous block.
    TREE_GROW_END = "tree/grow-end",
    /// Both, before the previous block names the new one.
    TREE_GROW_BLOCK_DURABLE = "tree/grow-block-durable",
    /// The link of the previous block.
    TREE_GROW_LINK = "tree/grow-link",
    /// Before a record in the block can be valid.
    TREE_GROW_LINK_DURABLE = "tree/grow-link-durable",
    /// A block of copied names.
    TREE_COPY_BLOCK = "tree/copy-block",
    /// All copies, before the log begins with them.
    TREE_COPY_DURABLE = "tree/copy-durable",
    /// The word that leads to the copies.
    TREE_COPY_LINK = "tree/copy-link",
    /// The log is shorter, before its old blocks are reused.
    TREE_COPY_LINK_DURABLE = "tree/copy-link-durable",
    /// A line with entries that recovery freed, or whose counts it reduced.
    RECOVER_CUCKOO = "recover/cuckoo",
    /// The first word of an entry of a cuckoo or level table, behind the second one, which has its
    /// block.
    KEYED_WORD_BEHIND = "keyed/word-behind",
    /// Counts of the blocks of a run before and behind an entry's own.
    CUCKOO_COUNTS = "cuckoo/counts",
    /// The copy of an entry that moves to its other line.
    CUCKOO_COPY = "cuckoo/copy",
    /// Before the entry leaves its old line.
    CUCKOO_COPY_DURABLE = "cuckoo/copy-durable",
    /// The first word of an entry whose key moved away.
    CUCKOO_LEAVE = "cuckoo/leave",
    /// Before the entry can change or move at its new place.
    CUCKOO_LEAVE_DURABLE = "cuckoo/leave-durable",
    /// The first word of an entry that was claimed for moves, free again because another operation
    /// was faster.
    CUCKOO_ABANDON = "cuckoo/abandon",
    /// A line with entries that recovery freed.
    RECOVER_LEVEL = "recover/level",
    /// The root that names a new level.
    LEVEL_BEGIN = "level/begin",
    /// Before anything can be stored in the new level.
    LEVEL_BEGIN_DURABLE = "level/begin-durable",
    /// The copy of an entry that moves to another line.
    LEVEL_COPY = "level/copy",
    /// Before the entry leaves its old line.
    LEVEL_COPY_DURABLE = "level/copy-durable",
    /// The first word of an entry whose key moved away.
    LEVEL_LEAVE = "level/leave",
    /// Before the entry can change or move at its new place.
    LEVEL_LEAVE_DURABLE = "level/leave-durable",
    /// The root, without a level that is empty.
    LEVEL_END = "level/end",
}
