//! Schedules: which thread continues where.
//!
//! `0>1,137>0`: thread 1 begins, and before the access with number 137 thread 0 continues. Numbers
//! count all accesses of all threads since they began. Where the schedule has no entry, the running
//! thread goes on; when it ends, the one with the lowest number continues; when it waits, the next
//! one does.

use std::fmt;
use std::str::FromStr;

/// A switch to another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Switch {
    /// The number of accesses before it.
    pub(crate) access: u64,
    /// The thread.
    pub(crate) thread: usize,
}

/// Switches by ascending access.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Schedule(pub(crate) Vec<Switch>);

impl Schedule {
    /// The same, with a further switch at its end.
    pub(crate) fn and(&self, access: u64, thread: usize) -> Self {
        let mut longer = self.0.clone();
        longer.push(Switch { access, thread });
        Self(longer)
    }

    /// The access before which the last switch happens.
    pub(crate) fn end(&self) -> u64 {
        self.0.last().map_or(0, |last| last.access)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Switch { access, thread }) in self.0.iter().enumerate() {
            let separator = if i > 0 { "," } else { "" };
            write!(f, "{separator}{access}>{thread}")?;
        }
        Ok(())
    }
}

impl FromStr for Schedule {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let switch = |part: &str| {
            let (access, thread) = part.split_once('>').ok_or(())?;
            let (access, thread) = (access.parse().map_err(drop)?, thread.parse().map_err(drop)?);
            Ok(Switch { access, thread })
        };
        let parts = text.split(',').filter(|part| !part.is_empty());
        let switches: Vec<_> = parts.map(switch).collect::<Result<_, ()>>()?;
        if switches.is_sorted_by_key(|switch| switch.access) {
            Ok(Self(switches))
        } else {
            Err(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_go_both_ways() {
        for text in ["", "0>1", "0>1,137>0,290>2"] {
            let schedule: Schedule = text.parse().unwrap();
            assert_eq!(schedule.to_string(), text);
        }
        for text in ["1", "1>", ">1", "5>0,4>1"] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }
}
