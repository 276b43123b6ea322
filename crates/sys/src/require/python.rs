//! Python environments for tests, which hold what pip installs and nothing of the machine's.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Class, skip};

/// The interpreter of an environment with these packages (as `name==version`), made once in `folder`;
/// reports the skip, of this class, where that cannot be. Its other programs do not run: they name the
/// place where it was made.
pub fn python<S: AsRef<str>>(class: Class, folder: &Path, packages: &[S]) -> Option<PathBuf> {
    let packages: Vec<&str> = packages.iter().map(AsRef::as_ref).collect();
    let mut hasher = DefaultHasher::new();
    packages.hash(&mut hasher);
    let home = folder.join(format!("python-{:016x}", hasher.finish()));
    if !home.exists()
        && let Err(why) = create(&home, &packages)
    {
        let what = packages.join(", ");
        let why = format!("needs python3-venv and {what} from a package index: {why}");
        skip(class, &why);
        return None;
    }
    Some(home.join("bin/python"))
}

/// Under another name first: tests run at the same time, and find either nothing or all of it.
fn create(home: &Path, packages: &[&str]) -> Result<(), String> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let made = home.with_extension(format!("{}-{number}", std::process::id()));
    let mut environment = Command::new("python3");
    environment.args(["-m", "venv"]).arg(&made);
    let installed = run(&mut environment).and_then(|()| {
        let pip = ["-m", "pip", "install", "--quiet"];
        run(Command::new(made.join("bin/python"))
            .args(pip)
            .args(packages))
    });
    let moved = installed.and_then(|()| match fs::rename(&made, home) {
        // Where another test was faster, its one serves as well.
        Err(error) if !home.exists() => Err(error.to_string()),
        _ => Ok(()),
    });
    let _moved_away = fs::remove_dir_all(&made);
    moved
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr];
    Err(String::from_utf8_lossy(&said.concat()).into_owned())
}
