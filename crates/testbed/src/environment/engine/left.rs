//! What dead makers left with engines: found by name, and removed where the engine's containers are processes of this
//! machine. Of another machine's owners nobody here knows which are alive.

use std::thread;
use std::time::{Duration, Instant};

use sys::owner::Owner;

use super::container::{self, Found};
use super::{ELSEWHERE, ENGINES, Engine, image};

/// An engine notices by then that a container has ended.
const NOTICED: Duration = Duration::from_secs(1);
/// Between looks whether it has.
const TICK: Duration = Duration::from_millis(20);

/// What dead makers left, removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Left {
    pub(crate) containers: usize,
    pub(crate) images: usize,
    /// Engines that do not answer, or are not known to be this machine's, and why: nothing of theirs was touched.
    pub(crate) silent: Vec<(&'static str, String)>,
}

/// Removes the containers and images of dead makers from every engine that is this machine's. `owner_of` tells whose a
/// container is by its name.
pub(crate) fn clean(owner_of: impl Fn(&str) -> Option<Owner>) -> Left {
    let mut left = Left::default();
    for engine in ENGINES.into_iter().filter(|engine| engine.is_installed()) {
        if let Err(why) = clean_of(engine, &owner_of, &mut left) {
            left.silent.push((engine.name, why));
        }
    }
    left
}

fn clean_of(
    engine: &'static Engine,
    owner_of: impl Fn(&str) -> Option<Owner>,
    left: &mut Left,
) -> Result<(), String> {
    let mut dead = engine.lines(&["ps", "--all", "--format", "{{.Names}}"])?;
    dead.retain(|name| owner_of(name).is_some_and(|owner| !owner.alive()));
    let containers = running_here(engine, &dead)?;
    let images = image::dead(engine)?;
    if !containers.iter().any(Found::runs) {
        // Nothing that is there tells where the engine is. One that is started does.
        let of_containers = containers.iter().map(|container| &container.image);
        if let Some(image) = of_containers.chain(&images).next() {
            container::try_image(engine, image)?;
        }
    }
    for container in &containers {
        container::remove(engine, &container.name);
    }
    left.containers += containers.len();
    left.images += image::remove(engine, &images);
    Ok(())
}

/// The containers of these names that are ours. Each of them that runs is a process of this machine.
fn running_here(engine: &Engine, names: &[String]) -> Result<Vec<Found>, String> {
    let until = Instant::now() + NOTICED;
    loop {
        let found = names.iter().map(|name| Found::of(engine, name));
        let found: Vec<Option<Found>> = found.collect::<Result<_, _>>()?;
        let found: Vec<Found> = found.into_iter().flatten().collect();
        if found.iter().all(|one| !one.runs() || one.is_here()) {
            return Ok(found);
        }
        if Instant::now() > until {
            return Err(ELSEWHERE.to_owned());
        }
        thread::sleep(TICK);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Mutex, Weak};

    use guest::{Frame, Kind, VERSION};
    use tempfile::TempDir;

    use super::*;

    /// An owner that cannot be alive, a container of its, and its image.
    const DEAD: &str = "4194303-100";
    const CONTAINER: &str = "lr-bed-4194303-100-docker-0";
    const IMAGE: &str = "lowroad-agent:4194303-100";

    /// Notes what it is asked, and answers with the files beside it.
    const PROGRAM: &str = r#"#!/bin/sh
cd "${0%/*}" || exit
echo "$*" >>asked
case "$1 $2" in
"ps "*) cat containers ;;
"images "*) cat images ;;
"image inspect") echo "[/netbench-agent hold-container]" ;;
"container inspect") cat container ;;
"inspect "*) cat process ;;
"run "*) cat hello && cat >/dev/null ;;
esac
"#;

    /// A client of an engine, whose containers' first process is always the same one.
    struct Fake {
        folder: TempDir,
        engine: &'static Engine,
    }

    impl Fake {
        fn new(containers: &str, images: &str, process: u32) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let client = folder.path().join("docker");
            let name: &'static str = client.display().to_string().leak();
            let engine = Box::leak(Box::new(Engine {
                name,
                container: "a docker container",
                version: "",
                bridge: "",
                run: &[],
                remedy: "",
                image: Mutex::new(Weak::new()),
            }));
            let fake = Self { folder, engine };
            let mut hello = Vec::new();
            let greeting = Frame::new(Kind::Hello, 0, VERSION.to_le_bytes());
            greeting.write(&mut hello).unwrap();
            fake.says("hello", &hello);
            fake.says("program", PROGRAM.as_bytes());
            fake.says("containers", containers.as_bytes());
            fake.says("images", images.as_bytes());
            fake.says("process", process.to_string().as_bytes());
            fake.runs(process, "hold-container");
            // A file that this process has open to write may not be run, nor by a child that another thread starts.
            let mut install = Command::new("sh");
            install.args(["-c", "cat program >docker && chmod 755 docker"]);
            let installed = install.current_dir(fake.folder.path()).status();
            assert!(installed.unwrap().success());
            fake
        }

        fn says(&self, file: &str, answer: &[u8]) {
            fs::write(self.folder.path().join(file), answer).unwrap();
        }

        /// Its containers have this first process, told this.
        fn runs(&self, process: u32, told: &str) {
            let state = format!("{process} sha256:12 /netbench-agent [{told}]");
            self.says("container", state.as_bytes());
        }

        fn clean(&self) -> Result<(usize, usize), String> {
            let mut left = Left::default();
            let owner_of = |name: &str| match name == CONTAINER {
                true => DEAD.parse().ok(),
                false => None,
            };
            clean_of(self.engine, owner_of, &mut left)?;
            Ok((left.containers, left.images))
        }

        /// What it was told to remove, and whether to start something.
        fn told(&self) -> (Vec<String>, bool) {
            let asked = fs::read_to_string(self.folder.path().join("asked")).unwrap();
            let removed = asked.lines().filter(|line| line.starts_with("rm"));
            let last = removed.filter_map(|line| line.split(' ').next_back());
            let last = last.map(str::to_owned).collect();
            (last, asked.lines().any(|line| line.starts_with("run ")))
        }
    }

    /// A process that is told what the first one of a container is, killed when dropped.
    struct Holder(Child);

    impl Holder {
        fn new() -> Self {
            let mut command = Command::new("sh");
            command.args(["-c", "read -r never", guest::HOLD]);
            Self(command.stdin(Stdio::piped()).spawn().unwrap())
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ended = self.0.kill().and_then(|()| self.0.wait());
        }
    }

    #[test]
    fn an_engine_whose_containers_are_not_here_keeps_what_it_has() {
        let images = format!("{IMAGE}\n");
        // A process of this machine, and none of a container.
        let elsewhere = std::process::id();
        let running = Fake::new(&format!("{CONTAINER}\n"), &images, elsewhere);
        assert_eq!(running.clean(), Err(ELSEWHERE.to_owned()));
        assert_eq!(running.told(), (Vec::new(), false));
        let image_alone = Fake::new("", &images, elsewhere);
        assert_eq!(image_alone.clean(), Err(ELSEWHERE.to_owned()));
        let (removed, started) = image_alone.told();
        assert!(started && removed.iter().all(|what| what != IMAGE));
        assert_eq!(removed.len(), 1, "what was started: {removed:?}");
    }

    #[test]
    fn a_container_of_a_dead_owner_that_runs_here_goes_with_its_image() {
        let holder = Holder::new();
        let fake = Fake::new(&format!("web\n{CONTAINER}\n"), IMAGE, holder.0.id());
        assert_eq!(fake.clean(), Ok((1, 1)));
        let removed = [CONTAINER, IMAGE].map(str::to_owned).to_vec();
        assert_eq!(fake.told(), (removed, false));
    }

    #[test]
    fn one_that_has_ended_and_an_image_alone_go_once_another_was_seen_here() {
        let holder = Holder::new();
        let ended = Fake::new(&format!("{CONTAINER}\n"), "", holder.0.id());
        ended.runs(0, "hold-container");
        assert_eq!(ended.clean(), Ok((1, 0)));
        assert!(ended.told().1 && ended.told().0.contains(&CONTAINER.to_owned()));
        let living = Owner::current();
        let images = format!(
            "localhost/{IMAGE}\nlowroad-agent:{living}\nlowroad-agent:2026-10\nlowroad-agent:1-2\n"
        );
        let image_alone = Fake::new("", &images, holder.0.id());
        assert_eq!(image_alone.clean(), Ok((0, 1)));
        let (removed, started) = image_alone.told();
        let of_images = removed.iter().filter(|what| what.contains("lowroad-agent"));
        let of_images: Vec<&String> = of_images.collect();
        assert!(started && of_images == [&format!("localhost/{IMAGE}")]);
    }

    #[test]
    fn what_only_has_such_a_name_stays() {
        let fake = Fake::new(
            &format!("{CONTAINER}\n"),
            "web:12-345\n",
            std::process::id(),
        );
        fake.runs(std::process::id(), "serve");
        assert_eq!(fake.clean(), Ok((0, 0)));
        assert_eq!(fake.told(), (Vec::new(), false));
    }
}
