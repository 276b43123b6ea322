//! Completions and man pages, from the definition that parses the arguments.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Arguments;
use crate::completion_values;
use crate::exit::{self, Failure, OrFail as _};

pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    let mut definition = completion_values::with_names(Arguments::command());
    clap_complete::generate(shell, &mut definition, "lowroad", &mut script);
    exit::print(&String::from_utf8_lossy(&script))
}

/// One page for `lowroad` and one for each command below it.
pub(crate) fn man(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).context(folder.display().to_string())?;
    clap_mangen::generate_to(Arguments::command(), folder).context(folder.display().to_string())?;
    exit::print(&format!("man pages are in {}\n", folder.display()))
}
