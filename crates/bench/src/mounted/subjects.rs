//! What is compared: a mounted pool for each door, and directories of other file systems.

use std::path::Path;
use std::time::Instant;

use vellum::CreateOptions;
use vellum_transport::Door;

use super::Setting;
use crate::Result;
use crate::peer::Peer;
use crate::place::Place;
use crate::serve::Requests;
use crate::side::Side;

/// Where programs work.
pub(super) struct Subject {
    pub(super) name: String,
    /// The way of its requests; `None` for a peer.
    pub(super) door: Option<Door>,
    pub(super) place: Place,
}

/// The cost of a piece of work.
#[derive(Default)]
pub(super) struct Lap {
    pub(super) seconds: f64,
    pub(super) requests: Requests,
}

impl Setting<'_> {
    /// A default pool of this size for each door, then the peers.
    pub(super) fn subjects(&self, bytes: u64) -> Result<Vec<Subject>> {
        let mut subjects = Vec::new();
        for &door in self.doors {
            let dir = self.make_dir()?;
            let pool = dir.path().join("pool");
            CreateOptions::new(bytes).create(&pool)?.close()?;
            subjects.push(Subject {
                name: format!("vellum by {}", door.name()),
                door: Some(door),
                place: Place::pool(dir, pool, Some(door))?,
            });
        }
        for name in &self.options.peer {
            let peer = Peer::new(name, bytes)?;
            subjects.push(Subject {
                name: format!("{} {name}", peer.kind),
                door: None,
                place: Place::Peer(Box::new(peer)),
            });
        }
        Ok(subjects)
    }
}

impl Subject {
    pub(super) fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// Times `work`, and counts its requests, those of background work included.
    pub(super) fn lap(&self, work: impl FnOnce() -> Result<()>) -> Result<Lap> {
        let side = self.place.kernel();
        side.settle()?;
        let before = self.place.requests()?;
        let start = Instant::now();
        work()?;
        let seconds = start.elapsed().as_secs_f64();
        side.settle()?;
        let mut requests = self.place.requests()?;
        for (kind, count) in &mut requests {
            *count -= before.get(kind).copied().unwrap_or(0);
        }
        requests.retain(|_, count| *count > 0);
        Ok(Lap { seconds, requests })
    }
}
