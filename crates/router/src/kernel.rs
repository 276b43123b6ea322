//! The kernel as a data plane, or beside one: it forwards by its own tables, and filters by an nftables table of ours.
//!
//! The table is made, replaced and removed by the program `nft`, each in one transaction: a packet meets all
//! of the rules before or all of the new ones. It sees what comes in by the router's devices and is to be
//! forwarded; tables of others are left as they are, and have a say beside it.

mod script;

use serde::Deserialize;
use serde_json::Value;

use crate::listing::{Error, run_nft};
use crate::rules::{Hits, RuleSet};

pub(crate) use script::TABLE;

/// Rules as nft reads them, and how many there are.
#[derive(Clone, Debug)]
pub(crate) struct Lists {
    text: String,
    counts: [usize; 2],
}

impl Lists {
    pub(crate) fn of(set: &RuleSet, interfaces: &[String]) -> Self {
        Self {
            text: script::table(set, interfaces),
            counts: [set.v4.len(), set.v6.len()],
        }
    }
}

/// The table of rules in the kernel, gone when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    counts: [usize; 2],
    there: bool,
}

impl Filter {
    /// Filters by these rules instead of those before. Counts begin anew.
    pub(crate) fn enforce(&mut self, lists: &Lists) -> Result<(), Error> {
        if lists.counts == [0, 0] {
            if !self.there {
                // A router that was killed leaves its table. Where nft does not run there is none.
                let _left = run_nft(&["-f", "-"], &script::removal());
            }
            return self.remove();
        }
        run_nft(&["-f", "-"], &lists.text)?;
        (self.counts, self.there) = (lists.counts, true);
        Ok(())
    }

    /// How often each rule of IPv4 and of IPv6 was the first that matched.
    pub(crate) fn hits(&self) -> Result<[Hits; 2], Error> {
        let mut hits = self.counts.map(|count| Hits {
            rules: vec![0; count],
            none: 0,
        });
        if !self.there {
            return Ok(hits);
        }
        let output = run_nft(&["-j", "list", "table", "inet", TABLE], "")?;
        let listing: Listing = serde_json::from_slice(&output).map_err(|error| Error::Failed {
            program: "nft -j list table".to_owned(),
            what: format!("wrote no listing: {error}"),
        })?;
        for rule in listing.nftables.into_iter().filter_map(|item| item.rule) {
            rule.add_to(&mut hits);
        }
        Ok(hits)
    }

    fn remove(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.there) {
            self.counts = [0; 2];
            run_nft(&["-f", "-"], &script::removal())?;
        }
        Ok(())
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!("the nftables table {} stays: {error}", TABLE);
        }
    }
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    rule: Option<NftRule>,
}

#[derive(Deserialize)]
struct NftRule {
    chain: String,
    comment: Option<String>,
    expr: Vec<Value>,
}

impl NftRule {
    /// A rule can have several lines, which are counted together.
    fn add_to(&self, hits: &mut [Hits; 2]) {
        let later = self.chain.strip_suffix(script::LATER);
        let name = later.unwrap_or(&self.chain);
        let family = script::CHAINS.iter().position(|chain| *chain == name);
        let (Some(family), Some(comment)) = (family, &self.comment) else {
            return;
        };
        let hits = &mut hits[family];
        let mut counters = self.expr.iter().map(|expr| &expr["counter"]["packets"]);
        let packets = counters.find_map(Value::as_u64).unwrap_or(0);
        let place = comment.parse().ok();
        if let Some(rule) = place.and_then(|place: usize| hits.rules.get_mut(place)) {
            *rule += packets;
        } else if comment == script::NONE {
            hits.none += packets;
        }
    }
}
