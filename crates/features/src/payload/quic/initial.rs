//! The protection of a client's Initial packets (RFC 9001, 5): keys, header protection, AES-128-GCM.

use ring::aead::quic::{AES_128, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{self, HKDF_SHA256, KeyType, Prk, Salt};

use super::version::Protection;

/// Bytes from the packet number to the sample: the longest number.
const MAX_NUMBER_LEN: usize = 4;
const SAMPLE: usize = 16;
const KEY: usize = 16;
/// Bits of the first byte that are protected in a long header.
const FIRST_BYTE_MASK: u8 = 0x0f;
/// Of these, the length of the packet number, less one.
const NUMBER_LENGTH: u8 = 0x03;

/// The keys of a client's Initial packets.
pub(super) struct Keys {
    packet: LessSafeKey,
    iv: [u8; NONCE_LEN],
    header: HeaderProtectionKey,
}

impl Keys {
    /// The keys that follow from a connection ID. The calls can fail, but for no connection ID.
    pub(super) fn of_client(protection: &Protection, connection_id: &[u8]) -> Option<Self> {
        let initial = Salt::new(HKDF_SHA256, &protection.salt).extract(connection_id);
        let mut secret = [0; 32];
        expand(&initial, b"client in", &mut secret)?;
        let secret = Prk::new_less_safe(HKDF_SHA256, &secret);
        let (mut key, mut iv, mut header) = ([0; KEY], [0; NONCE_LEN], [0; KEY]);
        expand(&secret, protection.key, &mut key)?;
        expand(&secret, protection.iv, &mut iv)?;
        expand(&secret, protection.header, &mut header)?;
        Some(Self {
            packet: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?),
            iv,
            header: HeaderProtectionKey::new(&AES_128, &header).ok()?,
        })
    }

    /// Decrypts a packet in place: its frames, if it was protected by these keys.
    pub(super) fn open<'a>(&self, packet: &'a mut [u8], number_at: usize) -> Option<&'a [u8]> {
        let sample_at = number_at + MAX_NUMBER_LEN;
        let sample = packet.get(sample_at..sample_at + SAMPLE)?;
        let [first_mask, number_mask @ ..] = self.header.new_mask(sample).ok()?;
        let first = packet.first_mut()?;
        *first ^= first_mask & FIRST_BYTE_MASK;
        let length = usize::from(*first & NUMBER_LENGTH) + 1;
        let mut number = 0;
        let protected = packet.get_mut(number_at..number_at + length)?;
        for (byte, mask) in protected.iter_mut().zip(number_mask) {
            *byte ^= mask;
            number = number << 8 | u64::from(*byte);
        }
        let (header, payload) = packet.split_at_mut(number_at + length);
        let nonce = self.nonce(number);
        let plain = self
            .packet
            .open_in_place(nonce, Aad::from(header), payload)
            .ok()?;
        Some(plain)
    }

    /// Packets are numbered from 0, so a number among the first is all there.
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, of_number) in nonce[NONCE_LEN - 8..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= of_number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446, 7.1).
fn expand(secret: &Prk, label: &[u8], key: &mut [u8]) -> Option<()> {
    const PREFIX: &[u8] = b"tls13 ";
    let length = u16::try_from(key.len()).ok()?.to_be_bytes();
    let label_length = [u8::try_from(PREFIX.len() + label.len()).ok()?];
    let info = [&length[..], &label_length, PREFIX, label, &[0]];
    let expanded: hkdf::Okm<'_, Length> = secret.expand(&info, Length(key.len())).ok()?;
    expanded.fill(key).ok()
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The client's packet of RFC 9001, A.2, and that of RFC 9369, A.2.
#[cfg(test)]
mod tests {
    use super::super::frame::CryptoFrames;
    use super::super::header::{Kind, LongHeader};
    use super::super::version::protections;
    use super::*;

    const CONNECTION_ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
    /// Its CRYPTO frame; PADDING follows up to 1162 bytes.
    const FRAME: &str = "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c\
        00000413011302010000c000000010000e00000b6578616d706c652e636f6dff01000100000a00080006001d\
        0017001800100007000504616c706e000500050100000000003300260024001d00209370b2c9caa47fbabaf4\
        559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003020304000d0010000e040305030603020308\
        0408050806002d00020101001c00024001003900320408ffffffffffffffff05048000ffff07048000ffff08\
        01100104800075300901100f088394c8f03e51570806048000ffff";

    struct Vector {
        version: u32,
        key: &'static str,
        iv: &'static str,
        header_key: &'static str,
        header: &'static str,
        protected_header: &'static str,
        sample: &'static str,
        tag: &'static str,
    }

    const VECTORS: [Vector; 2] = [
        Vector {
            version: 1,
            key: "1f369613dd76d5467730efcbe3b1a22d",
            iv: "fa044b2f42a3fd3b46fb255c",
            header_key: "9f50449e04a0e810283a1e9933adedd2",
            header: "c300000001088394c8f03e5157080000449e00000002",
            protected_header: "c000000001088394c8f03e5157080000449e7b9aec34",
            sample: "d1b1c98dd7689fb8ec11d242b123dc9b",
            tag: "e221af44860018ab0856972e194cd934",
        },
        Vector {
            version: 0x6b33_43cf,
            key: "8b1a0bc121284290a29e0971b5cd045d",
            iv: "91f73e2351d8fa91660e909f",
            header_key: "45b95e15235d6f45a6b19cbcb0294ba9",
            header: "d36b3343cf088394c8f03e5157080000449e00000002",
            protected_header: "d76b3343cf088394c8f03e5157080000449ea0c95e82",
            sample: "ffe67b6abcdb4298b485dd04de806071",
            tag: "a18b2faa745b6fe189cf772a9f84cbfc",
        },
    ];

    fn bytes(hexadecimal: &str) -> Vec<u8> {
        let digit = |byte: u8| {
            (byte as char)
                .to_digit(16)
                .and_then(|digit| digit.try_into().ok())
        };
        let digits: Vec<u8> = hexadecimal.bytes().filter_map(digit).collect();
        digits
            .as_chunks()
            .0
            .iter()
            .map(|[high, low]| high << 4 | low)
            .collect()
    }

    fn plain() -> Vec<u8> {
        let mut plain = bytes(FRAME);
        plain.resize(1162, 0);
        plain
    }

    /// The packet, which is the documents' if its tag and its sample are.
    fn packet(vector: &Vector) -> Vec<u8> {
        let key = UnboundKey::new(&AES_128_GCM, &bytes(vector.key)).unwrap();
        let mut nonce: [u8; NONCE_LEN] = bytes(vector.iv).try_into().unwrap();
        nonce[NONCE_LEN - 1] ^= 2;
        let mut payload = plain();
        LessSafeKey::new(key)
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(bytes(vector.header)),
                &mut payload,
            )
            .unwrap();
        assert_eq!(payload[..SAMPLE], bytes(vector.sample));
        assert_eq!(payload[payload.len() - 16..], bytes(vector.tag));
        [bytes(vector.protected_header), payload].concat()
    }

    #[test]
    fn keys_of_the_rfcs() {
        for vector in VECTORS {
            let keys = Keys::of_client(&protections(vector.version)[0], &CONNECTION_ID).unwrap();
            assert_eq!(keys.iv, *bytes(vector.iv));
            let header = HeaderProtectionKey::new(&AES_128, &bytes(vector.header_key)).unwrap();
            let sample = bytes(vector.sample);
            assert_eq!(keys.header.new_mask(&sample), header.new_mask(&sample));
        }
    }

    #[test]
    fn packets_of_the_rfcs() {
        for vector in VECTORS {
            let datagram = packet(&vector);
            assert_eq!(datagram.len(), 1200);
            let read = LongHeader::read(&datagram).unwrap();
            assert_eq!((read.version, read.kind), (vector.version, Kind::Initial));
            assert_eq!(read.destination, CONNECTION_ID);
            assert_eq!((read.number_at, read.rest.len()), (18, 0));
            let keys = Keys::of_client(&protections(read.version)[0], read.destination).unwrap();
            let mut buffer = read.bytes.unwrap().to_vec();
            assert_eq!(keys.open(&mut buffer, read.number_at), Some(&plain()[..]));
            let frames: Vec<_> = CryptoFrames::new(&buffer[22..]).collect();
            assert_eq!(frames, [(0, &bytes(FRAME)[4..])]);
            let mut changed = datagram.clone();
            changed[600] ^= 1;
            assert_eq!(keys.open(&mut changed, read.number_at), None);
        }
    }
}
