//! What a router takes from files: a table image, rules.

use super::Error;
use crate::config::{Config, Rules};
use crate::image::{ImageFile, ImageRoutes};
use crate::routes::Target;
use crate::rules::{self, NoteKind, RuleSet};

/// A table image, and its routes.
#[derive(Debug)]
pub(super) struct ImageTable {
    pub(super) image: ImageFile,
    pub(super) routes: ImageRoutes,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) table: Option<ImageTable>,
    pub(super) rules: RuleSet,
}

impl Files {
    pub(super) fn read(config: &Config) -> Result<Self, Error> {
        let table = config.table.as_deref().map(|file| {
            let image = ImageFile::open(file)?;
            let routes = image.routes()?;
            let routes = routes.ok_or_else(|| {
                let name = image.name();
                let what = format!("{name} has no routes: build it with --rib");
                Error::Unsupported(what)
            })?;
            forwardable(image.name(), &routes)?;
            Ok::<_, Error>(ImageTable { image, routes })
        });
        let table = table.transpose()?;
        let image = table.as_ref().map(|table| &table.image);
        let own = image.map(ImageFile::rules).transpose()?.flatten();
        let rules = match (own, &config.rules) {
            (Some(_), Some(rules)) => {
                let what = format!(
                    "the table image has rules, and {} has others: name one of both",
                    rules.file.display()
                );
                return Err(Error::Unsupported(what));
            }
            (Some(rules), None) => rules,
            (None, Some(rules)) => read(rules)?,
            (None, None) => RuleSet::default(),
        };
        Ok(Self { table, rules })
    }

    /// The name of the file that the rules come from.
    pub(super) fn of_rules(config: &Config) -> Option<String> {
        let rules = config.rules.as_ref().map(|rules| &rules.file);
        let file = rules.or(config.table.as_ref())?;
        Some(file.display().to_string())
    }
}

/// Next hops that say where packets go.
fn forwardable(name: &str, routes: &ImageRoutes) -> Result<(), Error> {
    let silent = |target: &&Target| {
        matches!(
            target,
            Target::Origin(_) | Target::Unspecified | Target::StandIn(_)
        )
    };
    let mut silent = routes.hops4.iter().chain(&routes.hops6).filter(silent);
    let Some(first) = silent.next() else {
        return Ok(());
    };
    Err(Error::Unsupported(format!(
        "{name}: {} of its next hops name neither gateway nor device, the first is {first}: build it of routes that do",
        silent.count() + 1
    )))
}

/// Reads and checks a rules file without using it.
pub(super) fn read(rules: &Rules) -> Result<RuleSet, Error> {
    let set = rules::open(&rules.file, &rules.options)?;
    let mut punted = set
        .notes
        .iter()
        .filter(|note| note.kind == NoteKind::Punted);
    match punted.next() {
        Some(first) if !rules.punt_unsupported => Err(Error::Unsupported(format!(
            "{}: no datapath can hold this: {}; set punt_unsupported to leave such packets to the kernel, or remove the rule",
            first.place.within(&rules.file.display().to_string()),
            first.what.trim_start_matches("left to the kernel for "),
        ))),
        _ => Ok(set),
    }
}
