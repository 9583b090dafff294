//! The tree that an external data device has by itself, through its metadata replica.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vellum::experiments::attach_copy;
use vellum::{Error, MediumError};
use vellum_layout::{
    BLOCK_BYTES, MEDIUM_HEAD_BYTES, MediumHead, REPLICA_HEAD_BYTES, ReplicaHead, ReplicaPlan,
    Superblock,
};
use vellum_media::{Disk, LINE_BYTES, Memory, Persistent, Site};
use zerocopy::IntoBytes;

use crate::memories::{Explored, Shared};
use crate::session::{CLOCK_AFTER, ExploredFs, Result, mount};
use crate::tree::{Tree, read_tree};

/// The superblock and the replica of a pool whose external data device has one. Called for every
/// state, so it does not copy the image.
fn carrying(pool: &Shared) -> Option<(Superblock, ReplicaPlan)> {
    let mut block = [0; BLOCK_BYTES as usize];
    pool.0.read(0, &mut block);
    let superblock = Superblock::unseal(&block).ok()?;
    let plan = ReplicaPlan::of(&superblock.geometry())?;
    Some((superblock, plan))
}

/// Whether the external data device of this pool has a metadata replica.
pub(crate) fn has_replica(pool: &Shared) -> bool {
    carrying(pool).is_some()
}

/// Whether it has a metadata replica that claims to be complete.
pub(crate) fn has_whole_replica(pool: &Shared) -> bool {
    let head = carrying(pool).and_then(|(superblock, plan)| {
        let mut head = [0; REPLICA_HEAD_BYTES];
        pool.0.read(plan.at, &mut head);
        ReplicaHead::unseal(&head, superblock.uuid)
    });
    head.is_some_and(|head| head.is_whole())
}

/// The tree of a pool that is made from the metadata replica of `pool`; `None` if there is no
/// replica, or a stale one.
pub(crate) fn replica_tree(pool: &Shared, cache_entries: u64) -> Option<Result<Tree>> {
    if !has_whole_replica(pool) {
        return None;
    }
    let moved = Moved::of(pool)?;
    let attached = attach_copy(&moved.medium(), moved.len(), (&*moved.all.0, true), NEW);
    match attached.and_then(|_| read_tree(&moved.mount(cache_entries)?)) {
        Err(Error::Medium(MediumError::Stale { .. })) => None,
        read => Some(read),
    }
}

/// The identity that the media get.
const NEW: [u8; 16] = [0x4E; 16];

/// Space for a pool, and behind it a medium as it is by itself: with its head and the copy of that.
struct Moved {
    all: Shared,
    superblock: Superblock,
}

impl Moved {
    /// The medium of a pool, with zeros where the pool was.
    fn of(pool: &Shared) -> Option<Self> {
        let (superblock, _) = carrying(pool)?;
        let image = pool.0.image();
        let head = MediumHead::of(&superblock)?;
        let own = superblock.pool_bytes as usize;
        let mut all = vec![0; own + head.bytes as usize];
        let (at, copy_at) = (own + head.data_at as usize, own + head.copy_at() as usize);
        all[at..copy_at].copy_from_slice(&image[own..][..copy_at - at]);
        for at in [own, copy_at] {
            all[at..][..MEDIUM_HEAD_BYTES].copy_from_slice(head.as_bytes());
        }
        Some(Self {
            all: Shared::of(all),
            superblock,
        })
    }

    /// The size of the medium in bytes.
    fn len(&self) -> u64 {
        self.all.0.len() - self.superblock.pool_bytes
    }

    fn medium(&self) -> Medium {
        Medium {
            all: self.all.clone(),
            from: self.superblock.pool_bytes,
            dirty: Mutex::default(),
        }
    }

    /// Opens the pool in front of the medium.
    fn mount(&self, cache_entries: u64) -> Result<ExploredFs> {
        let all = self.all.0.image();
        let (own, medium) = all.split_at(self.superblock.pool_bytes as usize);
        let data_at = self
            .superblock
            .geometry()
            .external
            .map_or(0, |external| external.at);
        let pool = [own, &medium[data_at as usize..]].concat();
        mount::<Explored>(&Shared::of(pool), cache_entries, CLOCK_AFTER)
    }
}

/// The last bytes of a simulated pool, as a disk: a sync flushes each line written since the last
/// sync.
struct Medium {
    all: Shared,
    from: u64,
    dirty: Mutex<BTreeSet<u64>>,
}

impl Medium {
    fn dirty(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for Medium {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.all.0.read(self.from + at, out);
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        let at = self.from + at;
        let lines = at - at % LINE_BYTES..at + data.len() as u64;
        self.dirty().extend(lines.step_by(LINE_BYTES as usize));
        self.all.0.write(at, data);
        Ok(())
    }

    fn sync(&self, site: Site) -> io::Result<()> {
        for line in std::mem::take(&mut *self.dirty()) {
            self.all.0.flush(Site::UNNAMED, line, LINE_BYTES);
        }
        self.all.0.fence(site);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use vellum::disk_sites;
    use vellum_media::{CrashPoints, Event, Op};

    use super::*;
    use crate::memories::image_after;
    use crate::mutant::Mutant;
    use crate::record::record;

    /// The making of a pool, from its own medium, over another pool; and its log.
    struct Attached {
        moved: Moved,
        base: Vec<u8>,
        log: Vec<Event>,
        tree: Tree,
    }

    fn attached() -> Attached {
        let workload = crate::find("split-replica").unwrap();
        let recorded = record(&workload).unwrap();
        let pool = Shared::of(image_after(&recorded.base, &recorded.log));
        let tree = replica_tree(&pool, 256).unwrap().unwrap();
        let moved = Moved::of(&pool).unwrap();
        // Another pool, identified by its superblocks, lies where the new one is made.
        let own = moved.superblock.pool_bytes as usize;
        let mut base = moved.all.0.image();
        for (at, byte) in base[..own].iter_mut().enumerate() {
            *byte = (at % 251) as u8;
        }
        for at in [0, BLOCK_BYTES, moved.superblock.last_copy_at] {
            base[at as usize..][..BLOCK_BYTES as usize]
                .copy_from_slice(moved.superblock.as_bytes());
        }
        let moved = Moved {
            all: Shared::of(base.clone()),
            ..moved
        };
        moved.all.0.start_recording();
        attach_copy(&moved.medium(), moved.len(), (&*moved.all.0, false), NEW).unwrap();
        let log = moved.all.0.take_log();
        Attached {
            moved,
            base,
            log,
            tree,
        }
    }

    impl Attached {
        /// Checks what a crash left; an error says what is wrong.
        fn judge(&self, image: Vec<u8>, has_returned: bool) -> std::result::Result<(), String> {
            let own = self.moved.superblock.pool_bytes as usize;
            let head = |at: u64| MediumHead::unseal(&image[own + at as usize..]);
            let copy_at = MediumHead::of(&self.moved.superblock).unwrap().copy_at();
            let (first, copy) = (head(0), head(copy_at));
            let id = first.or(copy.clone()).ok_or("no head")?.id;
            if has_returned && (id != NEW || copy.is_none_or(|copy| copy.id != NEW)) {
                return Err("attached, but the medium is not the new pool's".to_owned());
            }
            if id != NEW {
                // The old pool, which owns the medium, is either complete or gone.
                let superblock = Superblock::choose(
                    [
                        0,
                        BLOCK_BYTES as usize,
                        self.moved.superblock.last_copy_at as usize,
                    ]
                    .map(|at| Superblock::unseal(&image[at..][..BLOCK_BYTES as usize])),
                );
                let is_old = superblock.is_ok_and(|found| found.segments[0].medium_id != NEW);
                let is_same = image[2 * BLOCK_BYTES as usize..own - BLOCK_BYTES as usize]
                    == self.base[2 * BLOCK_BYTES as usize..own - BLOCK_BYTES as usize];
                let is_half = is_old && !is_same;
                return if is_half {
                    Err("half an old pool".to_owned())
                } else {
                    Ok(())
                };
            }
            let made = Moved {
                all: Shared::of(image),
                superblock: self.moved.superblock.clone(),
            };
            let tree = made.mount(256).and_then(|fs| read_tree(&fs));
            match tree {
                Ok(tree) if tree.nodes == self.tree.nodes => Ok(()),
                Ok(_) => Err("another tree".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        }

        /// Explores every point near the end, and some of those before; fails at the first wrong
        /// state.
        fn explore(&self, log: &[Event]) -> std::result::Result<u32, String> {
            let mut points = CrashPoints::new(self.base.clone(), log);
            let mut states = 0;
            let mut passed = 0;
            while let Some(point) = points.next_point() {
                let done = point.events_done();
                let is_fence = matches!(log[done - 1].op, Op::Fence);
                passed += 1;
                let is_near_end = done + 400 >= log.len();
                if !is_fence && !is_near_end && passed % 1999 != 0 {
                    continue;
                }
                let bound = if is_near_end { 40 } else { 5 };
                for state in point.states(bound, done as u64) {
                    states += 1;
                    self.judge(point.image(&state), false)?;
                }
            }
            for state in points.here().states(5, 1) {
                self.judge(points.here().image(&state), true)?;
            }
            Ok(states)
        }
    }

    /// At each moment the medium belongs either to the new pool, or to the old pool or to none. In
    /// the latter cases it can be attached again.
    #[test]
    fn a_power_cut_of_attaching_leaves_the_medium_to_one_pool() {
        let attached = attached();
        let states = attached.explore(&attached.log).unwrap();
        assert!(states > 100, "{states} states");
        for site in [
            disk_sites::ATTACH_WIPE,
            disk_sites::ATTACH_WIPE_DURABLE,
            disk_sites::ATTACH_POOL,
            disk_sites::ATTACH_POOL_DURABLE,
            disk_sites::ATTACH_MEDIUM_DURABLE,
            disk_sites::ATTACH_MEDIUM_COPY_DURABLE,
        ] {
            let without = Mutant::Omit(site.into()).rewrite(&attached.log);
            assert!(without != attached.log);
            let is_caught = attached.explore(&without).is_err();
            assert!(is_caught, "without {}", disk_sites::name(site));
        }
    }
}
