//! Tables and traffic to measure with, the same for the same seed. Rules like those of real firewalls are
//! made by `acl::generate`.

mod lengths;
mod prefixes;
mod traffic;

pub use prefixes::{prefixes4, prefixes6};
pub use traffic::Traffic;
