//! Sizes and times in the notation of people.

/// Parses a layout score from 0 to 1. Returns it in per mille.
pub(crate) fn parse_score(text: &str) -> Result<u16, String> {
    match text.parse::<f64>() {
        Ok(score) if (0.0..=1.0).contains(&score) => Ok((score * 1000.0).round() as u16),
        _ => Err(format!(
            "`{text}` is not a layout score: write a number from 0 to 1"
        )),
    }
}

/// Parses a size with binary units: `64M`, `4G`, `1.5G`, `4096`, `4GiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size: write 64M, 4G, 1.5T or a number of bytes");
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit
        .trim()
        .trim_end_matches(['B', 'b'])
        .trim_end_matches(['i', 'I']);
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        "P" | "p" => 50,
        _ => return Err(wrong()),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{part}");
    if whole.is_empty() || digits.len() > 22 || number.ends_with('.') {
        return Err(wrong());
    }
    let value: u128 = digits.parse().map_err(|_| wrong())?;
    let bytes = (value << shift) / 10_u128.pow(part.len() as u32);
    u64::try_from(bytes).map_err(|_| wrong())
}

/// Parses a limit of bytes: a size, or `none` (0).
pub(crate) fn parse_limit(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        _ => parse_size(text),
    }
}

/// Parses a limit of files: a number, or `none` (0).
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        _ => text
            .parse()
            .map_err(|_| format!("`{text}` is not a number of files: write 1000 or none")),
    }
}

/// The units of durations, and their seconds.
const DURATIONS: [(char, u64); 5] = [
    ('w', 7 * 86_400),
    ('d', 86_400),
    ('h', 3600),
    ('m', 60),
    ('s', 1),
];
/// The longest duration, a century: its end still fits into a time.
const DURATION_MAX_S: u64 = 100 * 365 * 86_400;

/// Parses a duration in seconds: `7d`, `1d12h`, `30m`, `90`; units may be written as words.
pub(crate) fn parse_duration(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a duration: write 7d, 12h, 30m or a number of seconds");
    let (mut seconds, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let words = ["week", "day", "hour", "minute", "second"];
        let is_it = |((letter, _), word): &((char, u64), &str)| {
            unit.chars().eq([*letter]) || unit.strip_suffix('s').unwrap_or(unit) == *word
        };
        let unit_s = match unit {
            "" => 1,
            _ => {
                DURATIONS
                    .into_iter()
                    .zip(words)
                    .find(is_it)
                    .ok_or_else(wrong)?
                    .0
                    .1
            }
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(unit_s).ok_or_else(wrong)?;
        seconds = seconds.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    match seconds {
        _ if text.is_empty() => Err(wrong()),
        ..=DURATION_MAX_S => Ok(seconds),
        _ => Err(format!("`{text}` is more than a century")),
    }
}

/// Formats a duration by its two largest units: `6d23h`.
pub(crate) fn duration(seconds: u64) -> String {
    let units = &DURATIONS[1..];
    let Some(largest) = units.iter().position(|&(_, unit)| seconds >= unit) else {
        return "0s".into();
    };
    let mut left = seconds;
    let mut text = String::new();
    for &(letter, unit) in units[largest..].iter().take(2) {
        if left >= unit {
            text += &format!("{}{letter}", left / unit);
        }
        left %= unit;
    }
    text
}

/// The UUID of a new pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A random one.
    Random,
    /// This one.
    Given([u8; 16]),
}

/// Parses `random`, or a UUID in the form that [`vellum::uuid_text`] writes.
pub(crate) fn parse_uuid(text: &str) -> Result<Identity, String> {
    if text == "random" {
        return Ok(Identity::Random);
    }
    let digits: String = text.split('-').collect();
    let number = u128::from_str_radix(&digits, 16).ok();
    let bytes = number
        .map(u128::to_be_bytes)
        .filter(|&bytes| bytes != [0; 16]);
    match bytes {
        Some(bytes) if vellum::uuid_text(&bytes) == text.to_ascii_lowercase() => {
            Ok(Identity::Given(bytes))
        }
        _ => Err(format!(
            "`{text}` is not a UUID: write `random`, or a UUID such as \
             5b6f3c1e-0d1f-4c57-9a2e-6a1d6f0c2b11"
        )),
    }
}

/// Formats bytes with a binary unit: `4.0 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Formats bytes as du(1) does by itself: in KiB, rounded up.
pub(crate) fn in_kib(bytes: u64) -> String {
    bytes.div_ceil(1024).to_string()
}

/// Formats bytes as du(1) does with -h: `4.0K`, `12M`, rounded up to two digits or whole units.
pub(crate) fn in_letters(bytes: u64) -> String {
    const LETTERS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let (mut letter, mut unit) = (0, 1_u128);
    let bytes = u128::from(bytes);
    while bytes.div_ceil(unit) >= 1024 {
        (letter, unit) = (letter + 1, unit * 1024);
    }
    let tenths = (bytes * 10).div_ceil(unit);
    match letter {
        1.. if tenths < 100 => format!("{}.{}{}", tenths / 10, tenths % 10, LETTERS[letter]),
        _ => format!("{}{}", bytes.div_ceil(unit), LETTERS[letter]),
    }
}

/// A share in percent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0 %".into();
    }
    format!("{:.0} %", part as f64 * 100.0 / whole as f64)
}

/// Formats a time as `2026-05-01 12:34:56` (UTC).
pub(crate) fn time(ns: i64) -> String {
    let seconds = ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar. The years are
/// counted from the first of March, so that a leap day is the last day of its year.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [
            ("4096", 4096),
            ("64M", 64 << 20),
            ("4G", 4 << 30),
            ("1.5G", 3 << 29),
            ("0.5k", 512),
            ("2 GiB", 2 << 30),
            ("1TB", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "4X", "-1", "4.x", "1..5G", "99999999999P", "1.1.1"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_may_be_none() {
        assert_eq!((parse_limit("none"), parse_limit("1K")), (Ok(0), Ok(1024)));
        assert_eq!((parse_count("none"), parse_count("10")), (Ok(0), Ok(10)));
        for text in ["", "-1", "1K", "many"] {
            assert!(parse_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_and_written() {
        for (text, seconds, shown) in [
            ("0", 0, "0s"),
            ("90", 90, "1m30s"),
            ("90s", 90, "1m30s"),
            ("1w", 7 * 86_400, "7d"),
            ("7days", 7 * 86_400, "7d"),
            ("1d12h", 129_600, "1d12h"),
            ("1hour1second", 3601, "1h"),
            ("1d5m", 86_700, "1d"),
        ] {
            assert_eq!(parse_duration(text), Ok(seconds), "{text}");
            assert_eq!(duration(seconds), shown, "{text}");
        }
        for text in [
            "",
            " ",
            "d",
            "-1d",
            "1.5d",
            "1y",
            "1ds d",
            "99999999999999w",
            "101w1000000d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn identities_are_read_as_they_are_written() {
        let text = "5b6f3c1e-0d1f-4c57-9a2e-6a1d6f0c2b11";
        let Ok(Identity::Given(bytes)) = parse_uuid(&text.to_uppercase()) else {
            panic!("{text}");
        };
        assert_eq!(vellum::uuid_text(&bytes), text);
        assert_eq!(parse_uuid("random"), Ok(Identity::Random));
        for wrong in [
            "",
            "5b6f3c1e0d1f4c579a2e6a1d6f0c2b11",
            "00000000-0000-0000-0000-000000000000",
            "5b6f3c1e-0d1f-4c57-9a2e-6a1d6f0c2b1g",
            "+b6f3c1e-0d1f-4c57-9a2e-6a1d6f0c2b11",
        ] {
            assert!(parse_uuid(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_written_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(4 << 30), "4.0 GiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
    }

    /// The texts are those of `du -h --apparent-size`.
    #[test]
    fn sizes_in_letters_are_rounded_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            ((10 << 10) - 1, "10K"),
            ((1 << 20) - 1024, "1023K"),
            ((1 << 20) - 1023, "1.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(in_letters(bytes), text);
        }
        assert_eq!(
            (in_kib(0), in_kib(1), in_kib(2048)),
            ("0".into(), "1".into(), "2".into())
        );
    }

    #[test]
    fn times_follow_the_calendar() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_782_400_000_000_000), "2000-02-29 00:00:00");
        assert_eq!(time(-1), "1969-12-31 23:59:59");
        assert_eq!(time(1_709_251_199_000_000_000), "2024-02-29 23:59:59");
        assert_eq!(time(4_107_542_399_000_000_000), "2100-02-28 23:59:59");
    }
}
