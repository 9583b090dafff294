//! Identifiers of crashes, which are enough to repeat one exactly.
//!
//! `x86:rename@57:0x4,2,1` is a crash of workload `rename` under the x86 model after 57 events. The
//! first four lines in flight kept their old contents, the fifth got its second newer content, the
//! sixth its first, and the rest none. A `/` and then events and lines again mean that the recovery
//! crashed too. If nothing follows the `@`, there was no crash: the run itself went wrong.
//!
//! The name of the workload says how it ran. `x86:threads/a+b!85>1@33:` ran under a schedule
//! (`threads/schedule.rs`). `kill:rename!57@80:` was killed after 57 events, and the 80 events
//! include those of the next opening. In `lies:logged-rename!2@80:` the third sync did nothing.
//! `x86:rename=omit:journal/record@57:` is the run of a [`Mutant`].

use std::fmt;
use std::str::FromStr;

use crate::mutant::Mutant;

/// What happens at a power cut to stores that no fence covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Lines arrive independently and in any order; everything before the explored steps is
    /// durable.
    X86,
    /// The same, but lines that the setup left unflushed may still be lost.
    Lazy,
    /// Caches survive: stores arrive in order.
    Eadr,
    /// The process is killed in the middle of a step, and the power fails while another process
    /// opens the pool or after that: see `kills.rs`.
    Kill,
    /// A sync of a disk does nothing: see `ignored_flushes.rs`.
    IgnoredFlushes,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 5] = [
        Self::X86,
        Self::Lazy,
        Self::Eadr,
        Self::Kill,
        Self::IgnoredFlushes,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::Lazy => "lazy",
            Self::Eadr => "eadr",
            Self::Kill => "kill",
            Self::IgnoredFlushes => "lies",
        }
    }
}

/// A crash after some events, with what each line in flight received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) events: usize,
    pub(crate) choice: Vec<usize>,
}

/// The identifier of a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CrashId {
    pub(crate) mode: Mode,
    /// The workload, and what its run depends on.
    pub(crate) workload: String,
    pub(crate) mutant: Option<Mutant>,
    /// The crash of the workload, then those of its recoveries.
    pub(crate) cuts: Vec<Cut>,
}

impl FromStr for Mode {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|mode| mode.name() == name).ok_or(())
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.events)?;
        let end = self
            .choice
            .iter()
            .rposition(|&choice| choice > 0)
            .map_or(0, |last| last + 1);
        for (i, run) in self.choice[..end].chunk_by(|a, b| a == b).enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match run.len() {
                1 => write!(f, "{}", run[0])?,
                len => write!(f, "{}x{len}", run[0])?,
            }
        }
        Ok(())
    }
}

impl FromStr for Cut {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        const LINES_MAX: usize = 1 << 20;
        let (events, runs) = text.split_once(':').ok_or(())?;
        let mut choice = Vec::new();
        for run in runs.split(',').filter(|run| !run.is_empty()) {
            let (value, count) = run.split_once('x').unwrap_or((run, "1"));
            let number = |text: &str| text.parse::<usize>().map_err(drop);
            let longer = choice.len() + number(count)?.min(LINES_MAX);
            choice.resize(longer.min(LINES_MAX), number(value)?);
        }
        let events = events.parse().map_err(drop)?;
        Ok(Self { events, choice })
    }
}

impl fmt::Display for CrashId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.mode.name(), self.workload)?;
        if let Some(mutant) = &self.mutant {
            write!(f, "={mutant}")?;
        }
        f.write_str("@")?;
        for (i, cut) in self.cuts.iter().enumerate() {
            let separator = if i > 0 { "/" } else { "" };
            write!(f, "{separator}{cut}")?;
        }
        Ok(())
    }
}

impl FromStr for CrashId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (mode, rest) = text.split_once(':').ok_or(())?;
        let mode = mode.parse()?;
        let (run, cuts) = rest.split_once('@').ok_or(())?;
        let (workload, mutant) = match run.split_once('=') {
            Some((workload, mutant)) => (workload, Some(mutant.parse()?)),
            None => (run, None),
        };
        let cuts = cuts.split('/').filter(|_| !cuts.is_empty());
        let cuts = cuts.map(str::parse).collect::<Result<_, _>>()?;
        let workload = workload.to_owned();
        Ok(Self {
            mode,
            workload,
            mutant,
            cuts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_go_both_ways() {
        for text in [
            "x86:rename@57:0x4,2,1",
            "eadr:a-b@0:",
            "lazy:w@9:1/12:0,3x2",
            "x86:threads/a+b!0>1,137>0@57:",
            "x86:threads/a+b!@",
            "kill:unlink!57@80:0x2,1",
            "x86:threads/a+b!0>1=swap:create/entry-durable@57:",
            "lies:logged-unlink!2@80:0x2,1",
            "kill:a!5=omit:recover/inherited@9:1",
            "x86:a=omit:journal/record:journal.rs:89@9:1",
        ] {
            let id: CrashId = text.parse().unwrap();
            assert_eq!(id.to_string(), text);
        }
        assert!("x86:rename".parse::<CrashId>().is_err());
        assert!("x87:rename@1:".parse::<CrashId>().is_err());
        assert!("x86:rename=omit:nothing@1:".parse::<CrashId>().is_err());
        assert!(
            "x86:rename=omit:journal/record:89@1:"
                .parse::<CrashId>()
                .is_err()
        );
        assert!("x86:rename@1:a".parse::<CrashId>().is_err());
    }
}
