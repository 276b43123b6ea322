//! Which arrays an image has.

use lpm::Layout4;

use super::container::{Content, Entry, Section};
use super::record::{self, Texts};
use super::{Image, Tables};
use crate::rules::RuleSet;

/// A section of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionSize {
    pub name: String,
    pub bytes: usize,
    /// Bytes of an element.
    pub element: u32,
    /// Where it begins in the file.
    pub offset: usize,
}

impl From<Entry> for SectionSize {
    fn from(entry: Entry) -> Self {
        Self {
            name: entry.name,
            bytes: entry.range.len(),
            element: entry.element,
            offset: entry.range.start,
        }
    }
}

/// All sections of an image. `layout` and `counters` are numbers of four bytes: what is there (bit 0
/// routes, bit 1 rules) and the layout of IPv4 (0 bytes, 1 mixed, 2 words); places of the first counter of
/// IPv4, of IPv6 and of the verdicts, and how many there are.
pub(super) fn sections(image: &Image) -> Vec<Section<'_>> {
    let layout = image
        .tables
        .as_ref()
        .map_or(0, |tables| match tables.layout4 {
            Layout4::Bytes => 0,
            Layout4::Mixed => 1,
            Layout4::Words => 2,
        });
    let there = u32::from(image.tables.is_some()) | u32::from(image.rules.is_some()) << 1;
    let counters = image.counters();
    let places = [
        counters.of4(0),
        counters.of6(0),
        counters.of(acl::Action::Accept),
        counters.count(),
    ];
    let mut all = vec![
        Section::bytes("layout", 4, numbers(&[there, layout])),
        Section::bytes("counters", 4, numbers(&places)),
        Section::bytes("sources", 1, json(&image.sources)),
    ];
    if let Some(tables) = &image.tables {
        routes(tables, &mut all);
    }
    if let Some(rules) = &image.rules {
        filters(rules, &mut all);
    }
    all
}

fn routes<'a>(tables: &'a Tables, all: &mut Vec<Section<'a>>) {
    let (rib4, rib6) = (tables.fib4.rib(), tables.fib6.rib());
    let records = |size| u32::try_from(size).unwrap_or(0);
    all.extend([
        Section::bytes("hops4", 1, json(&tables.hops4)),
        Section::bytes("hops6", 1, json(&tables.hops6)),
        Section::bytes(
            "routes4",
            records(record::ROUTE4),
            record::routes(rib4, record::ROUTE4),
        ),
        Section::bytes(
            "routes6",
            records(record::ROUTE6),
            record::routes(rib6, record::ROUTE6),
        ),
    ]);
    let array = |family: &str, content: lpm::Content<'a>| Section {
        name: format!("{family}.{}", content.name),
        element: u32::try_from(content.element()).unwrap_or(1),
        content: Content::Array(content),
    };
    all.extend(tables.fib4.contents().into_iter().map(|c| array("fib4", c)));
    all.extend(tables.fib6.contents().into_iter().map(|c| array("fib6", c)));
}

fn filters(rules: &RuleSet, all: &mut Vec<Section<'_>>) {
    let records = |size| u32::try_from(size).unwrap_or(0);
    let mut texts = Texts::default();
    let (origins, notes) = (texts.origins(&rules.origins), texts.notes(&rules.notes));
    all.extend([
        Section::bytes(
            "rules4",
            records(record::RULE4),
            record::rules(&rules.v4, record::RULE4),
        ),
        Section::bytes(
            "rules6",
            records(record::RULE6),
            record::rules(&rules.v6, record::RULE6),
        ),
        Section::bytes("origins", records(record::TEXT), origins),
        Section::bytes("notes", records(record::TEXT), notes),
        Section::bytes("texts", 1, texts.text),
    ]);
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect()
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts and numbers only")
}
