//! How many states of each crash point are tried.
//!
//! Between two fences lines only gain contents, so the last point before a fence has every state of
//! the other points since the previous fence. If that point can be explored with every state, the
//! others need not be.

use vellum_media::{CrashPoints, Event, Op};

/// The plan for the crash points of a log.
pub(crate) struct Plan {
    /// What is tried at each point.
    pub(crate) quotas: Vec<Quota>,
    /// Whether every state of every point is tried.
    pub(crate) exhaustive: bool,
}

/// What is tried at a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quota {
    /// The most states; 0 if another point has them all, or enough of them.
    pub(crate) states: usize,
    /// Whether all states are tried, at this point or another.
    pub(crate) is_exhaustive: bool,
    /// Whether this point has all states of the points up to the next fence.
    pub(crate) is_last: bool,
}

struct Interval {
    points: usize,
    most: u128,
}

/// Plans `log` with at most `bound` states a point. Points after at most `skip` events are left
/// out.
pub(crate) fn plan(mut points: CrashPoints<'_>, log: &[Event], skip: usize, bound: usize) -> Plan {
    let mut intervals: Vec<Interval> = Vec::new();
    let mut last_end = None;
    let mut sizes = Vec::new();
    let mut fences = Fences {
        log,
        at: 0,
        seen: 0,
    };
    while let Some(point) = points.next_point() {
        if point.events_done() <= skip {
            sizes.push(None);
            continue;
        }
        let end = fences.before(point.events_done());
        if last_end != Some(end) {
            last_end = Some(end);
            intervals.push(Interval { points: 0, most: 0 });
        }
        let combinations = point.combinations();
        if let Some(interval) = intervals.last_mut() {
            interval.points += 1;
            interval.most = interval.most.max(combinations);
        }
        sizes.push(Some((intervals.len() - 1, combinations)));
    }
    let mut quotas = vec![Quota::default(); sizes.len()];
    let mut exhaustive = true;
    let mut within = 0;
    for (i, size) in sizes.iter().enumerate() {
        let Some((interval, _)) = *size else { continue };
        let of = &intervals[interval];
        let same =
            |at: usize| matches!(sizes.get(at), Some(Some((other, _))) if *other == interval);
        within = if i > 0 && same(i - 1) { within + 1 } else { 0 };
        let is_exhaustive = of.most <= bound as u128;
        exhaustive &= is_exhaustive;
        let states = if !same(i + 1) {
            bound
        } else if is_exhaustive {
            0
        } else {
            share(bound, of.points, within)
        };
        quotas[i] = Quota {
            states,
            is_exhaustive,
            is_last: !same(i + 1),
        };
    }
    Plan { quotas, exhaustive }
}

/// The number of states for a point that is not the last of its interval: a few, and for some
/// points none if there are too many points.
fn share(bound: usize, points: usize, index: usize) -> usize {
    const FEW: usize = 4;
    let all = 2 * bound;
    if all >= FEW * points {
        return (all / points).min(bound);
    }
    let stride = (FEW * points).div_ceil(all.max(FEW));
    if index.is_multiple_of(stride) { FEW } else { 0 }
}

/// A plan for a log in which every store is durable at once: about `most` points at most.
pub(crate) fn plan_every_point(mut points: CrashPoints<'_>, skip: usize, most: usize) -> Plan {
    let mut quotas = Vec::new();
    while let Some(point) = points.next_point() {
        let states = usize::from(point.events_done() > skip);
        quotas.push(Quota {
            states,
            is_exhaustive: states > 0,
            is_last: true,
        });
    }
    let stride = quotas.len().div_ceil(most.max(1)).max(1);
    let last = quotas.len().saturating_sub(1);
    for (i, quota) in quotas.iter_mut().enumerate() {
        if i % stride != 0 && i != last {
            quota.states = 0;
            quota.is_exhaustive = false;
        }
    }
    let exhaustive = stride == 1;
    Plan { quotas, exhaustive }
}

/// Counts the ends of intervals: fences and markers.
struct Fences<'a> {
    log: &'a [Event],
    at: usize,
    seen: usize,
}

impl Fences<'_> {
    fn before(&mut self, done: usize) -> usize {
        let events = &self.log[self.at..done];
        let ends = |event: &&Event| matches!(event.op, Op::Fence | Op::Marker(_));
        self.seen += events.iter().filter(ends).count();
        self.at = done;
        self.seen
    }
}
