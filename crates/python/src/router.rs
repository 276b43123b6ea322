//! The router's lookup for Python: columns in, numbers out, as the bytes of arrays.

use std::path::PathBuf;

use ::router::library::{Library, OpenError};
use acl::{Action, Address, Key};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{failed, input};

/// Routes and rules that do not change.
#[pyclass(frozen, module = "lowroad._native")]
#[derive(Debug)]
pub(crate) struct Router(Library);

/// The columns of five-tuples: addresses and numbers as arrays hold them, ports in native order.
type Columns<'a> = (&'a [u8], &'a [u8], &'a [u8], &'a [u8], &'a [u8]);

#[pymethods]
impl Router {
    #[new]
    #[pyo3(signature = (routes, rules))]
    fn open(py: Python<'_>, routes: Option<PathBuf>, rules: Option<PathBuf>) -> PyResult<Self> {
        let opened = py.detach(move || Library::open(routes.as_deref(), rules.as_deref()));
        opened.map(Self).map_err(|error| refused(py, &error))
    }

    #[staticmethod]
    fn open_image(py: Python<'_>, image: PathBuf) -> PyResult<Self> {
        let opened = py.detach(move || Library::open_image(&image));
        opened.map(Self).map_err(|error| refused(py, &error))
    }

    /// The bytes of 16-bit numbers of next hops, of addresses in network order.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        v6: bool,
        addresses: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let hops = py.detach(|| {
            let mut hops = vec![0; addresses.len() / if v6 { 16 } else { 4 }];
            if v6 {
                self.0.lookup6(addresses.as_chunks().0, &mut hops);
            } else {
                self.0.lookup4(addresses.as_chunks().0, &mut hops);
            }
            hops.into_iter()
                .flat_map(u16::to_ne_bytes)
                .collect::<Vec<u8>>()
        });
        Ok(PyBytes::new(py, &hops))
    }

    /// The bytes of 32-bit numbers of rules.
    fn classify<'py>(
        &self,
        py: Python<'py>,
        v6: bool,
        columns: Columns<'_>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let found = py.detach(|| {
            if v6 {
                classified(columns, |keys, found| self.0.classify6(keys, found))
            } else {
                classified(columns, |keys, found| self.0.classify4(keys, found))
            }
        });
        Ok(PyBytes::new(py, &found))
    }

    /// What next hops 1, 2, ... stand for.
    fn next_hops(&self, v6: bool) -> Vec<String> {
        if v6 { self.0.hops6() } else { self.0.hops4() }.to_vec()
    }

    /// The action and the text of each rule.
    fn rules(&self, v6: bool) -> Vec<(&'static str, String)> {
        let verdicts = (0..).map_while(|rule| {
            if v6 {
                self.0.verdict6(rule)
            } else {
                self.0.verdict4(rule)
            }
        });
        let named = verdicts.map(|verdict| {
            let action = match verdict.action {
                Action::Accept => "accept",
                Action::Drop => "drop",
                Action::Punt => "punt",
            };
            (action, verdict.text)
        });
        named.collect()
    }

    /// Routes of IPv4 and IPv6.
    fn routes(&self) -> (usize, usize) {
        self.0.routes()
    }
}

fn refused(py: Python<'_>, error: &OpenError) -> PyErr {
    if error.is_input() {
        input(py, error)
    } else {
        failed(py, error)
    }
}

/// Keys of the columns' rows, in blocks: as many as the shortest column has.
fn classified<A: Address<Octets = [u8; N]>, const N: usize>(
    (sources, destinations, source_ports, destination_ports, protocols): Columns<'_>,
    look_up: impl Fn(&[Key<A>], &mut [u32]),
) -> Vec<u8> {
    let (sources, destinations) = (sources.as_chunks::<N>().0, destinations.as_chunks::<N>().0);
    let ports = |column: &[u8]| {
        column
            .as_chunks()
            .0
            .to_vec()
            .into_iter()
            .map(u16::from_ne_bytes)
    };
    let ports = ports(source_ports).zip(ports(destination_ports));
    let rows = sources.iter().zip(destinations).zip(ports).zip(protocols);
    let mut keys: Vec<Key<A>> = Vec::with_capacity(protocols.len());
    for (((source, destination), ports), protocol) in rows {
        keys.push(Key {
            protocol: *protocol,
            padding: [0; 3],
            source: *source,
            destination: *destination,
            source_port: ports.0.to_be_bytes(),
            destination_port: ports.1.to_be_bytes(),
        });
    }
    let mut found = vec![0; keys.len()];
    look_up(&keys, &mut found);
    found.into_iter().flat_map(u32::to_ne_bytes).collect()
}
