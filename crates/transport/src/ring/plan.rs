//! The size of the queues.

use crate::init::REQUEST_MAX_BYTES;

/// The most memory of all payloads together.
const MEMORY_MAX_BYTES: usize = 48 << 20;
/// The number of requests that a queue takes at once, unless that needs too much memory.
const SLOTS: usize = 4;

/// The size of the door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) queues: u16,
    /// The number of requests that a queue takes at once.
    pub(super) slots: usize,
    /// The largest read or write request.
    pub(super) payload_bytes: u32,
}

impl Plan {
    /// For the processors that this machine may ever have: the kernel wants a queue for each.
    /// `None`: they are unknown, or too many.
    pub(super) fn new() -> Option<Self> {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
        Self::of(possible_processors(possible.trim())?)
    }

    fn of(queues: u16) -> Option<Self> {
        let mut slots = SLOTS;
        let mut payload_bytes = REQUEST_MAX_BYTES;
        let is_large =
            |slots, payload| usize::from(queues) * slots * payload as usize > MEMORY_MAX_BYTES;
        while is_large(slots, payload_bytes) {
            match slots {
                1 => payload_bytes /= 2,
                _ => slots /= 2,
            }
            if payload_bytes < 128 << 10 {
                return None;
            }
        }
        Some(Self {
            queues,
            slots,
            payload_bytes,
        })
    }
}

/// The number of processors in a list such as `0-3`. `None`: numbers are missing in between.
fn possible_processors(list: &str) -> Option<u16> {
    let last = match list.split_once('-') {
        None if list == "0" => return Some(1),
        Some(("0", last)) => last,
        _ => return None,
    };
    last.parse::<u16>().ok()?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_take_bounded_memory() {
        for queues in 1..=384 {
            let plan = Plan::of(queues).expect("possible");
            let all = usize::from(queues) * plan.slots * plan.payload_bytes as usize;
            assert!(all <= MEMORY_MAX_BYTES, "{plan:?}");
        }
        let whole = |queues| Plan::of(queues).map(|plan| (plan.slots, plan.payload_bytes));
        assert_eq!(whole(2), Some((4, 1 << 20)));
        assert_eq!(whole(16), Some((2, 1 << 20)));
        assert_eq!(whole(48), Some((1, 1 << 20)));
        assert_eq!(whole(64), Some((1, 1 << 19)));
        assert_eq!(whole(385), None);
    }

    #[test]
    fn processors_are_counted_if_none_is_missing() {
        assert_eq!(possible_processors("0"), Some(1));
        assert_eq!(possible_processors("0-127"), Some(128));
        for list in ["", "1", "1-2", "0-1,4-5", "0,2", "0-65535"] {
            assert_eq!(possible_processors(list), None, "{list}");
        }
    }
}
