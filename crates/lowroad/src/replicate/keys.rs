//! `lowroad replicate keys`: creates certificates for `serve` and `receive`, and keys for signing.

use std::path::PathBuf;

use clap::Args;
use replicate::ship::Key;
use replicate::ship::tcp::{KeyFiles, make};
use serde_json::json;

use crate::exit::{self, Failure, OrFail as _};

#[derive(Debug, Args)]
pub(super) struct Keys {
    /// Folder for the files, which include the authority's key: keep it where replicas are set up
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name or address by which replicas reach the server; repeat it for more
    #[arg(long, value_name = "HOST")]
    server: Vec<String>,
    /// Make a certificate for this replica; repeat it for more
    #[arg(long, value_name = "NAME")]
    client: Vec<String>,
    /// Validity of the certificates, in years
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=100))]
    years: u16,
    /// Also make sign.key, for `--key-file` at both ends of a broker
    #[arg(long)]
    sign: bool,
}

impl Keys {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let made = KeyFiles {
            server: self.server.clone(),
            clients: self.client.clone(),
            years: self.years,
        };
        let mut files = make(&self.folder, &made)?;
        if self.sign {
            let path = self.folder.join("sign.key");
            Key::create(&path).or_fail()?;
            files.push(path);
        }
        let names: Vec<String> = files
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        if json {
            return exit::print(&format!("{}\n", json!({ "made": names })));
        }
        exit::print(
            &names
                .iter()
                .map(|name| format!("{name}\n"))
                .collect::<String>(),
        )
    }
}
