//! Requests to a mount: whatever their bytes are, they are decoded or refused.

use vellum_transport::{Operation, decode_any};

/// The number of cases of a target in a run of the tests; see `docs/TESTING.md` for long runs.
const CASES: usize = 30_000;

/// The bytes of a name or of data lie inside the request.
fn decode(bytes: &[u8]) {
    let inside = |part: &[u8]| {
        let (part, all) = (part.as_ptr_range(), bytes.as_ptr_range());
        assert!(all.start <= part.start && part.end <= all.end);
    };
    match decode_any(bytes) {
        Some(Operation::Write { data, .. }) => inside(data),
        Some(Operation::Ioctl { sent, .. }) => inside(sent),
        Some(
            Operation::Rename { name, new_name, .. }
            | Operation::Symlink {
                name,
                target: new_name,
            },
        ) => {
            inside(name);
            inside(new_name);
        }
        _ => {}
    }
}

/// A request whose length and number make sense.
fn decode_request(bytes: &[u8]) {
    let Some((&opcode, after)) = bytes.split_first() else {
        return;
    };
    let mut request = (bytes.len() as u32 + 7).to_ne_bytes().to_vec();
    request.extend(u32::from(opcode % 64).to_ne_bytes());
    request.extend(after);
    decode(&request);
}

#[test]
fn raw() {
    vellum_fuzz::target!(CASES, decode);
}

#[test]
fn framed() {
    vellum_fuzz::target!(CASES, decode_request);
}
