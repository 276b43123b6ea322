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

/// The longest message of the format, because a reader of files needs no shorter ones.
const MAX_FILE_MESSAGE: usize = 65_535;

/// Encodes the messages of a file.
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

    /// The bytes of a batch, preceded by the templates that it needs.
    pub(super) fn bytes(&mut self, batch: &RecordBatch) -> Vec<u8> {
        let mut bytes = Vec::new();
        for mut message in self.composer.compose(batch) {
            bytes.extend(message.stamped(self.sequence));
            self.sequence = self.sequence.wrapping_add(message.records);
        }
        bytes
    }
}
