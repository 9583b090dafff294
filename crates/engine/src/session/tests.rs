use std::collections::BTreeSet;
use std::sync::Mutex;

use vellum_media::Site;
use zerocopy::{FromBytes, FromZeros};

use super::*;

/// What lies at the beginning of a block.
type Sector = [u8; MEDIUM_HEAD_BYTES];

/// A head on the medium, and in the kernel's cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cached {
    lasting: Sector,
    seen: Sector,
    /// Whether it is still to be written.
    is_dirty: bool,
}

impl Cached {
    /// All that the medium may have once it was written, or not: what was there, what is in the cache, or some of both.
    fn written(self) -> impl Iterator<Item = Sector> {
        let mut torn = self.seen;
        torn[100..].copy_from_slice(&self.lasting[100..]);
        let new = [self.seen, torn].into_iter().filter(move |_| self.is_dirty);
        std::iter::once(self.lasting).chain(new)
    }
}

/// A pool's sessions, and a medium's two heads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    sessions: [u64; 2],
    heads: [Cached; 2],
}

impl State {
    /// Each way in which both heads can have been written, by what becomes of one of them.
    fn each(&self, of: impl Fn(Cached, Sector) -> Cached) -> Vec<Self> {
        let [first, second] = self.heads.map(|head| {
            let written = head.written().map(|lasting| of(head, lasting));
            written.collect::<Vec<_>>()
        });
        let pairs = first
            .iter()
            .flat_map(|&a| second.iter().map(move |&b| [a, b]));
        let states = pairs.map(|heads| Self {
            heads,
            ..self.clone()
        });
        states.collect()
    }

    /// All that a power cut may leave now.
    fn cut(&self) -> Vec<Self> {
        self.each(|_, lasting| Cached {
            lasting,
            seen: lasting,
            is_dirty: false,
        })
    }

    /// All that is there behind a sync that failed: the kernel calls clean what it could not write.
    fn failed(&self) -> Vec<Self> {
        self.each(|head, lasting| Cached {
            lasting,
            is_dirty: false,
            ..head
        })
    }
}

/// A pool and a medium, of which so many steps are done.
struct Crashing {
    state: Mutex<State>,
    steps: Mutex<u32>,
    syncs: bool,
    /// Whether the step that is not done any more is a sync.
    ends_in_sync: Mutex<bool>,
}

impl Crashing {
    fn of(state: &State, steps: u32, syncs: bool) -> Self {
        Self {
            state: Mutex::new(state.clone()),
            steps: Mutex::new(steps),
            syncs,
            ends_in_sync: Mutex::new(false),
        }
    }

    fn step(&self) -> io::Result<()> {
        let mut steps = self.steps.lock().unwrap();
        *steps = steps
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("a crash"))?;
        Ok(())
    }

    fn set(&self, at: u64, value: u64) -> io::Result<()> {
        self.step()?;
        self.state.lock().unwrap().sessions[usize::from(at == MediumPlaces::NEXT)] = value;
        Ok(())
    }

    /// All that is there now: behind a kill, behind a power cut, and if it was a sync that failed.
    fn left(&self) -> Vec<State> {
        let state = self.state.lock().unwrap();
        let mut left = state.cut();
        if *self.ends_in_sync.lock().unwrap() {
            left.extend(state.failed());
        }
        left.push(state.clone());
        left
    }
}

impl Disk for Crashing {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let heads = &self.state.lock().unwrap().heads;
        out.copy_from_slice(&heads[usize::from(at > 0)].seen);
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.step()?;
        let head = &mut self.state.lock().unwrap().heads[usize::from(at > 0)];
        head.seen = data[..MEDIUM_HEAD_BYTES].try_into().unwrap();
        head.is_dirty = true;
        Ok(())
    }

    fn sync(&self, _site: Site) -> io::Result<()> {
        self.step()
            .inspect_err(|_| *self.ends_in_sync.lock().unwrap() = true)?;
        for head in &mut self.state.lock().unwrap().heads {
            if self.syncs && head.is_dirty {
                (head.lasting, head.is_dirty) = (head.seen, false);
            }
        }
        Ok(())
    }
}

/// The head of the medium that is looked for.
fn expected() -> MediumHead {
    let mut head = MediumHead::new_zeroed();
    head.magic = vellum_layout::MEDIUM_MAGIC;
    head.bytes = 1 << 20;
    head.seal();
    head
}

fn new() -> State {
    let sector = Sector::read_from_bytes(expected().as_bytes()).unwrap();
    let head = Cached {
        lasting: sector,
        seen: sector,
        is_dirty: false,
    };
    State {
        sessions: [0, 0],
        heads: [head, head],
    }
}

fn places(state: &State) -> MediumPlaces {
    let [session, next] = state.sessions;
    MediumPlaces {
        session,
        next,
        ..MediumPlaces::of_data([1; 16], b"data")
    }
}

/// Draws a session of `state`, cut short behind so many steps; whether it was.
fn begin_in(crashing: &Crashing, state: &State, new: u64) -> bool {
    let expected = expected();
    let heads = Heads::find(crashing, Some(&expected)).unwrap();
    let set = |at, value| crashing.set(at, value);
    begin(places(state).as_bytes(), &heads, new, &set).is_err()
}

fn belong(state: &State) -> bool {
    let crashing = Crashing::of(state, 0, true);
    let expected = expected();
    let heads = Heads::find(&crashing, Some(&expected));
    heads.is_some_and(|heads| belongs(places(state).as_bytes(), heads.counts.session))
}

/// All that is left of openings that are killed, lose the power, or fail in a sync, anywhere, one behind the other; fails where the medium is not known any more.
fn explore(openings: u64, syncs: bool) -> Result<usize, u64> {
    let mut states = BTreeSet::from([new()]);
    for number in 1..=openings {
        let mut next = BTreeSet::new();
        for state in &states {
            for steps in 0.. {
                let crashing = Crashing::of(state, steps, syncs);
                let is_cut = begin_in(&crashing, state, number);
                next.extend(crashing.left());
                if !is_cut {
                    break;
                }
            }
        }
        if !next.iter().all(belong) {
            return Err(number);
        }
        states.extend(next);
    }
    Ok(states.len())
}

#[test]
fn pool_and_medium_belong_together_whatever_ends_an_opening() {
    let explored = explore(4, true).unwrap();
    assert!(explored > 200, "{explored}");
}

#[test]
fn each_head_is_durable_before_the_next_step() {
    assert!(explore(3, false).is_err());
}

#[test]
fn a_session_that_began_is_that_of_both() {
    let state = new();
    let crashing = Crashing::of(&state, u32::MAX, true);
    assert!(!begin_in(&crashing, &state, 9));
    let begun = crashing.state.into_inner().unwrap();
    assert_eq!(begun.sessions, [9, 9]);
    let heads = begun
        .heads
        .map(|head| MediumHead::unseal(&head.lasting).unwrap());
    assert_eq!(heads.map(|head| head.session), [9, 9]);
    // Neither the old pool with the new medium, nor the other way round.
    let old_pool = State {
        sessions: state.sessions,
        ..begun.clone()
    };
    let old_medium = State {
        heads: state.heads,
        ..begun.clone()
    };
    assert!(belong(&begun) && !belong(&old_pool) && !belong(&old_medium));
}
