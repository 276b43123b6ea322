//! The tables of `iptables-legacy`, which nftables does not know. The kernel lists their names but not their rules.

use std::fs;

use super::nftables::{Hook, Verdict};

/// The tables of a network namespace, by IP version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LegacyTables {
    v4: Vec<String>,
    v6: Vec<String>,
}

impl LegacyTables {
    /// Those of the calling thread's namespace.
    pub(crate) fn read() -> Self {
        let names = |file: &str| {
            let text = fs::read_to_string(format!("/proc/thread-self/net/{file}"));
            // A kernel without the module has no file.
            let mut names: Vec<String> = text
                .unwrap_or_default()
                .lines()
                .map(str::to_owned)
                .collect();
            names.sort();
            names
        };
        Self {
            v4: names("ip_tables_names"),
            v6: names("ip6_tables_names"),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// What the tables do at a hook with packets of an IP version: that is unknown, whatever their rules are.
    pub(crate) fn at(&self, hook: Hook, v4: bool) -> Verdict {
        let tables = if v4 { &self.v4 } else { &self.v6 };
        match tables.iter().find(|table| is_attached(table, hook)) {
            Some(table) => {
                let program = if v4 {
                    "iptables-legacy"
                } else {
                    "ip6tables-legacy"
                };
                Verdict::Kernel(format!("the table {table} of {program}"))
            }
            None => Verdict::Accept,
        }
    }
}

/// Whether a table has a chain at a hook.
fn is_attached(table: &str, hook: Hook) -> bool {
    match hook {
        Hook::Ingress | Hook::Egress => false,
        Hook::Prerouting => matches!(table, "raw" | "mangle" | "nat"),
        Hook::Input => matches!(table, "mangle" | "nat" | "filter" | "security"),
        Hook::Forward => matches!(table, "mangle" | "filter" | "security"),
        Hook::Output => true,
        Hook::Postrouting => matches!(table, "mangle" | "nat"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_counts_at_its_hooks_and_for_its_ip_version() {
        let tables = LegacyTables {
            v4: vec!["nat".to_owned()],
            v6: Vec::new(),
        };
        assert_eq!(tables.at(Hook::Forward, true), Verdict::Accept);
        assert_eq!(tables.at(Hook::Postrouting, false), Verdict::Accept);
        let reason = "the table nat of iptables-legacy".to_owned();
        assert_eq!(tables.at(Hook::Postrouting, true), Verdict::Kernel(reason));
    }
}
