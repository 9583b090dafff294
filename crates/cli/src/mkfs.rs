//! `vellum mkfs`.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;

use vellum::{CreateOptions, Pool};

use crate::args::{Mapping, Media, Mkfs};
use crate::failure::{Failure, Outcome};
use crate::info::{self, Information};
use crate::output::say;
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
    let present = look(args).map_err(|e| Failure::io(&pool, &e))?;
    if !args.force {
        refuse_to_overwrite(args, &present)?;
    }
    let size_bytes = match (args.size, &present) {
        (Some(size), _) => size,
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
    let options = CreateOptions {
        label: args.label.clone(),
        metadata_bytes: args.metadata,
        thread_slots: args.thread_slots,
        namespace: args.namespace.into(),
        mapping: mapping(args).into(),
        run_blocks: args.run_blocks,
        span_lines: args.span_lines,
        fragmentation: 1000 - args.layout_score,
        media: args.opening.media.into(),
        overwrite: !matches!(present, Present::Nothing),
        ..CreateOptions::new(size_bytes)
    };
    let made = Pool::create(&args.pool, &options).map_err(|error| {
        if matches!(present, Present::Nothing) {
            // The file is ours and useless; whether it goes cannot change the answer.
            let _ = std::fs::remove_file(&args.pool);
        }
        place::refused(&args.pool, &error)
    })?;
    let information = Information::of(&made.fs(), &args.pool);
    place::close(made, &args.pool)?;
    if !args.quiet {
        summary(args, &information);
    }
    Ok(())
}

/// Tables take memory on a logged pool, and trees none.
fn mapping(args: &Mkfs) -> Mapping {
    let usual = match args.opening.media {
        Media::Logged => Mapping::Extent,
        _ => Mapping::default(),
    };
    args.mapping.unwrap_or(usual)
}

fn look(args: &Mkfs) -> io::Result<Present> {
    let found = match std::fs::metadata(&args.pool) {
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

fn refuse_to_overwrite(args: &Mkfs, present: &Present) -> Outcome {
    let pool = args.pool.display();
    let what = match present {
        Present::Nothing | Present::EmptyFile => return Ok(()),
        Present::File { .. } if args.pool.is_dir() => {
            return Err(Failure::usage(format!("{pool} is a directory")));
        }
        Present::File { .. } => head(args).map(|head| describe(&head)),
        // A device-DAX node cannot be read, only mapped.
        Present::Device => match head(args) {
            Ok(head) if head.iter().all(|&b| b == 0) => return Ok(()),
            Ok(head) => Ok(describe(&head)),
            Err(_) => Ok("cannot be looked at, and may hold something"),
        },
    };
    let what = what.map_err(|e| Failure::io(&pool, &e))?;
    Err(Failure::new(format!("{pool} {what}"))
        .advise("choose another name, or overwrite it with --force: what it holds is then lost"))
}

fn head(args: &Mkfs) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(&args.pool)?
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
    say!("  medium    {}", media.kind);
    say!("mount it:   vellum mount {} DIR", args.pool.display());
}
