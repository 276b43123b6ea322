//! The image that containers are made of: the agent, and nothing else. It is made here, and needs no registry.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sys::owner::Owner;

use super::cli::{Engine, answer};
use crate::agent::binary::{AGENT, agent};
use crate::error::Error;
use crate::pool::Pool;

/// Its tag is its maker's [`Owner`].
const REPOSITORY: &str = "lowroad-agent";

/// Images that stay while no container uses them.
pub(crate) static IMAGES: Pool<Arc<Image>> = Pool::new();

/// The images of this process, by engine.
static CACHE: Mutex<BTreeMap<&str, Weak<Image>>> = Mutex::new(BTreeMap::new());

/// An image of this process. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct Image {
    engine: &'static Engine,
    pub(super) tag: String,
}

impl Image {
    /// The one of this process, made where there is none.
    pub(super) fn of(engine: &'static Engine) -> Result<Arc<Self>, Error> {
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(image) = cache.get(engine.name).and_then(Weak::upgrade) {
            return Ok(image);
        }
        let image = Arc::new(Self::make(engine)?);
        cache.insert(engine.name, Arc::downgrade(&image));
        IMAGES.put(Arc::clone(&image));
        Ok(image)
    }

    fn make(engine: &'static Engine) -> Result<Self, Error> {
        let tag = format!("{REPOSITORY}:{}", Owner::current());
        let failed = |what: String| Error::Container {
            engine: engine.name,
            what: format!("making its image: {what}"),
        };
        let program = agent()?;
        let mut pack = Command::new("tar");
        pack.args(["--create", "--owner=0", "--group=0", "--mode=0755"]);
        pack.arg(format!("--transform=s,.*,{},", AGENT));
        pack.arg("--directory")
            .arg(program.parent().unwrap_or(&program));
        pack.args(program.file_name()).stdout(Stdio::piped());
        let mut pack = pack.spawn().map_err(|error| failed(error.to_string()))?;
        let entry = format!("ENTRYPOINT [\"/{}\", \"{}\"]", AGENT, guest::HOLD);
        let mut import = engine.command(&["import", "--change", &entry, "-", &tag]);
        if let Some(packed) = pack.stdout.take() {
            import.stdin(packed);
        }
        let imported = answer(import);
        let packed = pack.wait().map_err(|error| failed(error.to_string()))?;
        imported.map_err(failed)?;
        // From here on it is removed whatever happens.
        let image = Self { engine, tag };
        match packed.success() {
            true => Ok(image),
            false => Err(failed(format!("tar: {packed}"))),
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let Err(why) = self.engine.ask(&["rmi", "--force", &self.tag]) {
            tracing::warn!("{}: {why}", self.tag);
        }
    }
}

/// The images of dead makers.
pub(super) fn dead(engine: &Engine) -> Result<Vec<String>, String> {
    let mut images = engine.lines(&["images", "--format", "{{.Repository}}:{{.Tag}}"])?;
    let dead = |image: &str| owner_of(image).is_some_and(|owner| !owner.alive());
    images.retain(|image| dead(image) && is_agent(engine, image));
    Ok(images)
}

fn owner_of(image: &str) -> Option<Owner> {
    // Some say that an image without a registry is of this machine.
    let image = image.strip_prefix("localhost/").unwrap_or(image);
    let tag = image.strip_prefix(REPOSITORY)?.strip_prefix(':')?;
    tag.parse().ok()
}

/// Whether an image runs the agent to hold a container: other images may have a similar name.
fn is_agent(engine: &Engine, image: &str) -> bool {
    let format = "{{.Config.Entrypoint}}";
    let said = engine.ask(&["image", "inspect", "--format", format, image]);
    said.is_ok_and(|entry| entry.contains(guest::HOLD))
}

/// Removes images, and returns how many there were.
pub(super) fn remove(engine: &Engine, images: &[String]) -> usize {
    let removed = images
        .iter()
        .filter(|image| engine.ask(&["rmi", "--force", image]).is_ok());
    removed.count()
}
