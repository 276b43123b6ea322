//! Errors in Python's terms: the classes of `lowroad.errors`, with the message that the command prints.

use datapath::Missing;
use features::model::Error as ModelError;
use features::pcap::Fault;
use features::stream::Error as StreamError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// It was attempted and did not work.
pub(crate) fn failed(py: Python<'_>, what: &impl ToString) -> PyErr {
    raise(py, "Error", what.to_string())
}

/// Arguments or files that no retry can make work.
pub(crate) fn input(py: Python<'_>, what: &impl ToString) -> PyErr {
    raise(py, "InputError", what.to_string())
}

/// What this machine lacks.
pub(crate) fn missing(py: Python<'_>, who: &str, missing: &Missing) -> PyErr {
    let message = format!("{who}: {}; {}", missing.what, missing.remedy);
    raise(py, "MissingError", message)
}

pub(crate) fn of_datapath(py: Python<'_>, who: &str, error: &datapath::Error) -> PyErr {
    match error {
        datapath::Error::Missing(what) => missing(py, who, what),
        datapath::Error::Plan(what) => input(py, what),
        datapath::Error::Failed { .. } => failed(py, error),
    }
}

pub(crate) fn of_model(py: Python<'_>, error: &ModelError) -> PyErr {
    match error {
        ModelError::Missing {
            model,
            missing: what,
        } => missing(py, model, what),
        error => input(py, error),
    }
}

/// `source` is the capture or the interface.
pub(crate) fn of_stream(py: Python<'_>, source: &str, error: &StreamError) -> PyErr {
    match error {
        StreamError::Capture(Fault::Input(_) | Fault::NoCapture(_) | Fault::LinkType)
        | StreamError::Rows(_) => input(py, &format!("{source}: {error}")),
        _ => failed(py, error),
    }
}

fn raise(py: Python<'_>, class: &str, message: String) -> PyErr {
    let class = py
        .import("lowroad.errors")
        .and_then(|errors| errors.getattr(class))
        .and_then(|class| Ok(class.cast_into::<PyType>()?));
    match class {
        Ok(class) => PyErr::from_type(class, (message,)),
        Err(error) => error,
    }
}
