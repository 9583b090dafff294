//! Where the program's messages go: standard error, a file, or the journal of systemd. A mount that
//! is a service of systemd also tells it when it is ready and when it ends.

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use sd_notify::NotifyState;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use vellum_terminal::output::warn_line;
use vellum_terminal::{Failure, Outcome, Printing, plain};

use crate::args::Command;

/// The socket of the journal for streams of lines.
const JOURNAL: &str = "/run/systemd/journal/stdout";
/// The word that names the journal in place of a file.
const JOURNAL_NAME: &str = "journal";
/// Device and inode of the journal's stream, if standard error is one (systemd.exec(5)).
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";
/// What a stream says first: the name of the program, no unit, the priority `info` of lines
/// without one, that lines may begin with one, and that nothing is forwarded.
const HEADER: &[u8] = b"vellum\n\n6\n1\n0\n0\n0\n";

/// Whether standard error leads to the journal. Then lines have a priority and no time.
static TO_JOURNAL: AtomicBool = AtomicBool::new(false);

/// Starts to write messages.
pub(crate) fn start(command: &Command) {
    let usual = match command.printing() {
        Some(Printing { quiet: true, .. }) => LevelFilter::ERROR,
        _ => LevelFilter::WARN,
    };
    let level = env::var("VELLUM_LOG")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual);
    TO_JOURNAL.store(is_read_by_journal(), Ordering::Relaxed);
    // A mount's standard error does not stay a terminal.
    let is_mount = matches!(command, Command::Mount(_));
    let lines = tracing_subscriber::fmt::layer()
        .event_format(Lines {
            usual: Format::default(),
            journal: Format::default().without_time().with_level(false),
        })
        .with_ansi(has_colours() && !is_mount)
        .with_writer(io::stderr);
    tracing_subscriber::registry()
        .with(lines)
        .with(level)
        .init();
}

/// Whether messages may have colours: on a terminal, unless NO_COLOR is set (no-color.org).
fn has_colours() -> bool {
    let wants_none = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !wants_none
}

/// Whether the journal reads standard error, because systemd started this program.
pub(crate) fn is_read_by_journal() -> bool {
    let Ok(named) = env::var(JOURNAL_STREAM) else {
        return false;
    };
    let stat = rustix::fs::fstat(io::stderr());
    stat.is_ok_and(|stat| named == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Tells why the program fails.
pub(crate) fn tell(failure: &Failure) {
    if !TO_JOURNAL.load(Ordering::Relaxed) {
        return warn_line!("{failure}");
    }
    for line in failure.to_string().lines() {
        warn_line!("{}{line}", priority(Level::ERROR));
    }
}

/// The beginning of a line for the journal.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// How a message is written.
struct Lines {
    usual: Format,
    /// Without the time and the level, which the journal has.
    journal: Format<Full, ()>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if !TO_JOURNAL.load(Ordering::Relaxed) {
            return self.usual.format_event(context, out, event);
        }
        out.write_str(priority(*event.metadata().level()))?;
        self.journal.format_event(context, out, event)
    }
}

/// Where the messages of a mount go once its directory can be used.
pub(crate) struct Log {
    to: OwnedFd,
    is_journal: bool,
}

impl Log {
    /// A file, to which messages are appended; or the journal.
    pub(crate) fn open(path: &Path) -> Outcome<Self> {
        if path.as_os_str() == JOURNAL_NAME {
            let failed = |error: io::Error| {
                Failure::new(format!(
                    "cannot write to the journal ({JOURNAL}): {}",
                    plain(&error)
                ))
                .advise("--log FILE writes to a file; ./journal is one of that name")
            };
            return Self::of_journal(Path::new(JOURNAL)).map_err(failed);
        }
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let file = opened.map_err(|error| Failure::io(path.display(), &error))?;
        Ok(Self {
            to: file.into(),
            is_journal: false,
        })
    }

    fn of_journal(socket: &Path) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(HEADER)?;
        Ok(Self {
            to: stream.into(),
            is_journal: true,
        })
    }

    /// No place.
    pub(crate) fn nowhere() -> io::Result<Self> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        Ok(Self {
            to: opened.into(),
            is_journal: false,
        })
    }

    /// Leads standard error here.
    pub(crate) fn take_messages(&self) -> io::Result<()> {
        rustix::stdio::dup2_stderr(&self.to)?;
        TO_JOURNAL.store(self.is_journal, Ordering::Relaxed);
        Ok(())
    }

    /// Leads standard output here.
    pub(crate) fn take_output(&self) -> io::Result<()> {
        Ok(rustix::stdio::dup2_stdout(&self.to)?)
    }
}

/// Tells systemd the state of its service, if this process is one of the type `notify`.
pub(crate) fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "cannot tell systemd the state of the mount");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_journal_gets_a_stream_of_lines() {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("stdout");
        let listener = UnixListener::bind(&socket).expect("bound");
        let log = Log::of_journal(&socket).expect("connected");
        assert!(log.is_journal);
        let mut stream = UnixStream::from(log.to);
        stream.write_all(b"<4>told\n").expect("written");
        drop(stream);
        let mut said = String::new();
        let (mut journal, _) = listener.accept().expect("accepted");
        journal.read_to_string(&mut said).expect("read");
        assert_eq!(said, "vellum\n\n6\n1\n0\n0\n0\n<4>told\n");
    }

    #[test]
    fn a_file_is_appended_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        std::fs::write(&path, "old\n").expect("written");
        let log = Log::open(&path).expect("opened");
        let mut file = std::fs::File::from(log.to);
        file.write_all(b"new\n").expect("written");
        assert_eq!(std::fs::read(&path).expect("read"), b"old\nnew\n");
        assert!(Log::open(&dir.path().join("none/log")).is_err());
    }
}
