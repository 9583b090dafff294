//! Further datasets of a pool: whether they are where the table says. Their contents are checked
//! separately.

use vellum_layout::{BLOCK_BYTES, FsRecord, Superblock, uuid_text};

use crate::Image;
use crate::report::{Class, Location, Sink};

/// Checks each dataset of the table, in the file or device of the pool.
pub(crate) fn judge(file: &dyn Image, superblock: &Superblock, sink: &mut Sink) {
    for (number, record) in superblock.datasets.iter().enumerate().skip(1) {
        if record.in_use != 1 {
            continue;
        }
        if let Err(wrong) = look(file, record) {
            let name = record.name_text().unwrap_or_default();
            let detail = format_args!("`{name}` is not where the table says: {wrong}");
            sink.damage(Class::Dataset, Location::Dataset(number), detail);
        }
    }
}

fn look(file: &dyn Image, record: &FsRecord) -> Result<(), String> {
    let len = file.len();
    if record.end() > len {
        return Err(format!(
            "it ends at {}, and the file at {len}",
            record.end()
        ));
    }
    let copies = [
        record.at,
        record.at + BLOCK_BYTES,
        record.end() - BLOCK_BYTES,
    ];
    let found = Superblock::choose(copies.map(|at| {
        let mut block = [0; BLOCK_BYTES as usize];
        match file.read(at, &mut block) {
            Ok(()) => Superblock::unseal(&block),
            Err(_) => Err(vellum_layout::SuperblockError::Damaged),
        }
    }));
    let found = found.map_err(|error| error.to_string())?;
    if found.uuid != record.uuid {
        let (found, expected) = (uuid_text(&found.uuid), uuid_text(&record.uuid));
        return Err(format!("there is {found}, not {expected}"));
    }
    if found.pool_bytes > record.bytes {
        let (own, given) = (found.pool_bytes, record.bytes);
        return Err(format!(
            "it has {own} bytes, but the table gives it {given}"
        ));
    }
    Ok(())
}
