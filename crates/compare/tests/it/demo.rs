//! `lowroad demo`.

mod exclusive;
