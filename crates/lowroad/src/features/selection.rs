//! The arguments that say which packets make rows.

use std::num::NonZeroU32;

use clap::Args;
use features::filter::{Rate, Rules, Selection, Tier, Unit, WrongRule};

use crate::exit::Failure;

/// Which packets make rows.
#[derive(Debug, Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct SelectionArguments {
    /// Keep only packets that match this tcpdump filter: 'tcp and dst port 443'
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Keep a sample of the packets, as 1/100
    #[arg(long, value_name = "RATE", conflicts_with = "sample_flows")]
    sample: Option<Rate>,
    /// Keep a sample of the flows, with both directions of each, as 1/100
    #[arg(long, value_name = "RATE")]
    sample_flows: Option<Rate>,
    /// Sample packets that match a filter at another rate, as 'port 22,53=1/10'; the first match decides
    #[arg(long, value_name = "EXPRESSION=RATE", value_parser = tier)]
    tier: Vec<Tier>,
    /// Random seed: change it to keep a different sample [default: 0]
    #[arg(long, value_name = "N")]
    sample_seed: Option<u64>,
}

impl SelectionArguments {
    /// Compiled, with as many packets a second at most.
    pub(super) fn selection(&self, most: Option<NonZeroU32>) -> Result<Selection, Failure> {
        let sampling =
            self.sample.is_some() || self.sample_flows.is_some() || !self.tier.is_empty();
        if self.sample_seed.is_some() && !sampling {
            let what = "--sample-seed does nothing without --sample, --sample-flows or --tier";
            return Err(Failure::Input(what.to_owned()));
        }
        let rules = Rules {
            filter: self.filter.clone(),
            tiers: self.tier.clone(),
            rate: self.sample.or(self.sample_flows).unwrap_or_default(),
            unit: match self.sample {
                Some(_) => Unit::Packets,
                None => Unit::Flows,
            },
            seed: self.sample_seed.unwrap_or(0),
            most_per_second: most,
        };
        Selection::new(rules).map_err(|wrong| {
            Failure::Input(match wrong {
                WrongRule::Filter(error) => format!("--filter, {error}"),
                WrongRule::Tier(index, error) => {
                    format!("--tier {:?}, {error}", self.tier[index].expression)
                }
                WrongRule::TooManyTiers => wrong.to_string(),
            })
        })
    }
}

fn tier(text: &str) -> Result<Tier, String> {
    let (expression, rate) = text
        .rsplit_once('=')
        .ok_or("a rate is missing; write 'port 22,53=1/10'")?;
    Ok(Tier {
        expression: expression.to_owned(),
        rate: rate.trim().parse()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_equals_sign_begins_the_rate() {
        let read = tier("net in a=b.txt = 1/10").expect("a tier");
        assert_eq!(read.expression, "net in a=b.txt ");
        assert_eq!(read.rate.to_string(), "1/10");
        for wrong in ["", "tcp", "tcp=", "tcp=2/1", "tcp=0/1", "tcp=1"] {
            assert!(tier(wrong).is_err(), "{wrong}");
        }
    }
}
