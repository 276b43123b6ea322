//! A ClientHello's fields (RFC 8446, 4.1.2), as they are on the wire.

use super::super::cursor::{Cursor, numbers};
use super::super::name;

/// Types of extensions.
pub(super) mod extension {
    pub(crate) const SERVER_NAME: u16 = 0;
    pub(crate) const SIGNATURE_ALGORITHMS: u16 = 13;
    pub(crate) const ALPN: u16 = 16;
    pub(crate) const SUPPORTED_VERSIONS: u16 = 43;
}

const HOST_NAME: u8 = 0;
/// Bytes of a host's name (RFC 1035, 2.3.4). Each flow keeps its name, so its length has a bound.
const MAX_HOST_LEN: usize = 255;
/// Limit in bytes for the names of application protocols; clients offer far fewer.
const MAX_PROTOCOLS_LEN: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct Hello<'a> {
    pub(super) version: u16,
    pub(super) ciphers: Vec<u16>,
    /// Type and data, in their order.
    pub(super) extensions: Vec<(u16, &'a [u8])>,
}

impl<'a> Hello<'a> {
    /// Reads the message after its header; `None` if its lengths do not fit one another.
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        let mut rest = Cursor(body);
        let version = rest.u16()?;
        let _random = rest.take(32)?;
        let _session = rest.vector8()?;
        let ciphers = rest.vector16()?;
        let _compression = rest.vector8()?;
        // Before TLS 1.2 there may be none at all.
        let extensions = if rest.0.is_empty() {
            Vec::new()
        } else {
            extensions(rest.vector16()?)?
        };
        rest.0.is_empty().then(|| Self {
            version,
            ciphers: numbers(ciphers).collect(),
            extensions,
        })
    }

    /// The data of the first extension of a type.
    fn extension(&self, kind: u16) -> Option<&'a [u8]> {
        let found = self.extensions.iter().find(|(of, _)| *of == kind);
        found.map(|(_, data)| *data)
    }

    pub(super) fn has(&self, kind: u16) -> bool {
        self.extension(kind).is_some()
    }

    /// The host's name in the server name extension, if it is there, not empty and not too long.
    pub(super) fn server_name(&self) -> Option<String> {
        let mut names = Cursor(Cursor(self.extension(extension::SERVER_NAME)?).vector16()?);
        while let Some(kind) = names.u8() {
            let host = names.vector16()?;
            if kind == HOST_NAME {
                let is_name = (1..=MAX_HOST_LEN).contains(&host.len());
                return is_name.then(|| text(host));
            }
        }
        None
    }

    /// The first protocol offered for the application.
    pub(super) fn first_protocol(&self) -> Option<&'a [u8]> {
        let list = Cursor(self.extension(extension::ALPN)?).vector16()?;
        Cursor(list).vector8()
    }

    /// The protocols offered for the application, in their order, as text. Those from the first on
    /// that would make it too long are left out.
    pub(super) fn protocols(&self) -> Option<String> {
        let mut list = Cursor(Cursor(self.extension(extension::ALPN)?).vector16()?);
        let mut text = String::new();
        while let Some(protocol) = list.vector8() {
            let kept = text.len();
            if kept > 0 {
                text.push(',');
            }
            push_protocol(&mut text, protocol);
            if text.len() > MAX_PROTOCOLS_LEN {
                text.truncate(kept);
                break;
            }
        }
        (!text.is_empty()).then_some(text)
    }

    pub(super) fn supported_versions(&self) -> Option<impl Iterator<Item = u16>> {
        let list = Cursor(self.extension(extension::SUPPORTED_VERSIONS)?).vector8()?;
        Some(numbers(list))
    }

    pub(super) fn signature_algorithms(&self) -> impl Iterator<Item = u16> {
        let data = self.extension(extension::SIGNATURE_ALGORITHMS);
        let list = data.and_then(|data| Cursor(data).vector16());
        numbers(list.unwrap_or(&[]))
    }
}

fn extensions(bytes: &[u8]) -> Option<Vec<(u16, &[u8])>> {
    let mut rest = Cursor(bytes);
    let mut list = Vec::new();
    while !rest.0.is_empty() {
        list.push((rest.u16()?, rest.vector16()?));
    }
    Some(list)
}

fn push_protocol(text: &mut String, protocol: &[u8]) {
    for byte in protocol {
        match byte {
            b',' => name::escape_number(text, *byte),
            _ => name::escape(text, *byte),
        }
    }
}

fn text(host: &[u8]) -> String {
    let mut text = String::with_capacity(host.len());
    for byte in host {
        name::push(&mut text, *byte);
    }
    text
}
