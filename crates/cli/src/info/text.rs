//! The text that `vellum info` prints for people.

use std::cmp::Reverse;

use crate::dataset;
use crate::units::{percent, size, time};

use super::{Information, MediaPart, MountPart, OpenedPart, PoolPart, SpacePart};

/// Lines of text. Each has a key, or continues the line above it.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, key: &str, value: impl std::fmt::Display) {
        self.0 += &format!("{key:<12}{value}\n");
    }

    /// Adds several lines under one key.
    fn add_all(&mut self, key: &str, values: impl IntoIterator<Item = String>) {
        for (index, value) in values.into_iter().enumerate() {
            self.add(if index == 0 { key } else { "" }, value);
        }
    }
}

/// What anyone needs to know.
pub(super) fn brief(information: &Information) -> String {
    let Information {
        pool, media, space, ..
    } = information;
    let mut lines = Lines::default();
    lines.add("pool", pool.path.display());
    if !pool.label.is_empty() {
        lines.add("label", &pool.label);
    }
    lines.add("size", size(pool.bytes));
    lines.add_all("also", others(information));
    lines.used(space);
    for data in media.data.iter().chain(&media.added_data) {
        let (path, bytes) = (data.path.display(), size(data.bytes));
        lines.add("", format_args!("in {path} ({bytes})"));
    }
    lines.warn(media);
    let (files, free) = (space.files, space.files_free);
    lines.add("files", format_args!("{files}, space for {free} more"));
    if information.quotas {
        lines.add("quotas", "on");
    }
    if let Some(opened) = information
        .opened
        .as_ref()
        .filter(|opened| !opened.was_clean)
    {
        lines.add("last close", last_close(opened));
    }
    if let Some(mount) = &information.mount {
        lines.add("mounted", mounted(mount, media));
    }
    lines.add("medium", &media.kind);
    lines.add(
        "survives",
        format_args!("a power cut: {}", media.survives.brief()),
    );
    lines.0
}

/// The other datasets of a pool.
fn others(information: &Information) -> impl Iterator<Item = String> {
    let others = information.datasets.iter().skip(1);
    others.map(|fs| format!("`{}`: {}", fs.name, dataset::told(fs)))
}

/// The whole text.
pub(super) fn whole(information: &Information) -> String {
    let Information {
        pool, media, space, ..
    } = information;
    let mut lines = Lines::default();
    lines.pool(pool);
    lines.add_all("also", others(information));
    lines.data(media, space);
    lines.metadata(pool, space);
    lines.add("quotas", if information.quotas { "on" } else { "off" });
    lines.memory(information);
    lines.work(information);
    if let Some(opened) = &information.opened {
        lines.add("last close", last_close(opened));
    }
    if let Some(mount) = &information.mount {
        lines.add("mounted", mounted(mount, media));
    }
    lines.survival(media);
    lines.0
}

impl Lines {
    fn pool(&mut self, pool: &PoolPart) {
        self.add("pool", pool.path.display());
        match &pool.structure_uuid {
            Some(uuid) => self.add(
                "uuid",
                format_args!("{} ({uuid} until it was set)", pool.uuid),
            ),
            None => self.add("uuid", &pool.uuid),
        }
        if !pool.label.is_empty() {
            self.add("label", &pool.label);
        }
        if !pool.mount_options.is_empty() {
            self.add("mounted as", &pool.mount_options);
        }
        let (made, version) = (time(pool.created_ns), pool.format_version);
        self.add(
            "created",
            format_args!("{made} UTC, format version {version}"),
        );
        self.add(
            "size",
            format_args!("{} ({} bytes)", size(pool.bytes), pool.bytes),
        );
        self.add("namespace", &pool.namespace);
        let mapping = &pool.mapping;
        match (pool.mapping_run_blocks, pool.mapping_span_lines) {
            (Some(run), Some(span @ 2..)) => self.add(
                "mapping",
                format_args!("{mapping}, {run} blocks a line, {span} lines side by side"),
            ),
            (Some(run), _) => self.add("mapping", format_args!("{mapping}, {run} blocks a line")),
            _ => self.add("mapping", mapping),
        }
        let score = pool.layout_score;
        if score < 1.0 {
            self.add(
                "layout",
                format_args!("score {score}: fragmented on purpose"),
            );
        }
    }

    fn used(&mut self, space: &SpacePart) {
        let (all, free) = (space.data_bytes, space.free_bytes);
        let used = all - free;
        let share = percent(used, all);
        let [all, used, free] = [all, used, free].map(size);
        self.add(
            "data",
            format_args!("{all}, {used} used ({share}), {free} free"),
        );
    }

    fn data(&mut self, media: &MediaPart, space: &SpacePart) {
        self.used(space);
        for data in media.data.iter().chain(&media.added_data) {
            let (path, bytes) = (data.path.display(), size(data.bytes));
            self.add("", format_args!("in {path} ({bytes}), UUID {}", data.id));
            self.add(
                "",
                match data.has_all {
                    Some(true) => {
                        "has a current metadata replica: `vellum replica import` makes a pool from \
                         it on another machine"
                    }
                    Some(false) => {
                        "unusable without the pool: its metadata replica is out of date; `vellum \
                         replica export` updates it"
                    }
                    None => "unusable without the pool: it has no metadata replica",
                },
            );
        }
        if media.direct {
            self.add("", "read and written past the page cache");
        }
        self.warn(media);
    }

    fn warn(&mut self, media: &MediaPart) {
        if media.no_barrier {
            self.add(
                "",
                "WARNING: commits do not flush the caches of the devices (--no-barrier)",
            );
        }
    }

    fn metadata(&mut self, pool: &PoolPart, space: &SpacePart) {
        let bytes = match space.metadata_bytes {
            0 => size(pool.metadata_bytes),
            more => format!(
                "{} and {} of data space",
                size(pool.metadata_bytes),
                size(more)
            ),
        };
        let (files, free) = (space.files, space.files_free);
        self.add(
            "metadata",
            format_args!("{bytes}, {files} files, space for {free} more"),
        );
        self.add(
            "slots",
            format_args!("{} operations at once", pool.thread_slots),
        );
    }

    fn memory(&mut self, information: &Information) {
        let cache = &information.cache;
        self.add(
            "cache",
            format_args!("{} files, {} names", cache.files, cache.names),
        );
        let caches = format!("at most {} for caches", size(cache.arena_bytes));
        match information.media.image_bytes {
            Some(bytes) => {
                self.add(
                    "memory",
                    format_args!("{} for the metadata, {caches}", size(bytes)),
                );
            }
            None => self.add("memory", caches),
        }
    }

    /// Adds the counters since the opening, and the costs of reading.
    fn work(&mut self, information: &Information) {
        let Information {
            log,
            undo_log,
            reading,
            ..
        } = information;
        self.add_all("log", log.iter().flat_map(|log| log.lines()));
        self.add_all("undo log", undo_log.iter().map(|undo_log| undo_log.line()));
        self.add_all(
            "reading",
            reading.iter().flat_map(|reading| reading.lines()),
        );
    }

    fn survival(&mut self, media: &MediaPart) {
        let survives = &media.survives;
        self.add("medium", &media.kind);
        self.add(
            "survives",
            format_args!("a killed process: {}", survives.killed_process),
        );
        self.add(
            "",
            format_args!("a kernel crash: {}", survives.kernel_crash),
        );
        self.add("", format_args!("a power cut: {}", survives.power_cut));
    }
}

/// How the pool was closed before this opening.
fn last_close(opened: &OpenedPart) -> String {
    let found = match opened.was_clean {
        true => "closed cleanly",
        false => "not closed cleanly",
    };
    let image = match opened.image.as_str() {
        "adopted" => "; the image of a killed process was adopted",
        "lost" => "; the image of a killed process is lost",
        _ => "",
    };
    let taken_back = match opened.granules_rolled_back {
        0 => String::new(),
        granules => format!("; {granules} uncommitted undo granules were rolled back"),
    };
    format!("{found}{image}{taken_back}")
}

/// The kernel's requests to a mount, the most frequent kind first.
pub(crate) fn requests(mount: &MountPart) -> String {
    let mut kinds: Vec<_> = mount.requests.iter().collect();
    kinds.sort_by_key(|&(kind, &count)| (Reverse(count), kind));
    let all: u64 = mount.requests.values().sum();
    let lines = kinds
        .iter()
        .map(|(kind, count)| format!("{count:>12}  {kind}\n"));
    lines
        .chain([format!("{all:>12}  all, by {}\n", mount.door)])
        .collect()
}

/// The mount that answered, and how it writes.
fn mounted(mount: &MountPart, media: &MediaPart) -> String {
    let only = match mount {
        MountPart { damaged: true, .. } => ", damaged: it no longer writes",
        MountPart {
            read_only: true, ..
        } => ", read-only",
        _ => "",
    };
    let durability = match media.durability.as_str() {
        "" | "async" => String::new(),
        name => format!(", {name}"),
    };
    let door = match mount.door.as_str() {
        "" => String::new(),
        door => format!(", requests by {door}"),
    };
    let gathers = match mount.writeback {
        true => ", writeback",
        false => "",
    };
    let (dir, pid) = (mount.dir.display(), mount.pid);
    format!("on {dir} by process {pid}{door}{only}{gathers}{durability}")
}
