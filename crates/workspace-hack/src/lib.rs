//! No code: its dependencies state the features that all crates share. See Cargo.toml.
