//! What a frame costs in the program, on request: printed, never judged.

use acl::{Key4, Rule4};
use lpm::{Layout4, Rib};
use router::forward::{Family, Forwarding, Plane};
use router::random::Random;
use router::rules::RuleSet;
use router::xdp::{Settings, Xdp};

use super::rig::{Space, hop, timed_run};
use super::routes::real;
use super::rules::{self, Wire};

const FRAMES: usize = 1 << 14;
const ROUNDS: usize = 7;

/// Rules, and the frames that meet them.
struct Case {
    name: String,
    rules: Vec<Rule4>,
    frames: Vec<Vec<u8>>,
}

impl Case {
    /// Nanoseconds of the mean frame, as the kernel measures each run.
    fn run(&self, xdp: &mut Xdp) -> f64 {
        let rules = RuleSet {
            v4: self.rules.clone(),
            ..RuleSet::default()
        };
        xdp.rules(&rules).unwrap();
        let pass = || self.frames.iter().map(|frame| timed_run(xdp, frame)).sum();
        let (_unmeasured, sum): (u64, u64) = (pass(), pass());
        sum as f64 / self.frames.len() as f64
    }
}

/// Those of destinations anywhere in the table, and those of each list's own trace, with its rules and without.
fn cases(v4: &Rib<u32>, folder: &std::path::Path) -> Vec<Case> {
    let case = |name: &str, rules: &[Rule4], keys: &[Key4]| Case {
        name: name.to_owned(),
        rules: rules.to_vec(),
        frames: keys.iter().take(FRAMES).map(u32::frame).collect(),
    };
    let prefixes: Vec<_> = v4.iter().collect();
    let mut random = Random::new(3);
    let mut anywhere = || {
        let (prefix, _) = prefixes[random.bits() as usize % prefixes.len()];
        let host = random.bits() as u32 & (prefix.last() - prefix.first());
        Key4::new(0xc633_6401, prefix.first() + host, (4000, 53), 17)
    };
    let anywhere: Vec<_> = (0..FRAMES).map(|_| anywhere()).collect();
    let arp = Case {
        frames: vec![super::frames::arp(); FRAMES],
        ..case("left to the kernel at once", &[], &[])
    };
    let mut cases = vec![arp, case("the full table", &[], &anywhere)];
    for name in ["acl1", "fw1", "ipc1"] {
        for size in ["1k", "10k", "100k"] {
            let (list, trace) = rules::read(folder, &format!("{name}_{size}"));
            let keys = rules::usable(trace);
            let name = format!("{name} {size}");
            cases.push(case(&format!("{name}, without the rules"), &[], &keys));
            cases.push(case(&name, &list, &keys));
        }
    }
    cases
}

#[test]
fn what_a_frame_costs() {
    if !sys::require::requested("prints what a frame costs in XDP") || !sys::require::root() {
        return;
    }
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let mut v4: Rib<u32> = real(&corpus, 200);
    let folder = rules::unpacked(&corpus);
    let cases = cases(&v4, folder.path());
    v4.insert("0.0.0.0/0".parse().unwrap(), hop(1));
    let space = Space::new();
    let settings = Settings {
        layout4: Layout4::Bytes,
        check_source: false,
        ..Settings::default()
    };
    let mut xdp = space.start(&settings, v4, Rib::new());
    let to = Forwarding::Neighbour(space.adjacency());
    for number in 1..=200 {
        space.next_hop(&mut xdp, Family::V4, number, &to);
    }
    let mut times = vec![Vec::new(); cases.len()];
    space.run(|| {
        for _ in 0..ROUNDS {
            for (case, times) in cases.iter().zip(&mut times) {
                times.push(case.run(&mut xdp));
            }
        }
    });
    for (case, mut times) in cases.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let (least, median, most) = (times[0], times[ROUNDS / 2], times[ROUNDS - 1]);
        eprintln!("{}: {median:.0} ns ({least:.0} to {most:.0})", case.name);
    }
}
