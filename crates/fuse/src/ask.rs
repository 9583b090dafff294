//! Questions to a mounted file system, through an ioctl on its root.

use fuser::Errno;

/// Gives the answer to an information request, as JSON.
pub type Information = dyn Fn() -> String + Send + Sync;

/// Answers an ioctl on the root: its result, and the bytes of the answer.
pub(crate) fn answer(
    number: u32,
    room: u32,
    information: Option<&Information>,
) -> Result<(i32, Vec<u8>), Errno> {
    let known = number == vellum::media::ASK_MOUNT_NUMBER;
    let information = information.filter(|_| known).ok_or(Errno::ENOTTY)?;
    let text = information().into_bytes();
    if text.len() > room as usize {
        return Err(Errno::EOVERFLOW);
    }
    Ok((0, text))
}

/// Asks the file system mounted at `root` for information; gives its JSON.
///
/// # Errors
/// Nothing of Vellum is mounted there, or it does not answer.
pub fn ask_information(root: &std::path::Path) -> std::io::Result<String> {
    let answer = vellum::media::ask_mount(std::fs::File::open(root)?)?;
    String::from_utf8(answer).map_err(|e| std::io::Error::new(std::io::ErrorKind::InvalidData, e))
}
