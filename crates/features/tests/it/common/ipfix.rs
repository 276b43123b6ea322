//! A reader of IPFIX, written from RFC 7011 apart from the writer that it checks.

use std::collections::HashMap;

/// What a stream of messages carried.
#[derive(Debug, Default)]
pub(crate) struct DecodedStream {
    templates: HashMap<u16, Vec<(u32, u16, usize)>>,
    /// Values by enterprise and element.
    pub(crate) records: Vec<HashMap<(u32, u16), Vec<u8>>>,
    pub(crate) messages: usize,
    pub(crate) template_records: usize,
    pub(crate) longest: usize,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl DecodedStream {
    /// Reads messages until the bytes end; checks their sequence numbers against what came before.
    pub(crate) fn of(mut bytes: &[u8]) -> Self {
        let mut decoded = Self::default();
        while !bytes.is_empty() {
            let length = usize::from(u16_at(bytes, 2));
            decoded.message(&bytes[..length]);
            bytes = &bytes[length..];
        }
        decoded
    }

    pub(crate) fn message(&mut self, message: &[u8]) {
        assert_eq!(u16_at(message, 0), 10, "version");
        assert_eq!(usize::from(u16_at(message, 2)), message.len(), "length");
        let sequence = usize::try_from(u32_at(message, 8)).unwrap();
        assert_eq!(sequence, self.records.len(), "sequence number");
        self.messages += 1;
        self.longest = self.longest.max(message.len());
        let mut sets = &message[16..];
        while !sets.is_empty() {
            let (id, length) = (u16_at(sets, 0), usize::from(u16_at(sets, 2)));
            match id {
                2 => self.template_set(&sets[4..length]),
                256.. => self.data_set(id, &sets[4..length]),
                other => panic!("a set of id {other}"),
            }
            sets = &sets[length..];
        }
    }

    fn template_set(&mut self, mut set: &[u8]) {
        while !set.is_empty() {
            let (id, count) = (u16_at(set, 0), u16_at(set, 2));
            let mut fields = Vec::new();
            let mut at = 4;
            for _ in 0..count {
                let (element, length) = (u16_at(set, at), usize::from(u16_at(set, at + 2)));
                at += 4;
                let own = element >> 15 == 1;
                let enterprise = if own { u32_at(set, at) } else { 0 };
                at += if own { 4 } else { 0 };
                fields.push((enterprise, element & 0x7fff, length));
            }
            self.templates.insert(id, fields);
            self.template_records += 1;
            set = &set[at..];
        }
    }

    fn data_set(&mut self, id: u16, mut set: &[u8]) {
        let fields = self.templates.get(&id).expect("the template came first");
        while !set.is_empty() {
            let mut record = HashMap::new();
            for &(enterprise, element, length) in fields {
                record.insert((enterprise, element), set[..length].to_vec());
                set = &set[length..];
            }
            self.records.push(record);
        }
    }

    pub(crate) fn numbers(&self, enterprise: u32, element: u16) -> Vec<u64> {
        let number = |bytes: &Vec<u8>| bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
        let value = |record: &HashMap<_, _>| record.get(&(enterprise, element)).map_or(0, number);
        self.records.iter().map(value).collect()
    }

    /// Flow ids, with packets and bytes both ways.
    pub(crate) fn flows(&self) -> Vec<(u64, [u64; 4])> {
        let columns = [(0, 86), (0, 85), (29_305, 86), (29_305, 85)]
            .map(|(enterprise, element)| self.numbers(enterprise, element));
        let ids = self.numbers(0, 148);
        (0..ids.len())
            .map(|row| (ids[row], columns.each_ref().map(|c| c[row])))
            .collect()
    }
}
