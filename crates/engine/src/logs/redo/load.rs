//! Loading the image of a logged pool: home, with the log's records laid over it, and over these
//! the lines that a killed process left.

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
    Attach, Disk, ImageKey, LeftImage, Memory, PoolMemory, SharedImage, Split, Written,
};

use super::home::{Home, Piece};
use super::layout::{LogLayout, Replay};
use super::{Epoch, Log, State, lock};
use crate::disk_sites;
use crate::error::{self, Error, Result};

/// Bytes of home that are read at once.
const PIECE_BYTES: u64 = 1 << 20;

/// The default directory of images.
pub(crate) const SHARED_DIR: &str = "/dev/shm";

/// Where the image of a logged pool is kept: its metadata, while it is open.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// use vellum::{ImageLocation, PoolOptions};
///
/// # let memory = tempfile::tempdir_in("/dev/shm")?;
/// # let directory = memory.path().to_owned();
/// let image = ImageLocation::In(directory.clone()); // in a tmpfs
/// let pool = PoolOptions::new().image(image).open(&path)?;
/// assert_eq!(pool.fs().image_dir(), Some(directory));
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ImageLocation {
    /// In `/dev/shm`, where a kill leaves it to the next process; in memory of this process if that
    /// is not possible.
    #[default]
    Shared,
    /// In this directory, which has to be in memory.
    In(PathBuf),
    /// In memory of the process: a kill loses it.
    Process,
}

impl ImageLocation {
    /// Returns the directories in which an opening looks for the image of a killed process, besides
    /// the one that the log names.
    pub(crate) fn searched(&self) -> Vec<PathBuf> {
        let own = match self {
            Self::In(dir) => dir.canonicalize().ok(),
            Self::Shared | Self::Process => None,
        };
        own.into_iter().chain([SHARED_DIR.into()]).collect()
    }
}

/// What happened to the image that the last process had in shared memory.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("pool");
/// # let options = vellum::CreateOptions::new(64 << 20).media(vellum::MediaChoice::Logged);
/// # options.create(&path)?.close()?;
/// let pool = vellum::Pool::open(&path)?;
/// assert_eq!(pool.opened().image, vellum::FoundImage::None); // the pool was closed cleanly
/// # Ok::<(), vellum::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FoundImage {
    /// There was none: the pool was closed, the power was cut, or the process kept the image in its
    /// own memory.
    #[default]
    None,
    /// The image is now in the log, as a kill left it; a reader sees it.
    Adopted,
    /// The image was not found, or a commit had failed: the pool is as of its last commit.
    Lost,
}

/// Options of loading a log.
#[derive(Debug)]
pub(crate) struct Loading<'a> {
    /// Changes nothing.
    pub(crate) read_only: bool,
    /// Ignores the bytes of files, which may be missing.
    pub(crate) metadata_only: bool,
    pub(crate) image: &'a ImageLocation,
    /// Identity of this boot.
    pub(crate) boot: [u8; 16],
    /// Identity of the new image, drawn at random.
    pub(crate) attach: Attach,
}

impl Loading<'_> {
    /// Options for writing, with the image in memory of the process.
    pub(crate) fn alone() -> Self {
        Self {
            read_only: false,
            metadata_only: false,
            image: &ImageLocation::Process,
            boot: [0; 16],
            attach: [0; 16],
        }
    }

    /// Returns the directory of an image that outlives this process.
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

    /// Begins the image. Returns what anchors will say of it, if it outlives this process.
    fn begin<P: PoolMemory>(&self, pool: &P, superblock: &Superblock) -> Result<Option<ImageTag>> {
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
                    tracing::warn!(%error, "the image is in memory of this process: if it is \
                         killed, what was not synced is lost");
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

    /// Fails on an image that the log does not name, but that knows epochs after `last`, in the
    /// usual directory or the one of this opening's image. It is newer than the pool's file, and
    /// would be lost if the pool were used.
    fn refuse_strays<P: PoolMemory>(
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

    /// Returns the key of the image that the log names, if it belongs to this boot.
    fn named<'k>(&self, superblock: &Superblock, tag: &'k ImageTag) -> Option<ImageKey<'k>> {
        let dir = Path::new(OsStr::from_bytes(&tag.dir));
        (tag.boot == self.boot).then(|| self.key(superblock, dir))
    }
}

/// Loads the last durable epoch into the image of a pool, or what a killed process left of it in
/// shared memory. Returns the log to go on with.
///
/// Bytes that an earlier process wrote and never synced may be in the kernel's memory only, and
/// after a failed sync the kernel takes such copies for written. So the log is synced, and then
/// read from the medium, before anything relies on it. A checkpoint in flight is finished.
///
/// # Errors
/// Fails if no anchor is valid, if home does not have its checksum, if an image that was left
/// cannot be used, or if the disk fails.
pub(crate) fn load<P: PoolMemory>(
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
            // The sync above has written what an earlier session left in memory.
            disk.forget(geometry.data_at, geometry.data_bytes());
        }
    }
    disk.forget(geometry.log_at, geometry.log_bytes);
    let (anchor, is_known) = newest_anchor(disk, superblock, how)?;
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
    // The loaded lines are in home or in the log already.
    pool.cut(&mut |_| {});
    let mut home = Home {
        anchor: anchor.number,
        tail: (anchor.tail, anchor.tail_at),
        sum,
        image: tag.clone(),
    };
    let finished = settle(disk, &layout, &anchor, &mut home, how.read_only)?;
    let tail = home.tail.0;
    let state = state_after(&replay, &records, tail, finished);
    let log = Log::new(layout, state, home, pool.shared_image().zip(own_tag));
    let found = log.take_over((pool, superblock), disk, left, how)?;
    if !how.read_only {
        // The log names no image any more. An image that had its file name, but was not yet named
        // by the log, would be where the next one gets its own.
        let usual = how.key(superblock, Path::new(SHARED_DIR));
        key.iter()
            .chain([&usual])
            .for_each(|key| pool.forget_image(key));
    }
    if found != FoundImage::Adopted && !how.metadata_only {
        if !was_closed(pool, &geometry) {
            // After a failed sync the kernel's copies may be newer than the medium.
            disk.forget(geometry.data_at, geometry.data_bytes());
        }
        let journaled = journaled(&records, tail).flat_map(Record::journaled);
        bring_back(pool, disk, (&log.layout, journaled), how.read_only)?;
    }
    Ok((log, found))
}

/// Returns the newest anchor, and whether it is known. A reader of a pool without a valid anchor
/// gets one that names no record.
fn newest_anchor(
    disk: &dyn Disk,
    superblock: &Superblock,
    how: &Loading<'_>,
) -> Result<(Anchor, bool)> {
    match read_anchor(disk, superblock) {
        Err(error @ Error::Damaged { .. }) if how.read_only && !how.metadata_only => {
            tracing::warn!(%error, "what was committed last is not known; the metadata of an \
                 earlier checkpoint are shown");
            Ok((Anchor::unknown(superblock.uuid), false))
        }
        found => Ok((found?, true)),
    }
}

/// Returns the state of the log behind these records. Records before `tail` are in home. Of the
/// log's bytes, `finished` were given back.
fn state_after(replay: &Replay<'_>, records: &[Record], tail: u64, finished: u64) -> State {
    let last = records.last().map(Record::head);
    let blocks = journaled(records, tail).map(|record| u64::from(record.head().journaled));
    State {
        epoch: replay.epoch,
        journaled_from: last.map_or(replay.epoch, |head| head.journaled_from),
        journaled: blocks.sum(),
        at: replay.at,
        previous: replay.previous,
        used: replay.used - finished,
        counts: Default::default(),
    }
}

/// Syncs what an earlier process wrote.
fn inherit<P: PoolMemory>(
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
        // It is not known which bytes arrived, and an adoption would vouch for all of them.
        // Journaled data of committed epochs are in the log.
        let _told = give_up(pool, disk, superblock, how);
        return Err(error.into());
    }
    Ok(())
}

/// Discards what a killed process left: removes its image's file, even if the disk fails, and makes
/// the log name no image.
fn give_up<P: PoolMemory>(
    pool: &P,
    disk: &dyn Disk,
    superblock: &Superblock,
    how: &Loading<'_>,
) -> Result<()> {
    // An anchor in a cache may never have reached the medium, and the next anchor must not
    // overwrite the valid one.
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

/// Whether the loaded pool was closed cleanly.
fn was_closed<P: PoolMemory>(pool: &P, geometry: &Geometry) -> bool {
    let word = pool.load(geometry.state_at + PoolState::WORD, Ordering::Acquire);
    StateWord(word)
        .get()
        .is_some_and(|(phase, _)| phase == PoolPhase::Clean)
}

fn disk_of<P: PoolMemory>(pool: &P) -> Result<&dyn Disk> {
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

    /// Commits what a killed process left, over what was loaded. Then makes the log name no image,
    /// because later commits are not in that image.
    fn take_over<P: PoolMemory>(
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
                    // The blocks of files in the caches are as new as the image: none of them may
                    // be replaced by journaled data.
                    let written = Written::Many;
                    if let Err(error) = self.append(disk, &Epoch { lines, written }) {
                        // As after a failed sync of an opening, this is not tried again. A
                        // checkpoint that made space may be in flight.
                        let _told = give_up(pool, disk, superblock, how);
                        return Err(error);
                    }
                }
                FoundImage::Adopted
            }
            Some(LeftImage::Nothing | LeftImage::Poisoned) => {
                tracing::warn!(
                    "the image of the last process is gone: the pool is as of its last commit"
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

/// Discards the image of a pool: makes the log name no image, and removes images in these
/// directories that are newer than the pool's file.
///
/// # Errors
/// Fails if no anchor is valid, or the disk fails.
pub(crate) fn forget_image<P: PoolMemory>(
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

/// Removes the files of images that a removed dataset may have left.
pub(crate) fn remove_images<P: PoolMemory>(pool: &P, superblock: &Superblock, boot: [u8; 16]) {
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
    // An image that had its file name, but was not yet named by the log.
    pool.forget_image(&how.key(superblock, Path::new(SHARED_DIR)));
}

/// The records with journaled data that may not be where they belong. The last record says from
/// which epoch on. Data in records before the log's `tail` were where they belong before a
/// checkpoint freed the records. Writing them again could replace newer bytes, which nothing would
/// bring back if this were cut short.
fn journaled(records: &[Record], tail: u64) -> impl Iterator<Item = &Record> {
    let last = records.last().map(Record::head);
    let from = last.map_or(0, |head| head.journaled_from).max(tail);
    let is_journaled = move |record: &&Record| record.head().epoch >= from;
    records.iter().filter(is_journaled)
}

/// Writes journaled data where they belong. They count as written since the last cut, so the next
/// record journals them again, or they are synced before it. A reader has them in memory.
fn bring_back<'r, P: PoolMemory>(
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

/// Compares home's checksum with the anchor's, and finishes the checkpoint that the anchor
/// describes. Returns the bytes of records that are not needed any more.
fn settle(
    disk: &dyn Disk,
    layout: &LogLayout,
    anchor: &Anchor,
    home: &mut Home,
    read_only: bool,
) -> Result<u64> {
    let Some(point) = anchor.point() else {
        // The checksum is not known, so the one found is used.
        return Ok(0);
    };
    let replay = layout.replay(disk, home.tail);
    let judged = Piece::read(replay, point.target, u64::MAX)
        .and_then(|piece| Ok((piece.sum_with(disk, layout, home.sum)?, piece)));
    let found = judged.as_ref().map(|&(sum, _)| sum).ok();
    if found != Some(point.target_sum) {
        let wrong = Error::damaged("checksum of home", error::Location::Region("home", 0));
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

/// Reads the parts of home in use, and lays the records over it. Returns home's checksum. The
/// records know better than home which chunks are in use.
fn load_home<P: PoolMemory>(
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

/// The parts of home outside the chunks of metadata, as offsets and lengths.
pub(crate) fn outside_chunks(geometry: &Geometry) -> [(u64, u64); 2] {
    let chunks_end = geometry.meta_at + geometry.meta_chunks * geometry.chunk_bytes;
    [
        (0, geometry.meta_at),
        (chunks_end, geometry.image_end() - chunks_end),
    ]
}

/// The chunks that are in use according to the chunk table. Invalid words are found when the table
/// is read.
pub(crate) fn chunks_in_use<P: Memory>(
    pool: &P,
    geometry: &Geometry,
) -> impl Iterator<Item = (u64, u64)> {
    let is_used = |&chunk: &u64| {
        let at = geometry.chunk_word_at(chunk);
        let word = ChunkWord(pool.load(at, Ordering::Acquire));
        word.decode(chunk) != Some((ChunkKind::Free, 0))
    };
    let used = geometry.chunks().filter(is_used);
    used.map(|chunk| (geometry.chunk_at(chunk), geometry.chunk_bytes))
}

fn lay_over<P: PoolMemory>(pool: &P, records: &[Record]) -> io::Result<()> {
    let lines = records.iter().flat_map(Record::lines);
    lay_lines(pool, lines.map(|line| (line.at, line.bytes)))
}

fn lay_lines<'l, P: PoolMemory>(
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

/// Reads a part of home. Returns its checksum, to which lines from `counted.0` on count.
fn load_range<P: PoolMemory>(
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

/// Reads a range, and calls `each` with its blocks that are not all zeros.
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

/// Returns what the lines of `block` add to the checksum of home. Lines before `from`, in the
/// superblocks, add nothing.
fn sum_of((from, seed): (u64, u64), at: u64, block: &[u8]) -> u64 {
    let lines = block.chunks_exact(LOG_LINE_BYTES as usize);
    let lines = lines.zip((at..).step_by(LOG_LINE_BYTES as usize));
    let counted = lines.filter(|&(_, at)| at >= from);
    counted.fold(0, |sum, (line, at)| {
        sum.wrapping_add(line_sum(seed, at, line))
    })
}

/// Returns the checksum of a home that was just formatted.
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
