//! Writes a profile in the format of pprof (perftools.profiles.Profile), uncompressed.

use std::collections::BTreeMap;

use super::Profile;

/// The bytes of a profile.proto: samples and nanoseconds of each stack.
pub fn encode(profile: &Profile) -> Vec<u8> {
    let mut names = Strings::default();
    let [samples, count, cpu, nanoseconds] =
        ["samples", "count", "cpu", "nanoseconds"].map(|text| names.index(text));
    let period = 1_000_000_000 / u64::from(profile.hertz.max(1));

    let mut out = Message::default();
    out.message(1, &value_type(samples, count));
    out.message(1, &value_type(cpu, nanoseconds));
    let mut functions: BTreeMap<&str, u64> = BTreeMap::new();
    for (stack, taken) in &profile.folded {
        let locations: Vec<u64> = stack
            .rsplit(';')
            .map(|frame| {
                let next = functions.len() as u64 + 1;
                *functions.entry(frame).or_insert(next)
            })
            .collect();
        let mut sample = Message::default();
        sample.packed(1, &locations);
        sample.packed(2, &[*taken, taken * period]);
        out.message(2, &sample);
    }
    for (name, id) in functions {
        let name = names.index(name);
        let mut line = Message::default();
        line.number(1, id);
        let mut location = Message::default();
        location.number(1, id);
        location.message(4, &line);
        out.message(4, &location);
        let mut function = Message::default();
        function.number(1, id);
        function.number(2, name);
        function.number(3, name);
        out.message(5, &function);
    }
    for text in &names.table {
        out.bytes(6, text.as_bytes());
    }
    out.message(11, &value_type(cpu, nanoseconds));
    out.number(12, period);
    out.encoded
}

fn value_type(kind: u64, unit: u64) -> Message {
    let mut message = Message::default();
    message.number(1, kind);
    message.number(2, unit);
    message
}

/// The string table; its first entry must be empty.
struct Strings {
    table: Vec<String>,
    indices: BTreeMap<String, u64>,
}

impl Default for Strings {
    fn default() -> Self {
        Self {
            table: vec![String::new()],
            indices: [(String::new(), 0)].into(),
        }
    }
}

impl Strings {
    fn index(&mut self, text: &str) -> u64 {
        if let Some(index) = self.indices.get(text) {
            return *index;
        }
        let index = self.table.len() as u64;
        self.table.push(text.to_owned());
        self.indices.insert(text.to_owned(), index);
        index
    }
}

/// Protocol Buffers' wire format: a key of field number and wire type, then the value.
#[derive(Default)]
struct Message {
    encoded: Vec<u8>,
}

impl Message {
    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.encoded.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.encoded);
    }

    fn packed(&mut self, field: u64, values: &[u64]) {
        let mut packed = Self::default();
        for value in values {
            packed.varint(*value);
        }
        self.message(field, &packed);
    }

    /// Seven bits a byte, the lowest first; the top bit says that more follow.
    fn varint(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                self.encoded.push(low & 0x7f);
                return;
            }
            self.encoded.push(low | 0x80);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn profile() -> Profile {
        Profile {
            folded: [("cc;main;parse", 300), ("cc;main", 2)]
                .map(|(stack, taken)| (stack.to_owned(), taken))
                .into(),
            obtained: 302,
            expected: 400,
            lost: 0,
            hertz: 1_000,
        }
    }

    #[test]
    fn numbers_longer_than_seven_bits_continue() {
        let mut message = Message::default();
        message.number(1, 300);
        assert_eq!(message.encoded, [0x08, 0xac, 0x02]);
        let mut message = Message::default();
        message.packed(2, &[1, 300]);
        assert_eq!(message.encoded, [0x12, 3, 1, 0xac, 0x02]);
    }

    #[test]
    fn the_reference_reader_finds_the_same_stacks() {
        if !sys::require::requested("runs Go's pprof") {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.pb");
        std::fs::write(&path, encode(&profile())).unwrap();
        let output = Command::new("go")
            .args(["tool", "pprof", "-raw"])
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let words: Vec<&str> = text.split_whitespace().collect();
        let has = |wanted: &[&str]| words.windows(wanted.len()).any(|at| at == wanted);
        assert!(text.contains("samples/count cpu/nanoseconds"), "{text}");
        assert!(has(&["300", "300000000:"]), "{text}");
        assert!(has(&["2", "2000000:"]), "{text}");
        for name in ["parse", "main", "cc"] {
            assert!(words.contains(&name), "{text}");
        }
    }
}
