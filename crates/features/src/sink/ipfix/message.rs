//! Composes IPFIX messages (RFC 7011, section 3): data sets up to the message length, and templates in separate
//! messages, so that they can be repeated without data.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow_array::RecordBatch;
use arrow_schema::Schema;

use super::layout::{Layout, Present};
use crate::sink::Error;

const VERSION: u16 = 10;
const HEADER: usize = 16;
const SET_HEADER: usize = 4;
const TEMPLATE_SET: u16 = 2;
/// The lowest id of a template and its data sets. Lower ids have other meanings.
const FIRST_TEMPLATE: u16 = 256;

/// A message whose header does not contain the time and sequence number yet.
#[derive(Debug)]
pub(super) struct Message {
    bytes: Vec<u8>,
    /// The number of data records in the message.
    pub(super) records: u32,
}

/// Composes messages, and tracks the templates that they need.
#[derive(Debug)]
pub(super) struct Composer {
    layout: Layout,
    /// The maximum message length in bytes.
    most: usize,
    domain: u32,
    templates: HashMap<Present, u16>,
    /// The templates in the order of their ids.
    order: Vec<Present>,
}

impl Composer {
    pub(super) fn new(schema: &Schema, most: usize, domain: u32) -> Result<Self, Error> {
        Ok(Self {
            layout: Layout::of(schema)?,
            most: most.min(usize::from(u16::MAX)),
            domain,
            templates: HashMap::new(),
            order: Vec::new(),
        })
    }

    /// Composes the messages of a batch. A new template precedes its first data.
    pub(super) fn compose(&mut self, batch: &RecordBatch) -> Vec<Message> {
        let layout = self.layout.clone();
        let cells = layout.cells(batch);
        let (mut messages, mut open) = (Vec::new(), Open::default());
        let mut record = Vec::new();
        for row in 0..batch.num_rows() {
            record.clear();
            let present = cells.record(row, &mut record);
            let known = self.order.len();
            let id = self.id(present);
            if self.order.len() > known {
                messages.extend(self.templates_from(known));
            }
            if open.length(id) + record.len() > self.most {
                messages.extend(open.close(self.domain));
            }
            open.add(id, &record);
        }
        messages.extend(open.close(self.domain));
        messages
    }

    fn id(&mut self, present: Present) -> u16 {
        let next = u16::try_from(self.order.len()).unwrap_or(u16::MAX);
        let order = &mut self.order;
        *self.templates.entry(present).or_insert_with(|| {
            order.push(present);
            FIRST_TEMPLATE.saturating_add(next)
        })
    }

    /// The number of templates used so far.
    pub(super) fn known(&self) -> usize {
        self.order.len()
    }

    /// The templates used so far, from the one with index `first` on.
    pub(super) fn templates_from(&self, first: usize) -> Vec<Message> {
        let (mut messages, mut open) = (Vec::new(), Open::default());
        let mut template = Vec::new();
        for present in &self.order[first..] {
            template.clear();
            self.layout
                .template(self.templates[present], *present, &mut template);
            if open.length(TEMPLATE_SET) + template.len() > self.most {
                messages.extend(open.close(self.domain));
            }
            open.add(TEMPLATE_SET, &template);
        }
        messages.extend(open.close(self.domain));
        messages
    }
}

impl Message {
    /// Returns the bytes with the current time and this sequence number.
    pub(super) fn stamped(&mut self, sequence: u32) -> &[u8] {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.map_or(0, |now| now.as_secs() & 0xffff_ffff);
        let seconds = u32::try_from(seconds).unwrap_or(0);
        self.bytes[4..8].copy_from_slice(&seconds.to_be_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_be_bytes());
        &self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// A message under construction.
#[derive(Debug, Default)]
struct Open {
    bytes: Vec<u8>,
    records: u32,
    /// The start and the id of the last set.
    set: Option<(usize, u16)>,
}

impl Open {
    /// The length in bytes including the header of a set with this id.
    fn length(&self, id: u16) -> usize {
        let start = self.bytes.len().max(HEADER);
        match self.set {
            Some((_, current)) if current == id => start,
            _ => start + SET_HEADER,
        }
    }

    fn add(&mut self, id: u16, record: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.resize(HEADER, 0);
        }
        if self.set.is_none_or(|(_, current)| current != id) {
            self.close_set();
            self.set = Some((self.bytes.len(), id));
            self.bytes.extend(id.to_be_bytes());
            self.bytes.extend([0; 2]);
        }
        self.bytes.extend(record);
        self.records += u32::from(id != TEMPLATE_SET);
    }

    fn close_set(&mut self) {
        if let Some((start, _)) = self.set.take() {
            let length = short(self.bytes.len() - start).to_be_bytes();
            self.bytes[start + 2..start + 4].copy_from_slice(&length);
        }
    }

    fn close(&mut self, domain: u32) -> Option<Message> {
        self.close_set();
        let Self {
            mut bytes, records, ..
        } = std::mem::take(self);
        if bytes.is_empty() {
            return None;
        }
        let length = short(bytes.len()).to_be_bytes();
        bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        bytes[2..4].copy_from_slice(&length);
        bytes[12..16].copy_from_slice(&domain.to_be_bytes());
        Some(Message { bytes, records })
    }
}

fn short(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}
