//! Containers and images of dead makers: found by name, and removed where the engine's containers are processes of
//! this machine. Which owners are alive on another machine is not known here.

use std::thread;
use std::time::{Duration, Instant};

use sys::owner::Owner;

use super::cli::{ELSEWHERE, Engine};
use super::container::{self, Inspection};
use super::image;
use crate::environment::{docker, podman};

const ENGINES: [&Engine; 2] = [&docker::ENGINE, &podman::ENGINE];
/// How long an engine may take to notice that a container has ended.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(1);
/// Between polls of the engine.
const TICK: Duration = Duration::from_millis(20);

/// Counts of what was removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct OrphanReport {
    pub(crate) containers: usize,
    pub(crate) images: usize,
    /// Engines that do not answer, or are not known to be this machine's, and why: nothing of theirs was touched.
    pub(crate) silent: Vec<(&'static str, String)>,
}

/// Removes the containers and images of dead makers from every engine that is this machine's. `owner_of` tells whose a
/// container is by its name.
pub(crate) fn remove(owner_of: impl Fn(&str) -> Option<Owner>) -> OrphanReport {
    let mut report = OrphanReport::default();
    for engine in ENGINES.into_iter().filter(|engine| engine.is_installed()) {
        if let Err(why) = remove_from(engine, &owner_of, &mut report) {
            report.silent.push((engine.name, why));
        }
    }
    report
}

fn remove_from(
    engine: &'static Engine,
    owner_of: impl Fn(&str) -> Option<Owner>,
    report: &mut OrphanReport,
) -> Result<(), String> {
    let mut dead = engine.lines(&["ps", "--all", "--format", "{{.Names}}"])?;
    dead.retain(|name| owner_of(name).is_some_and(|owner| !owner.alive()));
    let containers = running_here(engine, &dead)?;
    let images = image::dead(engine)?;
    if !containers.iter().any(Inspection::runs) {
        // Nothing that is there tells where the engine is. One that is started does.
        let of_containers = containers.iter().map(|container| &container.image);
        if let Some(image) = of_containers.chain(&images).next() {
            container::try_image(engine, image)?;
        }
    }
    for container in &containers {
        container::remove(engine, &container.name);
    }
    report.containers += containers.len();
    report.images += image::remove(engine, &images);
    Ok(())
}

/// The containers of these names that are ours. Each of them that runs is a process of this machine.
fn running_here(engine: &Engine, names: &[String]) -> Result<Vec<Inspection>, String> {
    let until = Instant::now() + NOTICE_TIMEOUT;
    loop {
        let found = names.iter().map(|name| Inspection::of(engine, name));
        let found: Vec<Option<Inspection>> = found.collect::<Result<_, _>>()?;
        let found: Vec<Inspection> = found.into_iter().flatten().collect();
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

    use guest::{Frame, Kind, VERSION};
    use tempfile::TempDir;

    use super::*;

    /// An owner that cannot be alive, a container of its, and its image.
    const DEAD: &str = "4194303-100";
    const CONTAINER: &str = "lr-bed-4194303-100-docker-0";
    const IMAGE: &str = "lowroad-agent:4194303-100";

    /// Logs its arguments, and answers with the files beside it.
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
    struct FakeEngine {
        folder: TempDir,
        engine: &'static Engine,
    }

    impl FakeEngine {
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

        /// Sets the first process of its containers, and the arguments of that.
        fn runs(&self, process: u32, requests: &str) {
            let state = format!("{process} sha256:12 /netbench-agent [{requests}]");
            self.says("container", state.as_bytes());
        }

        fn clean(&self) -> Result<(usize, usize), String> {
            let mut report = OrphanReport::default();
            let owner_of = |name: &str| match name == CONTAINER {
                true => DEAD.parse().ok(),
                false => None,
            };
            remove_from(self.engine, owner_of, &mut report)?;
            Ok((report.containers, report.images))
        }

        /// The names that it was asked to remove, and whether it was asked to start a container.
        fn requests(&self) -> (Vec<String>, bool) {
            let asked = fs::read_to_string(self.folder.path().join("asked")).unwrap();
            let removed = asked.lines().filter(|line| line.starts_with("rm"));
            let last = removed.filter_map(|line| line.split(' ').next_back());
            let last = last.map(str::to_owned).collect();
            (last, asked.lines().any(|line| line.starts_with("run ")))
        }
    }

    /// A process with the arguments of a container's first process, killed when dropped.
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
    fn remote_engine_is_left_alone() {
        let images = format!("{IMAGE}\n");
        // A process of this machine, and none of a container.
        let elsewhere = std::process::id();
        let running = FakeEngine::new(&format!("{CONTAINER}\n"), &images, elsewhere);
        assert_eq!(running.clean(), Err(ELSEWHERE.to_owned()));
        assert_eq!(running.requests(), (Vec::new(), false));
        let image_alone = FakeEngine::new("", &images, elsewhere);
        assert_eq!(image_alone.clean(), Err(ELSEWHERE.to_owned()));
        let (removed, started) = image_alone.requests();
        assert!(started && removed.iter().all(|what| what != IMAGE));
        assert_eq!(removed.len(), 1, "what was started: {removed:?}");
    }

    #[test]
    fn dead_owners_container_and_image_are_removed() {
        let holder = Holder::new();
        let fake = FakeEngine::new(&format!("web\n{CONTAINER}\n"), IMAGE, holder.0.id());
        assert_eq!(fake.clean(), Ok((1, 1)));
        let removed = [CONTAINER, IMAGE].map(str::to_owned).to_vec();
        assert_eq!(fake.requests(), (removed, false));
    }

    #[test]
    fn ended_container_goes_if_engine_is_local() {
        let holder = Holder::new();
        let ended = FakeEngine::new(&format!("{CONTAINER}\n"), "", holder.0.id());
        ended.runs(0, "hold-container");
        assert_eq!(ended.clean(), Ok((1, 0)));
        assert!(ended.requests().1 && ended.requests().0.contains(&CONTAINER.to_owned()));
        let living = Owner::current();
        let images = format!(
            "localhost/{IMAGE}\nlowroad-agent:{living}\nlowroad-agent:2026-10\nlowroad-agent:1-2\n"
        );
        let image_alone = FakeEngine::new("", &images, holder.0.id());
        assert_eq!(image_alone.clean(), Ok((0, 1)));
        let (removed, started) = image_alone.requests();
        let of_images = removed.iter().filter(|what| what.contains("lowroad-agent"));
        let of_images: Vec<&String> = of_images.collect();
        assert!(started && of_images == [&format!("localhost/{IMAGE}")]);
    }

    #[test]
    fn name_alone_is_not_enough() {
        let fake = FakeEngine::new(
            &format!("{CONTAINER}\n"),
            "web:12-345\n",
            std::process::id(),
        );
        fake.runs(std::process::id(), "serve");
        assert_eq!(fake.clean(), Ok((0, 0)));
        assert_eq!(fake.requests(), (Vec::new(), false));
    }
}
