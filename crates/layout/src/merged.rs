//! The line of an area that was merged away: into which area, when and why. Only people read this.

use crate::area::{AREA_LIMIT, AreaLine, AreaPhase, AreaWord, Formed};
use crate::checksum::checksum_words;

/// Why an area was merged away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MergeReason {
    /// A request.
    Asked = 1,
    /// It was small, had not been renamed for long, and was read no more than others.
    Small = 2,
    /// A directory that made up most of it got an area of its own.
    Inherited = 3,
}

impl MergeReason {
    /// The reason with this number.
    pub fn from_u8(number: u8) -> Option<Self> {
        [Self::Asked, Self::Small, Self::Inherited]
            .into_iter()
            .find(|reason| *reason as u8 == number)
    }

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Small => "small",
            Self::Inherited => "inherited",
        }
    }
}

/// Where an area went and why: number of the area that now has its names (bits 0..24), number of
/// the reason (24..32), the lookups that its own were compared with (32..64).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedWord(pub u64);

/// The fate of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Number of the area that now has its names.
    pub into: u32,
    /// The reason.
    pub reason: MergeReason,
    /// When, and the deciding numbers of the area or of the directory that inherited it.
    pub at: Formed,
    /// The lookups that its own were compared with.
    pub average_reads: u32,
}

impl MergedWord {
    fn new(merged: &Merged) -> Self {
        let low = merged.into | (merged.reason as u32) << 24;
        Self(u64::from(low) | u64::from(merged.average_reads) << 32)
    }

    fn decode(self, at: Formed) -> Option<Merged> {
        Some(Merged {
            into: self.0 as u32 & (AREA_LIMIT - 1),
            reason: MergeReason::from_u8((self.0 >> 24) as u8)?,
            at,
            average_reads: (self.0 >> 32) as u32,
        })
    }
}

impl AreaLine {
    /// The line after the area was merged away; the line is then free.
    pub fn merged_away(mut self, number: u32, merged: &Merged) -> Self {
        self.word = AreaWord::FREE.0;
        self.saved = MergedWord::new(merged).0;
        self.formed = merged.at;
        self.saved_check = self.merged_check(number);
        self
    }

    /// What became of the last area with this line, if it was merged away.
    pub fn merged(&self, number: u32) -> Option<Merged> {
        let is_told = self.phase(number) == Some(AreaPhase::Free)
            && self.saved_check == self.merged_check(number);
        is_told.then(|| MergedWord(self.saved).decode(self.formed))?
    }

    /// Never the check of saved counts, nor 0.
    fn merged_check(&self, number: u32) -> u64 {
        let halves = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let sum = checksum_words(&[
            number.into(),
            self.root,
            halves(self.generation, self.root_generation),
            self.saved,
            halves(self.formed.seconds, self.formed.slots),
            self.formed.reads.into(),
        ]);
        u64::from(sum) | 2 << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::area::AreaLife;

    fn live() -> AreaLine {
        let area = AreaLife {
            number: 65,
            generation: 3,
        };
        AreaLine::new(area, AreaPhase::Live, 1 << 20, 7)
    }

    #[test]
    fn a_line_records_how_its_area_was_merged() {
        for reason in [
            MergeReason::Asked,
            MergeReason::Small,
            MergeReason::Inherited,
        ] {
            let merged = Merged {
                into: AREA_LIMIT - 1,
                reason,
                at: Formed {
                    seconds: 1,
                    slots: u32::MAX,
                    reads: 5,
                },
                average_reads: u32::MAX,
            };
            let line = live().merged_away(65, &merged);
            assert_eq!(line.phase(65), Some(AreaPhase::Free));
            assert_eq!(line.merged(65), Some(merged));
            assert_eq!((line.root, line.root_generation), (1 << 20, 7));
            assert_eq!(line.merged(66), None);
            // A line of another life, or of none.
            let later = AreaLine {
                generation: 4,
                ..line
            };
            assert_eq!(later.merged(65), None);
            assert_eq!(line.saved(65, 1), None);
        }
    }

    #[test]
    fn other_lines_record_no_merge() {
        assert_eq!(live().merged(65), None);
        let freed = AreaLine { word: 0, ..live() };
        assert_eq!(freed.merged(65), None);
        assert_eq!(AreaLine::default().merged(65), None);
    }
}
