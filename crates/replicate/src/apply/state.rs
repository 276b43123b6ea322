//! The stored state of a replica: its log, its record, and whether its tree is being changed. Two
//! slots are written in turn, so that one of them is always complete.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::OFlags;

use crate::folder::Folder;
use crate::log::Id;
use crate::make::Gate;

const MAGIC: [u8; 8] = *b"lrrepls1";
const BYTES: usize = 112;
/// The distance of the two slots in bytes, so that they are in different blocks.
const APART: u64 = 4096;

/// What is known of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing: it has to be built anew.
    #[default]
    Nothing,
    /// It is as of the record, and on the disk.
    Whole,
    /// It was as of the record, and is being changed to a later one.
    Placing,
    /// As whole, and no change has begun since.
    Ended,
    /// It was promoted: a capture continues the log with it.
    Promoted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) log: Id,
    pub(super) epoch: u64,
    /// The number of the epoch's record.
    pub(super) record: u64,
    /// When the capture wrote that record. A log that lost its end in a power failure may have
    /// another record with that number. Zero if an earlier version did not store it.
    pub(super) at_ns: u64,
    /// While the tree is being changed, when the capture wrote the epoch that it becomes. Only a
    /// log with that epoch tells which part of it is there already. Zero if unknown.
    pub(super) to_ns: u64,
    /// Whether the tree was built with what only privileged processes can set. `None` if an earlier
    /// version did not store it.
    pub(super) privileged: Option<bool>,
    /// The boot ID of the machine when this was written.
    pub(super) boot: [u8; 36],
}

impl State {
    fn encode(&self, turn: u64) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(turn.to_le_bytes());
        bytes.extend(self.log);
        bytes.extend(self.epoch.to_le_bytes());
        bytes.extend(self.record.to_le_bytes());
        bytes.extend(self.boot);
        bytes.push(match self.phase {
            Phase::Nothing => 0,
            Phase::Whole => 1,
            Phase::Placing => 2,
            Phase::Ended => 3,
            Phase::Promoted => 4,
        });
        bytes.extend(self.at_ns.to_le_bytes());
        bytes.extend(self.to_ns.to_le_bytes());
        bytes.push(match self.privileged {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        });
        bytes.resize(BYTES - 4, 0);
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Returns `None` if the slot is incomplete.
    fn decode(bytes: &[u8; BYTES]) -> Option<(u64, Self)> {
        let (said, check) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(said) != u32::from_le_bytes(*check) {
            return None;
        }
        let (magic, said) = said.split_first_chunk::<8>()?;
        let (turn, said) = said.split_first_chunk::<8>()?;
        let (log, said) = said.split_first_chunk::<16>()?;
        let (epoch, said) = said.split_first_chunk::<8>()?;
        let (record, said) = said.split_first_chunk::<8>()?;
        let (boot, said) = said.split_first_chunk::<36>()?;
        let (phase, said) = said.split_first()?;
        let (at_ns, said) = said.split_first_chunk::<8>()?;
        let (to_ns, said) = said.split_first_chunk::<8>()?;
        let privileged = match said.first()? {
            0 => None,
            1 => Some(false),
            2 => Some(true),
            _ => return None,
        };
        let phase = match phase {
            0 => Phase::Nothing,
            1 => Phase::Whole,
            2 => Phase::Placing,
            3 => Phase::Ended,
            4 => Phase::Promoted,
            _ => return None,
        };
        let state = Self {
            phase,
            log: *log,
            epoch: u64::from_le_bytes(*epoch),
            record: u64::from_le_bytes(*record),
            at_ns: u64::from_le_bytes(*at_ns),
            to_ns: u64::from_le_bytes(*to_ns),
            privileged,
            boot: *boot,
        };
        (*magic == MAGIC).then_some((u64::from_le_bytes(*turn), state))
    }
}

/// The file with the state.
#[derive(Debug)]
pub(super) struct StateFile {
    file: File,
    turn: u64,
    pub(super) now: State,
    boot: [u8; 36],
    gate: Gate,
}

impl StateFile {
    /// Returns `None` if nothing has been stored yet.
    pub(super) fn open((folder, name): (&Folder, &str), gate: Gate) -> io::Result<Option<Self>> {
        match folder.file(name, OFlags::RDWR) {
            Ok(file) => Self::read(file, gate).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn create((folder, name): (&Folder, &str), gate: Gate) -> io::Result<Self> {
        gate.pass()?;
        let file = folder.file(name, OFlags::RDWR | OFlags::CREATE)?;
        Self::read(file, gate)
    }

    fn read(file: File, gate: Gate) -> io::Result<Self> {
        let places = [0, APART].into_iter().filter_map(|at| {
            let mut bytes = [0; BYTES];
            file.read_exact_at(&mut bytes, at).ok()?;
            State::decode(&bytes)
        });
        let (turn, now) = places.max_by_key(|(turn, _)| *turn).unwrap_or_default();
        let said = std::fs::read("/proc/sys/kernel/random/boot_id")?;
        let mut boot = [0; 36];
        for (to, from) in boot.iter_mut().zip(said) {
            *to = from;
        }
        Ok(Self {
            file,
            turn,
            now,
            boot,
            gate,
        })
    }

    /// Whether nothing of a later record can be in the tree. That requires that no process was
    /// killed while it changed the tree, and that the machine has not stopped since, which loses
    /// what was not on its disk.
    pub(super) fn is_whole(&self) -> bool {
        match self.now.phase {
            Phase::Ended => true,
            Phase::Whole => self.now.boot == self.boot,
            Phase::Nothing | Phase::Placing | Phase::Promoted => false,
        }
    }

    /// Stores the state. With `durably`, it is on the disk when this returns.
    pub(super) fn say(&mut self, state: State, durably: bool) -> io::Result<()> {
        let state = State {
            boot: self.boot,
            ..state
        };
        let turn = self.turn + 1;
        self.gate.pass()?;
        let place = if turn.is_multiple_of(2) { 0 } else { APART };
        self.file.write_all_at(&state.encode(turn), place)?;
        if durably {
            self.file.sync_data()?;
        }
        (self.turn, self.now) = (turn, state);
        Ok(())
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            phase: Phase::Nothing,
            log: [0; 16],
            epoch: 0,
            record: 0,
            at_ns: 0,
            to_ns: 0,
            privileged: None,
            boot: [0; 36],
        }
    }
}
