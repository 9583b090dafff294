//! Mutants: what the engine would have done if a persistent step were missing, or two were in the
//! wrong order.
//!
//! A flush or a fence changes nothing that a running program sees, only what a crash may leave. So a
//! mutant of the engine is a change of the log that the engine itself wrote.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use vellum::sites;
use vellum_media::{Event, LINE_BYTES, Op, Site};

use crate::spot::Spot;

/// A change of the engine's persistent steps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// This flush or fence is not there. Stores past the cache become plain stores.
    Omit(Spot),
    /// Wherever an operation has this fence between two steps (what happens between two of its
    /// fences), the steps change places. A row of steps with this fence between each is turned
    /// round. Stores to one cell keep their order, because the last one decides what is read: the
    /// earlier ones come along with it. The step in front of a fence that only later operations need
    /// ([`FOR_LATER`]) changes places with all that follows.
    Swap(Spot),
}

/// Fences behind which, in the same call, nothing builds on what is in front: those of background work, of a
/// truncate and of a write that gives up, for those who use again, in later operations, what was given up there;
/// and that of an entry that left its line, for those who change what it says where it is now.
pub(crate) const FOR_LATER: [Site; 6] = [
    sites::FREE_LIMBO_DURABLE,
    sites::TRUNCATE_LIMBO_DURABLE,
    sites::WRITE_LIMBO_DURABLE,
    sites::RECYCLE_WORDS_DURABLE,
    sites::COMPACT_ROOT_DURABLE,
    sites::LEVEL_LEAVE_DURABLE,
];

impl Mutant {
    /// What it changes.
    pub(crate) fn spot(&self) -> &Spot {
        match self {
            Self::Omit(spot) | Self::Swap(spot) => spot,
        }
    }

    /// The log that this mutant of the engine would have written instead of `log`.
    pub fn rewrite(&self, log: &[Event]) -> Vec<Event> {
        match self {
            Self::Omit(spot) => omit(spot, log),
            Self::Swap(spot) if FOR_LATER.contains(&spot.site) => put_off(spot, log),
            Self::Swap(spot) => swap(spot, log),
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self {
            Self::Omit(_) => "omit",
            Self::Swap(_) => "swap",
        };
        write!(f, "{what}:{}", self.spot())
    }
}

impl FromStr for Mutant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (what, spot) = text.split_once(':').ok_or(())?;
        let spot = spot.parse()?;
        match what {
            "omit" => Ok(Self::Omit(spot)),
            "swap" => Ok(Self::Swap(spot)),
            _ => Err(()),
        }
    }
}

fn omit(spot: &Spot, log: &[Event]) -> Vec<Event> {
    let mut log = log.to_vec();
    log.retain_mut(|event| {
        if !spot.is(event) {
            return true;
        }
        match &mut event.op {
            Op::Flush { .. } | Op::Fence => false,
            Op::Store { non_temporal, .. } => {
                *non_temporal = false;
                true
            }
            Op::Marker(_) => true,
        }
    });
    log
}

/// What a thread does up to a fence of its own: indices into a part of a log.
#[derive(Default)]
struct Section {
    events: Vec<usize>,
    fence: Option<usize>,
}

/// An operation's part of the log lies between markers.
fn swap(spot: &Spot, log: &[Event]) -> Vec<Event> {
    let parts = log.split_inclusive(|event| matches!(event.op, Op::Marker(_)));
    parts.flat_map(|part| swap_part(spot, part)).collect()
}

/// Makes durable at the very end what is in front of the fences of `spot`. Threads go on to see the stores where
/// they are; it is the medium that gets them last.
fn put_off(spot: &Spot, log: &[Event]) -> Vec<Event> {
    let mut now: Vec<Option<Event>> = log.iter().copied().map(Some).collect();
    let mut late: Vec<Event> = Vec::new();
    for (fence, &last) in log.iter().enumerate() {
        if !spot.is(&last) || last.op != Op::Fence {
            continue;
        }
        let begins = |event: &Event| match event.op {
            Op::Marker(_) => true,
            Op::Fence => event.thread == last.thread,
            _ => false,
        };
        let begin = log[..fence].iter().rposition(begins);
        let begin = begin.map_or(0, |at| at + 1);
        for at in (begin..fence).filter(|&at| log[at].thread == last.thread) {
            let (rest, flushed) = without_flush(log[at]);
            now[at] = rest;
            late.extend(flushed);
        }
        now[fence] = None;
        late.push(last);
    }
    now.into_iter().flatten().chain(late).collect()
}

/// What an event does but for flushing, and the flush.
fn without_flush(event: Event) -> (Option<Event>, Option<Event>) {
    let with = |op| Some(Event { op, ..event });
    match event.op {
        Op::Flush { .. } => (None, Some(event)),
        Op::Store {
            at,
            before,
            after,
            non_temporal: true,
        } => {
            let line = at - at % LINE_BYTES;
            let plain = Op::Store {
                at,
                before,
                after,
                non_temporal: false,
            };
            (with(plain), with(Op::Flush { line }))
        }
        _ => (Some(event), None),
    }
}

fn swap_part(spot: &Spot, part: &[Event]) -> Vec<Event> {
    let mut order: Vec<usize> = (0..part.len()).collect();
    let mut changed = false;
    let threads: HashSet<u32> = part.iter().map(|event| event.thread).collect();
    for thread in threads {
        let sections = sections(part, thread);
        let mut from = 0;
        while from < sections.len() {
            let to = from + row(spot, part, &sections[from..]);
            changed |= turn(&sections[from..=to], part, &mut order);
            from = to + 1;
        }
    }
    if !changed {
        return part.to_vec();
    }
    let mut part: Vec<Event> = order.into_iter().map(|at| part[at]).collect();
    settle(&mut part);
    part
}

/// The steps that `thread` made durable: what it did after its last fence is none.
fn sections(part: &[Event], thread: u32) -> Vec<Section> {
    let mut sections = vec![Section::default()];
    for (at, event) in part.iter().enumerate() {
        let Some(last) = sections.last_mut().filter(|_| event.thread == thread) else {
            continue;
        };
        match event.op {
            Op::Fence => {
                last.fence = Some(at);
                sections.push(Section::default());
            }
            Op::Marker(_) => {}
            _ => last.events.push(at),
        }
    }
    sections.retain(|section| section.fence.is_some() && !section.events.is_empty());
    sections
}

/// How many sections follow the first with the fence of `spot` between each.
fn row(spot: &Spot, part: &[Event], sections: &[Section]) -> usize {
    let ends_there = |section: &&Section| section.fence.is_some_and(|at| spot.is(&part[at]));
    let row = sections.iter().take_while(ends_there).count();
    row.min(sections.len() - 1)
}

/// Puts the contents of `row` in the opposite order where they lie; the fences stay. Whether that
/// changes anything.
fn turn(row: &[Section], part: &[Event], order: &mut Vec<usize>) -> bool {
    let (Some(first), Some(last)) = (row.first(), row.last()) else {
        return false;
    };
    let (Some(&begin), Some(end)) = (first.events.first(), last.fence) else {
        return false;
    };
    let moved: HashSet<usize> = row.iter().flat_map(|s| &s.events).copied().collect();
    let cell = |at: &usize| match part[*at].op {
        Op::Store { at, .. } => Some(at),
        _ => None,
    };
    let cells: HashSet<u64> = moved.iter().filter_map(cell).collect();
    let foreign =
        |at: &usize| !moved.contains(at) && cell(at).is_some_and(|at| cells.contains(&at));
    if row.len() < 2 || (begin..end).any(|at| foreign(&at)) {
        return false;
    }
    let mut contents: Vec<Vec<usize>> = row.iter().rev().map(|s| s.events.clone()).collect();
    keep_cells_in_order(&mut contents, &cell);
    let place = |wanted: usize, order: &[usize]| order.iter().position(|&at| at == wanted);
    order.retain(|at| !moved.contains(at));
    for (section, contents) in row.iter().zip(contents) {
        let fence = section.fence.and_then(|fence| place(fence, order));
        let at = fence.unwrap_or(order.len());
        order.splice(at..at, contents);
    }
    true
}

/// Where a cell is stored in several of the steps, the earlier stores come along, in front.
fn keep_cells_in_order(contents: &mut [Vec<usize>], cell: &impl Fn(&usize) -> Option<u64>) {
    let mut stores: HashMap<u64, Vec<usize>> = HashMap::new();
    for &at in contents.iter().flatten() {
        stores
            .entry(cell(&at).unwrap_or(u64::MAX))
            .or_default()
            .push(at);
    }
    stores
        .values_mut()
        .for_each(|stores| stores.sort_unstable());
    let mut done = HashSet::new();
    for step in contents {
        let mut all = Vec::with_capacity(step.len());
        for &at in &*step {
            let earlier = cell(&at).and_then(|cell| stores.get(&cell));
            let earlier = earlier.into_iter().flatten().filter(|&&other| other < at);
            all.extend(earlier.chain([&at]).filter(|&&at| done.insert(at)));
        }
        *step = all;
    }
}

/// Makes every store begin with what the store before left in its cell.
fn settle(part: &mut [Event]) {
    let mut cells: HashMap<u64, u64> = HashMap::new();
    for event in part {
        if let Op::Store {
            at, before, after, ..
        } = &mut event.op
        {
            if let Some(&now) = cells.get(at) {
                *before = now;
            }
            cells.insert(*at, *after);
        }
    }
}

#[cfg(test)]
mod tests {
    use vellum_media::Place;

    use super::*;

    const A: Site = Site::numbered(1);
    const B: Site = Site::numbered(2);

    fn event(site: Site, op: Op) -> Event {
        Event {
            thread: 1,
            op,
            site,
            place: Place::here(),
        }
    }

    fn store(at: u64, before: u64, after: u64) -> Event {
        let op = Op::Store {
            at,
            before,
            after,
            non_temporal: true,
        };
        event(A, op)
    }

    fn fence(site: Site) -> Event {
        event(site, Op::Fence)
    }

    fn marker() -> Event {
        event(Site::UNNAMED, Op::Marker(1))
    }

    /// What cells are set to, and where fences are.
    fn shape(log: &[Event]) -> Vec<(u64, u64)> {
        log.iter()
            .map(|event| match event.op {
                Op::Store { at, after, .. } => (at, after),
                Op::Fence => (99, u64::from(event.site.number())),
                _ => (99, 99),
            })
            .collect()
    }

    #[test]
    fn mutants_have_names() {
        for &(site, _) in sites::ALL {
            for spot in [Spot::from(site), Spot::at((site, Place::here()))] {
                for mutant in [Mutant::Omit(spot.clone()), Mutant::Swap(spot)] {
                    assert_eq!(mutant.to_string().parse(), Ok(mutant));
                }
            }
        }
        assert_eq!("omit:nothing".parse::<Mutant>(), Err(()));
    }

    #[test]
    fn an_omitted_site_makes_nothing_durable() {
        let flush = event(A, Op::Flush { line: 0 });
        let log = [store(0, 0, 1), flush, fence(A), fence(B)];
        let Op::Store {
            at, before, after, ..
        } = log[0].op
        else {
            unreachable!()
        };
        let plain = Op::Store {
            at,
            before,
            after,
            non_temporal: false,
        };
        assert_eq!(
            Mutant::Omit(A.into()).rewrite(&log),
            [event(A, plain), fence(B)]
        );
        assert_eq!(Mutant::Omit(B.into()).rewrite(&log), log[..3]);
    }

    #[test]
    fn swapped_steps_change_places() {
        let log = [store(0, 0, 1), fence(A), store(8, 0, 2), fence(B)];
        assert_eq!(
            shape(&Mutant::Swap(A.into()).rewrite(&log)),
            [(8, 2), (99, 1), (0, 1), (99, 2)]
        );
        assert_eq!(Mutant::Swap(B.into()).rewrite(&log), log, "nothing follows");
        let returned = [&log[..2], &[marker()], &log[2..]].concat();
        assert_eq!(
            Mutant::Swap(A.into()).rewrite(&returned),
            returned,
            "another operation follows"
        );
        let open = &log[..3];
        assert_eq!(
            Mutant::Swap(A.into()).rewrite(open),
            open,
            "no step follows"
        );
    }

    #[test]
    fn a_row_of_steps_is_turned_round() {
        let steps = [(0, 1), (8, 2), (16, 3)];
        let log: Vec<_> = steps
            .iter()
            .flat_map(|&(at, after)| [store(at, 0, after), fence(A)])
            .collect();
        let fence = (99, 1);
        assert_eq!(
            shape(&Mutant::Swap(A.into()).rewrite(&log)),
            [(16, 3), fence, (8, 2), fence, (0, 1), fence]
        );
    }

    #[test]
    fn a_cell_keeps_the_order_of_its_stores() {
        let log = [
            store(0, 5, 1),
            store(8, 0, 7),
            fence(A),
            store(0, 1, 2),
            fence(B),
        ];
        let swapped = Mutant::Swap(A.into()).rewrite(&log);
        assert_eq!(shape(&swapped), [(0, 1), (0, 2), (99, 1), (8, 7), (99, 2)]);
        let mut now = HashMap::from([(0, 5), (8, 0)]);
        for event in swapped {
            if let Op::Store {
                at, before, after, ..
            } = event.op
            {
                assert_eq!(now.insert(at, after), Some(before));
            }
        }
    }

    #[test]
    fn a_step_that_only_later_operations_need_is_put_off() {
        let last = fence(sites::COMPACT_ROOT_DURABLE);
        let flush = |line| event(A, Op::Flush { line });
        let log = [
            store(64, 0, 1),
            last,
            marker(),
            store(0, 0, 2),
            fence(B),
            marker(),
        ];
        let Op::Store {
            at, before, after, ..
        } = log[0].op
        else {
            unreachable!()
        };
        let plain = Op::Store {
            at,
            before,
            after,
            non_temporal: false,
        };
        let expected = [
            event(A, plain),
            log[2],
            log[3],
            log[4],
            log[5],
            flush(64),
            last,
        ];
        assert_eq!(
            Mutant::Swap(sites::COMPACT_ROOT_DURABLE.into()).rewrite(&log),
            expected
        );
        assert_eq!(
            Mutant::Swap(sites::FREE_LIMBO_DURABLE.into()).rewrite(&log),
            log
        );
    }

    #[test]
    fn steps_that_another_thread_stores_into_stay() {
        let other = Event {
            thread: 2,
            ..store(0, 1, 9)
        };
        let log = [store(0, 0, 1), fence(A), other, store(8, 0, 2), fence(B)];
        assert_eq!(Mutant::Swap(A.into()).rewrite(&log), log);
    }
}
