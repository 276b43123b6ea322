//! Why a table cannot hold something.

use std::io;

/// The table is as it was before the call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "next hop {next_hop} in a table of bytes, which holds 1..={limit}: use Layout4::Mixed or Layout4::Words"
    )]
    NextHop { next_hop: u16, limit: u16 },
    #[error(
        "more than {limit} /24s hold prefixes longer than /24, which is what the table has room for"
    )]
    Groups { limit: usize },
    #[error(
        "more than {limit} /16s hold prefixes longer than /24, which is what the table has room for"
    )]
    Pages { limit: usize },
    #[error("no room left for {what} of IPv6 prefixes")]
    Full { what: &'static str },
    #[error("no memory for {what} ({bytes} bytes): raise the limit (ulimit -v)")]
    Memory {
        what: &'static str,
        bytes: usize,
        source: io::Error,
    },
    #[error("the table's section {section} {what}: build the table anew from its routes")]
    Content {
        section: &'static str,
        what: &'static str,
    },
}

impl Error {
    pub(crate) fn content(section: &'static str, what: &'static str) -> Self {
        Self::Content { section, what }
    }
}
