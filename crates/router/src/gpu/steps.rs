//! The kernels that process a batch, in order, with their arguments.

use gpu::{Argument, Buffer, Launch};

use super::launch::{Input, Tables};
use super::source::{BATCH_COMBINE, BATCH_DECIDE, BATCH_NARROW, COMBINE, NARROW};
use super::width;
use crate::engine::Function;

/// What kernels do for each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// One of them routes and filters.
    PerPacket,
    /// One routes, one filters, and another one joins what they decided.
    PerFunction,
}

impl Schedule {
    pub const ALL: [Self; 2] = [Self::PerPacket, Self::PerFunction];

    /// The name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PerPacket => "per-packet",
            Self::PerFunction => "per-function",
        }
    }

    /// Whether there is anything to join.
    pub(super) fn joins(self, function: Function) -> bool {
        self == Self::PerFunction && function == Function::Both
    }
}

/// Of what a device reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Form {
    Keys = 0,
    Frames = 1,
    Addresses = 2,
}

/// A kernel over some of a batch.
#[derive(Debug)]
pub(super) struct Step<'a> {
    kernel: usize,
    items: usize,
    arguments: Vec<Argument<'a>>,
}

/// A batch, and where what is decided about it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub(super) function: Function,
    pub(super) schedule: Schedule,
    pub(super) bits: u32,
    pub(super) input: Input,
    pub(super) tables: &'a Tables,
    /// Room for twice as many decisions as `apart` says; none where decisions go back as they are made.
    pub(super) scratch: Option<&'a Buffer>,
    pub(super) apart: usize,
}

impl<'a> Work<'a> {
    pub(super) fn steps(&self) -> Vec<Step<'a>> {
        let count = self.input.keys[0] + self.input.keys[1];
        let cut = self.scratch.filter(|_| width::is_cut(self.bits));
        let decided = cut.map_or(Argument::Output, Argument::Buffer);
        let mut steps = Vec::new();
        match self.scratch {
            Some(parts) if self.schedule.joins(self.function) => {
                let parts = Argument::Buffer(parts);
                self.decide(Function::Lpm, parts, 0, &mut steps);
                self.decide(Function::Acl, parts, self.apart, &mut steps);
                steps.push(Step {
                    kernel: COMBINE,
                    items: count,
                    arguments: vec![parts, number(self.apart), decided, number(count)],
                });
            }
            _ => self.decide(self.function, decided, 0, &mut steps),
        }
        if cut.is_some() {
            steps.push(Step {
                kernel: NARROW,
                items: width::bytes(count, self.bits) / size_of::<u32>(),
                arguments: vec![
                    decided,
                    number(count),
                    Argument::Output,
                    Argument::Number(self.bits),
                ],
            });
        }
        steps.retain(|step| step.items > 0);
        steps
    }

    /// As `steps`, for up to `items` keys. The kernels read the batch's layout from its input, so that their
    /// arguments are the same for all batches with these tables.
    pub(super) fn recordable_steps(&self, items: usize) -> Vec<Step<'a>> {
        let cut = self.scratch.filter(|_| width::is_cut(self.bits));
        let decided = cut.map_or(Argument::Output, Argument::Buffer);
        let step = |kernel, arguments| Step {
            kernel,
            items,
            arguments,
        };
        let mut steps = Vec::new();
        match self.scratch {
            Some(parts) if self.schedule.joins(self.function) => {
                let parts = Argument::Buffer(parts);
                let routes = self.recordable_arguments(Function::Lpm, parts, 0);
                let rules = self.recordable_arguments(Function::Acl, parts, self.apart);
                steps.push(step(BATCH_DECIDE, routes));
                steps.push(step(BATCH_DECIDE, rules));
                let joined = vec![Argument::Input, number(self.apart), parts, decided];
                steps.push(step(BATCH_COMBINE, joined));
            }
            _ => steps.push(step(
                BATCH_DECIDE,
                self.recordable_arguments(self.function, decided, 0),
            )),
        }
        if cut.is_some() {
            let bits = Argument::Number(self.bits);
            let arguments = vec![Argument::Input, bits, decided, Argument::Output];
            steps.push(step(BATCH_NARROW, arguments));
        }
        steps
    }

    fn recordable_arguments(
        &self,
        function: Function,
        decisions: Argument<'a>,
        to: usize,
    ) -> Vec<Argument<'a>> {
        let tables = self.tables;
        let [arena4, arena6] = tables.lists.arenas().map(Argument::Buffer);
        vec![
            Argument::Input,
            Argument::Number(function as u32),
            decisions,
            number(to),
            arena4,
            Argument::Buffer(&tables.counts.0[0]),
            arena6,
            Argument::Buffer(&tables.counts.0[1]),
            Argument::Buffer(&tables.routes),
        ]
    }

    /// A function over both families; decisions begin at number `to`.
    fn decide(
        &self,
        function: Function,
        decisions: Argument<'a>,
        to: usize,
        steps: &mut Vec<Step<'a>>,
    ) {
        let (input, tables) = (&self.input, self.tables);
        for family in [0, 1] {
            let before = if family == 0 { 0 } else { input.keys[0] };
            let mut arguments = vec![
                Argument::Input,
                number(input.at[family]),
                decisions,
                number(to + before),
                number(input.keys[family]),
                Argument::Number(input.form as u32),
            ];
            if function.filters() {
                arguments.push(Argument::Buffer(tables.lists.arenas()[family]));
                arguments.push(Argument::Buffer(&tables.counts.0[family]));
            }
            if function.routes() {
                arguments.push(Argument::Buffer(&tables.routes));
            }
            steps.push(Step {
                kernel: 2 * function as usize + family,
                items: input.keys[family],
                arguments,
            });
        }
    }
}

impl Step<'_> {
    pub(super) fn launch(&self) -> Launch<'_> {
        Launch {
            kernel: self.kernel,
            items: self.items,
            arguments: &self.arguments,
        }
    }
}

fn number(number: usize) -> Argument<'static> {
    Argument::Number(u32::try_from(number).unwrap_or(u32::MAX))
}
