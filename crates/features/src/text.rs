//! Addresses as text. The standard library's formatter takes longer than all other work on a row.

use std::fmt::Write;
use std::net::IpAddr;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// `192.0.2.1`, or IPv6 in the form of RFC 5952.
pub(crate) fn ip(address: IpAddr, out: &mut dyn Write) -> bool {
    let IpAddr::V4(v4) = address else {
        return write!(out, "{address}").is_ok();
    };
    let mut text = Text::default();
    for (index, byte) in v4.octets().into_iter().enumerate() {
        if index > 0 {
            text.push(b'.');
        }
        text.decimal(byte);
    }
    text.write(out)
}

/// A hardware address, or the beginning of one: `02:00:00:00:00:01`.
pub(crate) fn mac<const N: usize>(address: [u8; N], out: &mut dyn Write) -> bool {
    let mut text = Text::default();
    for (index, byte) in address.into_iter().enumerate() {
        if index > 0 {
            text.push(b':');
        }
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 15)]);
    }
    text.write(out)
}

/// A few characters on the stack.
#[derive(Default)]
struct Text {
    bytes: [u8; 20],
    len: usize,
}

impl Text {
    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    fn decimal(&mut self, number: u8) {
        if number >= 100 {
            self.push(DIGITS[usize::from(number / 100)]);
        }
        if number >= 10 {
            self.push(DIGITS[usize::from(number / 10 % 10)]);
        }
        self.push(DIGITS[usize::from(number % 10)]);
    }

    fn write(&self, out: &mut dyn Write) -> bool {
        std::str::from_utf8(&self.bytes[..self.len]).is_ok_and(|text| out.write_str(text).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_the_standard_library_does() {
        for text in ["0.0.0.0", "1.20.255.100", "2001:db8::1", "::ffff:1.2.3.4"] {
            let mut out = String::new();
            assert!(ip(text.parse().unwrap(), &mut out));
            assert_eq!(out, text);
        }
    }

    #[test]
    fn hardware_addresses_have_two_digits_a_byte() {
        let mut out = String::new();
        assert!(mac([2, 0, 0x1f, 0xa0, 9, 255], &mut out));
        assert_eq!(out, "02:00:1f:a0:09:ff");
    }
}
