//! Compiles expressions to steps, last test first, so that a test's targets exist before the test is added.

use super::Error;
use super::expression::{Expression, Network, Ports, Sides, Test};
use super::networks::{self, NetworkSet};
use super::program::{Check, End, Field, MAX_STEPS, PortSet, Program, Step, Target};

/// A program under construction. The steps are in reverse order, and a target is an index in this order until
/// [`Self::finish`].
#[derive(Debug, Default)]
pub(super) struct Compiler {
    steps: Vec<Step>,
    ports: Vec<PortSet>,
    networks: Vec<NetworkSet>,
}

impl Compiler {
    /// Adds the steps of an expression. They lead to one target if it is true, and to the other if it is false.
    pub(super) fn add(
        &mut self,
        expression: &Expression,
        on_true: Target,
        on_false: Target,
    ) -> Result<Target, Error> {
        match expression {
            Expression::And(first, second) => {
                let second = self.add(second, on_true, on_false)?;
                self.add(first, second, on_false)
            }
            Expression::Or(first, second) => {
                let second = self.add(second, on_true, on_false)?;
                self.add(first, on_true, second)
            }
            Expression::Not(inner) => self.add(inner, on_false, on_true),
            Expression::Test(test) => self.test(test, on_true, on_false),
        }
    }

    /// Returns the program, or `None` if the selection does not depend on the packets' fields.
    pub(super) fn finish(mut self) -> Option<Program> {
        self.steps.reverse();
        let last = self.steps.len().checked_sub(1)?;
        for step in &mut self.steps {
            for target in [&mut step.on_true, &mut step.on_false] {
                if let Target::Step(at) = target {
                    // There are at most MAX_STEPS.
                    *at = u16::try_from(last).unwrap_or(u16::MAX) - *at;
                }
            }
        }
        Some(Program {
            steps: self.steps,
            ports: self.ports,
            networks: self.networks,
        })
    }

    fn test(&mut self, test: &Test, on_true: Target, on_false: Target) -> Result<Target, Error> {
        let field = |field, low: u64, high: u64| Check::Field(field, low, high);
        match test {
            Test::Version(version) => {
                let version = u64::from(*version);
                self.step(field(Field::Version, version, version), on_true, on_false)
            }
            Test::Protocol(number) => {
                let number = u64::from(*number);
                self.step(field(Field::Protocol, number, number), on_true, on_false)
            }
            Test::Length(low, high) => {
                let check = field(Field::Length, (*low).into(), (*high).into());
                self.step(check, on_true, on_false)
            }
            Test::Vlan(low, high) => {
                let check = field(Field::Vlan, (*low).into(), (*high).into());
                self.step(check, on_true, on_false)
            }
            Test::Ports(sides, ports) => self.ports(*sides, ports, on_true, on_false),
            Test::Networks(sides, networks) => self.networks(*sides, networks, on_true, on_false),
            Test::List(sides, path, column) => {
                let networks = networks::read(path).map_err(|what| Error::new(*column, what))?;
                self.network_set(*sides, networks, on_true, on_false)
            }
        }
    }

    fn ports(
        &mut self,
        sides: Sides,
        ports: &[Ports],
        on_true: Target,
        on_false: Target,
    ) -> Result<Target, Error> {
        if let [Ports { low, high }] = *ports {
            let check = |end| Check::Field(Field::Port(end), low.into(), high.into());
            return self.sides(sides, check, on_true, on_false);
        }
        let set = PortSet::new(ports.iter().map(|range| (range.low, range.high)));
        let index = place(&mut self.ports, set);
        self.sides(sides, |end| Check::PortSet(end, index), on_true, on_false)
    }

    fn networks(
        &mut self,
        sides: Sides,
        networks: &[Network],
        on_true: Target,
        on_false: Target,
    ) -> Result<Target, Error> {
        if let [network] = *networks {
            let check = |end| Check::Network(end, network);
            return self.sides(sides, check, on_true, on_false);
        }
        self.network_set(sides, networks.to_vec(), on_true, on_false)
    }

    fn network_set(
        &mut self,
        sides: Sides,
        networks: Vec<Network>,
        on_true: Target,
        on_false: Target,
    ) -> Result<Target, Error> {
        let index = place(&mut self.networks, NetworkSet::new(networks));
        self.sides(
            sides,
            |end| Check::NetworkSet(end, index),
            on_true,
            on_false,
        )
    }

    fn sides(
        &mut self,
        sides: Sides,
        check: impl Fn(End) -> Check,
        on_true: Target,
        on_false: Target,
    ) -> Result<Target, Error> {
        let (source, destination) = (check(End::Source), check(End::Destination));
        match sides {
            Sides::Source => self.step(source, on_true, on_false),
            Sides::Destination => self.step(destination, on_true, on_false),
            Sides::Either => {
                let destination = self.step(destination, on_true, on_false)?;
                self.step(source, on_true, destination)
            }
            Sides::Both => {
                let destination = self.step(destination, on_true, on_false)?;
                self.step(source, destination, on_false)
            }
        }
    }

    fn step(&mut self, check: Check, on_true: Target, on_false: Target) -> Result<Target, Error> {
        let at = self.steps.len();
        if at == MAX_STEPS {
            return Err(Error::new(1, format!("more than {MAX_STEPS} steps")));
        }
        self.steps.push(Step {
            check,
            on_true,
            on_false,
        });
        Ok(Target::Step(u16::try_from(at).unwrap_or(u16::MAX)))
    }
}

/// The index of a set. An equal set is stored only once.
fn place<T: PartialEq>(sets: &mut Vec<T>, set: T) -> u16 {
    let at = sets.iter().position(|known| *known == set);
    let at = at.unwrap_or_else(|| {
        sets.push(set);
        sets.len() - 1
    });
    // There are no more sets than steps.
    u16::try_from(at).unwrap_or(u16::MAX)
}
