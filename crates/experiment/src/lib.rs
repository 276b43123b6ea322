//! Plans, blocks of trials and records.
