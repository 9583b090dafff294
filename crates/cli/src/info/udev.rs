//! `vellum info --udev`: what a rule of udev imports, in the words of blkid(8).

use std::fmt::Write;
use std::path::Path;

use vellum::{PoolPath, pool_of_data, uuid_text};
use vellum_terminal::output::print;
use vellum_terminal::{Failure, Outcome};

use crate::bytes;

/// Prints the properties of a device with a pool, or with the data of one. Nothing is locked: the
/// pool may be in use.
pub(super) fn tell(device: &Path) -> Outcome {
    match properties(device) {
        Some(properties) => print(properties),
        None => Err(Failure::new(format!(
            "{}: there is no pool",
            device.display()
        ))),
    }
}

fn properties(device: &Path) -> Option<String> {
    if let Some(pool) = pool_of_data(device) {
        return Some(format!(
            "ID_FS_USAGE=other\nID_FS_TYPE=vellum_data\nVELLUM_POOL={}\n",
            uuid_text(&pool)
        ));
    }
    let place = PoolPath {
        pool: device.to_owned(),
        name: None,
    };
    let (version, settings) = bytes::settings(&place)?;
    let mut told = format!("ID_FS_USAGE=filesystem\nID_FS_TYPE=vellum\nID_FS_VERSION={version}\n");
    for (name, value) in [
        ("UUID", uuid_text(&settings.uuid)),
        ("LABEL", settings.label),
    ] {
        if !value.is_empty() {
            let (plain, encoded) = (plain(&value), encoded(&value));
            told += &format!("ID_FS_{name}={plain}\nID_FS_{name}_ENC={encoded}\n");
        }
    }
    Some(told)
}

/// Whether udev takes a character as it is.
fn is_safe(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "#+-.:=@_".contains(letter) || !letter.is_ascii()
}

/// A value for people, with other characters replaced.
fn plain(value: &str) -> String {
    let replaced = |letter| if is_safe(letter) { letter } else { '_' };
    value.chars().map(replaced).collect()
}

/// A value for names of links, with the bytes of other characters as `\\xNN`.
fn encoded(value: &str) -> String {
    let mut text = String::new();
    for letter in value.chars() {
        if is_safe(letter) {
            text.push(letter);
        } else {
            // Writing to a string never fails.
            let _ = write!(text, "\\x{:02x}", u32::from(letter));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_blkid() {
        for (label, for_people, for_names) in [
            ("build-cache_1", "build-cache_1", "build-cache_1"),
            ("my disk/2", "my_disk_2", r"my\x20disk\x2f2"),
            ("Größe\n", "Größe_", r"Größe\x0a"),
        ] {
            assert_eq!(plain(label), for_people);
            assert_eq!(encoded(label), for_names);
        }
    }
}
