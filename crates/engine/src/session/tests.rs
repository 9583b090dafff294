use std::collections::BTreeSet;
use std::sync::Mutex;

use vellum_media::Site;
use zerocopy::{FromBytes, FromZeros};

use super::*;

/// What a power cut leaves of a sector.
type Sector = [u8; MEDIUM_HEAD_BYTES];

/// What lasts of a pool's sessions and of a medium's two heads.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    sessions: [u64; 2],
    heads: [Sector; 2],
}

/// A pool and a medium, of which so many steps are done, and what was written since the last sync.
struct Crashing {
    lasting: Mutex<State>,
    written: Mutex<Vec<(usize, Sector)>>,
    steps: Mutex<u32>,
    syncs: bool,
}

impl Crashing {
    fn of(state: &State, steps: u32, syncs: bool) -> Self {
        Self {
            lasting: Mutex::new(state.clone()),
            written: Mutex::default(),
            steps: Mutex::new(steps),
            syncs,
        }
    }

    fn step(&self) -> io::Result<()> {
        let mut steps = self.steps.lock().unwrap();
        *steps = steps
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("a power cut"))?;
        Ok(())
    }

    fn set(&self, at: u64, value: u64) -> io::Result<()> {
        self.step()?;
        self.lasting.lock().unwrap().sessions[usize::from(at == MediumPlaces::NEXT)] = value;
        Ok(())
    }

    /// All that a power cut may leave now: of each sector that was written since the last sync what was there, what was written, or neither.
    fn left(&self) -> Vec<State> {
        let mut left = vec![self.lasting.lock().unwrap().clone()];
        for (number, sector) in self.written.lock().unwrap().iter() {
            let mut torn = *sector;
            torn[100..].fill(0xA5);
            let more = left.iter().flat_map(|state| {
                [*sector, torn].map(|sector| {
                    let mut state = state.clone();
                    state.heads[*number] = sector;
                    state
                })
            });
            left = left.iter().cloned().chain(more).collect();
        }
        left
    }
}

impl Disk for Crashing {
    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        let mut heads = self.lasting.lock().unwrap().heads;
        for (number, sector) in self.written.lock().unwrap().iter() {
            heads[*number] = *sector;
        }
        out.copy_from_slice(&heads[usize::from(at > 0)]);
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.step()?;
        let sector = data.try_into().unwrap();
        let mut written = self.written.lock().unwrap();
        written.push((usize::from(at > 0), sector));
        Ok(())
    }

    fn sync(&self, _site: Site) -> io::Result<()> {
        self.step()?;
        if self.syncs {
            let mut lasting = self.lasting.lock().unwrap();
            for (number, sector) in self.written.lock().unwrap().drain(..) {
                lasting.heads[number] = sector;
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
    let head = Sector::read_from_bytes(expected().as_bytes()).unwrap();
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

/// All that is left of openings that are cut short anywhere, one behind the other; fails where the medium is not known any more.
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
fn pool_and_medium_belong_together_whenever_the_power_is_cut() {
    assert!(explore(4, true).unwrap() > 50);
}

#[test]
fn each_head_is_durable_before_the_next_step() {
    assert!(explore(4, false).is_err());
}

#[test]
fn a_session_that_began_is_that_of_both() {
    let state = new();
    let crashing = Crashing::of(&state, u32::MAX, true);
    assert!(!begin_in(&crashing, &state, 9));
    let begun = crashing.lasting.into_inner().unwrap();
    assert_eq!(begun.sessions, [9, 9]);
    let heads = begun.heads.map(|head| MediumHead::unseal(&head).unwrap());
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
