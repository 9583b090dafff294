//! Mutants: the log that the engine would have written without one of its persistent steps, or with
//! two of them in the wrong order.
//!
//! A flush or a fence changes nothing that a running program sees, only what a crash may leave. So
//! a mutant of the engine is a change of the log that the engine wrote.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

use vellum::sites;
use vellum_media::{Event, LINE_BYTES, Op, Site};

use crate::location::Location;

/// A change of one of the engine's persistent steps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// This flush or fence is missing. Stores past the cache become plain stores.
    Omit(Location),
    /// Wherever this fence lies between two steps of an operation, the steps change places. (A step
    /// is everything between two fences.) A row of steps with this fence between each pair is
    /// reversed. Stores to one cell keep their order, because the last one decides what is read:
    /// the earlier ones move together with it.
    Swap(Location),
    /// The step before this fence, which only later operations need (`FOR_LATER`), reaches the
    /// medium after everything that follows.
    Late(Location),
    /// Where this order is declared ([`vellum_media::Persistent::behind`]), it is reversed: the
    /// cell at this distance from the one that is stored later persists after it.
    Turn(Location, i64),
}

/// Fences whose preceding step is delayed behind everything that follows, instead of changing
/// places with the next step, because nothing in the same call builds on it. Each has a comment
/// about what can follow it, and why that may come first.
pub(crate) const FOR_LATER: [Site; 9] = [
    // Followed by steps of other inodes, or by another part of the background work. These use other
    // slots and blocks, which become free only after this fence and a grace period.
    sites::FREE_LIMBO_DURABLE,
    // Followed by the record of attributes that change in the same call. The size is durable before
    // both. Recovery frees MAPPED blocks beyond the size, and the root says that such blocks may
    // exist.
    sites::TRUNCATE_LIMBO_DURABLE,
    // Followed by another attempt of the same write, whose claims take other blocks: the first ones
    // are in limbo until the grace period of this operation is over. The attempt commits one fence
    // later, behind this one.
    sites::WRITE_LIMBO_DURABLE,
    // Followed by the compaction of the same log, which copies words that are not zero. A copy and
    // a word that came back do not name an entry twice, because the log leads to only one of the
    // extents.
    sites::RECYCLE_WORDS_DURABLE,
    // Followed by states of another group, or by the same compaction: no word of these entries is
    // left. Their slots are reused only after this fence.
    sites::RECYCLE_STATES_DURABLE,
    // Both are followed by another directory's work, or by the call that needed space. The old
    // extents are reused only after this fence and an epoch.
    sites::COMPACT_NEXT_DURABLE,
    sites::COMPACT_ROOT_DURABLE,
    // Followed by another entry's move, or by the claim that needed space, for another key.
    // Recovery removes the second of two entries with one key, in whatever order others arrived.
    sites::LEVEL_LEAVE_DURABLE,
    // Followed by the same for another line of the log, or for dead entries: the call that reports
    // them ends only after this fence.
    sites::LIST_WORDS_DURABLE,
];

impl Mutant {
    /// The location that it changes.
    pub(crate) fn location(&self) -> &Location {
        match self {
            Self::Omit(location)
            | Self::Swap(location)
            | Self::Late(location)
            | Self::Turn(location, _) => location,
        }
    }

    /// The log that this mutant of the engine would have written instead of `log`.
    pub fn rewrite(&self, log: &[Event]) -> Vec<Event> {
        match self {
            Self::Omit(location) => omit(location, log),
            Self::Swap(location) => swap(location, log),
            Self::Late(location) => put_off(location, log),
            Self::Turn(location, distance) => turn_in_line(location, *distance, log),
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Omit(location) => write!(f, "omit:{location}"),
            Self::Swap(location) => write!(f, "swap:{location}"),
            Self::Late(location) => write!(f, "late:{location}"),
            Self::Turn(location, distance) => write!(f, "turn{distance:+}:{location}"),
        }
    }
}

impl FromStr for Mutant {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (what, location) = text.split_once(':').ok_or(())?;
        let location = location.parse()?;
        match what {
            "omit" => Ok(Self::Omit(location)),
            "swap" => Ok(Self::Swap(location)),
            "late" => Ok(Self::Late(location)),
            _ => {
                let distance = what.strip_prefix("turn").ok_or(())?;
                let distance = distance.parse().map_err(drop)?;
                Ok(Self::Turn(location, distance))
            }
        }
    }
}

fn omit(location: &Location, log: &[Event]) -> Vec<Event> {
    let mut log = log.to_vec();
    log.retain_mut(|event| {
        if !location.is(event) {
            return true;
        }
        match &mut event.op {
            Op::Flush { .. } | Op::Fence => false,
            Op::Store { non_temporal, .. } => {
                *non_temporal = false;
                true
            }
            Op::Marker(_) | Op::Behind { .. } | Op::Release { .. } => true,
        }
    });
    log
}

/// Where an order is declared, moves the store to the one cell right behind the store to the other,
/// if nothing flushed their line in between. With a flush in between, the order would not depend on
/// the line alone.
fn turn_in_line(location: &Location, distance: i64, log: &[Event]) -> Vec<Event> {
    let mut order: Vec<usize> = (0..log.len()).collect();
    for (declared, event) in log
        .iter()
        .enumerate()
        .filter(|(_, event)| location.is(event))
    {
        let Some((moved, behind)) = turned(distance, log, declared, event) else {
            continue;
        };
        order.retain(|at| !moved.contains(at));
        let place = order.iter().position(|&at| at == behind);
        let place = place.map_or(order.len(), |place| place + 1);
        order.splice(place..place, moved);
    }
    order.into_iter().map(|at| log[at]).collect()
}

/// The stores to delay where an order is declared, and the store that they move behind.
fn turned(
    distance: i64,
    log: &[Event],
    declared: usize,
    event: &Event,
) -> Option<(Vec<usize>, usize)> {
    let Op::Behind { at, cells } = event.op else {
        return None;
    };
    let (beside, line) = (at.wrapping_add_signed(distance), at / LINE_BYTES);
    if beside / LINE_BYTES != line || cells >> (beside % LINE_BYTES / 8) & 1 == 0 {
        return None;
    }
    let is_later = |other: &Event| other.thread == event.thread && stores(other, at);
    let later = declared + log[declared..].iter().position(is_later)?;
    let before = log[..declared].iter();
    let mut earlier = before.rev().take_while(|event| !flushes(event, line));
    let earlier = earlier.position(|other| stores(other, beside))?;
    let earlier = declared - 1 - earlier;
    let mut since = log[declared..later].iter();
    if since.any(|other| flushes(other, line) || stores(other, beside)) {
        return None;
    }
    // Includes stores that repeat the old value.
    let same = |&at: &usize| matches!(log[at].op, Op::Store { at, .. } if at == beside);
    Some(((earlier..later).filter(same).collect(), later))
}

/// Whether an event changes a cell.
fn stores(event: &Event, cell: u64) -> bool {
    matches!(event.op, Op::Store { at, before, after, .. } if at == cell && before != after)
}

/// Whether an event flushes the line of this number.
fn flushes(event: &Event, number: u64) -> bool {
    match event.op {
        Op::Flush { line } => line / LINE_BYTES == number,
        Op::Store {
            at,
            non_temporal: true,
            ..
        } => at / LINE_BYTES == number,
        _ => false,
    }
}

/// The events of a thread up to one of its fences: indices into a part of a log.
#[derive(Default)]
struct Section {
    events: Vec<usize>,
    fence: Option<usize>,
}

/// Which markers separate the operations of a thread: its own if it has any, otherwise all.
pub(crate) struct Bounds(HashSet<u32>);

impl Bounds {
    pub(crate) fn of(log: &[Event]) -> Self {
        let markers = log.iter().filter(|event| matches!(event.op, Op::Marker(_)));
        Self(markers.map(|event| event.thread).collect())
    }

    /// Whether `event` is a marker between operations of `thread`.
    pub(crate) fn is_between(&self, event: &Event, thread: u32) -> bool {
        let is_its = event.thread == thread || !self.0.contains(&thread);
        matches!(event.op, Op::Marker(_)) && is_its
    }
}

fn swap(location: &Location, log: &[Event]) -> Vec<Event> {
    let mut order: Vec<usize> = (0..log.len()).collect();
    let mut changed = false;
    let bounds = Bounds::of(log);
    let threads: BTreeSet<u32> = log.iter().map(|event| event.thread).collect();
    for thread in threads {
        for sections in sections(log, thread, &bounds) {
            let mut from = 0;
            while from < sections.len() {
                let to = from + row(location, log, &sections[from..]);
                changed |= turn(&sections[from..=to], log, &mut order);
                from = to + 1;
            }
        }
    }
    if !changed {
        return log.to_vec();
    }
    let mut log: Vec<Event> = order.into_iter().map(|at| log[at]).collect();
    settle(&mut log);
    log
}

/// Delays to the very end the durability of the steps before the fences of `location`. Threads
/// still see the stores where they are; only the medium gets them last.
fn put_off(location: &Location, log: &[Event]) -> Vec<Event> {
    let mut now: Vec<Option<Event>> = log.iter().copied().map(Some).collect();
    let mut late: Vec<Event> = Vec::new();
    for (fence, &last) in log.iter().enumerate() {
        if !location.is(&last) || last.op != Op::Fence {
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

/// Splits an event into what it does without flushing, and the flush.
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

/// The steps that each operation of `thread` made durable. Events after its last fence are left
/// out.
fn sections(log: &[Event], thread: u32, bounds: &Bounds) -> Vec<Vec<Section>> {
    let mut all = vec![vec![Section::default()]];
    for (at, event) in log.iter().enumerate() {
        if bounds.is_between(event, thread) {
            all.push(vec![Section::default()]);
        }
        let last = all.last_mut().filter(|_| event.thread == thread);
        let Some(sections) = last else {
            continue;
        };
        let open = sections.last_mut();
        match event.op {
            Op::Fence => {
                open.into_iter().for_each(|open| open.fence = Some(at));
                sections.push(Section::default());
            }
            Op::Marker(_) => {}
            _ => open.into_iter().for_each(|open| open.events.push(at)),
        }
    }
    for sections in &mut all {
        sections.retain(|section| section.fence.is_some() && !section.events.is_empty());
    }
    all
}

/// The number of sections after the first with the fence of `location` between each pair.
fn row(location: &Location, part: &[Event], sections: &[Section]) -> usize {
    let ends_there = |section: &&Section| section.fence.is_some_and(|at| location.is(&part[at]));
    let row = sections.iter().take_while(ends_there).count();
    row.min(sections.len() - 1)
}

/// Reverses the contents of `row` in place; the fences stay. Returns whether that changes anything.
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

/// Where a cell is stored in several of the steps, moves the earlier stores along, in front.
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

/// Makes every store's old value the one that the store before left in its cell.
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
    use vellum_media::Caller;

    use super::*;

    const A: Site = Site::numbered(1);
    const B: Site = Site::numbered(2);

    fn event(site: Site, op: Op) -> Event {
        Event {
            thread: 1,
            op,
            site,
            place: Caller::here(),
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

    /// The values that cells are set to, and the positions of fences.
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
            for location in [
                Location::from(site),
                Location::at((site, Caller::here(), None)),
            ] {
                let mutants = [
                    Mutant::Omit(location.clone()),
                    Mutant::Swap(location.clone()),
                    Mutant::Late(location.clone()),
                    Mutant::Turn(location.clone(), 8),
                    Mutant::Turn(location, -56),
                ];
                for mutant in mutants {
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
            Mutant::Late(sites::COMPACT_ROOT_DURABLE.into()).rewrite(&log),
            expected
        );
        assert_eq!(
            Mutant::Late(sites::FREE_LIMBO_DURABLE.into()).rewrite(&log),
            log
        );
    }

    #[test]
    fn an_order_within_a_line_is_turned_round() {
        let plain = |at, before, after| {
            let op = Op::Store {
                at,
                before,
                after,
                non_temporal: false,
            };
            event(Site::UNNAMED, op)
        };
        let behind = event(
            A,
            Op::Behind {
                at: 8,
                cells: 0b101,
            },
        );
        let flush = event(B, Op::Flush { line: 0 });
        let log = [
            plain(0, 0, 1),
            plain(0, 1, 1),
            plain(64, 0, 5),
            behind,
            plain(8, 0, 2),
            flush,
        ];
        let turned = Mutant::Turn(A.into(), -8).rewrite(&log);
        assert_eq!(turned, [log[2], log[3], log[4], log[0], log[1], log[5]]);
        let unchanged = |distance, log: &[Event]| {
            assert_eq!(Mutant::Turn(A.into(), distance).rewrite(log), log);
        };
        unchanged(8, &log);
        unchanged(16, &log);
        unchanged(-8, &[log[0], flush, behind, log[4]]);
        unchanged(-8, &[log[0], behind, flush, log[4]]);
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
