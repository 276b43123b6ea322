//! nftables, iptables-nft included: reading a namespace's rules, and what they do with packets of one kind.

pub(crate) mod attribute;
mod evaluation;
mod expression;
mod ruleset;
mod sets;
mod xtables;

pub use evaluation::Verdict;
pub(crate) use evaluation::{Hook, evaluate};
pub(crate) use ruleset::{Rules, Ruleset, has_device_chains};
