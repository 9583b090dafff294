//! Loading the image of a logged pool: home, and the log's records over it, and what a killed
//! process left over these.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use vellum_layout::{
    Anchor, BLOCK_BYTES, ChunkKind, ChunkWord, Geometry, ImageTag, JournaledBlock, LOG_LINE_BYTES,
    PoolPhase, PoolState, Record, StateWord, Superblock, line_sum,
};
use vellum_media::{
    Attach, Disk, ImageKey, LeftImage, Memory, Persistent, SharedImage, Split, Written,
};

use super::home::{Home, Piece};
use super::layout::{LogLayout, Replay};
use super::{Epoch, Log, State, lock};
use crate::disk_sites;
use crate::error::{self, Error, Result};

/// Bytes of home that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Where images are, if nothing else is said.
pub(crate) const SHARED_DIR: &str = "/dev/shm";

/// Where the metadata of a logged pool are worked on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ImageLocation {
    /// In `/dev/shm`, where a kill leaves them to the next process; in memory of this one if that
    /// cannot be had.
    #[default]
    Shared,
    /// In this directory, which is in memory.
    In(PathBuf),
    /// In memory of the process, which a kill takes along.
    Process,
}

impl ImageLocation {
    /// The directories in which an opening looks for what a killed process left, beside that which
    /// the log names.
    pub(crate) fn searched(&self) -> Vec<PathBuf> {
        let own = match self {
            Self::In(dir) => dir.canonicalize().ok(),
            Self::Shared | Self::Process => None,
        };
        own.into_iter().chain([SHARED_DIR.into()]).collect()
    }
}

/// What became of the image in shared memory of the process before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FoundImage {
    /// There was none: the pool was closed, the power was cut, or the process had it to itself.
    #[default]
    None,
    /// It is in the log now, as a kill left it; whoever only reads sees it.
    Adopted,
    /// It is not to be found, or a commit had failed: the pool is as of the last epoch.
    Lost,
}

/// How a log is loaded.
#[derive(Debug)]
pub(crate) struct Loading<'a> {
    /// Nothing is changed.
    pub(crate) read_only: bool,
    /// Of the bytes of files nothing is looked at: they may be missing.
    pub(crate) metadata_only: bool,
    pub(crate) image: &'a ImageLocation,
    /// Identity of this boot.
    pub(crate) boot: [u8; 16],
    /// Identity of the image, drawn for it.
    pub(crate) attach: Attach,
}

impl Loading<'_> {
    /// For writing, in memory of the process.
    pub(crate) fn alone() -> Self {
        Self {
            read_only: false,
            metadata_only: false,
            image: &ImageLocation::Process,
            boot: [0; 16],
            attach: [0; 16],
        }
    }

    /// Where the image is to be that outlives this process.
    fn dir(&self) -> Result<Option<PathBuf>> {
        let dir = match self.image {
            _ if self.read_only => return Ok(None),
            ImageLocation::Process => return Ok(None),
            ImageLocation::Shared => return Ok(Some(PathBuf::from(SHARED_DIR))),
            ImageLocation::In(dir) => dir.canonicalize()?,
        };
        if dir.as_os_str().len() > ImageTag::DIR_MAX_BYTES {
            return Err(Error::Invalid(
                "the path of the directory for images is too long",
            ));
        }
        Ok(Some(dir))
    }

    /// Begins the image; gives what anchors are to say of it, if it outlives this process.
    fn begin<P: Persistent>(&self, pool: &P, superblock: &Superblock) -> Result<Option<ImageTag>> {
        let geometry = superblock.geometry();
        let split = Split {
            image_bytes: geometry.log_at,
            data_at: geometry.data_at,
            is_external: geometry.external.is_some(),
        };
        if let Some(dir) = self.dir()? {
            let key = self.key(superblock, &dir);
            match pool.begin_image(split, Some(&key)) {
                Ok(()) => {
                    return Ok(Some(ImageTag {
                        attach: self.attach,
                        boot: self.boot,
                        dir: dir.into_os_string().into_vec(),
                    }));
                }
                Err(error) if *self.image == ImageLocation::Shared => {
                    tracing::warn!(%error, "the metadata are worked on in memory of this process: \
                         if it is killed, what was not synced is lost");
                }
                Err(error) => return Err(error.into()),
            }
        }
        pool.begin_image(split, None)?;
        Ok(None)
    }

    fn key<'k>(&self, superblock: &Superblock, dir: &'k Path) -> ImageKey<'k> {
        ImageKey {
            dir,
            uuid: superblock.uuid,
            boot: self.boot,
        }
    }

    /// An image that the log does not name, and that knows of epochs behind its `last`, is of a
    /// later time than the pool's file: who goes on with the file would lose it. Where images are
    /// usually, and where this one is to be.
    fn refuse_strays<P: Persistent>(
        &self,
        pool: &P,
        superblock: &Superblock,
        last: u64,
    ) -> Result<()> {
        for dir in self.image.searched() {
            pool.left_image(&self.key(superblock, &dir), None, last)?;
        }
        Ok(())
    }

    /// The key of the image that the log names, if this boot can have it.
    fn named<'k>(&self, superblock: &Superblock, tag: &'k ImageTag) -> Option<ImageKey<'k>> {
        let dir = Path::new(OsStr::from_bytes(&tag.dir));
        (tag.boot == self.boot).then(|| self.key(superblock, dir))
    }
}

/// Makes the image of a pool what its last durable epoch left, or what a killed process left of it
/// in shared memory; gives the log, to go on with.
///
/// What an earlier process wrote, and never synced, may be in memory only; a sync that fails leaves
/// copies in memory that the kernel takes for written. So the log is synced, and then read from the
/// medium, before anything is concluded from it. A checkpoint that was under way is finished.
///
/// # Errors
/// No anchor is sound, home is not what its sum says, an image that was left cannot be used, or
/// what the disk said.
pub(crate) fn load<P: Persistent>(
    pool: &P,
    superblock: &Superblock,
    how: &Loading<'_>,
) -> Result<(Log, FoundImage)> {
    let geometry = superblock.geometry();
    let own_tag = how.begin(pool, superblock)?;
    let disk = disk_of(pool)?;
    if !how.read_only {
        inherit(pool, disk, superblock, how)?;
        if disk.is_direct() {
            // What an earlier session left in memory has been written.
            disk.forget(geometry.data_at, geometry.data_bytes());
        }
    }
    disk.forget(geometry.log_at, geometry.log_bytes);
    let mut is_known = true;
    let anchor = match read_anchor(disk, superblock) {
        Err(error @ Error::Damaged { .. }) if how.read_only && !how.metadata_only => {
            tracing::warn!(%error, "what was committed last is not known; the metadata of an \
                 earlier checkpoint are shown");
            is_known = false;
            Anchor::unknown(superblock.uuid)
        }
        found => found?,
    };
    let layout = LogLayout::new(superblock, anchor.salt);
    let mut replay = layout.replay(disk, (anchor.tail, anchor.tail_at));
    let mut records = Vec::new();
    while let Some(record) = replay.next()? {
        records.push(record);
    }
    let tag = anchor.image();
    let key = tag.as_ref().and_then(|tag| how.named(superblock, tag));
    let last = replay.epoch - 1;
    let left = match (&tag, &key) {
        (Some(tag), Some(key)) => Some(pool.left_image(key, Some(tag.attach), last)?),
        _ => None,
    };
    if is_known {
        how.refuse_strays(pool, superblock, last)?;
    }
    let sum = load_home(pool, disk, (&geometry, superblock.hash_seed), &records)?;
    // What was loaded is in home or log already.
    pool.cut(&mut |_| {});
    let Replay {
        epoch,
        at,
        previous,
        used,
        ..
    } = replay;
    let mut home = Home {
        anchor: anchor.number,
        tail: (anchor.tail, anchor.tail_at),
        sum,
        image: tag.clone(),
    };
    let finished = settle(disk, &layout, &anchor, &mut home, how.read_only)?;
    let tail = home.tail.0;
    let last = records.last().map(Record::head);
    let journaled_from = last.map_or(epoch, |head| head.journaled_from);
    let state = State {
        epoch,
        journaled_from,
        journaled: journaled(&records, tail)
            .map(|record| u64::from(record.head().journaled))
            .sum(),
        at,
        previous,
        used: used - finished,
        counts: Default::default(),
    };
    let log = Log::new(layout, state, home, pool.shared_image().zip(own_tag));
    let found = log.take_over((pool, superblock), disk, left, how)?;
    if !how.read_only {
        // The log names none any more. One that got its name, and was not named by the log yet, is
        // where the next one may not come to be.
        let usual = how.key(superblock, Path::new(SHARED_DIR));
        key.iter()
            .chain([&usual])
            .for_each(|key| pool.forget_image(key));
    }
    if found != FoundImage::Adopted && !how.metadata_only {
        if !was_closed(pool, &geometry) {
            // Copies in memory may be newer than what a sync that failed has left on the medium.
            disk.forget(geometry.data_at, geometry.data_bytes());
        }
        let journaled = journaled(&records, tail).flat_map(Record::journaled);
        bring_back(pool, disk, (&log.layout, journaled), how.read_only)?;
    }
    Ok((log, found))
}

/// Makes durable what an earlier process wrote.
fn inherit<P: Persistent>(
    pool: &P,
    disk: &dyn Disk,
    superblock: &Superblock,
    how: &Loading<'_>,
) -> Result<()> {
    let own = disk.sync(disk_sites::LOG_INHERITED_DURABLE);
    let data = if superblock.geometry().external.is_some() {
        own?;
        disk.sync_data(disk_sites::LOG_INHERITED_DATA)
    } else {
        own
    };
    if let Err(error) = data {
        // Nobody knows which bytes arrived, and whoever adopts would vouch for all of them; those
        // that were promised ride in the log.
        let _told = give_up(pool, disk, superblock, how);
        return Err(error.into());
    }
    Ok(())
}

/// What a killed process left is as if it were gone: its file goes, whatever the disk says, and the
/// log names no image any more.
fn give_up<P: Persistent>(
    pool: &P,
    disk: &dyn Disk,
    superblock: &Superblock,
    how: &Loading<'_>,
) -> Result<()> {
    // An anchor in a cache may be one that never arrived, and the next one must not go over that
    // which counts.
    let geometry = superblock.geometry();
    disk.forget(geometry.log_at, geometry.log_bytes);
    let anchor = read_anchor(disk, superblock)?;
    let Some(tag) = anchor.image() else {
        return Ok(());
    };
    if let Some(key) = how.named(superblock, &tag) {
        pool.forget_image(&key);
    }
    let layout = LogLayout::new(superblock, anchor.salt);
    Ok(layout.put_anchor(disk, disk_sites::LOG_IMAGE_OVER, &anchor.without_image())?)
}

/// Whether the pool that was loaded was closed in order.
fn was_closed<P: Persistent>(pool: &P, geometry: &Geometry) -> bool {
    let word = pool.load(geometry.state_at + PoolState::WORD, Ordering::Acquire);
    StateWord(word)
        .get()
        .is_some_and(|(phase, _)| phase == PoolPhase::Clean)
}

fn disk_of<P: Persistent>(pool: &P) -> Result<&dyn Disk> {
    let disk = pool.disk();
    disk.ok_or(Error::Unsupported("a logged pool on this medium"))
}

fn read_anchor(disk: &dyn Disk, superblock: &Superblock) -> Result<Anchor> {
    let part = error::Location::Region("log", superblock.log_at);
    let anchor = LogLayout::read_anchor(disk, superblock)?;
    anchor.ok_or(Error::damaged("both anchors of the log", part))
}

impl Log {
    fn new(
        layout: LogLayout,
        state: State,
        home: Home,
        image: Option<(Arc<dyn SharedImage>, ImageTag)>,
    ) -> Self {
        Self {
            layout,
            image,
            state: Mutex::new(state),
            ahead: Default::default(),
            home: Mutex::new(home),
            has_failed: Default::default(),
            is_over: Default::default(),
            answered: Default::default(),
            background: Default::default(),
        }
    }

    /// Commits what a killed process left, over what was loaded, and lets the log name no image any
    /// more: what is committed from now on it does not have.
    fn take_over<P: Persistent>(
        &self,
        (pool, superblock): (&P, &Superblock),
        disk: &dyn Disk,
        left: Option<LeftImage>,
        how: &Loading<'_>,
    ) -> Result<FoundImage> {
        let geometry = &superblock.geometry();
        let found = match left {
            None => FoundImage::None,
            Some(LeftImage::Alive { lines, .. }) => {
                let lines = self.layout.lines_of_image(lines);
                lay_lines(pool, lines.iter().map(|(at, line)| (*at, &line[..])))?;
                chunks_in_use(pool, geometry).try_for_each(|(at, len)| pool.prepare(at, len))?;
                if !how.read_only {
                    pool.cut(&mut |_| {});
                    // In the caches the blocks of files are as new as the image: none of them may
                    // be replaced by one that rode before.
                    let written = Written::Many;
                    if let Err(error) = self.append(disk, &Epoch { lines, written }) {
                        // As where the sync of an opening fails: it is not tried again. A
                        // checkpoint that made room may be under way.
                        let _told = give_up(pool, disk, superblock, how);
                        return Err(error);
                    }
                }
                FoundImage::Adopted
            }
            Some(LeftImage::Nothing | LeftImage::Poisoned) => {
                tracing::warn!(
                    "the image of the process before is gone: the pool is as of its last commit"
                );
                FoundImage::Lost
            }
        };
        let mut home = lock(&self.home);
        if !how.read_only && home.image.take().is_some() {
            home.say(disk, &self.layout, disk_sites::LOG_IMAGE_OVER)?;
        }
        Ok(found)
    }
}

/// Lets the log of a pool name no image any more: what a killed process left is as if it were gone.
/// So is what lies in these directories of a later time than the pool's file.
///
/// # Errors
/// No anchor is sound, or what the disk said.
pub(crate) fn forget_image<P: Persistent>(
    pool: &P,
    superblock: &Superblock,
    boot: [u8; 16],
    strays: &[PathBuf],
) -> Result<()> {
    let how = Loading {
        boot,
        ..Loading::alone()
    };
    how.begin(pool, superblock)?;
    let disk = disk_of(pool)?;
    let synced = disk.sync(disk_sites::LOG_INHERITED_DURABLE);
    give_up(pool, disk, superblock, &how)?;
    for dir in strays {
        pool.forget_image(&how.key(superblock, dir));
    }
    Ok(synced?)
}

/// Takes away the files of images that the log of a file system may have left, of one that is no
/// more.
pub(crate) fn remove_images<P: Persistent>(pool: &P, superblock: &Superblock, boot: [u8; 16]) {
    let how = Loading {
        boot,
        ..Loading::alone()
    };
    let begun = how.begin(pool, superblock).and_then(|_| disk_of(pool));
    let anchor = begun.and_then(|disk| read_anchor(disk, superblock));
    let tag = anchor.ok().and_then(|anchor| anchor.image());
    if let Some(key) = tag.as_ref().and_then(|tag| how.named(superblock, tag)) {
        pool.forget_image(&key);
    }
    // One that got its name, and was not named by the log yet.
    pool.forget_image(&how.key(superblock, Path::new(SHARED_DIR)));
}

/// The records with blocks that need not be where they belong: in those before the last one says
/// that they are, and in those before the log's `tail` they were before a checkpoint gave the
/// records up, so that nobody would bring back the newer ones if that were cut short.
fn journaled(records: &[Record], tail: u64) -> impl Iterator<Item = &Record> {
    let last = records.last().map(Record::head);
    let from = last.map_or(0, |head| head.journaled_from).max(tail);
    let is_journaled = move |record: &&Record| record.head().epoch >= from;
    records.iter().filter(is_journaled)
}

/// Writes blocks that ride where they belong. They count as written, so that they ride
/// in the next record, too, or are synced before it. Whoever only reads has them in memory.
fn bring_back<'r, P: Persistent>(
    pool: &P,
    disk: &dyn Disk,
    (layout, journaled): (&LogLayout, impl Iterator<Item = JournaledBlock<'r>>),
    read_only: bool,
) -> io::Result<()> {
    for (block, bytes) in journaled {
        let at = layout.at_of_block(block);
        if read_only {
            pool.write(at, bytes);
        } else {
            disk.write(at, bytes)?;
        }
    }
    Ok(())
}

/// Compares home's sum with what the anchor says, and finishes the checkpoint that it tells of;
/// gives the bytes of records that are not needed any more.
fn settle(
    disk: &dyn Disk,
    layout: &LogLayout,
    anchor: &Anchor,
    home: &mut Home,
    read_only: bool,
) -> Result<u64> {
    let Some(point) = anchor.point() else {
        // Nobody knew the sum: it is what was found.
        return Ok(0);
    };
    let replay = layout.replay(disk, home.tail);
    let judged = Piece::read(replay, point.target, u64::MAX)
        .and_then(|piece| Ok((piece.sum_with(disk, layout, home.sum)?, piece)));
    let found = judged.as_ref().map(|&(sum, _)| sum).ok();
    if found != Some(point.target_sum) {
        let wrong = Error::damaged(
            "home is not what was written, its sum",
            error::Location::Region("home", 0),
        );
        if read_only {
            tracing::warn!(error = %wrong, "what can be read is shown");
            return Ok(0);
        }
        return Err(wrong);
    }
    let (_, piece) = judged?;
    if piece.records == 0 || read_only {
        return Ok(0);
    }
    home.finish(disk, layout, &piece, point.target_sum)?;
    Ok(piece.bytes)
}

/// Reads what is in use of home, and lays the records over it; gives home's sum. Which chunks are
/// in use the records know better than home.
fn load_home<P: Persistent>(
    pool: &P,
    disk: &dyn Disk,
    (geometry, seed): (&Geometry, u64),
    records: &[Record],
) -> Result<u64> {
    let mut sum = 0u64;
    let mut load = |(at, len)| {
        pool.prepare(at, len)?;
        let more = load_range(pool, disk, (at, len), (geometry.state_at, seed))?;
        sum = sum.wrapping_add(more);
        Ok::<_, io::Error>(())
    };
    outside_chunks(geometry)
        .into_iter()
        .try_for_each(&mut load)?;
    lay_over(pool, records)?;
    chunks_in_use(pool, geometry).try_for_each(load)?;
    lay_over(pool, records)?;
    Ok(sum)
}

/// What of home is not in chunks of metadata, as offsets and lengths.
pub(crate) fn outside_chunks(geometry: &Geometry) -> [(u64, u64); 2] {
    let chunks_end = geometry.meta_at + geometry.meta_chunks * geometry.chunk_bytes;
    [
        (0, geometry.meta_at),
        (chunks_end, geometry.image_end() - chunks_end),
    ]
}

/// The chunks that the chunk table says are in use; what is no word of a chunk is found out when
/// the table is read.
pub(crate) fn chunks_in_use<P: Memory>(
    pool: &P,
    geometry: &Geometry,
) -> impl Iterator<Item = (u64, u64)> {
    let is_used = |&chunk: &u64| {
        let at = geometry.chunk_table_at + chunk * 8;
        let word = ChunkWord(pool.load(at, Ordering::Acquire));
        word.decode(chunk) != Some((ChunkKind::Free, 0))
    };
    let used = (0..geometry.meta_chunks).filter(is_used);
    used.map(|chunk| {
        let at = geometry.meta_at + chunk * geometry.chunk_bytes;
        (at, geometry.chunk_bytes)
    })
}

fn lay_over<P: Persistent>(pool: &P, records: &[Record]) -> io::Result<()> {
    let lines = records.iter().flat_map(Record::lines);
    lay_lines(pool, lines.map(|line| (line.at, line.bytes)))
}

fn lay_lines<'l, P: Persistent>(
    pool: &P,
    lines: impl Iterator<Item = (u64, &'l [u8])>,
) -> io::Result<()> {
    let mut prepared = None;
    for (at, line) in lines {
        let block = at - at % BLOCK_BYTES;
        if prepared != Some(block) {
            pool.prepare(block, BLOCK_BYTES)?;
            prepared = Some(block);
        }
        pool.write(at, line);
    }
    Ok(())
}

/// Reads a part of home; gives its sum, to which lines count from `counted_from` on.
fn load_range<P: Persistent>(
    pool: &P,
    disk: &dyn Disk,
    range: (u64, u64),
    counted: (u64, u64),
) -> io::Result<u64> {
    let mut sum = 0u64;
    for_each_block(
        range,
        |at, block| disk.read(at, block),
        |at, block| {
            // Zeros are there already, and take no memory yet.
            pool.write(at, block);
            sum = sum.wrapping_add(sum_of(counted, at, block));
        },
    )?;
    Ok(sum)
}

/// Reads a range, and calls `each` with the blocks of it in which anything lies.
fn for_each_block(
    (at, len): (u64, u64),
    read: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    mut each: impl FnMut(u64, &[u8]),
) -> io::Result<()> {
    let mut piece = vec![0; len.min(PIECE_BYTES) as usize];
    for done in (0..len).step_by(PIECE_BYTES as usize) {
        let piece = &mut piece[..(len - done).min(PIECE_BYTES) as usize];
        read(at + done, piece)?;
        let blocks = piece.chunks(BLOCK_BYTES as usize);
        for (block, number) in blocks.zip(0..) {
            if block.iter().any(|&byte| byte != 0) {
                each(at + done + number * BLOCK_BYTES, block);
            }
        }
    }
    Ok(())
}

/// What the lines of `block` add to the sum of home: those before `from`, superblocks, nothing.
fn sum_of((from, seed): (u64, u64), at: u64, block: &[u8]) -> u64 {
    let lines = block.chunks_exact(LOG_LINE_BYTES as usize);
    let lines = lines.zip((at..).step_by(LOG_LINE_BYTES as usize));
    let counted = lines.filter(|&(_, at)| at >= from);
    counted.fold(0, |sum, (line, at)| {
        sum.wrapping_add(line_sum(seed, at, line))
    })
}

/// The sum of a home that was just made.
pub(crate) fn sum_of_home<P: Memory>(pool: &P, geometry: &Geometry, seed: u64) -> io::Result<u64> {
    let mut sum = 0u64;
    let read = |at, out: &mut [u8]| {
        pool.read(at, out);
        Ok(())
    };
    let ranges = outside_chunks(geometry).into_iter();
    for range in ranges.chain(chunks_in_use(pool, geometry)) {
        for_each_block(range, read, |at, block| {
            sum = sum.wrapping_add(sum_of((geometry.state_at, seed), at, block));
        })?;
    }
    Ok(sum)
}
