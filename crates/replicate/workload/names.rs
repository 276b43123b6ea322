//! Names that a directory may have and programs trip over.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use fastrand::Rng;

/// Few enough that names meet again.
const USUAL: u8 = 14;

pub(crate) fn name(random: &mut Rng) -> OsString {
    let number = random.u8(0..USUAL);
    let bytes: Vec<u8> = match random.u8(0..12) {
        0 => odd(number),
        1 => {
            // The longest there is.
            let mut long = vec![b'l'; 254];
            long.push(b'a' + number);
            long
        }
        _ => format!("n{number}").into_bytes(),
    };
    OsString::from_vec(bytes)
}

fn odd(number: u8) -> Vec<u8> {
    match number % 7 {
        0 => b"new\nline".to_vec(),
        1 => vec![0xff, 0xfe, 0x80],
        2 => b" ".to_vec(),
        3 => b"-rf".to_vec(),
        4 => "\u{fc}n\u{ef}c\u{f6}de \u{1f980}".into(),
        5 => b"...".to_vec(),
        _ => vec![1, 0x1b, 0x7f],
    }
}
