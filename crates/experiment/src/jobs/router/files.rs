//! Tables, keys and answers of loads, written once for all engines.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::prefixes::{NEXT_HOPS, Prefixes};
use super::rules::Rules;
use super::tables::{Table, Traffic};
use crate::jobs::router::load::Load;
use crate::load::JobLoad;

/// One seed for all: arms and blocks differ in nothing else.
const SEED: u64 = 42;
/// Updates made for a trial, which takes them from the beginning when it is through.
const UPDATES: usize = 4 << 20;

/// The files that were written for the loads so far.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    tables: HashMap<String, TableFile>,
    keys: HashMap<String, KeyFiles>,
    /// The last table, which the keys of more than one load are made of.
    last: Option<(String, Content)>,
}

#[derive(Clone, Debug)]
pub(super) struct TableFile {
    pub(super) path: PathBuf,
    /// Where it comes from: a file, or `generated`.
    pub(super) source: String,
}

#[derive(Clone, Debug)]
pub(super) struct KeyFiles {
    pub(super) keys: PathBuf,
    pub(super) answers: PathBuf,
}

enum Content {
    Prefixes(Prefixes),
    Rules(Rules),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Prefixes(table) => write!(f, "{} prefixes", table.len()),
            Self::Rules(list) => write!(f, "{} rules", list.rules.len()),
        }
    }
}

/// A table's name among all loads of an experiment.
pub(super) fn table_key(load: &Load) -> String {
    let hops = load.next_hops.unwrap_or(NEXT_HOPS);
    format!("{:?} {hops} {:?}", load.table, load.file)
}

impl Files {
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            tables: HashMap::new(),
            keys: HashMap::new(),
            last: None,
        }
    }

    pub(super) fn table(&mut self, load: &Load) -> Result<TableFile> {
        let key = table_key(load);
        if let Some(found) = self.tables.get(&key) {
            return Ok(found.clone());
        }
        let path = self.folder.join(format!("table-{}", self.tables.len()));
        let (content, source) = self.content(load)?;
        let bytes = match &content {
            Content::Prefixes(table) => table.routes_file(),
            Content::Rules(list) => list.rules_file(),
        };
        std::fs::write(&path, bytes)?;
        let made = TableFile { path, source };
        self.tables.insert(key.clone(), made.clone());
        self.last = Some((key, content));
        Ok(made)
    }

    pub(super) fn keys(&mut self, load: &Load, traffic: Traffic) -> Result<KeyFiles> {
        let key = format!("{traffic} {}", table_key(load));
        if let Some(found) = self.keys.get(&key) {
            return Ok(found.clone());
        }
        let number = self.keys.len();
        let files = KeyFiles {
            keys: self.folder.join(format!("keys-{number}")),
            answers: self.folder.join(format!("answers-{number}")),
        };
        let (keys, answers) = match self.at_hand(load)? {
            Content::Prefixes(table) => {
                let most = if matches!(load.table, Some(Table::Ipv6(_))) {
                    1 << 21
                } else {
                    1 << 22
                };
                let count = (8 * table.len()).next_power_of_two().clamp(1 << 14, most);
                table.keys_files(&table.keys(traffic, count, SEED)?)
            }
            Content::Rules(list) => {
                let count = 64 * list.rules.len();
                let count = count.next_power_of_two().clamp(1 << 14, 1 << 18);
                list.keys_files(&list.keys(traffic, count, SEED)?)
            }
        };
        std::fs::write(&files.keys, keys)?;
        std::fs::write(&files.answers, answers)?;
        self.keys.insert(key, files.clone());
        Ok(files)
    }

    /// Announcements and withdrawals; rules come and go without a file.
    pub(super) fn updates(&mut self, load: &Load) -> Result<Option<PathBuf>> {
        let name = self.table(load)?.path.with_extension("updates");
        if name.exists() {
            return Ok(Some(name));
        }
        let hops = load.next_hops.unwrap_or(NEXT_HOPS);
        let Content::Prefixes(table) = self.at_hand(load)? else {
            return Ok(None);
        };
        let count = UPDATES.min(16 * table.len());
        let updates = table.churn(hops, count, SEED);
        std::fs::write(&name, table.updates_file(&updates))?;
        Ok(Some(name))
    }

    /// The load's table of prefixes.
    pub(super) fn prefixes(&mut self, load: &Load) -> Result<&Prefixes> {
        match self.at_hand(load)? {
            Content::Prefixes(table) => Ok(table),
            Content::Rules(_) => anyhow::bail!("a table of prefixes"),
        }
    }

    fn at_hand(&mut self, load: &Load) -> Result<&Content> {
        let key = table_key(load);
        if self.last.as_ref().is_none_or(|(last, _)| *last != key) {
            self.last = Some((key, self.content(load)?.0));
        }
        let (_, content) = self.last.as_ref().context("a table was just made")?;
        Ok(content)
    }

    /// The load's own file, else the corpus's where it has one of this size, else a generated table.
    fn content(&self, load: &Load) -> Result<(Content, String)> {
        let table = load.table.as_ref().context("a load without a table")?;
        let corpus = std::env::var_os("LOWROAD_CORPUS").map(PathBuf::from);
        match table {
            Table::Ipv4(count) | Table::Ipv6(count) => {
                let six = matches!(table, Table::Ipv6(_));
                let hops = load.next_hops.unwrap_or(NEXT_HOPS);
                let corpus = corpus.filter(|_| CORPUS_TABLE_LENS.contains(count));
                let corpus = corpus.map(|folder| folder.join("fib/prefixes.txt.gz"));
                let (table, source) = match load.file.clone().or(corpus) {
                    Some(path) => (Prefixes::read(&path, six, *count, hops)?, name(&path)),
                    None => (
                        Prefixes::generated(six, *count, hops, SEED),
                        generated(load),
                    ),
                };
                Ok((Content::Prefixes(table), source))
            }
            Table::Rules(list) => {
                let corpus = corpus.filter(|_| CORPUS_LISTS.contains(&list.name.as_str()));
                let (rules, source) = match (&load.file, corpus) {
                    (Some(path), _) => (Rules::read(path)?, name(path)),
                    (None, Some(corpus)) => {
                        let archive = corpus.join("rules/classbench.tar.xz");
                        let rules = Rules::corpus(&corpus, list, &self.folder)?;
                        (rules, name(&archive))
                    }
                    (None, None) => (Rules::generated(list.count, SEED), generated(load)),
                };
                Ok((Content::Rules(rules), source))
            }
        }
    }
}

/// The sizes of the corpus's two tables, and the names of its lists.
const CORPUS_TABLE_LENS: [usize; 2] = [901_899, 160_147];
const CORPUS_LISTS: [&str; 3] = ["acl1", "fw1", "ipc1"];

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn generated(load: &Load) -> String {
    tracing::info!("{}: a generated table", load.label());
    "generated".to_owned()
}
