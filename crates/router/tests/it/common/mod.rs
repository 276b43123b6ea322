//! What several tests make and ask.

pub(crate) mod mrt;
pub(crate) mod network;
pub(crate) mod programs;

use router::routes::{Options, RouteImport, read};

pub(crate) fn import(text: impl AsRef<[u8]>) -> RouteImport {
    read("test", text.as_ref(), &Options::default()).unwrap()
}

pub(crate) fn refusal(text: impl AsRef<[u8]>) -> String {
    let refused = read("test", text.as_ref(), &Options::default());
    refused.unwrap_err().to_string()
}

/// Each route as a line.
pub(crate) fn written(imported: &RouteImport) -> Vec<String> {
    let routes = &imported.routes;
    let target = |at: u32| &routes.targets[at as usize];
    let v4 = routes.v4.iter();
    let v4 = v4.map(|route| format!("{} {}", route.prefix, target(route.target)));
    let v6 = routes.v6.iter();
    v4.chain(v6.map(|route| format!("{} {}", route.prefix, target(route.target))))
        .collect()
}
