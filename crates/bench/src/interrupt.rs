//! Handles signals that end a run, so that mounts, loop devices and pools are removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{Error, Result};

/// Watches for signals while it lives.
pub(crate) struct Interrupt {
    seen: Arc<AtomicBool>,
    hooks: Vec<SigId>,
}

impl Interrupt {
    pub(crate) fn watch() -> Self {
        let seen = Arc::new(AtomicBool::new(false));
        // A signal that cannot be watched keeps its default effect.
        let hooks = [SIGINT, SIGTERM, SIGHUP]
            .into_iter()
            .filter_map(|signal| signal_hook::flag::register(signal, Arc::clone(&seen)).ok())
            .collect();
        Self { seen, hooks }
    }

    /// Fails once a signal came.
    pub(crate) fn check(&self) -> Result<()> {
        if self.seen.load(Ordering::Relaxed) {
            Err(Error::Interrupted)
        } else {
            Ok(())
        }
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        for hook in self.hooks.drain(..) {
            signal_hook::low_level::unregister(hook);
        }
    }
}
