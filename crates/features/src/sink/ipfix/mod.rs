//! IPFIX (RFC 7011): rows as data records, to a collector or to a file (RFC 5655).

mod layout;
mod message;
mod tcp;
mod udp;

use arrow_array::RecordBatch;
use arrow_schema::Schema;

pub use tcp::TcpExporter;
pub use udp::UdpExporter;

use super::Error;
use message::Composer;

/// As long as a message may be; who reads files has room.
const MAX_FILE_MESSAGE: usize = 65_535;

/// The messages of a file, one after the other.
#[derive(Debug)]
pub(super) struct FileMessages {
    composer: Composer,
    sequence: u32,
}

impl FileMessages {
    pub(super) fn new(schema: &Schema) -> Result<Self, Error> {
        Ok(Self {
            composer: Composer::new(schema, MAX_FILE_MESSAGE, 0)?,
            sequence: 0,
        })
    }

    /// The bytes of a batch, with the templates that it needs first.
    pub(super) fn bytes(&mut self, batch: &RecordBatch) -> Vec<u8> {
        let mut bytes = Vec::new();
        for mut message in self.composer.compose(batch) {
            bytes.extend(message.stamped(self.sequence));
            self.sequence = self.sequence.wrapping_add(message.records);
        }
        bytes
    }
}
