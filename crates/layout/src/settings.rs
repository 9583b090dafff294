//! What users set on a pool: label, uuid and options of mounts.

use thiserror::Error;

use crate::superblock::{LABEL_BYTES, MOUNT_OPTIONS_BYTES, Superblock, features, uuid_text};

/// The settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A label for people to read.
    pub label: String,
    /// The uuid that users see.
    pub uuid: [u8; 16],
    /// Options that mounts take over, separated by commas.
    pub mount_options: String,
}

/// Why a superblock cannot have settings.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SettingsError {
    /// The label is too long.
    #[error("a label has at most {LABEL_BYTES} bytes")]
    Label,
    /// The options are too long.
    #[error("the options of mounts have at most {MOUNT_OPTIONS_BYTES} bytes")]
    MountOptions,
}

impl Superblock {
    /// The settings.
    pub fn settings(&self) -> Settings {
        Settings {
            label: self.label_text(),
            uuid: self.shown_uuid(),
            mount_options: text(&self.mount_options),
        }
    }

    /// The same superblock with other settings, as its next rewrite.
    ///
    /// # Errors
    /// Fails if it has no room for them.
    pub fn with_settings(&self, settings: &Settings) -> Result<Self, SettingsError> {
        let mut new = self.clone();
        new.label = padded(&settings.label).ok_or(SettingsError::Label)?;
        let options = padded(&settings.mount_options);
        new.mount_options = options.ok_or(SettingsError::MountOptions)?;
        new.user_uuid = match settings.uuid == self.uuid {
            true => [0; 16],
            false => settings.uuid,
        };
        Ok(new.rewritten())
    }

    /// The label as text.
    pub fn label_text(&self) -> String {
        text(&self.label)
    }

    /// The uuid that users see.
    pub fn shown_uuid(&self) -> [u8; 16] {
        match self.compatible & features::USER_UUID {
            0 => self.uuid,
            _ => self.user_uuid,
        }
    }

    /// The same in the usual hexadecimal form.
    pub fn uuid_text(&self) -> String {
        uuid_text(&self.shown_uuid())
    }

    /// The feature bits that the settings need.
    fn settings_bits(&self) -> u64 {
        let bit = |bytes: &[u8], bit| match bytes.iter().all(|&byte| byte == 0) {
            true => 0,
            false => bit,
        };
        bit(&self.user_uuid, features::USER_UUID)
            | bit(&self.mount_options, features::MOUNT_OPTIONS)
    }

    /// Sets the feature bits of the settings.
    pub(crate) fn mark_settings(&mut self) {
        self.compatible &= !(features::USER_UUID | features::MOUNT_OPTIONS);
        self.compatible |= self.settings_bits();
    }

    /// Whether the feature bits are those of the settings.
    pub(crate) fn has_sound_settings(&self) -> bool {
        let bits = features::USER_UUID | features::MOUNT_OPTIONS;
        self.compatible & bits == self.settings_bits()
    }

    /// Takes the settings of another superblock as they are.
    pub(crate) fn copy_settings(&mut self, from: &Self) {
        self.compatible = from.compatible;
        self.label = from.label;
        self.user_uuid = from.user_uuid;
        self.mount_options = from.mount_options;
    }
}

/// The text in bytes that zeros pad.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// A text in bytes that zeros pad; `None` if it is too long.
fn padded<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    bytes
        .get_mut(..text.len())?
        .copy_from_slice(text.as_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Geometry, GeometryRequest, NamespaceKind};
    use zerocopy::IntoBytes;

    fn pool() -> Superblock {
        let request = GeometryRequest {
            pool_bytes: 5 << 20,
            ..Default::default()
        };
        let geometry = Geometry::plan(&request).unwrap();
        Superblock::new(&geometry, [7; 16], 1, 2, "old", NamespaceKind::Direct)
    }

    fn set(change: impl FnOnce(&mut Settings)) -> Superblock {
        let mut settings = pool().settings();
        change(&mut settings);
        pool().with_settings(&settings).unwrap()
    }

    #[test]
    fn settings_come_back_as_they_were_set() {
        let old = pool();
        assert_eq!((old.compatible, old.settings().uuid), (0, [7; 16]));
        let settings = Settings {
            label: "Größe".into(),
            uuid: [9; 16],
            mount_options: "noatime,commit=1".into(),
        };
        let new = old.with_settings(&settings).unwrap();
        assert_eq!(new.settings(), settings);
        assert_eq!(
            (new.sequence, new.uuid, new.compatible),
            (old.sequence + 1, [7; 16], 3)
        );
        assert_eq!(new.check_readable(), Ok(()));
        let back = new.with_settings(&old.settings()).unwrap();
        assert_eq!(
            (back.settings(), back.compatible, back.user_uuid),
            (old.settings(), 0, [0; 16])
        );
        let too_long = |settings: &mut Settings| settings.label = "x".repeat(65);
        let mut long = old.settings();
        too_long(&mut long);
        assert_eq!(old.with_settings(&long), Err(SettingsError::Label));
        long = old.settings();
        long.mount_options = "x".repeat(129);
        assert_eq!(old.with_settings(&long), Err(SettingsError::MountOptions));
    }

    #[test]
    fn feature_bits_without_settings_are_unsound() {
        for change in [
            (|sb| sb.compatible ^= 1) as fn(&mut Superblock),
            |sb| sb.compatible ^= 2,
            |sb| sb.user_uuid[3] = 1,
            |sb| sb.mount_options[0] = b'x',
        ] {
            let mut other = pool();
            change(&mut other);
            other.seal();
            assert!(other.check_readable().is_err());
        }
        // A rewrite keeps a feature that this release does not know.
        let mut other = pool();
        other.compatible |= 1 << 40;
        assert_eq!(other.rewritten().compatible, 1 << 40);
    }

    #[test]
    fn an_interrupted_change_of_settings_is_not_damage() {
        let old = pool();
        for new in [
            set(|of| of.label = "another".into()),
            set(|of| of.uuid = [9; 16]),
            set(|of| of.mount_options = "noatime".into()),
            set(|of| {
                (of.label, of.uuid, of.mount_options) = ("".into(), [9; 16], "sync".into());
            }),
        ] {
            let (was, is) = (old.as_bytes(), new.as_bytes());
            for at in [33, 64, 129, 132, 192, 250, 256, 3586, 3720, 4092] {
                let torn = |from: &Superblock, to: &Superblock| {
                    [&to.as_bytes()[..at], &from.as_bytes()[at..]].concat()
                };
                let (growing, going) = (torn(&old, &new), torn(&new, &old));
                assert!(old.is_left_by_cut([was, &growing, &going]), "{at}");
                assert!(new.is_left_by_cut([&growing, is, is]), "{at}");
                assert!(new.is_left_by_cut([was, is, &going]), "{at}");
                let is_torn = Superblock::unseal(&growing).is_err();
                assert!(
                    is_torn != new.is_left_by_cut([&growing, &growing, is]),
                    "{at}"
                );
            }
            let both = new.with_dataset("one", 6 << 20, 2 << 20, [1; 16]).unwrap();
            assert!(!both.is_left_by_cut([both.as_bytes(), both.as_bytes(), was]));
        }
    }
}
