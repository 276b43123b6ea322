//! ClientHellos made by hand.

use features::payload::tls::{Accumulator, ClientHello, State};

/// A ClientHello without random and session.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) ciphers: Vec<u16>,
    pub(crate) extensions: Vec<(u16, Vec<u8>)>,
}

impl Hello {
    /// The handshake message.
    pub(crate) fn message(&self) -> Vec<u8> {
        let extensions: Vec<u8> = self
            .extensions
            .iter()
            .flat_map(|(kind, data)| [&kind.to_be_bytes()[..], &vector16(data)].concat())
            .collect();
        let ciphers = vector16(&numbers(&self.ciphers));
        let body = [
            &self.version.to_be_bytes()[..],
            &[7; 32],
            &[0],
            &ciphers,
            &[1, 0],
            &vector16(&extensions),
        ]
        .concat();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[1], &length[1..], &body].concat()
    }

    /// The message in records with fragments of at most so many bytes.
    pub(crate) fn records(&self, fragment: usize) -> Vec<u8> {
        let message = self.message();
        let record = |bytes: &[u8]| [&[22, 3, 1][..], &vector16(bytes)].concat();
        message.chunks(fragment).flat_map(record).collect()
    }

    pub(crate) fn read(&self) -> ClientHello {
        match Accumulator::new(1).feed(1, &self.records(1 << 14)) {
            State::Found(hello) => hello,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn numbers(numbers: &[u16]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect()
}

/// Bytes after their length in two bytes.
pub(crate) fn vector16(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Bytes after their length in one byte.
pub(crate) fn vector8(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

pub(crate) fn server_name(name: &[u8]) -> (u16, Vec<u8>) {
    (0, vector16(&[&[0][..], &vector16(name)].concat()))
}

pub(crate) fn alpn(protocols: &[&[u8]]) -> (u16, Vec<u8>) {
    let list: Vec<u8> = protocols.iter().flat_map(|name| vector8(name)).collect();
    (16, vector16(&list))
}

pub(crate) fn supported_versions(versions: &[u16]) -> (u16, Vec<u8>) {
    (43, vector8(&numbers(versions)))
}

pub(crate) fn signature_algorithms(algorithms: &[u16]) -> (u16, Vec<u8>) {
    (13, vector16(&numbers(algorithms)))
}

/// The example of JA4's description, as a browser would send it to a name, with GREASE everywhere.
pub(crate) fn browser() -> Hello {
    let ciphers = [
        0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014,
        0x009c, 0x009d, 0x002f, 0x0035,
    ];
    let algorithms = [
        0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601,
    ];
    let empty = |kind| (kind, Vec::new());
    Hello {
        version: 0x0303,
        ciphers: [&[0x5a5a], &ciphers[..]].concat(),
        extensions: vec![
            empty(0x3a3a),
            empty(0x001b),
            server_name(b"WWW.Example.com"),
            empty(0x0033),
            alpn(&[b"h2", b"http/1.1"]),
            empty(0x4469),
            empty(0x0017),
            empty(0x002d),
            signature_algorithms(&[&[0x2a2a], &algorithms[..]].concat()),
            empty(0x0005),
            empty(0x0023),
            empty(0x0012),
            supported_versions(&[0xfafa, 0x0303, 0x0304]),
            empty(0xff01),
            empty(0x000b),
            empty(0x000a),
            // Padding, as long as a post-quantum key share.
            (0x0015, vec![0; 1200]),
            empty(0xdada),
        ],
    }
}
