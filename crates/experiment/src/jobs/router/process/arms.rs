//! The arms of `process`: who decides about packets, and how these come and go.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::thread;

use datapath::Missing;
use serde::Deserialize;

use crate::program::Lowroad;

/// Every arm there is.
pub(in crate::jobs::router) const ARMS: [&str; 22] = [
    "cpu",
    "cpu-2",
    "cpu-4",
    "cpu-8",
    "cpu-all",
    "cpu-memory",
    "cpu-2-memory",
    "cpu-4-memory",
    "cpu-8-memory",
    "cpu-all-memory",
    "opencl-naive",
    "opencl-headers",
    "opencl-mapped",
    "opencl-memory",
    "cuda-naive",
    "cuda-headers",
    "cuda-mapped",
    "cuda-memory",
    "opencl-cpu-naive",
    "opencl-cpu-headers",
    "opencl-cpu-mapped",
    "opencl-cpu-memory",
];

/// The arguments of `lowroad router process`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arm {
    pub(super) processor: Processor,
    /// Whether packets come from memory and go nowhere; else they come and go by sockets.
    pub(super) memory: bool,
}

/// The processors that decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Processor {
    /// So many threads; all CPUs have one where it is none.
    Threads(Option<usize>),
    Device {
        kind: Kind,
        stage: Stage,
    },
}

/// The kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A GPU by OpenCL, and by CUDA.
    OpenCl,
    Cuda,
    /// This machine's own processor by OpenCL: nothing that it takes is a GPU's.
    OpenClCpu,
}

/// How batches get to the device: each stage is the one before with one thing less to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Whole frames, by memory that the driver copies once more.
    Naive,
    /// Only what is looked up.
    Headers,
    /// In memory that the device reads and writes where it is.
    Mapped,
}

impl Stage {
    pub(super) fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Naive => ["--gpu-copy", "full", "--gpu-mem", "pageable"],
            Self::Headers => ["--gpu-copy", "headers", "--gpu-mem", "pageable"],
            Self::Mapped => ["--gpu-copy", "headers", "--gpu-mem", "mapped"],
        }
    }
}

/// The arm of this name.
pub(super) fn find(name: &str) -> Option<Arm> {
    let known = ARMS.contains(&name).then_some(name)?;
    let (who, memory) = match known.strip_suffix("-memory") {
        Some(who) => (who, true),
        None => (known, false),
    };
    if let Some(threads) = who.strip_prefix("cpu") {
        let threads = match threads {
            "" => Some(1),
            "-all" => None,
            count => count[1..].parse().ok(),
        };
        let processor = Processor::Threads(threads);
        return Some(Arm { processor, memory });
    }
    let (kind, stage) = match memory {
        true => (who, "mapped"),
        false => who.rsplit_once('-')?,
    };
    let kind = match kind {
        "opencl" => Kind::OpenCl,
        "cuda" => Kind::Cuda,
        _ => Kind::OpenClCpu,
    };
    let stage = match stage {
        "naive" => Stage::Naive,
        "headers" => Stage::Headers,
        _ => Stage::Mapped,
    };
    let processor = Processor::Device { kind, stage };
    Some(Arm { processor, memory })
}

impl Arm {
    /// Whether this machine can run it.
    pub(super) fn check(self) -> Result<(), Missing> {
        match self.processor {
            Processor::Threads(threads) => check_threads(threads, cpus()),
            Processor::Device { kind, .. } => device(devices()?, kind).map(drop),
        }
    }
}

/// CPUs that this process may use.
pub(super) fn cpus() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

fn check_threads(threads: Option<usize>, cpus: usize) -> Result<(), Missing> {
    let has = match cpus {
        1 => "this machine has one CPU".to_owned(),
        cpus => format!("this machine has {cpus} CPUs"),
    };
    match threads {
        None if cpus == 1 => Err(Missing::new(has, "cpu is all of it")),
        Some(threads) if threads > 1 && threads >= cpus => {
            Err(Missing::new(has, "cpu-all has all of them"))
        }
        _ => Ok(()),
    }
}

/// The output of `lowroad router devices`.
#[derive(Debug, Deserialize)]
pub(super) struct Devices {
    backends: Vec<Backend>,
}

#[derive(Debug, Deserialize)]
struct Backend {
    backend: String,
    devices: Vec<Device>,
    missing: Option<Missing>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) kind: String,
    pub(super) driver: String,
}

/// The devices of this machine, which are listed once.
pub(super) fn devices() -> Result<&'static Devices, Missing> {
    static DEVICES: OnceLock<Result<Devices, Missing>> = OnceLock::new();
    DEVICES.get_or_init(ask).as_ref().map_err(Clone::clone)
}

fn ask() -> Result<Devices, Missing> {
    let silent = |what: String| Missing::new(what, "put lowroad beside this program or in PATH");
    let told = Lowroad::own()
        .command(&["router", "devices", "--json"])
        .output();
    let told = told.map_err(|error| silent(format!("lowroad router devices: {error}")))?;
    serde_json::from_slice(&told.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&told.stderr);
        silent(format!("lowroad router devices: {}", said.trim()))
    })
}

/// The first device of a kind.
pub(super) fn device(found: &Devices, kind: Kind) -> Result<&Device, Missing> {
    let (backend, wanted) = match kind {
        Kind::OpenCl => ("opencl", "GPU"),
        Kind::Cuda => ("cuda", "GPU"),
        Kind::OpenClCpu => ("opencl", "CPU"),
    };
    let of = |backend: &str| found.backends.iter().find(|at| at.backend == backend);
    let devices = of(backend).into_iter().flat_map(|at| &at.devices);
    let mut devices = devices.filter(|device| device.kind == wanted);
    if let Some(device) = devices.next() {
        return Ok(device);
    }
    let all = || found.backends.iter().flat_map(|at| &at.devices);
    // Both back ends say the same of a machine without a GPU, so that it is said once.
    let nowhere = wanted == "GPU" && !all().any(|device| device.kind == wanted);
    let asked = found.backends.iter();
    let why: Vec<_> = asked
        .filter(|at| nowhere || at.backend == backend)
        .map(|at| why(at, wanted))
        .collect();
    let what = match wanted {
        "GPU" if nowhere => "no GPU is here",
        "GPU" => "no GPU is reached by it",
        _ => "no device of OpenCL here is a CPU",
    };
    Err(Missing::new(
        format!("{what} ({})", why.join("; ")),
        "lowroad router devices lists what there is, docs/src/router-gpu.md what each needs",
    ))
}

fn why(backend: &Backend, wanted: &str) -> String {
    let name = &backend.backend;
    let others = backend.devices.iter();
    let others: Vec<_> = others
        .filter(|device| device.kind != wanted)
        .map(|device| format!("{} is a {}", device.name, device.kind))
        .collect();
    match &backend.missing {
        Some(missing) => format!("{name}: {}", missing.what),
        None if others.is_empty() => format!("{name}: no device"),
        None => others.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(opencl: &[(&str, &str)], cuda: &[(&str, &str)]) -> Devices {
        let backend = |backend: &str, devices: &[(&str, &str)]| Backend {
            backend: backend.to_owned(),
            devices: devices
                .iter()
                .map(|(name, kind)| Device {
                    name: (*name).to_owned(),
                    model: "model".to_owned(),
                    kind: (*kind).to_owned(),
                    driver: "driver".to_owned(),
                })
                .collect(),
            missing: devices
                .is_empty()
                .then(|| Missing::new(format!("there is no {backend} library"), "install it")),
        };
        Devices {
            backends: vec![backend("opencl", opencl), backend("cuda", cuda)],
        }
    }

    #[test]
    fn every_arm_is_what_its_name_says() {
        for name in ARMS {
            let arm = find(name).unwrap();
            assert_eq!(arm.memory, name.ends_with("-memory"), "{name}");
            assert_eq!(
                matches!(arm.processor, Processor::Threads(_)),
                name.starts_with("cpu"),
                "{name}"
            );
        }
        let by = |name: &str| find(name).unwrap().processor;
        assert_eq!(by("cpu"), Processor::Threads(Some(1)));
        assert_eq!(by("cpu-8-memory"), Processor::Threads(Some(8)));
        assert_eq!(by("cpu-all"), Processor::Threads(None));
        let device = |kind, stage| Processor::Device { kind, stage };
        assert_eq!(
            by("opencl-cpu-naive"),
            device(Kind::OpenClCpu, Stage::Naive)
        );
        assert_eq!(by("cuda-memory"), device(Kind::Cuda, Stage::Mapped));
        assert_eq!(by("opencl-headers"), device(Kind::OpenCl, Stage::Headers));
        assert_eq!(find("opencl"), None);
    }

    #[test]
    fn a_cpu_is_never_taken_for_a_gpu() {
        let pocl = found(&[("opencl:0", "CPU")], &[]);
        let kinds = [Kind::OpenCl, Kind::Cuda];
        let said = kinds.map(|kind| device(&pocl, kind).unwrap_err().to_string());
        assert_eq!(said[0], said[1], "one line for both");
        assert!(said[0].contains("no GPU is here (opencl:0 is a CPU; cuda: there is no"));
        assert_eq!(device(&pocl, Kind::OpenClCpu).unwrap().name, "opencl:0");
        let both = found(&[("opencl:0", "CPU"), ("opencl:1", "GPU")], &[]);
        assert_eq!(device(&both, Kind::OpenCl).unwrap().name, "opencl:1");
        let missing = device(&both, Kind::Cuda).unwrap_err().to_string();
        assert!(
            missing.starts_with("no GPU is reached by it (cuda: "),
            "{missing}"
        );
        let none = device(&found(&[], &[]), Kind::OpenClCpu).unwrap_err();
        assert!(
            none.to_string()
                .contains("opencl: there is no opencl library")
        );
    }

    #[test]
    fn threads_are_fewer_than_all() {
        assert!(check_threads(Some(2), 2).is_err() && check_threads(Some(2), 3).is_ok());
        assert!(check_threads(None, 1).is_err() && check_threads(None, 2).is_ok());
        assert!(check_threads(Some(1), 1).is_ok());
    }
}
