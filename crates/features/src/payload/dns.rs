//! The name that a DNS message asks for: that of its first question (RFC 1035), in presentation
//! form (RFC 4343, 2.1), in lower case, without the final dot; the root is `.`.
//!
//! A DNS port needs only the question to be there; elsewhere the message must parse to its last byte.

use super::cursor::Cursor;
use super::name;

/// DNS, multicast DNS (RFC 6762) and LLMNR (RFC 4795).
const PORTS: [u16; 3] = [53, 5353, 5355];
const HEADER: usize = 12;
/// Bytes of a name on the wire, without the root's (RFC 1035, 2.3.4).
const MAX_NAME: usize = 254;
/// More pointers than a name of the greatest length can have labels only serve a loop.
const MAX_POINTERS: usize = 127;
/// Bytes of the smallest record after its name: type, class, TTL, length.
const RECORD: usize = 10;

/// The name in a datagram between two ports.
pub fn over_udp(ports: [u16; 2], payload: &[u8]) -> Option<String> {
    let message = Message::new(payload)?;
    if is_dns(ports) {
        return message.first_name();
    }
    message.is_complete().then(|| message.first_name())?
}

/// The name in a stream's first bytes between two ports. A stream may give a message its length and
/// then send it in pieces: on a DNS port the question must be in these bytes.
pub fn over_tcp(ports: [u16; 2], stream: &[u8]) -> Option<String> {
    let mut rest = Cursor(stream);
    let length = usize::from(rest.u16()?);
    let message = Message::new(rest.0.get(..length).unwrap_or(rest.0))?;
    if is_dns(ports) {
        return message.first_name();
    }
    let alone = length == rest.0.len();
    (alone && message.is_complete()).then(|| message.first_name())?
}

fn is_dns(ports: [u16; 2]) -> bool {
    ports.iter().any(|port| PORTS.contains(port))
}

/// A message with at least one question for which there is room.
#[derive(Clone, Copy, Debug)]
struct Message<'a> {
    bytes: &'a [u8],
    flags: u16,
    questions: usize,
    records: usize,
}

impl<'a> Message<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut header = Cursor(bytes);
        let _id = header.u16()?;
        let flags = header.u16()?;
        let questions = usize::from(header.u16()?);
        let mut records = 0;
        for _section in 0..3 {
            records += usize::from(header.u16()?);
        }
        // The smallest question: the root's single byte, type and class.
        let room = header.0.len() / 5;
        (1..=room).contains(&questions).then_some(Self {
            bytes,
            flags,
            questions,
            records,
        })
    }

    fn first_name(&self) -> Option<String> {
        let mut after = self.after_name(HEADER)?;
        after.take(4)?;
        self.name()
    }

    /// What follows the name that starts at an offset; pointers are not followed.
    fn after_name(&self, at: usize) -> Option<Cursor<'a>> {
        let mut rest = Cursor(self.bytes.get(at..)?);
        loop {
            match Label::read(&mut rest)? {
                Label::Text(_) => {}
                Label::End | Label::Pointer(_) => return Some(rest),
            }
        }
    }

    /// The first question's name. It has nothing before it to point to, yet some encoders point
    /// ahead: any place after the header is followed, so often as a name can make sense.
    fn name(&self) -> Option<String> {
        let mut text = String::new();
        let mut rest = Cursor(self.bytes.get(HEADER..)?);
        let (mut length, mut pointers) = (0, 0);
        loop {
            match Label::read(&mut rest)? {
                Label::End => break,
                Label::Text(label) => {
                    length += 1 + label.len();
                    push_label(&mut text, label);
                }
                Label::Pointer(at) => {
                    pointers += 1;
                    rest = Cursor(self.bytes.get(at..).filter(|_| at >= HEADER)?);
                }
            }
            if length > MAX_NAME || pointers > MAX_POINTERS {
                return None;
            }
        }
        if text.is_empty() {
            text.push('.');
        }
        Some(text)
    }

    /// Whether nothing but a DNS message would look like this: one question of a known class,
    /// every record whole, and no byte after the last.
    fn is_complete(&self) -> bool {
        self.has_usual_header() && self.ends_with_its_records().unwrap_or(false)
    }

    /// A known opcode (at most DSO's), the reserved bit zero.
    fn has_usual_header(&self) -> bool {
        let opcode = self.flags >> 11 & 0xf;
        opcode <= 6 && self.flags & 0x40 == 0 && self.questions == 1
    }

    fn ends_with_its_records(&self) -> Option<bool> {
        let mut rest = self.after_name(HEADER)?;
        let (kind, class) = (rest.u16()?, rest.u16()?);
        if !is_class(class) || self.is_netbios(kind) {
            return None;
        }
        for _record in 0..self.records {
            rest = self.after_name(self.bytes.len() - rest.0.len())?;
            rest.take(RECORD - 2)?;
            rest.vector16()?;
        }
        Some(rest.0.is_empty())
    }

    /// NetBIOS names travel in the same form (RFC 1002): 32 letters from A to P, type NB or NBSTAT.
    fn is_netbios(&self, kind: u16) -> bool {
        let label = self.bytes.get(HEADER..HEADER + 33);
        let encoded = label.and_then(|label| label.strip_prefix(&[32]));
        let is_letter = |byte: &u8| (b'A'..=b'P').contains(byte);
        matches!(kind, 32 | 33) && encoded.is_some_and(|label| label.iter().all(is_letter))
    }
}

/// Internet, Chaos, Hesiod, none (RFC 2136) and any.
fn is_class(class: u16) -> bool {
    matches!(class, 1 | 3 | 4 | 254 | 255)
}

fn push_label(text: &mut String, label: &[u8]) {
    if !text.is_empty() {
        text.push('.');
    }
    for byte in label {
        if *byte == b'.' {
            text.push('\\');
        }
        name::push(text, *byte);
    }
}

enum Label<'a> {
    End,
    Text(&'a [u8]),
    /// An offset in the message.
    Pointer(usize),
}

impl<'a> Label<'a> {
    fn read(rest: &mut Cursor<'a>) -> Option<Self> {
        let first = rest.u8()?;
        match first >> 6 {
            0 if first == 0 => Some(Self::End),
            0 => rest.take(first.into()).map(Self::Text),
            3 => {
                let low = rest.u8()?;
                Some(Self::Pointer(
                    usize::from(first & 0x3f) << 8 | usize::from(low),
                ))
            }
            _ => None,
        }
    }
}
