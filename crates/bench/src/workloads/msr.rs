//! Block traces in the format of MSR Cambridge (SNIA IOTTA): a line for each request, with seven
//! fields separated by commas.
//!
//! `timestamp,hostname,disk,type,offset,size,response time`; the type is `Read` or `Write`, offset
//! and size are bytes. Times are not used: requests are replayed one after the other.

use std::io::BufRead;
use std::path::Path;

use super::traces::Request;
use crate::Result;
use crate::error::{Error, doing};

/// The number of fields in a line.
const FIELDS: usize = 7;
/// The largest request.
const SIZE_MAX: u64 = 64 << 20;

/// The first `most` requests of a trace, and the number of disks that they go to.
///
/// # Errors
/// The file cannot be read, or a line is not a request; the error names its number.
pub(super) fn read(path: &Path, most: usize) -> Result<(Vec<Request>, usize)> {
    let what = || format!("read the trace {}", path.display());
    let file = std::fs::File::open(path).map_err(doing(what()))?;
    let mut disks: Vec<String> = Vec::new();
    let mut requests = Vec::new();
    for (line, number) in std::io::BufReader::new(file).split(b'\n').zip(1_u64..) {
        if requests.len() == most {
            break;
        }
        let line = line.map_err(doing(what()))?;
        let refuse =
            |why: &str| Error::Option(format!("trace {}, line {number}: {why}", path.display()));
        let line = std::str::from_utf8(&line).map_err(|_| refuse("it is not text"))?;
        if line.trim().is_empty() {
            continue;
        }
        let (request, disk) = parse(line).map_err(|why| refuse(&why))?;
        let known = disks.iter().position(|known| *known == disk);
        let file = known.unwrap_or_else(|| {
            disks.push(disk);
            disks.len() - 1
        });
        requests.push(Request { file, ..request });
    }
    if requests.is_empty() {
        return Err(Error::Option(format!(
            "trace {}: it has no requests",
            path.display()
        )));
    }
    Ok((requests, disks.len()))
}

/// Parses a line: the request, and the disk that it goes to.
fn parse(line: &str) -> std::result::Result<(Request, String), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [time, host, disk, kind, offset, size, response] = fields.as_slice() else {
        return Err(format!("{} fields instead of {FIELDS}", fields.len()));
    };
    let number = |name: &str, text: &str| {
        let parsed = text.parse::<u64>();
        parsed.map_err(|_| format!("{name} `{text}` is not a number"))
    };
    number("the timestamp", time)?;
    number("the disk", disk)?;
    number("the response time", response)?;
    let is_write = match kind.to_ascii_lowercase().as_str() {
        "read" => false,
        "write" => true,
        _ => return Err(format!("the type `{kind}` is neither Read nor Write")),
    };
    let bytes = number("the size", size)?;
    if !(1..=SIZE_MAX).contains(&bytes) {
        return Err(format!("the size {bytes} is not from 1 to {SIZE_MAX}"));
    }
    let request = Request {
        file: 0,
        is_write,
        at: number("the offset", offset)?,
        bytes,
    };
    Ok((request, format!("{host}.{disk}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "128166372003061629,hm,1,Read,383496192,32768,413\n\
                        128166372016382155,hm,0,Write,2822144,4096,1\r\n\
                        \n128166372026382245,hm,1,write,7,1,0\n";

    fn trace(text: &[u8]) -> Result<(Vec<Request>, usize)> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("hm_0.csv");
        std::fs::write(&path, text).expect("written");
        read(&path, 1000)
    }

    #[test]
    fn requests_are_read_with_their_disks() {
        let (requests, disks) = trace(GOOD.as_bytes()).expect("sound");
        assert_eq!(disks, 2);
        let request = |file, is_write, at, bytes| Request {
            file,
            is_write,
            at,
            bytes,
        };
        let expected = [
            request(0, false, 383_496_192, 32_768),
            request(1, true, 2_822_144, 4096),
            request(0, true, 7, 1),
        ];
        assert_eq!(requests, expected);
    }

    #[test]
    fn bad_lines_are_named_by_number_and_reason() {
        for (from, to, line, why) in [
            ("413", "413,9", 1, "8 fields instead of 7"),
            ("32768,413", "32768", 1, "6 fields instead of 7"),
            ("Write", "Wipe", 2, "`Wipe` is neither"),
            ("2822144", "-5", 2, "the offset `-5` is not a number"),
            ("write,7,1,0", "write,7,0,0", 4, "the size 0 is not"),
            (
                "write,7,1,0",
                "write,7,99999999999,0",
                4,
                "the size 99999999999 is not",
            ),
            (
                "128166372016382155",
                "yesterday",
                2,
                "the timestamp `yesterday`",
            ),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let said = trace(GOOD.replacen(from, to, 1).as_bytes());
            let said = said.expect_err(why).to_string();
            assert!(
                said.contains(&format!("line {line}: ")) && said.contains(why),
                "{said}"
            );
            assert!(said.contains("hm_0.csv"), "{said}");
        }
        let said = trace(b"\xFF\xFE,a\n").expect_err("binary").to_string();
        assert!(said.contains("line 1: it is not text"), "{said}");
        assert!(
            trace(b"\n\n")
                .expect_err("empty")
                .to_string()
                .contains("no requests")
        );
        assert!(read(Path::new("/nowhere/hm.csv"), 1).is_err());
    }

    #[test]
    fn as_many_as_asked_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("t.csv");
        // Lines after those that are needed are not parsed.
        std::fs::write(&path, "1,a,0,Read,0,512,1\n2,a,0,Read,0,512,1\nrubbish\n")
            .expect("written");
        assert_eq!(read(&path, 2).expect("two").0.len(), 2);
        assert!(read(&path, 3).is_err());
    }
}
