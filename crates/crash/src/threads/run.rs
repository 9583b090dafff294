//! Runs a workload's threads once under one schedule.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vellum::prefer_thread_slot;
use vellum_media::{Event, Op};

use super::caller::{Answer, call};
use super::history::{History, model_step};
use super::hooked::Scheduled;
use super::oracle::Linear;
use super::schedule::Schedule;
use super::scheduler::{Scheduler, Trace, was_given_up};
use super::workload::ThreadWorkload;
use crate::memories::Shared;
use crate::record::RecordError;
use crate::session::{CLOCK_START, Session};
use crate::workload::Step;

/// The record of a run.
pub(crate) struct Run {
    /// The setup's events in the pool.
    pub(crate) setup: Vec<Event>,
    /// The threads' events in the pool. Markers are numbers of histories.
    pub(crate) log: Vec<Event>,
    pub(crate) trace: Trace,
    /// Messages of panics in threads.
    pub(crate) panics: Vec<String>,
}

/// What the threads of a run record together, under a lock.
struct Notes<'a> {
    linear: &'a Linear,
    pool: Shared,
    history: Mutex<History>,
    /// The thread of each marker.
    markers: Mutex<Vec<usize>>,
}

/// Runs `workload` on `blank`, a formatted pool.
///
/// # Errors
/// The setup has another outcome than in the model.
pub(crate) fn run(
    workload: &ThreadWorkload,
    linear: &Linear,
    blank: &[u8],
    schedule: &Schedule,
) -> Result<Run, RecordError> {
    let pool = Shared::of(blank.to_vec());
    pool.0.start_recording();
    let mut session = prepare(workload, &pool)?;
    pool.0.marker(0);
    let threads = workload.threads.len();
    let notes = Notes {
        linear,
        pool: pool.clone(),
        history: Mutex::new(History::new(threads)),
        markers: Mutex::default(),
    };
    let scheduler = Scheduler::new(threads, schedule);
    let panics: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let (scheduler, notes) = (&scheduler, &notes);
                let session = session.share();
                let steps = &workload.threads[thread];
                scope.spawn(move || {
                    prefer_thread_slot(thread as u32);
                    scheduler.run(thread, || notes.calls(scheduler, session, thread, steps))
                })
            })
            .collect();
        let ended = running.into_iter().map(|thread| thread.join());
        let died = |ended| match ended {
            Ok(Ok(())) => None,
            Ok(Err(panic)) | Err(panic) => Some(panic),
        };
        ended
            .filter_map(died)
            .filter(|panic| !was_given_up(&**panic))
            .map(|panic| crate::judge::text_of(&*panic))
            .collect()
    });
    if workload.closes && panics.is_empty() {
        close(workload, &mut session)?;
    }
    let mut events = pool.0.take_log();
    number_threads(&mut events, threads as u32, &lock(&notes.markers));
    let first = events.iter().position(|event| event.op == Op::Marker(0));
    let log = events.split_off(first.unwrap_or(0));
    Ok(Run {
        setup: events,
        log,
        trace: scheduler.take_trace(),
        panics,
    })
}

fn prepare(workload: &ThreadWorkload, pool: &Shared) -> Result<Session<Scheduled>, RecordError> {
    let mut session = Session::new(pool.clone(), workload.cache_entries);
    let mut model = vellum_model::Model::new(CLOCK_START);
    for step in std::iter::once(&Step::Open).chain(&workload.setup) {
        let (done, expected) = (call(&mut session, step), model_step(&mut model, step));
        if done != expected {
            return Err(RecordError::Outcome {
                workload: workload.name.clone(),
                step: step.to_string(),
                what: format!("{done:?}, expected {expected:?}"),
            });
        }
    }
    enter_slots(&session, workload.threads.len());
    Ok(session)
}

/// Enters each thread's slot once, the caller's own last, with which it continues. A crash does not
/// show which thread was first to do so; the order would only be one more choice for the scheduler.
fn enter_slots(session: &Session<Scheduled>, threads: usize) {
    let Some(fs) = session.fs() else {
        return;
    };
    for thread in (0..threads).rev() {
        prefer_thread_slot(thread as u32);
        let _of_no_interest = fs.attr(&fs.root());
    }
}

/// Closes the pool. A close changes nothing visible, so it has no marker: its crashes may leave
/// what had returned before.
fn close(workload: &ThreadWorkload, session: &mut Session<Scheduled>) -> Result<(), RecordError> {
    session
        .step(&Step::Close)
        .map_err(|error| RecordError::Outcome {
            workload: workload.name.clone(),
            step: Step::Close.to_string(),
            what: error.to_string(),
        })
}

impl Notes<'_> {
    fn calls(
        &self,
        scheduler: &Arc<Scheduler>,
        mut session: Session<Scheduled>,
        thread: usize,
        steps: &[Step],
    ) {
        for step in steps {
            self.note(thread, |history| history.begin(thread));
            let answer: Answer = call(&mut session, step);
            self.note(thread, |history| history.returned(thread, answer));
            scheduler.progress();
        }
    }

    fn note(&self, thread: usize, change: impl FnOnce(&mut History)) {
        let mut history = lock(&self.history);
        change(&mut history);
        lock(&self.markers).push(thread);
        self.pool.0.marker(self.linear.number(&history));
    }
}

/// Renumbers the threads in `log` as in the workload; the thread of the setup, whose marker comes
/// first, becomes `setup`.
fn number_threads(log: &mut [Event], setup: u32, markers: &[usize]) {
    let is_marker = |event: &&Event| matches!(event.op, Op::Marker(_));
    let numbers = std::iter::once(setup).chain(markers.iter().map(|&thread| thread as u32));
    let of_process: Vec<_> = log
        .iter()
        .filter(is_marker)
        .map(|event| event.thread)
        .collect();
    let numbers: Vec<(u32, u32)> = of_process.into_iter().zip(numbers).collect();
    for event in log {
        let known = numbers.iter().find(|(process, _)| *process == event.thread);
        if let Some(&(_, number)) = known {
            event.thread = number;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
