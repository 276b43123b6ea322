//! Hosts and links as a file has them: their own keys, and all others are settings.

use serde::Deserialize;

use super::{HostSpec, LinkKind, LinkSpec, Subnet};
use crate::impairment::Impairment;

/// Keys of a link that are not [`LinkSettings`].
const LINK_KEYS: &[&str] = &["ends", "kind", "v4", "v6", "nics", "publish", "impairment"];

/// The keys of a host that are not settings. (Serde cannot both flatten and refuse unknown keys.)
#[derive(Deserialize)]
struct HostKeys {
    env: String,
    #[serde(default)]
    cpus: Vec<usize>,
    #[serde(default)]
    capabilities: Vec<String>,
    #[serde(default, rename = "huge-pages")]
    huge_pages: bool,
}

#[derive(Deserialize)]
struct LinkKeys {
    ends: Vec<String>,
    kind: LinkKind,
    #[serde(default)]
    v4: Option<Subnet>,
    #[serde(default)]
    v6: Option<Subnet>,
    #[serde(default)]
    nics: Vec<String>,
    #[serde(default)]
    publish: Vec<u16>,
    #[serde(default)]
    impairment: Option<Impairment>,
}

impl TryFrom<toml::Table> for HostSpec {
    type Error = toml::de::Error;

    fn try_from(table: toml::Table) -> Result<Self, toml::de::Error> {
        let (keys, settings) = split(table, &["env", "cpus", "capabilities", "huge-pages"]);
        let keys: HostKeys = keys.try_into()?;
        Ok(Self {
            env: keys.env,
            cpus: keys.cpus,
            capabilities: keys.capabilities,
            huge_pages: keys.huge_pages,
            settings: settings.try_into()?,
        })
    }
}

impl TryFrom<toml::Table> for LinkSpec {
    type Error = toml::de::Error;

    fn try_from(table: toml::Table) -> Result<Self, toml::de::Error> {
        let (keys, settings) = split(table, LINK_KEYS);
        let keys: LinkKeys = keys.try_into()?;
        Ok(Self {
            ends: keys.ends,
            kind: keys.kind,
            v4: keys.v4,
            v6: keys.v6,
            nics: keys.nics,
            publish: keys.publish,
            impairment: keys.impairment,
            settings: settings.try_into()?,
        })
    }
}

fn split(table: toml::Table, keys: &[&str]) -> (toml::Table, toml::Table) {
    table
        .into_iter()
        .partition(|(key, _)| keys.contains(&key.as_str()))
}
