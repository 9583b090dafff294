//! The machine on which a measurement was made.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The properties of the machine that affect times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// The load average of the last minute before the run.
    pub load_before: f64,
    /// The load average after the run.
    pub load_after: f64,
    /// Seconds since 1970 at the start.
    pub started_unix_seconds: u64,
    /// Version of this program.
    pub version: String,
    /// The path of the pool.
    pub pool: String,
    /// The size of the pool in bytes.
    pub pool_bytes: u64,
    /// The medium of the pool.
    pub media: String,
    /// The instructions used for flushing and for moving data.
    pub instructions: String,
    /// Files in a directory.
    pub files: usize,
    /// Rounds that count.
    pub rounds: usize,
    /// The order of visits.
    pub order: String,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cpu, cores, kernel) = (&self.cpu, self.cores, &self.kernel);
        let gib = self.memory_bytes >> 30;
        write!(f, "{cpu}, {cores} cores, {gib} GiB, Linux {kernel}")
    }
}

impl Machine {
    /// Looks at the machine.
    pub(crate) fn look() -> Self {
        let uname = rustix::system::uname();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: uname.release().to_string_lossy().into_owned(),
            memory_bytes: field("/proc/meminfo", "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib * 1024),
            load_before: load(),
            started_unix_seconds: now.map_or(0, |since| since.as_secs()),
            version: env!("CARGO_PKG_VERSION").into(),
            ..Self::default()
        }
    }
}

/// The load average of the last minute.
pub(crate) fn load() -> f64 {
    std::fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse().ok())
        .unwrap_or(0.0)
}

/// The first `name: value` in a file of the kernel.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
