//! Selects packets: a filter, classes of packets, and a sampling rate for each class.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::compile::Compiler;
use super::limit::Limiter;
use super::program::{Program, REJECT, Target};
use super::sample::{Rate, Unit};
use super::{Error, parse};
use crate::dissect::Packet;

/// Classes of packets besides the base: MAX_TIERS of bpf/sample.h.
pub(crate) const MAX_TIERS: usize = 15;

/// The rules of a selection. The default keeps everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Packets for which this is false are dropped.
    pub filter: Option<String>,
    /// The first tier that matches a packet determines its rate.
    pub tiers: Vec<Tier>,
    /// The rate of packets that match no tier.
    pub rate: Rate,
    pub unit: Unit,
    /// The seed of the sampling. Another seed keeps other packets.
    pub seed: u64,
    /// The maximum of kept packets per second of their timestamps. It requires packets in their order of arrival.
    pub most_per_second: Option<NonZeroU32>,
}

/// A class of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tier {
    pub expression: String,
    pub rate: Rate,
}

/// Compiled rules; the default keeps everything. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection(Option<Arc<CompiledRules>>);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CompiledRules {
    rules: Rules,
    /// `None` if the selection does not depend on the packets' fields.
    pub(crate) program: Option<Program>,
    /// The rate of the base, then those of the tiers.
    pub(crate) rates: Vec<Rate>,
    pub(crate) limiter: Option<Limiter>,
}

/// The result of the selection for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Kept,
    Filtered,
    SampledOut,
    RateLimited,
}

/// An invalid rule, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrongRule {
    Filter(Error),
    /// The tier with this index, from 0.
    Tier(usize, Error),
    TooManyTiers,
}

impl Rules {
    fn is_sampling(&self) -> bool {
        !self.tiers.is_empty() || !self.rate.is_all()
    }

    /// The rates as text: those of the tiers, then that of the other packets.
    fn sampling(&self) -> String {
        let mut text = String::new();
        for tier in &self.tiers {
            text += &format!("{} where {}; ", tier.rate, tier.expression);
        }
        let of = match self.unit {
            Unit::Flows => "flows",
            Unit::Packets => "packets",
        };
        format!("{text}{} of {of}, seed {}", self.rate, self.seed)
    }
}

impl Selection {
    /// Compiles rules, and reads the files that they name.
    pub fn new(rules: Rules) -> Result<Self, WrongRule> {
        if rules.tiers.len() > MAX_TIERS {
            return Err(WrongRule::TooManyTiers);
        }
        if rules.filter.is_none() && !rules.is_sampling() && rules.most_per_second.is_none() {
            return Ok(Self::default());
        }
        let mut compiler = Compiler::default();
        let mut next = Target::End(0);
        for (index, tier) in rules.tiers.iter().enumerate().rev() {
            let class = Target::End(u16::try_from(index + 1).unwrap_or(u16::MAX));
            let added = parse::parse(&tier.expression)
                .and_then(|expression| compiler.add(&expression, class, next));
            next = added.map_err(|error| WrongRule::Tier(index, error))?;
        }
        if let Some(filter) = &rules.filter {
            parse::parse(filter)
                .and_then(|expression| compiler.add(&expression, next, Target::End(REJECT)))
                .map_err(WrongRule::Filter)?;
        }
        let rates = [rules.rate].into_iter();
        let rates = rates.chain(rules.tiers.iter().map(|tier| tier.rate));
        Ok(Self(Some(Arc::new(CompiledRules {
            program: compiler.finish(),
            rates: rates.collect(),
            limiter: rules.most_per_second.map(Limiter::new),
            rules,
        }))))
    }

    /// Applies the selection to a packet.
    #[inline]
    pub fn judge(&self, packet: &Packet<'_>) -> Fate {
        match &self.0 {
            None => Fate::Kept,
            Some(compiled) => compiled.judge(packet),
        }
    }

    /// The rules, if there are any.
    pub fn rules(&self) -> Option<&Rules> {
        self.0.as_ref().map(|compiled| &compiled.rules)
    }

    /// The metadata that files store about rows made under these rules.
    pub(crate) fn metadata(&self) -> Vec<(String, String)> {
        let Some(rules) = self.rules() else {
            return Vec::new();
        };
        let filter = rules.filter.clone();
        let sampling = rules.is_sampling().then(|| rules.sampling());
        let limit = rules.most_per_second.map(|limit| limit.to_string());
        let said = [
            ("lowroad.filter", filter),
            ("lowroad.sampling", sampling),
            ("lowroad.max_pps", limit),
        ];
        said.into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), text?)))
            .collect()
    }

    pub(crate) fn compiled(&self) -> Option<&CompiledRules> {
        self.0.as_deref()
    }
}

impl CompiledRules {
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    fn judge(&self, packet: &Packet<'_>) -> Fate {
        let class = self
            .program
            .as_ref()
            .map_or(0, |program| program.run(packet));
        if class == REJECT {
            return Fate::Filtered;
        }
        let rate = self.rates[usize::from(class)];
        if !self.rules.unit.keeps(packet, rate, self.rules.seed) {
            return Fate::SampledOut;
        }
        let limiter = self.limiter.as_ref();
        if limiter.is_some_and(|limiter| !limiter.admits(packet.time_ns)) {
            return Fate::RateLimited;
        }
        Fate::Kept
    }
}

impl fmt::Display for WrongRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Filter(error) => write!(f, "filter: {error}"),
            Self::Tier(index, error) => write!(f, "tier {}: {error}", index + 1),
            Self::TooManyTiers => write!(f, "there can be {MAX_TIERS} tiers"),
        }
    }
}

impl std::error::Error for WrongRule {}
