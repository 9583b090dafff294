//! Persistent steps of the engine, and orders within a line, identified by their sites and their
//! places in the source.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use vellum::sites;
use vellum_media::{Caller, Event, LINE_BYTES, Op, Site};

/// An element of a log: the site, and the place in the source. For an order within a line, also the
/// distance in bytes from the cell that is stored later to the other one.
pub(crate) type Taken = (Site, Caller, Option<i64>);

/// The elements of some logs.
pub(crate) type Reached = HashSet<Taken>;

/// The elements of a log, with repetitions.
pub(crate) fn steps_of<'a>(
    log: impl IntoIterator<Item = &'a Event>,
) -> impl Iterator<Item = Taken> {
    let named = |event: &&Event| event.site != Site::UNNAMED;
    let log = log.into_iter().filter(named);
    log.flat_map(|event| {
        let (at, cells) = match event.op {
            Op::Behind { at, cells } => (Some(at), cells),
            _ => (None, 1),
        };
        let set = (0..8).filter(move |bit| cells >> bit & 1 == 1);
        set.map(move |bit| {
            let distance = at.map(|at| 8 * bit - (at % LINE_BYTES) as i64);
            (event.site, event.place, distance)
        })
    })
}

/// A flush, a fence, a store past the cache, or an order: its site and its place in the source. A
/// site has several places where a function gets the purpose of its flush from its caller, and
/// where a step is taken in more than one branch. Each place could be the one that is not needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    pub(crate) site: Site,
    /// `None`: every place of the site.
    pub(crate) place: Option<LocationName>,
}

/// The name of a [`Caller`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LocationName {
    file: String,
    line: u32,
}

impl Location {
    /// The use of `site` at `place`.
    pub(crate) fn at((site, place, _): Taken) -> Self {
        let name = LocationName {
            file: place.file().to_owned(),
            line: place.line(),
        };
        let place = Some(name);
        Self { site, place }
    }

    /// Whether `event` is this step.
    pub(crate) fn is(&self, event: &Event) -> bool {
        self.is_at(event.site, event.place)
    }

    /// Whether it is among the steps that were reached.
    pub(crate) fn is_among(&self, reached: &Reached) -> bool {
        reached
            .iter()
            .any(|&(site, place, _)| self.is_at(site, place))
    }

    fn is_at(&self, site: Site, place: Caller) -> bool {
        let named = |of: &LocationName| of.line == place.line() && of.file == place.file();
        site == self.site && self.place.as_ref().is_none_or(named)
    }
}

impl From<Site> for Location {
    fn from(site: Site) -> Self {
        Self { site, place: None }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(sites::name(self.site))?;
        match &self.place {
            Some(LocationName { file, line }) => write!(f, ":{file}:{line}"),
            None => Ok(()),
        }
    }
}

impl FromStr for LocationName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (file, line) = text.rsplit_once(':').ok_or(())?;
        let line = line.parse().map_err(drop)?;
        let file = file.to_owned();
        Ok(Self { file, line })
    }
}

impl FromStr for Location {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, place) = match text.split_once(':') {
            Some((name, place)) => (name, Some(place)),
            None => (text, None),
        };
        let known = sites::ALL.iter().find(|(_, known)| *known == name);
        let &(site, _) = known.ok_or(())?;
        let place = place.map(str::parse).transpose()?;
        Ok(Self { site, place })
    }
}
