//! `lowroad replicate keys`: certificates for `serve` and `receive`, and keys for signing.

use std::path::PathBuf;

use clap::Args;
use replicate::ship::Key;
use replicate::ship::tcp::{KeysError, Made, make};
use serde_json::json;

use crate::exit::{self, Failure};

#[derive(Debug, Args)]
pub(super) struct Keys {
    /// The folder to make them in, which has the authority's key: keep it where replicas are set up
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// A name or address by which replicas call the server; again for another
    #[arg(long, value_name = "HOST")]
    server: Vec<String>,
    /// A replica to make a certificate for; again for another
    #[arg(long, value_name = "NAME")]
    client: Vec<String>,
    /// How long certificates are valid
    #[arg(long, value_name = "NUMBER", default_value_t = 10,
          value_parser = clap::value_parser!(u16).range(1..=100))]
    years: u16,
    /// Also make sign.key, which `--key-file` takes at both ends of a broker
    #[arg(long)]
    sign: bool,
}

impl Keys {
    pub(super) fn run(&self, json: bool) -> Result<(), Failure> {
        let made = Made {
            server: self.server.clone(),
            clients: self.client.clone(),
            years: self.years,
        };
        let mut files = make(&self.folder, &made).map_err(|error| match error {
            KeysError::Name(_) | KeysError::Certificate { .. } => Failure::Input(error.to_string()),
            KeysError::Io { .. } => Failure::Failed(error.into()),
        })?;
        if self.sign {
            let path = self.folder.join("sign.key");
            Key::create(&path).map_err(|error| Failure::Failed(error.into()))?;
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
