//! `vellum info`: the layout and contents of a pool, and what survives a crash.

mod commits;
mod promise;
mod text;
mod udev;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use vellum::media::count;
use vellum::{File, FileKind, FoundImage, PoolPath, RealFs, Volume, uuid_text};
use vellum_fuse::{ControlRequest, mounts};
use vellum_terminal::output::{print, print_json, warn_line};
use vellum_terminal::{Failure, Outcome, Printing, quoted};

use crate::args::Opening;
use crate::dataset;
use crate::images;
use crate::location;
use crate::served;
use crate::umount;
use commits::{LogPart, UndoInfo};
use promise::{Image, Promise, Survives};

/// The number of names among which a file for measurements is searched.
const SAMPLE_NAMES: usize = 1000;

/// The first bytes of a pool.
pub(crate) const MAGIC: &[u8] = b"VELLUMFS";

/// The first bytes of an external data device.
pub(crate) const DATA_MAGIC: &[u8] = b"VELDATA1";

#[derive(Debug, Args)]
#[command(after_help = "\
For a mounted pool, the mount answers, so the numbers are current.

Examples:
  vellum info pool.img
  vellum info --verbose pool.img
  vellum info --json pool.img | jq .space.free_bytes
  vellum info --images")]
pub(crate) struct Info {
    /// The pool, or the directory on which it is mounted; with --images, the directory with the
    /// images [default: /dev/shm]
    #[arg(required_unless_present = "images")]
    pub(crate) pool: Option<PathBuf>,
    /// Show everything: layout, caches, costs of reading, and what survives each kind of crash
    #[arg(long, short, conflicts_with_all = ["images", "requests", "udev", "json"])]
    pub(crate) verbose: bool,
    /// List the metadata images in memory instead: pool, size, age, and whether each one is in use,
    /// can be adopted when its pool is opened next, or is useless
    #[arg(long)]
    pub(crate) images: bool,
    /// Show how many requests of each kind the kernel has sent to the mount instead
    #[arg(long, conflicts_with = "images")]
    pub(crate) requests: bool,
    /// Tell udev the UUID and the label of a device instead, if a pool or the data of one are on it
    #[arg(long, conflicts_with_all = ["images", "requests", "json"])]
    pub(crate) udev: bool,
    #[command(flatten)]
    pub(crate) printing: Printing,
    #[command(flatten)]
    pub(crate) opening: Opening,
}

/// Everything that `info` shows. The names are those of the JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Information {
    pub(crate) pool: PoolPart,
    pub(crate) media: MediaPart,
    pub(crate) space: SpacePart,
    pub(crate) cache: CachePart,
    /// Whether quotas are on.
    #[serde(default)]
    pub(crate) quotas: bool,
    pub(crate) counters: CountersPart,
    /// Counters of the log since the opening, if the pool has a log and is open for writing.
    #[serde(default)]
    pub(crate) log: Option<LogPart>,
    /// Counters of the undo log since the opening, if the pool has one and is open for writing.
    #[serde(default)]
    pub(crate) undo_log: Option<UndoInfo>,
    /// The costs of reading on this machine, if they were measured.
    #[serde(default)]
    pub(crate) reading: Option<ReadingPart>,
    /// All datasets of the pool, if this is the first one and there are others.
    #[serde(default)]
    pub(crate) datasets: Vec<dataset::Line>,
    /// The state in which the opening found the pool.
    pub(crate) opened: Option<OpenedPart>,
    /// The mount that answered.
    pub(crate) mount: Option<MountPart>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PoolPart {
    pub(crate) path: PathBuf,
    pub(crate) uuid: String,
    /// The uuid by which the structures know the pool, if `vellum set` has given it another one.
    #[serde(default)]
    pub(crate) structure_uuid: Option<String>,
    pub(crate) label: String,
    /// Options that mounts take over.
    #[serde(default)]
    pub(crate) mount_options: String,
    pub(crate) format_version: u32,
    pub(crate) created_ns: i64,
    pub(crate) bytes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) metadata_bytes: u64,
    /// Free data space becomes metadata when those are short.
    #[serde(default)]
    pub(crate) metadata_grows: bool,
    pub(crate) metadata_chunk_bytes: u64,
    pub(crate) thread_slots: u32,
    pub(crate) namespace: String,
    pub(crate) mapping: String,
    pub(crate) mapping_run_blocks: Option<u32>,
    pub(crate) mapping_span_lines: Option<u16>,
    pub(crate) layout_score: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MediaPart {
    pub(crate) kind: String,
    pub(crate) flush: String,
    pub(crate) survives: Survives,
    /// The directory with the metadata image of a logged pool, if the image survives a kill.
    #[serde(default)]
    pub(crate) image_dir: Option<PathBuf>,
    /// The first external data device, if the pool has one.
    #[serde(default)]
    pub(crate) data: Option<DataPart>,
    /// The external data devices that were added later.
    #[serde(default)]
    pub(crate) added_data: Vec<DataPart>,
    /// Data are read and written past the kernel's page cache.
    #[serde(default)]
    pub(crate) direct: bool,
    /// Commits do not flush the caches of the devices.
    #[serde(default)]
    pub(crate) no_barrier: bool,
    /// What is durable when an operation returns, as mount(8) calls it.
    #[serde(default)]
    pub(crate) durability: String,
    /// Seconds between automatic commits, if the pool has them.
    #[serde(default)]
    pub(crate) commit_every_s: Option<f64>,
    /// The size of the metadata image of a logged pool.
    #[serde(default)]
    pub(crate) image_bytes: Option<u64>,
}

/// An external data device of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DataPart {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// The UUID by which the pool identifies it.
    pub(crate) id: String,
    /// Whether its metadata replica is current, so that the device alone has everything. `None` if
    /// it has no replica.
    #[serde(default)]
    pub(crate) has_all: Option<bool>,
}

impl DataPart {
    /// All external data devices, in the order of their blocks.
    fn all(fs: &RealFs) -> Vec<Self> {
        let geometry = fs.superblock().geometry();
        let first = geometry.external.map(|external| external.id);
        let added = geometry.added.iter().map(|(_, segment)| segment.id);
        let ids: Vec<[u8; 16]> = first.into_iter().chain(added).collect();
        let found = fs.data_devices().zip(ids);
        let media = found.map(|((path, bytes), id)| Self {
            path: path.canonicalize().unwrap_or_else(|_| path.to_owned()),
            bytes,
            id: uuid_text(&id),
            has_all: fs.has_replica(),
        });
        media.collect()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpacePart {
    pub(crate) data_bytes: u64,
    pub(crate) free_bytes: u64,
    /// Data space that is metadata now.
    #[serde(default)]
    pub(crate) metadata_bytes: u64,
    pub(crate) files: u64,
    pub(crate) files_free: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CachePart {
    pub(crate) files: u64,
    pub(crate) names: u64,
    pub(crate) arena_bytes: u64,
}

/// Counters of the process that has the pool open, since it started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CountersPart {
    pub(crate) lines_flushed: u64,
    pub(crate) fences: u64,
    pub(crate) pool_bytes_written: u64,
    pub(crate) probes: u64,
    pub(crate) allocations: u64,
    pub(crate) syncs: u64,
}

/// Reading by search and by page table (AFPT).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReadingPart {
    /// The rule by which reads choose between them.
    pub(crate) rule: String,
    /// The bound of the rule: the most that it pays of the avoidable cost, as a multiple of the
    /// best choice. `None`: the rule has no bound.
    #[serde(default)]
    pub(crate) avoidable_bound: Option<f64>,
    /// True if a file that was read for long measured these costs, and reads choose by them. Of a
    /// pool that is not mounted, the file `measured_by` measured them. Otherwise they were measured
    /// just now with searches that find nothing, and reads use searches until a file has measured.
    #[serde(default)]
    pub(crate) decides: bool,
    /// The file that the measurement used.
    #[serde(default)]
    pub(crate) measured_by: Option<PathBuf>,
    /// C_sw: reading a page by search, with the copy.
    pub(crate) search_page_ns: f64,
    /// C_mmu: reading a page through a page table, with the copy.
    pub(crate) mmu_page_ns: f64,
    /// C_bt: building a page table entry.
    pub(crate) table_entry_ns: f64,
    /// T: pages read by search before the paper's rule builds a page table.
    pub(crate) threshold_pages: u64,
    /// The worst-case cost of the paper's rule, relative to the paper's optimum.
    pub(crate) paper_ratio: f64,
    /// The worst-case cost of the paper's rule, relative to the best possible choice.
    pub(crate) worst_ratio: f64,
}

impl ReadingPart {
    /// Three lines: the measured costs, the rule in use, and the paper's rule.
    fn lines(&self) -> [String; 3] {
        let how = match &self.measured_by {
            Some(path) => format!(" (by {})", path.display()),
            None if self.decides => String::new(),
            None => " (by searches in vain: no file was read for long)".into(),
        };
        let bound = match self.avoidable_bound {
            Some(bound) => format!("at most {bound} times the avoidable cost of the best choice"),
            None => "without a bound".into(),
        };
        [
            format!(
                "a page by search {:.0} ns, by page table {:.0} ns; a table entry {:.0} ns{how}",
                self.search_page_ns, self.mmu_page_ns, self.table_entry_ns
            ),
            format!("decided by the rule {}, which pays {bound}", self.rule),
            format!(
                "the paper's rule: T {} pages, competitive ratio {:.2} (against the best {:.2})",
                self.threshold_pages, self.paper_ratio, self.worst_ratio
            ),
        ]
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpenedPart {
    pub(crate) was_clean: bool,
    pub(crate) journal_records_applied: u64,
    pub(crate) orphans_freed: u64,
    /// What the opening did with the image of a killed process: `none` (there was no image),
    /// `adopted` or `lost`.
    #[serde(default)]
    pub(crate) image: String,
    /// Undo granules (128 bytes of metadata each) that the opening rolled back, because their
    /// transaction was not committed.
    #[serde(default)]
    pub(crate) granules_rolled_back: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MountPart {
    pub(crate) dir: PathBuf,
    pub(crate) pid: u32,
    pub(crate) read_only: bool,
    /// The kernel gathers writes to open files.
    #[serde(default)]
    pub(crate) writeback: bool,
    /// Damage was found since the opening, so the mount no longer writes.
    #[serde(default)]
    pub(crate) damaged: bool,
    /// The way of the kernel's requests. Empty: an older release serves the mount.
    #[serde(default)]
    pub(crate) door: String,
    /// How many requests of each kind there were. The names are the kernel's, in small letters.
    #[serde(default)]
    pub(crate) requests: BTreeMap<String, u64>,
}

impl Information {
    /// The information of an open file system.
    pub(crate) fn of(fs: &RealFs, pool: &Path) -> Self {
        let superblock = fs.superblock();
        let geometry = superblock.geometry();
        let space = fs.stat_fs();
        let cache = fs.cache_usage();
        let counts = count::snapshot();
        let media = fs.media_kind();
        let mut data = DataPart::all(fs).into_iter();
        let image_dir = fs.image_dir();
        let settings = superblock.settings();
        let is_set = settings.uuid != superblock.uuid;
        Self {
            pool: PoolPart {
                path: PoolPath::of(pool).resolved().path(),
                uuid: superblock.uuid_text(),
                structure_uuid: is_set.then(|| uuid_text(&superblock.uuid)),
                label: settings.label,
                mount_options: settings.mount_options,
                format_version: superblock.version,
                created_ns: superblock.created,
                bytes: superblock.pool_bytes,
                block_bytes: superblock.block_bytes,
                metadata_bytes: geometry.meta_chunks * geometry.chunk_bytes,
                metadata_grows: geometry.data_chunks.count > 0,
                metadata_chunk_bytes: geometry.chunk_bytes,
                thread_slots: geometry.thread_slots,
                namespace: geometry.namespace.name().into(),
                mapping: geometry.mapping.name().into(),
                mapping_run_blocks: (geometry.mapping.has_home_lines())
                    .then_some(geometry.run_blocks),
                mapping_span_lines: (geometry.mapping.has_home_lines())
                    .then_some(geometry.span_lines),
                layout_score: f64::from(1000 - geometry.fragmentation) / 1000.0,
            },
            media: MediaPart {
                kind: media.name().into(),
                flush: format!("{:?}", fs.isa()),
                survives: Promise::of(fs).survives(media, Image::of(fs, image_dir.as_deref())),
                image_dir,
                data: data.next(),
                added_data: data.collect(),
                direct: fs.is_direct(),
                no_barrier: !fs.has_barriers(),
                durability: fs.durability().name().into(),
                image_bytes: geometry.is_logged().then_some(superblock.log_at),
                commit_every_s: fs.commits().then(|| fs.commit_every().as_secs_f64()),
            },
            space: SpacePart {
                data_bytes: space.blocks * 4096,
                free_bytes: space.blocks_free * 4096,
                metadata_bytes: space.blocks_metadata * 4096,
                files: space.files - space.files_free,
                files_free: space.files_free,
            },
            cache: CachePart {
                files: cache.cachelets,
                names: cache.index_entries,
                arena_bytes: cache.arena_bytes,
            },
            quotas: fs.has_quotas(),
            counters: CountersPart {
                lines_flushed: counts.lines_flushed,
                fences: counts.fences,
                pool_bytes_written: counts.pool_bytes_written,
                probes: counts.probes,
                allocations: counts.allocations,
                syncs: counts.syncs,
            },
            log: LogPart::of(fs),
            undo_log: UndoInfo::of(fs),
            reading: None,
            datasets: match superblock.has_datasets() {
                // An error here is ignored: opening the pool has already read the table of
                // datasets.
                true => dataset::lines(pool).unwrap_or_default(),
                false => Vec::new(),
            },
            opened: None,
            mount: None,
        }
    }

    /// Adds the costs of reading; measures them if no file has done so.
    pub(crate) fn measured(mut self, fs: &RealFs) -> Self {
        let ns = |ps: u64| ps as f64 / 1000.0;
        let (rule, decides) = (fs.read_rule(), fs.knows_read_costs());
        self.reading = fs.read_costs().map(|costs| ReadingPart {
            rule: rule.name().into(),
            avoidable_bound: rule.avoidable_bound(),
            decides,
            measured_by: None,
            search_page_ns: ns(costs.search_ps(1)),
            mmu_page_ns: ns(costs.mmu_ps(1)),
            table_entry_ns: ns(costs.table_ps()),
            threshold_pages: costs.threshold_pages(),
            paper_ratio: costs.paper_ratio(),
            worst_ratio: costs.worst_ratio(),
        });
        self
    }

    /// Adds the costs of reading, measured with a file of the pool if one is long enough.
    fn measured_by_a_file(self, volume: &Volume) -> Self {
        let by = sample(volume).filter(|(_, file)| file.handle().read_costs().is_some());
        let mut information = self.measured(volume.fs());
        if let (Some(reading), Some((path, _))) = (&mut information.reading, by) {
            reading.measured_by = Some(path);
        }
        information
    }

    /// Adds the state in which the opening found the pool.
    pub(crate) fn opened(mut self, opened: vellum::Opened) -> Self {
        self.opened = Some(OpenedPart {
            was_clean: opened.was_clean,
            journal_records_applied: opened.records_applied,
            orphans_freed: opened.orphans_freed,
            image: match opened.image {
                FoundImage::None => "none",
                FoundImage::Adopted => "adopted",
                FoundImage::Lost => "lost",
            }
            .into(),
            granules_rolled_back: opened.granules_rolled_back,
        });
        self
    }
}

/// The file for measurements of reading: the largest among the first `SAMPLE_NAMES` names.
fn sample(volume: &Volume) -> Option<(PathBuf, File)> {
    let mut directories = VecDeque::from([PathBuf::from("/")]);
    let mut largest: Option<(u64, PathBuf)> = None;
    let mut left = SAMPLE_NAMES;
    while let Some(directory) = directories.pop_front() {
        let names = volume.read_dir(&directory).into_iter().flatten();
        for entry in names.flatten().take(left) {
            left -= 1;
            let path = directory.join(entry.name());
            match entry.file_type().ok()?.kind() {
                FileKind::Directory => directories.push_back(path),
                FileKind::File => {
                    let size = volume.metadata(&path).map_or(0, |attr| attr.len());
                    if largest.as_ref().is_none_or(|(most, _)| size > *most) {
                        largest = Some((size, path));
                    }
                }
                _ => {}
            }
        }
        if left == 0 {
            break;
        }
    }
    let (_, path) = largest?;
    let file = volume.open(&path).ok()?;
    Some((path, file))
}

/// Shows a pool. The mount of a mounted pool answers.
pub(crate) fn run(args: &Info) -> Outcome {
    let pool = match &args.pool {
        pool if args.images => return images::list(pool.as_deref(), args.printing.json),
        Some(device) if args.udev => return udev::tell(device),
        Some(pool) => pool,
        None => return Err(Failure::usage("name the pool")),
    };
    let information = match live_mount_of(pool) {
        Some(mounted) => told_by(mounted)?,
        None => look(&pool_of(pool), args)?,
    };
    if args.requests && information.mount.is_none() {
        let text = format!(
            "{} is not mounted: only a mount has requests",
            pool.display()
        );
        return Err(Failure::new(text));
    }
    if args.printing.json {
        print_json(&information)
    } else if let Some(mount) = information.mount.as_ref().filter(|_| args.requests) {
        print(text::requests(mount))
    } else {
        print(match args.verbose {
            true => text::whole(&information),
            false => text::brief(&information),
        })
    }
}

/// The mount on a directory, or of a pool. A live mount is preferred to a dead one.
pub(crate) fn mount_of(pool: &Path) -> Option<mounts::Mounted> {
    let place = PoolPath::of(pool).resolved();
    let at = umount::resolved(pool)
        .ok()
        .and_then(|dir| mounts::at(&dir).ok()?);
    if at.is_some() {
        return at;
    }
    let mounted = mounts::of_pool(&place).ok()?;
    let in_use = mounted.iter().rposition(|mounted| !mounted.is_dead());
    in_use.map_or_else(|| mounted.last().cloned(), |at| mounted.get(at).cloned())
}

/// The same, if its process serves it.
pub(crate) fn live_mount_of(pool: &Path) -> Option<mounts::Mounted> {
    mount_of(pool).filter(|mounted| !mounted.is_dead())
}

/// Sends a request that the mount may refuse, with a text that says why.
pub(crate) fn request<T: DeserializeOwned>(
    mounted: &mounts::Mounted,
    request: ControlRequest,
) -> Outcome<T> {
    let answer: Result<T, String> = ask(mounted, request)?;
    answer.map_err(|why| Failure::new(format!("{}: {why}", mounted.pool.display())))
}

/// Returns the pool behind `named`, which may be the directory of a mount whose process has ended.
/// Warns about such a mount.
pub(crate) fn pool_of(named: &Path) -> PathBuf {
    let Some(mounted) = mount_of(named).filter(mounts::Mounted::is_dead) else {
        return named.to_owned();
    };
    warn_line!(
        "vellum: {}: the process that had it mounted on {} has ended; `vellum umount {}` clears \
         the directory, and so does a new mount there",
        mounted.pool.display(),
        mounted.dir.display(),
        quoted(&mounted.dir)
    );
    mounted.pool
}

/// The information that a mount returns. Its directory is corrected, and whether it is read-only:
/// the mount may have been moved, or remounted.
fn told_by(mounted: mounts::Mounted) -> Outcome<Information> {
    let mut information: Information = ask(&mounted, ControlRequest::Information)?;
    if let Some(mount) = &mut information.mount {
        mount.dir = mounted.dir;
        mount.read_only |= mounted.read_only;
    }
    Ok(information)
}

/// Sends a request to a mount over its control channel.
pub(crate) fn ask<T: DeserializeOwned>(
    mounted: &mounts::Mounted,
    request: ControlRequest,
) -> Outcome<T> {
    let dir = mounted.dir.display();
    let other_release = "the mount runs another release of vellum";
    let failed = |error: std::io::Error| {
        let failure = Failure::io(
            format_args!("{dir}: sending a request to the mount"),
            &error,
        );
        match Errno::from_io_error(&error) {
            Some(Errno::NOTTY) => failure.advise(other_release),
            Some(Errno::PERM) => failure.advise("run this as the user who mounted it"),
            _ => umount::in_the_way(failure, &error),
        }
    };
    let asked = mounted
        .open()
        .and_then(|root| vellum_fuse::ask(&root, request));
    let text = asked.map_err(failed)?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::new(format!("{dir}: cannot parse the mount's answer ({error})"))
            .advise(other_release)
    })
}

fn look(pool: &Path, args: &Info) -> Outcome<Information> {
    let opened = served::once_closed(pool, || location::open_to_look(pool, &args.opening))?;
    let information = Information::of(&opened.fs(), pool)
        .measured_by_a_file(&opened.volume())
        .opened(opened.opened());
    location::close(opened, pool)?;
    Ok(information)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ratios belong to the paper's rule, which decides only if it is chosen.
    #[test]
    fn reading_shows_which_rule_decides_and_its_bound() {
        let mut reading = ReadingPart {
            rule: "layout".into(),
            avoidable_bound: vellum::reading::Rule::Layout.avoidable_bound(),
            decides: true,
            measured_by: None,
            search_page_ns: 400.0,
            mmu_page_ns: 380.0,
            table_entry_ns: 3300.0,
            threshold_pages: 8,
            paper_ratio: 1.4,
            worst_ratio: 1.9,
        };
        let [measured, decided, paper] = reading.lines();
        assert!(!measured.contains("in vain"), "{measured}");
        assert!(decided.contains("layout") && decided.contains("at most 2 times"));
        assert!(paper.starts_with("the paper's rule: T 8 pages") && paper.contains("1.90"));
        reading.avoidable_bound = vellum::reading::Rule::Threshold.avoidable_bound();
        reading.decides = false;
        let [measured, decided, _] = reading.lines();
        assert!(measured.contains("in vain"), "{measured}");
        reading.measured_by = Some("/d/f".into());
        assert!(reading.lines()[0].ends_with(" (by /d/f)"));
        assert!(decided.ends_with("without a bound"), "{decided}");
    }
}
