//! Names as text that cannot harm a terminal, a CSV file or a comparison.

/// A name's byte: ASCII letters in lower case, because names differ by case only where somebody
/// made it random (DNS "0x20").
pub(super) fn push(text: &mut String, byte: u8) {
    escape(text, byte.to_ascii_lowercase());
}

/// A byte as it is; what does not print as `\DDD`, the backslash as `\\` (RFC 4343, 2.1).
pub(super) fn escape(text: &mut String, byte: u8) {
    match byte {
        b'\\' => text.push_str("\\\\"),
        b'!'..=b'~' => text.push(byte.into()),
        _ => escape_number(text, byte),
    }
}

/// A byte as `\DDD`, also where it prints.
pub(super) fn escape_number(text: &mut String, byte: u8) {
    text.push('\\');
    text.extend([byte / 100, byte / 10 % 10, byte % 10].map(|digit| char::from(b'0' + digit)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_print_is_escaped_and_case_is_dropped() {
        let mut text = String::new();
        for byte in *b"Az-_9*\\\"\0 \x7f\xff\n" {
            push(&mut text, byte);
        }
        assert_eq!(text, "az-_9*\\\\\"\\000\\032\\127\\255\\010");
    }
}
