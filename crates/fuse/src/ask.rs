//! Questions to a mounted file system, through an ioctl on its root.
//!
//! An answer is text of any length, JSON; an ioctl has room for 8 KiB. So whoever asks says from
//! where on it wants the text, and who answers keeps what did not fit, the last such text, under a
//! token.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use fuser::Errno;
use rustix::io::Errno as OsErrno;
use vellum::media::{ASK_MOUNT_BYTES, ASK_MOUNT_NUMBER, ask_mount};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::session::Stopper;

/// What a mount can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What it serves, and how. Anybody may ask.
    Information,
    /// The areas that names are kept in. Only the superuser and the user who serves the mount may
    /// ask this, and what comes below: they see every directory.
    Areas,
    /// What rounds of evolving came to, which are made for it.
    Evolve {
        /// How many; none: until nothing more is to be done.
        rounds: Option<u64>,
    },
}

/// Answers questions, as JSON.
pub type Answers = dyn Fn(Question) -> vellum::Result<String> + Send + Sync;

/// A question, as it is sent; zeros follow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Asked {
    number: u64,
    argument: u64,
    /// Of the answer of which more is wanted; 0: the question is a new one.
    token: u64,
    /// Where, in the answer, what is wanted begins.
    from: u64,
}

/// What is in front of a part of an answer.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Told {
    /// Bytes of the whole answer.
    len: u64,
    /// By which the rest of it can be had.
    token: u64,
}

/// The number of what is no question: the mount is to end at once.
const STOP: u64 = 4;
/// Bytes of an answer that one exchange has room for.
const PART_BYTES: usize = ASK_MOUNT_BYTES - size_of::<Told>();
/// Answers that others' questions took the place of, before one gives up.
const TRIES: usize = 16;

impl Question {
    fn asked(self) -> Asked {
        let (number, argument) = match self {
            Self::Information => (1, 0),
            Self::Areas => (2, 0),
            Self::Evolve { rounds } => (3, rounds.map_or(0, |rounds| rounds.saturating_add(1))),
        };
        Asked {
            number,
            argument,
            ..Asked::default()
        }
    }

    fn of(asked: &Asked) -> Option<Self> {
        match asked.number {
            1 => Some(Self::Information),
            2 => Some(Self::Areas),
            3 => Some(Self::Evolve {
                rounds: asked.argument.checked_sub(1),
            }),
            _ => None,
        }
    }

    fn is_for_all(self) -> bool {
        self == Self::Information
    }
}

/// The last answer that was longer than an exchange.
#[derive(Debug, Default)]
struct Long {
    token: u64,
    text: Vec<u8>,
}

/// Answers what comes through the root.
pub(crate) struct Desk {
    answers: Option<Arc<Answers>>,
    stopper: Stopper,
    long: Mutex<Long>,
}

impl Desk {
    pub(crate) fn new(answers: Option<Arc<Answers>>, stopper: Stopper) -> Self {
        Self {
            answers,
            stopper,
            long: Mutex::default(),
        }
    }

    /// Answers an ioctl of user `uid` on the root.
    pub(crate) fn answer(&self, number: u32, uid: u32, sent: &[u8]) -> Result<Vec<u8>, Errno> {
        if number != ASK_MOUNT_NUMBER {
            return Err(Errno::ENOTTY);
        }
        let (asked, _) = Asked::read_from_prefix(sent).map_err(|_| Errno::EINVAL)?;
        let question = Question::of(&asked);
        let serves = rustix::process::geteuid().as_raw();
        if !question.is_some_and(Question::is_for_all) && uid != 0 && uid != serves {
            return Err(Errno::EPERM);
        }
        if asked.number == STOP {
            self.stopper.cut_off();
            return Ok(told(&[], 0, 0));
        }
        let answers = self.answers.as_deref().ok_or(Errno::ENOTTY)?;
        let question = question.ok_or(Errno::ENOTTY)?;
        if asked.token != 0 {
            return self.more(&asked);
        }
        let text = answers(question).map_err(|error| crate::convert::errno(&error))?;
        let text = text.into_bytes();
        if text.len() <= PART_BYTES {
            return Ok(told(&text, 0, 0));
        }
        let mut long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        let token = long.token + 1;
        *long = Long { token, text };
        Ok(told(&long.text, token, 0))
    }

    /// More of an answer that was kept; `EAGAIN` if another one was since.
    fn more(&self, asked: &Asked) -> Result<Vec<u8>, Errno> {
        let long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        let from = usize::try_from(asked.from).unwrap_or(usize::MAX);
        match long.token == asked.token && from <= long.text.len() {
            true => Ok(told(&long.text, long.token, from)),
            false => Err(Errno::EAGAIN),
        }
    }
}

/// The part of an answer from `from` on, as it is sent.
fn told(text: &[u8], token: u64, from: usize) -> Vec<u8> {
    let len = text.len() as u64;
    let end = text.len().min(from + PART_BYTES);
    let mut bytes = Told { len, token }.as_bytes().to_vec();
    bytes.extend_from_slice(&text[from..end]);
    bytes.resize(ASK_MOUNT_BYTES, 0);
    bytes
}

/// Asks the file system with this root; gives its JSON.
///
/// # Errors
/// It is not of Vellum, does not know the question, or does not answer it (to this user).
pub fn ask(root: &File, question: Question) -> io::Result<String> {
    for _ in 0..TRIES {
        match answer_of(root, question) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            answered => {
                let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
                return String::from_utf8(answered?).map_err(invalid);
            }
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Has the file system with this root end at once: it goes from the tree of names, and whoever
/// uses it, in whatever mount namespace, is cut off. Its pool is closed in order after this has
/// returned.
///
/// # Errors
/// It is not of Vellum, it is served by a release that does not know this, or not for this user.
pub fn stop(root: &File) -> io::Result<()> {
    let asked = Asked {
        number: STOP,
        ..Asked::default()
    };
    let mut bytes = [0; ASK_MOUNT_BYTES];
    bytes[..size_of::<Asked>()].copy_from_slice(asked.as_bytes());
    match ask_mount(root, &mut bytes) {
        // It ended before it could say so.
        Err(error)
            if matches!(
                OsErrno::from_io_error(&error),
                Some(OsErrno::NOTCONN | OsErrno::CONNABORTED)
            ) =>
        {
            Ok(())
        }
        asked => asked.map(drop),
    }
}

fn answer_of(root: &File, question: Question) -> io::Result<Vec<u8>> {
    let mut asked = question.asked();
    let mut text = Vec::new();
    loop {
        let mut bytes = [0; ASK_MOUNT_BYTES];
        bytes[..size_of::<Asked>()].copy_from_slice(asked.as_bytes());
        ask_mount(root, &mut bytes)?;
        let (told, part) = Told::read_from_prefix(&bytes[..])
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let left = usize::try_from(told.len)
            .unwrap_or(usize::MAX)
            .saturating_sub(text.len());
        text.extend_from_slice(&part[..left.min(PART_BYTES)]);
        if left <= PART_BYTES {
            return Ok(text);
        }
        (asked.token, asked.from) = (told.token, text.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(question: Question) -> String {
        match question {
            Question::Information => "short".into(),
            Question::Areas => (0..9000)
                .map(|i| char::from(b'a' + (i % 26) as u8))
                .collect(),
            Question::Evolve { rounds } => format!("{rounds:?}"),
        }
    }

    fn desk() -> Desk {
        let answers = Arc::new(|question| Ok(text_of(question)));
        Desk::new(Some(answers), Stopper::unheard())
    }

    fn exchange(desk: &Desk, uid: u32, asked: Asked) -> Result<(Told, Vec<u8>), Errno> {
        let mut sent = asked.as_bytes().to_vec();
        sent.resize(ASK_MOUNT_BYTES, 0);
        let bytes = desk.answer(ASK_MOUNT_NUMBER, uid, &sent)?;
        assert_eq!(bytes.len(), ASK_MOUNT_BYTES);
        let (told, part) = Told::read_from_prefix(&bytes).unwrap();
        Ok((told, part.to_vec()))
    }

    #[test]
    fn what_fits_is_one_exchange() {
        let desk = desk();
        for rounds in [None, Some(0), Some(7)] {
            let question = Question::Evolve { rounds };
            let (told, part) = exchange(&desk, 0, question.asked()).unwrap();
            assert_eq!(&part[..told.len as usize], text_of(question).as_bytes());
        }
    }

    #[test]
    fn what_does_not_fit_is_several_of_one_answer() {
        let desk = desk();
        let asked = Question::Areas.asked();
        let whole = text_of(Question::Areas).into_bytes();
        let (told, first) = exchange(&desk, 0, asked).unwrap();
        assert_eq!((told.len, &first[..]), (9000, &whole[..PART_BYTES]));
        let (token, from) = (told.token, PART_BYTES as u64);
        let more = Asked {
            token,
            from,
            ..asked
        };
        let (_, rest) = exchange(&desk, 0, more).unwrap();
        assert_eq!(&rest[..9000 - PART_BYTES], &whole[PART_BYTES..]);
        // Beyond the end, and once another answer took its place, there is nothing.
        let behind = Asked { from: 9001, ..more };
        assert_eq!(exchange(&desk, 0, behind).unwrap_err(), Errno::EAGAIN);
        exchange(&desk, 0, asked).unwrap();
        assert_eq!(exchange(&desk, 0, more).unwrap_err(), Errno::EAGAIN);
    }

    #[test]
    fn strangers_are_told_no_names() {
        let desk = desk();
        let stranger = rustix::process::geteuid().as_raw() + 1;
        assert!(exchange(&desk, stranger, Question::Information.asked()).is_ok());
        let stop = Asked {
            number: STOP,
            ..Asked::default()
        };
        let evolve = Question::Evolve { rounds: None }.asked();
        for asked in [Question::Areas.asked(), evolve, stop] {
            let said = exchange(&desk, stranger, asked).unwrap_err();
            assert_eq!(said, Errno::EPERM);
        }
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let desk = desk();
        assert_eq!(
            desk.answer(ASK_MOUNT_NUMBER, 0, &[]).unwrap_err(),
            Errno::EINVAL
        );
        let asked = Asked {
            number: 99,
            ..Asked::default()
        };
        assert_eq!(exchange(&desk, 0, asked).unwrap_err(), Errno::ENOTTY);
        let (number, sent) = (ASK_MOUNT_NUMBER + 1, [0; ASK_MOUNT_BYTES]);
        assert_eq!(desk.answer(number, 0, &sent).unwrap_err(), Errno::ENOTTY);
        assert_eq!(
            Desk::new(None, Stopper::unheard())
                .answer(
                    ASK_MOUNT_NUMBER,
                    0,
                    Question::Information.asked().as_bytes()
                )
                .unwrap_err(),
            Errno::ENOTTY
        );
    }
}
