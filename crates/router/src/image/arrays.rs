//! Which arrays an image has, and a router's tables out of them.

use lpm::{Contents, Fib4, Fib6, Layout4, Layout6, Room4, Room6, Section as Room};

use super::container::{self, Content, Entry, Section};
use super::error::Fault;
use super::record::{self, Texts};
use super::{Image, SourceFile, Tables};
use crate::routes::Target;
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

/// The image that a file holds. Any bytes may come: what fits the checksum may still be no image.
pub(super) fn restore(file: &[u8]) -> Result<Image, Fault> {
    let entries = container::read(file)?;
    let parts = Parts { file, entries };
    let layout = parts.numbers("layout")?;
    let &[there, layout] = layout.as_slice() else {
        return Err(Fault::section("layout", "has not two numbers"));
    };
    if there > 3 {
        return Err(Fault::section(
            "layout",
            "says that there is what nobody knows",
        ));
    }
    let layout4 = match layout {
        0 => Layout4::Bytes,
        1 => Layout4::Mixed,
        2 => Layout4::Words,
        _ => return Err(Fault::section("layout", "names a layout that is none")),
    };
    let sources: Vec<SourceFile> = parts.json("sources")?;
    let tables = (there & 1 != 0).then(|| parts.tables(layout4));
    let rules = (there & 2 != 0).then(|| parts.rules());
    Ok(Image {
        sources,
        tables: tables.transpose()?,
        rules: rules.transpose()?,
    })
}

struct Parts<'a> {
    file: &'a [u8],
    entries: Vec<Entry>,
}

impl<'a> Parts<'a> {
    fn find(&self, name: &str) -> Option<&'a [u8]> {
        let entry = self.entries.iter().find(|entry| entry.name == name)?;
        self.file.get(entry.range.clone())
    }

    fn section(&self, name: &str) -> Result<&'a [u8], Fault> {
        self.find(name)
            .ok_or_else(|| Fault::section(name, "is missing"))
    }

    fn numbers(&self, name: &str) -> Result<Vec<u32>, Fault> {
        match self.section(name)?.as_chunks() {
            (numbers, []) => Ok(numbers.iter().map(|raw| u32::from_le_bytes(*raw)).collect()),
            _ => Err(Fault::section(name, "ends within a number")),
        }
    }

    fn json<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T, Fault> {
        serde_json::from_slice(self.section(name)?)
            .map_err(|error| Fault::section(name, &format!("cannot be read: {error}")))
    }

    fn tables(&self, layout4: Layout4) -> Result<Tables, Fault> {
        let (hops4, hops6): (Vec<Target>, Vec<Target>) = (self.json("hops4")?, self.json("hops6")?);
        let rib4 = record::read_routes(self.section("routes4")?, record::ROUTE4, hops4.len())
            .map_err(|what| Fault::section("routes4", what))?;
        let rib6 = record::read_routes(self.section("routes6")?, record::ROUTE6, hops6.len())
            .map_err(|what| Fault::section("routes6", what))?;
        let within =
            |family: &'static str| move |name: &str| self.find(&format!("{family}.{name}"));
        let (arrays4, arrays6) = (within("fib4"), within("fib6"));
        let (arrays4, arrays6): (&Contents<'_>, &Contents<'_>) = (&arrays4, &arrays6);
        let (room4, room6) = (Room4::default(), Room6::default());
        let memory = &mut Room::in_process;
        Ok(Tables {
            layout4,
            fib4: Fib4::restore(rib4, layout4, &room4, memory, arrays4)?,
            fib6: Fib6::restore(rib6, Layout6::Paged, &room6, memory, arrays6)?,
            hops4,
            hops6,
        })
    }

    fn rules(&self) -> Result<RuleSet, Fault> {
        let text = self.section("texts")?;
        let wrong = |name: &'static str| move |what: &str| Fault::section(name, what);
        let origins = record::read_origins(self.section("origins")?, text);
        let origins = origins.map_err(wrong("origins"))?;
        let notes = record::read_notes(self.section("notes")?, text).map_err(wrong("notes"))?;
        let count = origins.len();
        let v4 = record::read_rules(self.section("rules4")?, record::RULE4, count);
        let v6 = record::read_rules(self.section("rules6")?, record::RULE6, count);
        Ok(RuleSet {
            v4: v4.map_err(wrong("rules4"))?,
            v6: v6.map_err(wrong("rules6"))?,
            origins,
            notes,
        })
    }
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
