use std::collections::BTreeSet;
use std::sync::Mutex;

use vellum_media::Site;
use zerocopy::{FromBytes, FromZeros};

use super::*;

/// The bytes at the beginning of a block.
type Sector = [u8; MEDIUM_HEAD_BYTES];

/// A head on the device, and in the kernel's cache.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cached {
    lasting: Sector,
    seen: Sector,
    /// Whether the cached head has not been written yet.
    is_dirty: bool,
}

impl Cached {
    /// All that the device may have after a write that may or may not have happened: the old bytes,
    /// the cached ones, or some of both.
    fn written(self) -> impl Iterator<Item = Sector> {
        let mut torn = self.seen;
        torn[100..].copy_from_slice(&self.lasting[100..]);
        let new = [self.seen, torn].into_iter().filter(move |_| self.is_dirty);
        std::iter::once(self.lasting).chain(new)
    }
}

/// A pool's sessions, and the two heads of each device.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    sessions: [u64; 2],
    media: Vec<[Cached; 2]>,
}

impl State {
    /// Returns every combination in which the heads of these devices can have been written; `of`
    /// returns one head's new state.
    fn each(&self, media: &[usize], of: impl Fn(Cached, Sector) -> Cached) -> Vec<Self> {
        let mut states = vec![self.clone()];
        for (&medium, head) in media.iter().flat_map(|medium| [(medium, 0), (medium, 1)]) {
            let ways = states.iter().flat_map(|state| {
                let cached = state.media[medium][head];
                let of = &of;
                cached.written().map(move |lasting| {
                    let mut way = state.clone();
                    way.media[medium][head] = of(cached, lasting);
                    way
                })
            });
            states = ways.collect();
        }
        states
    }

    /// All states that a power cut may leave now.
    fn cut(&self) -> Vec<Self> {
        let all: Vec<usize> = (0..self.media.len()).collect();
        self.each(&all, |_, lasting| Cached {
            lasting,
            seen: lasting,
            is_dirty: false,
        })
    }

    /// All states after a failed sync of a device: the kernel marks pages clean that it could not
    /// write.
    fn failed(&self, medium: usize) -> Vec<Self> {
        self.each(&[medium], |head, lasting| Cached {
            lasting,
            is_dirty: false,
            ..head
        })
    }
}

/// A pool and its devices, which crash after a number of steps.
struct Crashing {
    state: Mutex<State>,
    steps: Mutex<u32>,
    syncs: bool,
    /// The device in whose sync the crash happens, if it does.
    ends_in_sync: Mutex<Option<usize>>,
}

impl Crashing {
    fn of(state: &State, steps: u32, syncs: bool) -> Self {
        Self {
            state: Mutex::new(state.clone()),
            steps: Mutex::new(steps),
            syncs,
            ends_in_sync: Mutex::new(None),
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
        self.state.lock().unwrap().sessions[usize::from(at == DevicePaths::NEXT)] = value;
        Ok(())
    }

    /// All states that can be left now: by a kill, by a power cut, and by a failed sync.
    fn left(&self) -> Vec<State> {
        let state = self.state.lock().unwrap();
        let mut left = state.cut();
        if let Some(medium) = *self.ends_in_sync.lock().unwrap() {
            left.extend(state.failed(medium));
        }
        left.push(state.clone());
        left
    }
}

/// A device of the crashing pool.
struct Medium<'a>(&'a Crashing, usize);

impl Disk for Medium<'_> {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let heads = self.0.state.lock().unwrap().media[self.1];
        out.copy_from_slice(&heads[usize::from(at > 0)].seen);
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.0.step()?;
        let head = &mut self.0.state.lock().unwrap().media[self.1][usize::from(at > 0)];
        head.seen = data[..MEDIUM_HEAD_BYTES].try_into().unwrap();
        head.is_dirty = true;
        Ok(())
    }

    fn sync(&self, _site: Site) -> io::Result<()> {
        let Self(crashing, medium) = *self;
        let ends = |_: &io::Error| *crashing.ends_in_sync.lock().unwrap() = Some(medium);
        crashing.step().inspect_err(ends)?;
        for head in &mut crashing.state.lock().unwrap().media[medium] {
            if crashing.syncs && head.is_dirty {
                (head.lasting, head.is_dirty) = (head.seen, false);
            }
        }
        Ok(())
    }
}

/// The head of the expected device.
fn expected() -> MediumHead {
    let mut head = MediumHead::new_zeroed();
    head.magic = vellum_layout::MEDIUM_MAGIC;
    head.bytes = 1 << 20;
    head.seal();
    head
}

fn new(media: usize) -> State {
    let sector = Sector::read_from_bytes(expected().as_bytes()).unwrap();
    let head = Cached {
        lasting: sector,
        seen: sector,
        is_dirty: false,
    };
    State {
        sessions: [0, 0],
        media: vec![[head, head]; media],
    }
}

fn places(state: &State) -> DevicePaths {
    let [session, next] = state.sessions;
    DevicePaths {
        session,
        next,
        ..DevicePaths::of_data([1; 16], b"data")
    }
}

/// Begins a session in `state`, cut short after the steps of `crashing`. Returns whether it was.
fn begin_in(crashing: &Crashing, state: &State, new: u64) -> bool {
    let expected = expected();
    let media: Vec<Medium> = (0..state.media.len())
        .map(|n| Medium(crashing, n))
        .collect();
    let heads = media
        .iter()
        .map(|medium| Heads::find(medium, Some(&expected)).unwrap());
    let set = |at, value| crashing.set(at, value);
    begin(
        places(state).as_bytes(),
        &heads.collect::<Vec<_>>(),
        new,
        &set,
    )
    .is_err()
}

fn belong(state: &State) -> bool {
    let crashing = Crashing::of(state, 0, true);
    let expected = expected();
    (0..state.media.len()).all(|number| {
        let medium = Medium(&crashing, number);
        let heads = Heads::find(&medium, Some(&expected));
        heads.is_some_and(|heads| belongs(places(state).as_bytes(), heads.counts.session))
    })
}

/// Explores all states that openings can leave that are killed, lose power or fail in a sync,
/// anywhere, one after the other. Returns their number, or the opening after which a device was not
/// recognised.
fn explore(media: usize, openings: u64, syncs: bool) -> Result<usize, u64> {
    let mut states = BTreeSet::from([new(media)]);
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
    let explored = explore(1, 4, true).unwrap();
    assert!(explored > 200, "{explored}");
    let explored = explore(2, 4, true).unwrap();
    assert!(explored > 600, "{explored}");
}

#[test]
fn each_head_is_durable_before_the_next_step() {
    assert!(explore(1, 3, false).is_err());
    assert!(explore(2, 3, false).is_err());
}

#[test]
fn a_session_that_began_is_stored_by_pool_and_medium() {
    let state = new(1);
    let crashing = Crashing::of(&state, u32::MAX, true);
    assert!(!begin_in(&crashing, &state, 9));
    let begun = crashing.state.into_inner().unwrap();
    assert_eq!(begun.sessions, [9, 9]);
    let heads = begun.media[0].map(|head| MediumHead::unseal(&head.lasting).unwrap());
    assert_eq!(heads.map(|head| head.session), [9, 9]);
    // Neither the old pool with the new medium, nor the other way round.
    let old_pool = State {
        sessions: state.sessions,
        ..begun.clone()
    };
    let old_medium = State {
        media: state.media,
        ..begun.clone()
    };
    assert!(belong(&begun) && !belong(&old_pool) && !belong(&old_medium));
}
