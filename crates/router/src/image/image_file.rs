//! The file of a table image, from which tables can be built in memory of the caller's choice.

use std::fs;
use std::path::Path;

use lpm::{Capacity4, Capacity6, Fib4, Fib6, Layout4, Layout6, Rib, Section};

use super::container::{self, Entry};
use super::error::{Error, Fault};
use super::{Image, SectionSize, SourceFile, Tables, record};
use crate::forward::Family;
use crate::routes::Target;
use crate::rules::RuleSet;

/// A file with a valid checksum. Its content may be arbitrary all the same.
pub struct ImageFile {
    name: String,
    file: Vec<u8>,
    entries: Vec<Entry>,
    layout4: Layout4,
    routes: bool,
    rules: bool,
}

/// The routes of an image, without lookup tables.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    pub v4: Rib<u32>,
    pub v6: Rib<u128>,
    /// The targets of IPv4's next hops 1, 2, ...
    pub hops4: Vec<Target>,
    pub hops6: Vec<Target>,
}

impl std::fmt::Debug for ImageFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.name;
        f.debug_struct("ImageFile")
            .field("name", name)
            .finish_non_exhaustive()
    }
}

impl ImageFile {
    /// Reads a file that [`Image::save`] wrote.
    ///
    /// # Errors
    /// The file cannot be read, is not an image, has another version or is damaged.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let file = fs::read(path).map_err(|cause| {
            let file = name.clone();
            Error::Read { file, cause }
        })?;
        Self::of(name.clone(), file).map_err(|broken| broken.of(&name))
    }

    /// The file's name as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn has_routes(&self) -> bool {
        self.routes
    }

    pub fn has_rules(&self) -> bool {
        self.rules
    }

    /// The layout of IPv4's table.
    pub fn layout4(&self) -> Layout4 {
        self.layout4
    }

    /// The sections and their sizes.
    pub fn sections(self) -> Vec<SectionSize> {
        self.entries.into_iter().map(SectionSize::from).collect()
    }

    /// The content of an array of a family's table, from which `lpm` restores the table. If that fails,
    /// [`ImageFile::blame`] makes the error.
    pub fn array(&self, family: Family, name: &str) -> Option<&[u8]> {
        let family = match family {
            Family::V4 => "fib4",
            Family::V6 => "fib6",
        };
        self.find(&format!("{family}.{name}"))
    }

    /// The error for a table that cannot be restored.
    pub fn blame(&self, error: lpm::Error) -> Error {
        Fault::from(error).of(&self.name)
    }

    /// The routes.
    ///
    /// # Errors
    /// The content is invalid.
    pub fn routes(&self) -> Result<Option<Routes>, Error> {
        let routes = self.routes.then(|| self.read_routes()).transpose();
        routes.map_err(|fault| fault.of(&self.name))
    }

    /// The rules.
    ///
    /// # Errors
    /// As `routes`.
    pub fn rules(&self) -> Result<Option<RuleSet>, Error> {
        let rules = self.rules.then(|| self.read_rules()).transpose();
        rules.map_err(|fault| fault.of(&self.name))
    }

    /// IPv4's table of these prefixes, which must be the image's. The layout may differ if the entries fit.
    ///
    /// # Errors
    /// The content is invalid or has other prefixes; no memory.
    pub fn fib4(&self, rib: Rib<u32>, layout: Layout4) -> Result<Fib4, Error> {
        let arrays = |name: &str| self.array(Family::V4, name);
        let memory = &mut Section::in_process;
        Fib4::restore(rib, layout, &Capacity4::default(), memory, &arrays)
            .map_err(|error| self.blame(error))
    }

    /// As `fib4`, for IPv6.
    ///
    /// # Errors
    /// As `fib4`.
    pub fn fib6(&self, rib: Rib<u128>, layout: Layout6) -> Result<Fib6, Error> {
        let arrays = |name: &str| self.array(Family::V6, name);
        let memory = &mut Section::in_process;
        Fib6::restore(rib, layout, &Capacity6::default(), memory, &arrays)
            .map_err(|error| self.blame(error))
    }

    /// The image with its lookup tables.
    pub(super) fn image(&self) -> Result<Image, Error> {
        let tables = self.routes()?.map(|routes| {
            Ok::<_, Error>(Tables {
                layout4: self.layout4,
                fib4: self.fib4(routes.v4, self.layout4)?,
                fib6: self.fib6(routes.v6, Layout6::Paged)?,
                hops4: routes.hops4,
                hops6: routes.hops6,
            })
        });
        let sources: Result<Vec<SourceFile>, Fault> = self.json("sources");
        Ok(Image {
            sources: sources.map_err(|fault| fault.of(&self.name))?,
            tables: tables.transpose()?,
            rules: self.rules()?,
        })
    }

    fn of(name: String, file: Vec<u8>) -> Result<Self, Fault> {
        let entries = container::read(&file)?;
        let mut image = Self {
            name,
            file,
            entries,
            layout4: Layout4::Bytes,
            routes: false,
            rules: false,
        };
        let layout = image.numbers("layout")?;
        let &[there, layout] = layout.as_slice() else {
            return Err(Fault::section("layout", "has not two numbers"));
        };
        if there > 3 {
            return Err(Fault::section(
                "layout",
                "says that there is what nobody knows",
            ));
        }
        (image.routes, image.rules) = (there & 1 != 0, there & 2 != 0);
        image.layout4 = match layout {
            0 => Layout4::Bytes,
            1 => Layout4::Mixed,
            2 => Layout4::Words,
            _ => return Err(Fault::section("layout", "names a layout that is none")),
        };
        Ok(image)
    }

    fn find(&self, name: &str) -> Option<&[u8]> {
        let entry = self.entries.iter().find(|entry| entry.name == name)?;
        self.file.get(entry.range.clone())
    }

    fn section(&self, name: &str) -> Result<&[u8], Fault> {
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

    fn read_routes(&self) -> Result<Routes, Fault> {
        let (hops4, hops6): (Vec<Target>, Vec<Target>) = (self.json("hops4")?, self.json("hops6")?);
        let v4 = record::read_routes(self.section("routes4")?, record::ROUTE4, hops4.len())
            .map_err(|what| Fault::section("routes4", what))?;
        let v6 = record::read_routes(self.section("routes6")?, record::ROUTE6, hops6.len())
            .map_err(|what| Fault::section("routes6", what))?;
        Ok(Routes {
            v4,
            v6,
            hops4,
            hops6,
        })
    }

    fn read_rules(&self) -> Result<RuleSet, Fault> {
        let text = self.section("texts")?;
        let wrong = |name: &'static str| move |what: &str| Fault::section(name, what);
        let origins = record::read_origins(self.section("origins")?, text);
        let origins = origins.map_err(wrong("origins"))?;
        let notes = record::read_notes(self.section("notes")?, text).map_err(wrong("notes"))?;
        let count = origins.len();
        let v4 = record::read_rules(self.section("rules4")?, record::RULE4, count);
        let v6 = record::read_rules(self.section("rules6")?, record::RULE6, count);
        let set = RuleSet {
            v4: v4.map_err(wrong("rules4"))?,
            v6: v6.map_err(wrong("rules6"))?,
            origins,
            notes,
        };
        set.fits()
            .map_err(|error| Fault::section("rules4 or rules6", &error.to_string()))?;
        Ok(set)
    }
}
