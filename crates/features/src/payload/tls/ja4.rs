//! JA4, the fingerprint of a TLS client, over TCP or QUIC. FoxIO published the method under BSD-3-Clause
//! and without patent claims (github.com/FoxIO-LLC/ja4, technical_details/JA4.md and License FAQ.md);
//! its relatives, JA4+, are not free, and none of them is here.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::Transport;
use super::hello::{Hello, extension};

/// What stands for the hash of an empty list.
const NOTHING: &str = "000000000000";

/// The fingerprint: 36 characters, `a_b_c`.
pub(super) fn of(hello: &Hello<'_>, transport: Transport) -> String {
    let ciphers: Vec<u16> = without_grease(hello.ciphers.iter().copied()).collect();
    let kinds = hello.extensions.iter().map(|(kind, _)| *kind);
    let extensions: Vec<u16> = without_grease(kinds).collect();
    format!(
        "{transport}{version}{called}{ciphers:02}{extensions:02}{protocol}_{cipher_hash}_{extension_hash}",
        transport = match transport {
            Transport::Tcp => 't',
            Transport::Quic => 'q',
        },
        version = version(hello),
        called = if hello.has(extension::SERVER_NAME) {
            'd'
        } else {
            'i'
        },
        ciphers = ciphers.len().min(99),
        extensions = extensions.len().min(99),
        protocol = protocol(hello.first_protocol().unwrap_or(&[])),
        cipher_hash = hash(&sorted(ciphers)),
        extension_hash = extension_hash(extensions, hello),
    )
}

/// The highest version supported, else that of the message.
fn version(hello: &Hello<'_>) -> &'static str {
    let highest = hello
        .supported_versions()
        .map(|versions| without_grease(versions).max());
    match highest.flatten().unwrap_or(hello.version) {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        _ => "00",
    }
}

/// First and last character of the first protocol; of its hexadecimal form if either is no letter
/// or digit.
fn protocol(name: &[u8]) -> String {
    let (Some(first), Some(last)) = (name.first(), name.last()) else {
        return "00".to_owned();
    };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        [*first, *last].map(char::from).iter().collect()
    } else {
        format!("{:x}{:x}", first >> 4, last & 0xf)
    }
}

/// The extensions without those that the first part tells of, then the signature algorithms in
/// their order.
fn extension_hash(mut extensions: Vec<u16>, hello: &Hello<'_>) -> String {
    extensions.retain(|kind| !matches!(*kind, extension::SERVER_NAME | extension::ALPN));
    let mut list = sorted(extensions);
    let algorithms = joined(without_grease(hello.signature_algorithms()));
    if !list.is_empty() && !algorithms.is_empty() {
        list.push('_');
        list.push_str(&algorithms);
    }
    hash(&list)
}

fn sorted(mut numbers: Vec<u16>) -> String {
    numbers.sort_unstable();
    joined(numbers.into_iter())
}

/// Four hexadecimal digits each, with commas between.
fn joined(numbers: impl Iterator<Item = u16>) -> String {
    let mut list = String::new();
    for number in numbers {
        let comma = if list.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(list, "{comma}{number:04x}");
    }
    list
}

/// The first twelve hexadecimal digits of SHA-256.
fn hash(list: &str) -> String {
    if list.is_empty() {
        return NOTHING.to_owned();
    }
    let mut digits = String::with_capacity(NOTHING.len());
    for byte in Sha256::digest(list).iter().take(NOTHING.len() / 2) {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// Leaves out the values reserved to keep servers tolerant (RFC 8701): 0x0a0a, 0x1a1a, ... 0xfafa.
fn without_grease(numbers: impl Iterator<Item = u16>) -> impl Iterator<Item = u16> {
    numbers.filter(|number| {
        let [high, low] = number.to_be_bytes();
        high != low || low & 0xf != 0xa
    })
}
