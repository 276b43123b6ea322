//! What there is: schemas, datapaths, interfaces.

use features::live::{Features, datapaths as live_datapaths};
use features::schema::{self as schemas_of, SCHEMAS, Schema};
use netdev::Netlink;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::{failed, input, missing};

pub(crate) fn find(py: Python<'_>, name: &str) -> PyResult<&'static Schema> {
    schemas_of::find(name).ok_or_else(|| {
        let names: Vec<&str> = SCHEMAS.iter().map(|schema| schema.name).collect();
        let names = names.join(", ");
        input(
            py,
            &format!("no schema is called \"{name}\"; there are {names}"),
        )
    })
}

/// The same without these columns.
pub(crate) fn find_without(
    py: Python<'_>,
    name: &str,
    without: &[String],
) -> PyResult<&'static Schema> {
    find(py, name)?.without(without).map_err(|unknown| {
        let lists = format!("`lowroad features schema {name}` lists them");
        input(py, &format!("{name} has no column \"{unknown}\"; {lists}"))
    })
}

/// The datapath of this name, if it can run here.
pub(crate) fn datapath(
    py: Python<'_>,
    name: &str,
) -> PyResult<Box<dyn datapath::Datapath<Features>>> {
    let mut all = live_datapaths();
    let Some(at) = all.iter().position(|one| one.name() == name) else {
        let names: Vec<&str> = all.iter().map(|one| one.name()).collect();
        let names = names.join(", ");
        let what = format!("no live datapath is called \"{name}\"; there are {names}");
        return Err(input(py, &what));
    };
    let found = all.swap_remove(at);
    found.check().map_err(|lacks| missing(py, name, &lacks))?;
    Ok(found)
}

/// Name and purpose of every schema.
#[pyfunction]
pub(crate) fn schemas(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    PyList::new(py, SCHEMAS.iter().map(|one| (one.name, one.about)))
}

/// A schema's columns: name, type, unit, definition, and whether they are made from payload.
#[pyfunction]
pub(crate) fn schema<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
    let columns = find(py, name)?.columns();
    let columns = columns.iter().map(|column| {
        (
            column.name,
            column.kind,
            column.unit,
            column.definition,
            column.needs_payload,
        )
    });
    PyList::new(py, columns)
}

/// Every live datapath, with what is missing here and the remedy.
#[pyfunction]
pub(crate) fn datapaths(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all = live_datapaths();
    let told = all.iter().map(|one| {
        let missing = one.check().err().map(|lacks| (lacks.what, lacks.remedy));
        (one.name(), missing)
    });
    PyList::new(py, told)
}

/// Every network interface.
#[pyfunction]
pub(crate) fn interfaces(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let links = Netlink::new().and_then(|mut netlink| netlink.links());
    let links = links.map_err(|error| failed(py, &error))?;
    links
        .into_iter()
        .map(|link| {
            let told = PyDict::new(py);
            told.set_item("name", link.name)?;
            told.set_item("kind", link.kind)?;
            told.set_item("up", link.up)?;
            told.set_item("carrier", link.carrier)?;
            told.set_item("loopback", link.loopback)?;
            told.set_item("mtu", link.mtu)?;
            told.set_item("rx_queues", link.rx_queues)?;
            Ok(told)
        })
        .collect()
}
