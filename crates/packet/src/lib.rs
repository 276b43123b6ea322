//! Header views, builders and checksums: the twin of lowroad/parse.h.
pub mod payload;
