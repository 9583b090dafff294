//! Quoting for commands in advice, so that a pasted command means exactly the right files.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Quotes a path, or another word of a command, for a shell, if that is necessary.
pub fn quoted(word: impl AsRef<Path>) -> String {
    let word = word.as_ref();
    let bytes = word.as_os_str().as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(byte);
    // A word with a leading hyphen would be an option.
    let front = match bytes.first() {
        Some(b'-') => "./",
        _ => "",
    };
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return format!("{front}{}", word.display());
    }
    match word.to_str() {
        Some(text) if !text.contains(char::is_control) => {
            format!("'{front}{}'", text.replace('\'', r"'\''"))
        }
        _ => {
            let mut quoted = format!("$'{front}");
            for &byte in bytes {
                let _ = match byte {
                    b'\'' | b'\\' => write!(quoted, "\\{}", char::from(byte)),
                    b' '..=b'~' => write!(quoted, "{}", char::from(byte)),
                    _ => write!(quoted, "\\x{byte:02x}"),
                };
            }
            quoted.push('\'');
            quoted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    #[test]
    fn a_shell_reads_a_quoted_word_as_one_word() {
        for plain in ["p.img", "/a/b_c-d.img:main", "x@1,2=3+4%"] {
            assert_eq!(quoted(plain), plain);
        }
        for word in [
            &b"a b.img"[..],
            b"it's",
            b"$HOME/`id`",
            b"",
            b"*.img",
            b"~/p",
            b"a\nb\\'c",
            b"\xff\xfe x",
            "ein Bl\u{fc}te".as_bytes(),
        ] {
            let word = OsStr::from_bytes(word);
            let script = format!("printf %s {}", quoted(word));
            // Bash, as a user's shell: not all shells know `$'...'`.
            let told = Command::new("bash").args(["-c", &script]).output();
            assert_eq!(told.expect("bash runs").stdout, word.as_bytes(), "{script}");
        }
        assert_eq!(quoted("-n"), "./-n");
        assert_eq!(quoted("-a b"), "'./-a b'");
    }
}
