//! What a power cut may leave of a recorded run: the x86 persistency model.
//!
//! Stores to one cache line reach the medium in program order; lines reach it independently, in any
//! order, whenever the cache likes. So at a crash every line holds some prefix of its stores. What
//! bounds the prefix from below is a flush of the line, once a fence *by the same thread* has
//! completed it: the stores before the flush (whoever made them) are then durable. A non-temporal
//! store is a store and a flush at once.
//!
//! The model is a little more generous to the crash than the hardware: locked instructions order
//! flushes too, and a whole line written past the cache arrives as one. With *eADR* the caches
//! survive, and a crash leaves exactly the stores done so far.
//!
//! ```
//! use vellum_media::{CrashPoints, Memory, Persistent, SimPool, Site};
//! # use std::sync::atomic::Ordering::Relaxed;
//! let pool = SimPool::new(4096);
//! let base = pool.image();
//! pool.start_recording();
//! pool.store(0, 1, Relaxed);
//! pool.flush(Site::UNNAMED, 0, 8);
//! pool.fence(Site::UNNAMED);
//! let log = pool.take_log();
//! let mut points = CrashPoints::new(base, &log);
//! let after_store = points.next_point().expect("the store");
//! assert_eq!(after_store.combinations(), 2); // it arrived, or not
//! let after_fence = points.next_point().expect("the fence");
//! assert_eq!(after_fence.combinations(), 1);
//! assert_eq!(after_fence.durable()[0], 1);
//! ```

use crate::memory::LINE_BYTES;
use crate::sim::{Event, Op};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

const LINE: usize = LINE_BYTES as usize;

/// The bytes of a line.
pub type LineBytes = [u8; LINE];

/// Walks through a log and stops wherever a crash could leave a new state or mean something new.
pub struct CrashPoints<'log> {
    log: &'log [Event],
    /// Number of events done.
    done: usize,
    /// The bytes that are durable.
    durable: Vec<u8>,
    /// Lines that may hold newer contents.
    in_flight: BTreeMap<u64, Line>,
    /// Lines each thread has flushed since its last fence, and when (in events done).
    flushed: BTreeMap<u32, BTreeMap<u64, usize>>,
    marker: Option<u64>,
    eadr: bool,
}

/// A line with stores that may be lost.
struct Line {
    /// The number of events done when each of `contents` appeared; ascending.
    since: Vec<usize>,
    /// The durable contents, then those after each store that changed the line.
    contents: Vec<LineBytes>,
}

/// A line at a crash point, with its possible contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineState<'points> {
    /// Offset of the line.
    pub line: u64,
    /// The durable contents, then those after each later store.
    pub contents: &'points [LineBytes],
}

/// A point of the run at which the power may fail.
pub struct CrashPoint<'points> {
    done: usize,
    marker: Option<u64>,
    durable: &'points [u8],
    /// Lines that may hold newer contents.
    lines: &'points BTreeMap<u64, Line>,
    /// The same lines as a slice, built on demand: most points of a large write are skipped.
    in_flight: OnceCell<Vec<LineState<'points>>>,
}

/// One possible outcome of a crash: the contents that each line in flight got. Together with the
/// log and [`CrashPoint::events_done`] it determines a pool image exactly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CrashState {
    /// An index into [`LineState::contents`] for each line of [`CrashPoint::in_flight`].
    pub choice: Vec<usize>,
}

impl<'log> CrashPoints<'log> {
    /// Crashes of a run that began with `base`, all durable, and did the events of `log`.
    pub fn new(base: Vec<u8>, log: &'log [Event]) -> Self {
        Self {
            log,
            done: 0,
            durable: base,
            in_flight: BTreeMap::new(),
            flushed: BTreeMap::new(),
            marker: None,
            eadr: false,
        }
    }

    /// Assumes a machine whose caches survive.
    #[must_use]
    pub fn eadr(mut self) -> Self {
        self.eadr = true;
        self
    }

    /// Goes on to the next point: after a store that changed something, a fence that made something
    /// durable, or a marker. `None` at the end of the log.
    ///
    /// # Panics
    /// If the log does not continue the base image.
    pub fn next_point(&mut self) -> Option<CrashPoint<'_>> {
        while let Some(&event) = self.log.get(self.done) {
            self.done += 1;
            if self.apply(event) {
                return Some(self.here());
            }
        }
        None
    }

    /// The present point of the walk; at first, the base image.
    pub fn here(&self) -> CrashPoint<'_> {
        CrashPoint {
            done: self.done,
            marker: self.marker,
            durable: &self.durable,
            lines: &self.in_flight,
            in_flight: OnceCell::new(),
        }
    }

    /// Does one event; returns whether it made a new point.
    fn apply(&mut self, event: Event) -> bool {
        match event.op {
            Op::Store {
                at,
                before,
                after,
                non_temporal,
            } => {
                let line = at - at % LINE_BYTES;
                let changed = self.store(at, before, after);
                if non_temporal {
                    self.flush(event.thread, line);
                }
                changed
            }
            Op::Flush { line } => {
                self.flush(event.thread, line);
                false
            }
            Op::Behind { .. } | Op::Release { .. } => false,
            Op::Fence => self.fence(event.thread),
            Op::Marker(value) => {
                self.marker = Some(value);
                true
            }
        }
    }

    fn store(&mut self, at: u64, before: u64, after: u64) -> bool {
        let line = at - at % LINE_BYTES;
        let mut bytes = match self.in_flight.get(&line) {
            Some(state) => *state.contents.last().unwrap_or(&[0; LINE]),
            None => line_of(&self.durable, line),
        };
        let cell = (at - line) as usize..(at - line) as usize + 8;
        assert_eq!(
            bytes[cell.clone()],
            before.to_ne_bytes(),
            "event {} (a store at {at:#x}) does not continue the base image",
            self.done - 1
        );
        if before == after {
            return false;
        }
        bytes[cell].copy_from_slice(&after.to_ne_bytes());
        if self.eadr {
            put_line(&mut self.durable, line, &bytes);
            return true;
        }
        let durable = &self.durable;
        let state = self.in_flight.entry(line).or_insert_with(|| Line {
            since: vec![0],
            contents: vec![line_of(durable, line)],
        });
        state.since.push(self.done);
        state.contents.push(bytes);
        true
    }

    fn flush(&mut self, thread: u32, line: u64) {
        if !self.eadr {
            self.flushed
                .entry(thread)
                .or_default()
                .insert(line, self.done);
        }
    }

    fn fence(&mut self, thread: u32) -> bool {
        let mut changed = false;
        for (line, when) in self.flushed.remove(&thread).unwrap_or_default() {
            let Some(state) = self.in_flight.get_mut(&line) else {
                continue;
            };
            // The first contents are already durable; `since` begins with 0.
            let newest = state.since.partition_point(|&since| since <= when) - 1;
            if newest == 0 {
                continue;
            }
            changed = true;
            put_line(&mut self.durable, line, &state.contents[newest]);
            state.since.drain(..newest);
            state.contents.drain(..newest);
            state.since[0] = 0;
            if state.contents.len() == 1 {
                self.in_flight.remove(&line);
            }
        }
        changed
    }
}

impl<'points> CrashPoint<'points> {
    /// Events of the log that were done.
    pub fn events_done(&self) -> usize {
        self.done
    }

    /// The last marker passed.
    pub fn marker(&self) -> Option<u64> {
        self.marker
    }

    /// The bytes that the medium holds if no line in flight arrived.
    pub fn durable(&self) -> &'points [u8] {
        self.durable
    }

    /// The lines that may hold newer contents, ascending, each with at least two possible contents.
    pub fn in_flight(&self) -> &[LineState<'points>] {
        let state_of = |(&line, state): (&u64, &'points Line)| LineState {
            line,
            contents: &state.contents,
        };
        self.in_flight
            .get_or_init(|| self.lines.iter().map(state_of).collect())
    }

    /// The number of outcomes of a crash here, or `u128::MAX` if there are more.
    pub fn combinations(&self) -> u128 {
        let mut contents = self.lines.values().map(|line| line.contents.len() as u128);
        contents.try_fold(1, u128::checked_mul).unwrap_or(u128::MAX)
    }

    /// Outcomes of a crash here. If there are at most `bound`, all of them. Otherwise `bound`
    /// different ones (with a little luck): nothing arrived, everything did, only one line did, all
    /// but one did (each of up to a third of `bound` lines, spread evenly), and then random ones,
    /// drawn by `seed`.
    pub fn states(&self, bound: usize, seed: u64) -> Vec<CrashState> {
        if self.combinations() <= bound as u128 {
            self.every()
        } else {
            self.some(bound, seed)
        }
    }

    /// The pool after this outcome.
    pub fn image(&self, state: &CrashState) -> Vec<u8> {
        let mut image = self.durable.to_vec();
        for (line, bytes) in self.arrived(state) {
            put_line(&mut image, line, bytes);
        }
        image
    }

    /// The lines in which this outcome differs from [`durable`](Self::durable).
    pub fn arrived(&self, state: &CrashState) -> impl Iterator<Item = (u64, &'points LineBytes)> {
        let lines = self.in_flight().iter().zip(&state.choice);
        lines
            .filter(|&(_, &choice)| choice > 0)
            .map(|(state, &choice)| (state.line, &state.contents[choice]))
            .collect::<Vec<_>>()
            .into_iter()
    }

    fn every(&self) -> Vec<CrashState> {
        let mut states = vec![CrashState { choice: Vec::new() }];
        for line in self.in_flight() {
            let longer = states.iter().flat_map(|state| {
                (0..line.contents.len()).map(|last| {
                    let mut choice = state.choice.clone();
                    choice.push(last);
                    CrashState { choice }
                })
            });
            states = longer.collect();
        }
        states
    }

    fn some(&self, bound: usize, seed: u64) -> Vec<CrashState> {
        let newest: Vec<_> = self
            .in_flight()
            .iter()
            .map(|state| state.contents.len() - 1)
            .collect();
        let nothing = vec![0; newest.len()];
        let with = |base: &Vec<usize>, line: usize, value: usize| {
            let mut choice = base.clone();
            choice[line] = value;
            choice
        };
        let most = newest.len().min(bound.div_ceil(3));
        let first = seed as usize % newest.len().max(1);
        let lines = (0..most).map(|i| (first + i * newest.len() / most) % newest.len());
        let alone = lines.clone().map(|line| with(&nothing, line, newest[line]));
        let missing = lines.map(|line| with(&newest, line, 0));
        let mut random = seed;
        let drawn = std::iter::repeat_with(|| {
            newest
                .iter()
                .map(|&newest| draw(&mut random, newest + 1))
                .collect()
        });
        let mut seen = BTreeSet::new();
        [nothing.clone(), newest.clone()]
            .into_iter()
            .chain(alone)
            .chain(missing)
            .chain(drawn.take(bound.saturating_mul(4)))
            .filter(|choice| seen.insert(choice.clone()))
            .take(bound)
            .map(|choice| CrashState { choice })
            .collect()
    }
}

/// A number below `bound`, by splitmix64.
fn draw(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ (mixed >> 31)) % bound as u64) as usize
}

/// The line at `line`, zeros beyond the end of the image.
fn line_of(image: &[u8], line: u64) -> LineBytes {
    let mut bytes = [0; LINE];
    let there = &image[line as usize..image.len().min(line as usize + LINE)];
    bytes[..there.len()].copy_from_slice(there);
    bytes
}

fn put_line(image: &mut [u8], line: u64, bytes: &LineBytes) {
    let end = image.len().min(line as usize + LINE);
    let there = &mut image[line as usize..end];
    there.copy_from_slice(&bytes[..there.len()]);
}
