//! `vellum mkfs`.

pub(crate) mod tuning;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use vellum::media::MediaChoice;
use vellum::{
    CreateOptions, Cred, DataOptions, GeometryError, MappingKind, Pool, media_of_new_pool,
};
use vellum_terminal::output::{print, print_json, say};
use vellum_terminal::{Failure, Outcome, Printing, quoted};

use crate::args::{DiskDurability, Making, Medium, Mkfs};
use crate::images;
use crate::info::{self, Information};
use crate::location;
use crate::units::Identity;
use tuning::{Setting, Tuning};

/// Bytes at the start of a device that show whether it holds data.
const HEAD_BYTES: usize = 8192;

/// What a path holds before the pool is created.
enum Present {
    Nothing,
    EmptyFile,
    File { bytes: u64 },
    Device,
}

/// Creates a pool.
pub(crate) fn run(args: &Mkfs) -> Outcome {
    let making = &args.making;
    if making.asks_for_keys() {
        return print(tuning::help());
    }
    let Some(path) = &args.pool else {
        return Err(Failure::usage("name the pool"));
    };
    let pool = path.display();
    location::refuse_dataset(path)?;
    let plan = Plan::of(making, path, args.force)?;
    let present = admit(path, args.force)?;
    let size_bytes = match (making.size, &present) {
        (Some(size), _) => size,
        (None, _) if making.data.is_some() => 0,
        (None, Present::Device) => 0,
        (None, Present::File { bytes }) => *bytes,
        (None, Present::Nothing | Present::EmptyFile) => {
            return Err(Failure::usage(format!("{pool}: the size is missing"))
                .advise(format!("vellum mkfs {} --size 4G", quoted(path))));
        }
    };
    let options = plan
        .options(making, size_bytes)
        .overwrite(!matches!(present, Present::Nothing));
    let made = options.create(path).map_err(|error| {
        // A file that did not exist before is ours, and useless. The answer stays the same if it
        // cannot be removed.
        if matches!(present, Present::Nothing) {
            let _ = std::fs::remove_file(path);
        }
        plan.forget_data();
        plan.refused(path, &error)
    })?;
    // This also removes the image of an overwritten pool.
    images::sweep(None);
    tell(made, path, making, args.printing)
}

/// Closes the new pool and describes it: as text, as JSON, or not at all.
pub(crate) fn tell(made: Pool, path: &Path, making: &Making, printing: Printing) -> Outcome {
    if making.quota {
        let turned_on = made.fs().set_quotas(&Cred::root(), true);
        turned_on.map_err(|error| Failure::at(path.display(), &error))?;
    }
    let information = Information::of(&made.fs(), path);
    location::close(made, path)?;
    if printing.json {
        return print_json(&information);
    }
    if printing.has_summary() {
        summary(making, &information);
    }
    Ok(())
}

impl Making {
    /// Whether `-O help` asks for the list of keys instead of a pool.
    pub(crate) fn asks_for_keys(&self) -> bool {
        self.settings.contains(&Setting::Help)
    }

    /// The requested kind of device, for the engine.
    fn choice(&self) -> Outcome<MediaChoice> {
        Ok(match (self.medium, self.durability) {
            (Medium::Auto, None) => MediaChoice::Auto,
            (Medium::Auto | Medium::Disk, Some(DiskDurability::None)) => MediaChoice::File,
            (Medium::Auto, Some(DiskDurability::Log)) | (Medium::Disk, _) => MediaChoice::Logged,
            (Medium::Pmem, None) => MediaChoice::Dax,
            (Medium::Memory, None) => MediaChoice::Memory,
            (Medium::Pmem | Medium::Memory, Some(_)) => {
                return Err(Failure::usage("--durability is for pools on a disk")
                    .advise("leave it out, or use --medium disk"));
            }
        })
    }
}

/// How to create a pool or a dataset.
pub(crate) struct Plan {
    media: MediaChoice,
    tuning: Tuning,
    data: Option<DataOptions>,
}

impl Plan {
    /// The plan for the arguments and the file or device `pool`.
    pub(crate) fn of(making: &Making, pool: &Path, force: bool) -> Outcome<Self> {
        let media = media(making, pool)?;
        let tuning = Tuning::of(&making.settings)?;
        if tuning.has_no_replica && making.data.is_none() {
            return Err(Failure::usage("-O replica=off is for pools with --data"));
        }
        if making.label.len() > 64 {
            return Err(Failure::usage("a label has at most 64 bytes"));
        }
        let data = making.data.as_deref();
        let hint = |data: &Path| format!("--data {} --data-size 100G", quoted(data));
        let data = data.map(|data| external(pool, data, (making.data_size, force), hint));
        Ok(Self {
            media,
            tuning,
            data: data.transpose()?,
        })
    }

    /// The options for the engine.
    pub(crate) fn options(&self, making: &Making, size_bytes: u64) -> CreateOptions {
        let tuning = &self.tuning;
        CreateOptions::new(size_bytes)
            .label(making.label.clone())
            .sparse(making.sparse)
            .uuid(match making.uuid {
                Identity::Random => None,
                Identity::Given(uuid) => Some(uuid),
            })
            .hash_seed(tuning.hash_seed)
            .metadata_bytes(tuning.metadata)
            .fixed_metadata(tuning.has_fixed_metadata)
            .thread_slots(tuning.thread_slots)
            .namespace(tuning.namespace.into())
            .mapping(tuning.mapping.map(MappingKind::from))
            .run_blocks(tuning.run_blocks)
            .span_lines(tuning.span_lines)
            .fragmentation(tuning.fragmentation)
            .media(self.media)
            .data(self.data.clone())
            .has_replica(!tuning.has_no_replica)
    }

    /// Removes the file for external data after a failure, if it did not exist before.
    pub(crate) fn forget_data(&self) {
        if let Some(data) = self.data.as_ref().filter(|data| !data.overwrite) {
            // It is ours, and useless. The answer stays the same if it cannot be removed.
            let _ = std::fs::remove_file(&data.path);
        }
    }

    /// The failure for a pool that could not be created at `path`, and what to ask for instead.
    pub(crate) fn refused(&self, path: &Path, error: &vellum::Error) -> Failure {
        let failure = location::refused(path, error);
        let is_full = matches!(
            error,
            vellum::Error::Geometry(GeometryError::NoRoomForData { .. })
        );
        match self.media {
            MediaChoice::Logged if is_full => failure.advise(
                "their log takes as much space again: choose a larger --size, a smaller -O \
                 metadata=SIZE, or a pool without a log (--durability none)",
            ),
            _ => failure,
        }
    }
}

/// The kind of device for the new pool.
fn media(making: &Making, pool: &Path) -> Outcome<MediaChoice> {
    let has_external_data = making.data.is_some();
    match media_of_new_pool(pool, making.choice()?, has_external_data) {
        MediaChoice::File if has_external_data => Err(Failure::usage(
            "a pool without a log cannot have an external data device",
        )
        .advise("leave out --durability none; or use --medium pmem on persistent memory")),
        media => Ok(media),
    }
}

/// The options for an external data device.
pub(crate) fn external(
    pool: &Path,
    path: &Path,
    (size, force): (Option<u64>, bool),
    hint: impl FnOnce(&Path) -> String,
) -> Outcome<DataOptions> {
    let data = path.display();
    if same_file(pool, path) {
        return Err(Failure::usage(format!("{data} is the pool itself"))
            .advise("name another file or device for the data"));
    }
    let present = admit(path, force)?;
    let size_bytes = match (size, &present) {
        (Some(size), _) => size,
        (None, Present::Device) => 0,
        (None, Present::File { bytes }) => *bytes,
        (None, Present::Nothing | Present::EmptyFile) => {
            return Err(Failure::usage(format!("{data}: the size is missing")).advise(hint(path)));
        }
    };
    Ok(DataOptions::new(path.to_owned())
        .size_bytes(size_bytes)
        .overwrite(!matches!(present, Present::Nothing)))
}

fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Returns what a path holds. Fails if it would be overwritten without `force`.
fn admit(path: &Path, force: bool) -> Outcome<Present> {
    let present = look(path).map_err(|e| Failure::io(path.display(), &e))?;
    match present {
        Present::Nothing => location::no_directory(path).map_or(Ok(()), Err)?,
        Present::Device => location::refuse_empty_device(path)?,
        Present::EmptyFile | Present::File { .. } => {}
    }
    if !force {
        refuse_to_overwrite(path, &present)?;
    }
    Ok(present)
}

fn look(path: &Path) -> io::Result<Present> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Present::Nothing),
        Err(error) => return Err(error),
    };
    Ok(match found.file_type() {
        kind if kind.is_block_device() || kind.is_char_device() => Present::Device,
        _ if found.len() == 0 => Present::EmptyFile,
        _ => Present::File { bytes: found.len() },
    })
}

fn refuse_to_overwrite(path: &Path, present: &Present) -> Outcome {
    let pool = path.display();
    let what = match present {
        Present::Nothing | Present::EmptyFile => return Ok(()),
        Present::File { .. } if path.is_dir() => {
            return Err(Failure::usage(format!("{pool} is a directory")));
        }
        Present::File { .. } => head(path).map(|head| describe(&head)),
        // A device-DAX node cannot be read, only mapped.
        Present::Device => match head(path) {
            Ok(head) if head.iter().all(|&b| b == 0) => return Ok(()),
            Ok(head) => Ok(describe(&head)),
            Err(_) => Ok("cannot be read, and may hold data"),
        },
    };
    let what = what.map_err(|e| Failure::io(&pool, &e))?;
    let more = further(path);
    Err(Failure::new(format!("{pool} {what}{more}"))
        .advise("choose another name, or overwrite it with --force: its contents are then lost"))
}

/// The further datasets that would be lost with a pool.
fn further(path: &Path) -> String {
    let found = Pool::datasets(path).unwrap_or_default();
    let names: Vec<_> = found.iter().skip(1).map(|fs| fs.name.as_str()).collect();
    match names.len() {
        0 => String::new(),
        1 => format!(", with another dataset in it: {}", names[0]),
        more => format!(", with {more} more datasets in it: {}", names.join(", ")),
    }
}

fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?
        .take(HEAD_BYTES as u64)
        .read_to_end(&mut head)?;
    Ok(head)
}

fn describe(head: &[u8]) -> &'static str {
    let is_pool = [0, 4096]
        .iter()
        .any(|&at| head[at.min(head.len())..].starts_with(info::MAGIC));
    if is_pool {
        "is a pool already"
    } else if head.starts_with(info::DATA_MAGIC) {
        "is the external data device of a pool already"
    } else {
        "is not empty"
    }
}

/// The note on files larger than a block, for the mapping that gives each of them a node of one
/// block in the metadata.
fn larger_files(metadata_bytes: u64, files: u64, mapping: &str) -> String {
    if mapping != MappingKind::Radix.name() || files == 0 {
        return String::new();
    }
    let each = metadata_bytes / files + 4096;
    format!(", or {} of more than a block", metadata_bytes / each)
}

fn summary(making: &Making, information: &Information) {
    let Information {
        pool, space, media, ..
    } = information;
    say!(
        "created a pool of {} in {}",
        crate::units::size(pool.bytes),
        pool.path.display()
    );
    say!("  uuid      {}", pool.uuid);
    say!(
        "  data      {} in blocks of 4 KiB",
        crate::units::size(space.data_bytes)
    );
    let metadata = crate::units::size(pool.metadata_bytes);
    match pool.metadata_grows {
        true => say!("  metadata  {metadata}, and free data space when they are short"),
        false => say!(
            "  metadata  {metadata}: about {} files{}",
            space.files_free,
            larger_files(pool.metadata_bytes, space.files_free, &pool.mapping)
        ),
    }
    let picked = match (making.medium, &making.data, media.kind.as_str()) {
        (Medium::Auto, None, "logged") => {
            let is_device = pool
                .path
                .metadata()
                .is_ok_and(|found| found.file_type().is_block_device());
            let what = if is_device {
                "a block device"
            } else {
                "an ordinary file"
            };
            format!(": {what}, with a log (--durability none: without)")
        }
        _ => String::new(),
    };
    say!("  medium    {}{picked}", media.kind);
    say!("  survives  a power cut: {}", media.survives.power_cut);
    if let Some(data) = &media.data {
        say!("  data on   {}", data.path.display());
    }
    say!("mount it:   vellum mount {} DIR", quoted(&pool.path));
}
