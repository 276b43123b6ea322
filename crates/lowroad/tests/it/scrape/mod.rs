//! Scrapes of a job as Prometheus makes them, checked against the rules of the formats and against the book.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use test_support::exposition::{Page, Sample};

/// The pages of the book that list all metrics.
pub(crate) const BOOK: &str = concat!(
    include_str!("../../../../../docs/src/metrics.md"),
    include_str!("../../../../../docs/src/metrics-replicate.md")
);
const TOKEN: &str = "correct-horse-battery-staple";
/// What curl accepts, and what Prometheus 3 does.
const ACCEPT: [&str; 2] = [
    "*/*",
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
     application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
     text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
];

/// Writes the token that [`scrape`] shows.
pub(crate) fn write_token(folder: &Path) -> PathBuf {
    let path = folder.join("token");
    fs::write(&path, format!("{TOKEN}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// The page of a job that answers at `address` in the namespace of the calling thread: the one in the text format, after
/// the other was found to have the same series.
pub(crate) fn scrape(address: &str) -> Page {
    let [page, open_metrics] = ACCEPT.map(|accept| Page::of_answer(&ask(address, accept).unwrap()));
    assert!(!is_open_metrics(&page) && is_open_metrics(&open_metrics));
    assert_eq!(series(&page), series(&open_metrics));
    page.assert_documented(BOOK);
    page
}

/// As [`scrape`] in the text format alone; none if nobody listens.
pub(crate) fn try_scrape(address: &str) -> Option<Page> {
    let page = Page::of_answer(&ask(address, ACCEPT[0]).ok()?);
    page.assert_documented(BOOK);
    Some(page)
}

fn ask(address: &str, accept: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\n\
         Accept: {accept}\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The text format has no info metrics.
fn is_open_metrics(page: &Page) -> bool {
    page.families.iter().any(|family| family.kind == "info")
}

/// Names and labels without the bounds of buckets, which each format writes in its own way.
pub(crate) fn series(page: &Page) -> BTreeSet<(&str, Vec<(&str, &str)>)> {
    let series = page.samples().map(|Sample { name, labels, .. }| {
        let labels = labels.iter().filter(|(label, _)| *label != "le");
        let labels = labels.map(|(label, value)| (label.as_str(), value.as_str()));
        (name.as_str(), labels.collect())
    });
    series.collect()
}
