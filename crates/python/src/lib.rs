//! The native half of the Python package `lowroad`: streams of record batches for Python, and the words
//! in which they fail. What users see, with its documentation, is in `python/lowroad`.

mod batch;
mod error;
mod machine;
mod options;
mod record;
mod router;
mod stream;

use pyo3::prelude::*;

#[pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use super::batch::Batch;
    #[pymodule_export]
    use super::machine::{datapaths, interfaces, schema, schemas};
    #[pymodule_export]
    use super::record::{Table, read_record};
    #[pymodule_export]
    use super::router::Router;
    #[pymodule_export]
    use super::stream::{Stream, live, read_pcap, score};
}
