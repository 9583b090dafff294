//! `vellum mkfs`.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use vellum::media::{MediaKind, kind_at};
use vellum::{CreateOptions, DataOptions, GeometryError, Pool};

use crate::args::{Mapping, Media, Mkfs};
use crate::failure::{Failure, Outcome};
use crate::info::{self, Information};
use crate::output::{print_json, say};
use crate::place;

/// Bytes at the start of a device that tell whether something is on it.
const HEAD_BYTES: usize = 8192;

/// What is there already.
enum Present {
    Nothing,
    EmptyFile,
    File { bytes: u64 },
    Device,
}

/// Makes a pool.
pub(crate) fn run(args: &Mkfs) -> Outcome {
    let pool = args.pool.display();
    let media = media(args)?;
    let present = admit(args, &args.pool)?;
    let size_bytes = match (args.size, &present) {
        (Some(size), _) => size,
        (None, _) if args.data.is_some() => 0,
        (None, Present::Device) => 0,
        (None, Present::File { bytes }) => *bytes,
        (None, Present::Nothing | Present::EmptyFile) => {
            return Err(Failure::usage(format!("{pool}: how large?"))
                .advise(format!("vellum mkfs {pool} --size 4G")));
        }
    };
    if args.label.len() > 64 {
        return Err(Failure::usage("a label has at most 64 bytes"));
    }
    let data = args.data.as_deref().map(|data| apart(args, data));
    let data = data.transpose()?;
    let options = CreateOptions {
        label: args.label.clone(),
        metadata_bytes: args.metadata,
        thread_slots: args.thread_slots,
        namespace: args.namespace.into(),
        mapping: mapping(args, media).into(),
        run_blocks: args.run_blocks,
        span_lines: args.span_lines,
        fragmentation: 1000 - args.layout_score,
        media: media.into(),
        overwrite: !matches!(present, Present::Nothing),
        data: data.clone(),
        carries: !args.no_copy,
        ..CreateOptions::new(size_bytes)
    };
    let made = Pool::create(&args.pool, &options).map_err(|error| {
        // Files that were not there are ours and useless; whether they go cannot change the answer.
        if matches!(present, Present::Nothing) {
            let _ = std::fs::remove_file(&args.pool);
        }
        if let Some(data) = data.filter(|data| !data.overwrite) {
            let _ = std::fs::remove_file(&data.path);
        }
        refused(args, media, &error)
    })?;
    let information = Information::of(&made.fs(), &args.pool);
    place::close(made, &args.pool)?;
    if args.json {
        return print_json(&information);
    }
    if !args.quiet {
        summary(args, &information);
    }
    Ok(())
}

/// Why there is no pool, and what to ask for instead.
fn refused(args: &Mkfs, media: Media, error: &vellum::Error) -> Failure {
    let failure = place::refused(&args.pool, error);
    let is_full = matches!(
        error,
        vellum::Error::Geometry(GeometryError::NoRoomForData { .. })
    );
    match media {
        Media::Logged if is_full => failure.advise(
            "their log takes as much again: ask for a larger --size, for less --metadata, or for a pool without a log, --media file",
        ),
        _ => failure,
    }
}

/// An ordinary file survives a power cut with a log only; and data on a medium of their own need an order between the two, which a log keeps, or
/// persistent memory, which needs none.
fn media(args: &Mkfs) -> Outcome<Media> {
    match (&args.data, args.media) {
        (None, Media::Auto) if kind_at(&args.pool) == MediaKind::File => Ok(Media::Logged),
        (None, media) => Ok(media),
        (Some(_), Media::Auto) if kind_at(&args.pool) == MediaKind::Dax => Ok(Media::Dax),
        (Some(_), Media::Auto | Media::Logged) => Ok(Media::Logged),
        (Some(_), Media::Dax | Media::Memory) => Ok(args.media),
        (Some(_), Media::File) => Err(Failure::usage(
            "only a pool with a log, or in memory, can have its data on another file or device",
        )
        .advise("say --media logged, or leave it out; or --media dax on persistent memory")),
    }
}

/// The medium of the data.
fn apart(args: &Mkfs, path: &Path) -> Outcome<DataOptions> {
    let data = path.display();
    if same_file(&args.pool, path) {
        return Err(Failure::usage(format!("{data} is the pool itself"))
            .advise("name another file or device for the data"));
    }
    let present = admit(args, path)?;
    let size_bytes = match (args.data_size, &present) {
        (Some(size), _) => size,
        (None, Present::Device) => 0,
        (None, Present::File { bytes }) => *bytes,
        (None, Present::Nothing | Present::EmptyFile) => {
            let pool = args.pool.display();
            return Err(Failure::usage(format!("{data}: how large?"))
                .advise(format!("vellum mkfs {pool} --data {data} --data-size 100G")));
        }
    };
    Ok(DataOptions {
        path: path.to_owned(),
        size_bytes,
        overwrite: !matches!(present, Present::Nothing),
    })
}

fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// What is there already; refuses to overwrite it, unless it was said to.
fn admit(args: &Mkfs, path: &Path) -> Outcome<Present> {
    let present = look(path).map_err(|e| Failure::io(path.display(), &e))?;
    if !args.force {
        refuse_to_overwrite(path, &present)?;
    }
    Ok(present)
}

/// Tables take memory on a logged pool, and room for versions where data lie apart; trees none. Who says how hashfs is to place blocks means hashfs.
fn mapping(args: &Mkfs, media: Media) -> Mapping {
    let places = args.run_blocks.is_some() || args.span_lines.is_some();
    let usual = match media {
        _ if args.data.is_some() && !places => Mapping::Extent,
        Media::Logged if !places => Mapping::Extent,
        _ => Mapping::default(),
    };
    args.mapping.unwrap_or(usual)
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
            Err(_) => Ok("cannot be looked at, and may hold something"),
        },
    };
    let what = what.map_err(|e| Failure::io(&pool, &e))?;
    Err(Failure::new(format!("{pool} {what}"))
        .advise("choose another name, or overwrite it with --force: what it holds is then lost"))
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
        "has the data of a pool already"
    } else {
        "is not empty"
    }
}

fn summary(args: &Mkfs, information: &Information) {
    let Information {
        pool, space, media, ..
    } = information;
    say!(
        "made a pool of {} in {}",
        crate::units::size(pool.bytes),
        args.pool.display()
    );
    say!("  uuid      {}", pool.uuid);
    say!(
        "  data      {} in blocks of 4 KiB",
        crate::units::size(space.data_bytes)
    );
    say!(
        "  metadata  {}: about {} files",
        crate::units::size(pool.metadata_bytes),
        space.files_free
    );
    let picked = match (args.media, &args.data, media.kind.as_str()) {
        (Media::Auto, None, "logged") => ": an ordinary file, with a log (--media file: without)",
        _ => "",
    };
    say!("  medium    {}{picked}", media.kind);
    say!("  survives  a power cut: {}", media.survives.power_cut);
    if let Some(data) = &media.data {
        say!("  data in   {}", data.path.display());
    }
    say!("mount it:   vellum mount {} DIR", args.pool.display());
}
