//! The kernels on this machine's own processor, compiled by its C compiler: what they decide is then the
//! source's affair, and no driver's.

use std::fs;
use std::process::Command;

use acl::arena::{Arena, CHUNK};
use acl::generate::Kind;
use acl::{Address, Rule};
use libloading::Library;
use lpm::Layout4;

use super::host_tables::HostTables;
use super::input::write;
use super::source::COMBINE;
use super::steps::Form;
use super::{KERNELS, SOURCE, Width, width};
use crate::cpu::{self, Tables};
use crate::engine::{Answers, Contents, Decision, Engine, Function, Headers, Processor};
use crate::frames::{Frames, Mix};
use crate::rules::RuleSet;
use crate::shape::Shape;
use crate::traffic::Pattern;

#[path = "../../tests/it/gpu/data.rs"]
mod data;

/// A kernel's parameters: input, where in it, output, where in it, how many, of what; then its tables.
type Kernel =
    unsafe extern "C" fn(*const u8, u32, *mut u32, u32, u32, u32, *mut u8, *mut u8, *mut u8);
type Combine = unsafe extern "C" fn(*const u32, u32, *mut u32, u32);
type Narrow = unsafe extern "C" fn(*const u32, u32, *mut u32, u32);

/// The compiled source.
struct Native(Library);

impl Native {
    fn build() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (source, library) = (
            folder.path().join("kernels.c"),
            folder.path().join("kernels.so"),
        );
        // Each work item in its turn.
        let turns = |name: &&str| {
            let tables = match &name[..3] {
                "lpm" => ", a",
                "acl" => ", a, (u32 *)b",
                _ => ", a, (u32 *)b, c",
            };
            format!(
                "void all_{name}(const u8 *input, u32 at, u32 *output, u32 to, u32 count, u32 form, u8 *a, u8 *b, u8 *c)\n\
                 {{ for (item = 0; item < count + 3; item++) {name}(input, at, output, to, count, form{tables}); }}\n"
            )
        };
        let mut all: String = KERNELS[..COMBINE].iter().map(turns).collect();
        all += "void all_combine(const u32 *parts, u32 apart, u32 *output, u32 count)\n\
                { for (item = 0; item < count + 3; item++) combine(parts, apart, output, count); }\n\
                void all_narrow(const u32 *decisions, u32 count, u32 *output, u32 bits)\n\
                { for (item = 0; item < count + 3; item++) narrow(decisions, count, output, bits); }\n";
        fs::write(&source, format!("{SOURCE}\n_Thread_local u32 item;\n{all}")).unwrap();
        let compiled = Command::new("cc")
            .args([
                "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
            ])
            .args([
                "-Wno-unused-parameter",
                "-fsanitize=undefined",
                "-fno-sanitize=alignment",
            ])
            .args(["-fsanitize-undefined-trap-on-error", "-o"])
            .args([&library, &source])
            .status();
        assert!(compiled.unwrap().success(), "cc compiles the kernels");
        // SAFETY: it runs nothing when it is loaded.
        Self(unsafe { Library::new(library) }.unwrap())
    }

    /// Decisions about keys.
    fn run(
        &self,
        name: &str,
        (input, form): (&[u8], Form),
        count: usize,
        tables: [&mut [u8]; 3],
    ) -> Vec<u32> {
        let mut decisions = vec![u32::MAX; count + 1];
        let [a, b, c] = tables.map(<[u8]>::as_mut_ptr);
        let (count, form, input) = (u32::try_from(count).unwrap(), form as u32, input.as_ptr());
        // SAFETY: the function that `build` wrote, and as many keys and decisions as it is told.
        unsafe {
            let kernel = self.0.get::<Kernel>(format!("all_{name}")).unwrap();
            kernel(input, 0, decisions.as_mut_ptr(), 0, count, form, a, b, c);
        }
        assert_eq!(decisions.pop(), Some(u32::MAX), "nothing beyond the keys");
        decisions
    }

    /// Decisions of one function joined with those of the other.
    fn combine(&self, routes: &[u32], rules: &[u32]) -> Vec<u32> {
        let (parts, count) = (
            [routes, rules].concat(),
            u32::try_from(routes.len()).unwrap(),
        );
        let mut all = vec![u32::MAX; routes.len() + 1];
        // SAFETY: the function that `build` wrote, and as many decisions as it is told.
        unsafe {
            let combine = self.0.get::<Combine>("all_combine").unwrap();
            combine(parts.as_ptr(), count, all.as_mut_ptr(), count);
        }
        assert_eq!(all.pop(), Some(u32::MAX), "nothing beyond the decisions");
        all
    }

    /// Decisions cut to so many bits, and read again.
    fn narrow(&self, decisions: &[u32], bits: u32) -> Vec<Decision> {
        let words = width::bytes(decisions.len(), bits) / size_of::<u32>();
        let mut cut = vec![u32::MAX; words + 1];
        // SAFETY: the function that `build` wrote, and as many words as decisions take.
        unsafe {
            let narrow = self.0.get::<Narrow>("all_narrow").unwrap();
            let count = u32::try_from(decisions.len()).unwrap();
            narrow(decisions.as_ptr(), count, cut.as_mut_ptr(), bits);
        }
        assert_eq!(cut.pop(), Some(u32::MAX), "nothing beyond the words");
        let bytes: Vec<u8> = cut.iter().flat_map(|word| word.to_le_bytes()).collect();
        let decision = width::decisions(&bytes, bits);
        (0..decisions.len()).map(decision).collect()
    }
}

fn read(decisions: &[u32]) -> Vec<Decision> {
    decisions.iter().copied().map(Decision::from_bits).collect()
}

fn arena<A: Address>(rules: &[Rule<A>]) -> Vec<u8> {
    if rules.is_empty() {
        return vec![0; CHUNK];
    }
    let arena = Arena::build(rules, acl::Options::default(), 0).unwrap();
    arena.bytes().to_vec()
}

/// The keys of frames, drawn from routes and from rules.
fn headers(contents: &Contents, function: Function, packets: usize) -> Headers {
    let mut headers = Headers::new(function, 2 * packets);
    for pattern in [Some(Pattern::PerPrefix), None] {
        let mix = Mix {
            pattern,
            packets,
            ipv6: 40,
            length: 70,
            seed: 7,
        };
        let frames = Frames::generate(contents, &mix);
        (0..frames.len()).for_each(|at| headers.push(frames.get(at)));
    }
    headers
}

/// What CPU tables decide is what the kernels decide, and each decision by rules is counted.
fn agree(native: &Native, contents: &Contents, layout4: Layout4, packets: usize) {
    let options = cpu::Options {
        layout4,
        ..cpu::Options::default()
    };
    let tables = Tables::setup(contents.clone(), &options).unwrap();
    let shape = Shape::of(layout4, 2, &contents.v4, &contents.v6).unwrap();
    let routes = (contents.v4.clone(), contents.v6.clone());
    let original = HostTables::build(&shape, routes, None).unwrap();
    let (mut routes, rules) = (original.bytes().to_vec(), &contents.rules);
    let mut arenas = [arena(&rules.v4), arena(&rules.v6)];
    for function in Function::ALL {
        let headers = headers(contents, function, packets);
        let mut wanted = Answers::default();
        let mut lookup = tables.processor(function).unwrap();
        let Ok(()) = lookup.process_batch(&headers, &mut wanted);
        let (v4, v6) = headers.keyed();
        let mut inputs = [vec![0; 16 * v4], vec![0; 40 * v6]];
        if function.filters() {
            write(&headers.keys4, &mut inputs[0]);
            write(&headers.keys6, &mut inputs[1]);
        } else {
            inputs = [
                headers.destinations4.as_flattened().to_vec(),
                headers.destinations6.as_flattened().to_vec(),
            ];
        }
        let lists = [rules.v4.len(), rules.v6.len()];
        let families = [(v4, &wanted.v4), (v6, &wanted.v6)];
        for (family, (count, wanted)) in families.into_iter().enumerate() {
            let name = KERNELS[2 * function as usize + family];
            let mut matches = vec![0; 4 * (lists[family] + 1)];
            let mut none = [];
            let given = if function.filters() {
                [&mut arenas[family][..], &mut matches, &mut routes]
            } else {
                [&mut routes[..], &mut matches, &mut none]
            };
            let form = if function.filters() {
                Form::Keys
            } else {
                Form::Addresses
            };
            let got = native.run(name, (&inputs[family], form), count, given);
            assert!(read(&got) == *wanted, "{name} {layout4:?}");
            if function == Function::Both {
                let by = |name: &str, tables: [&mut [u8]; 3]| {
                    native.run(name, (&inputs[family], Form::Keys), count, tables)
                };
                let mut uncounted = vec![0; matches.len()];
                let (lpm, acl) = (KERNELS[family], KERNELS[2 + family]);
                let by_routes = by(lpm, [&mut routes[..], &mut [], &mut []]);
                let by_rules = by(acl, [&mut arenas[family][..], &mut uncounted, &mut []]);
                let joined = native.combine(&by_routes, &by_rules);
                assert!(read(&joined) == *wanted, "{name} {layout4:?} by function");
            }
            for width in Width::ALL {
                let highest = wanted.iter().map(|decision| decision.hop()).max();
                let bits = width.bits(function, highest.unwrap_or(0));
                if width::is_cut(bits) {
                    let read = native.narrow(&got, bits);
                    assert!(read == *wanted, "{name} {layout4:?} in {bits} bits");
                }
            }
            let (matches, _) = matches.as_chunks();
            let counted: u32 = matches.iter().map(|count| u32::from_le_bytes(*count)).sum();
            let expected = function.filters() && lists[family] > 0;
            assert_eq!(counted as usize, if expected { count } else { 0 }, "{name}");
        }
    }
}

#[test]
fn kernels_decide_as_cpus_do() {
    let native = Native::build();
    agree(&native, &Contents::default(), Layout4::Mixed, 100);
    for kind in Kind::ALL {
        let contents = Contents {
            v4: data::routes(2000),
            v6: data::routes(2000),
            rules: RuleSet {
                v4: data::rules(kind, 200),
                v6: data::rules(kind, 200),
                ..RuleSet::default()
            },
        };
        agree(&native, &contents, Layout4::Words, 1000);
    }
}

/// Each size with one kind of list.
const EACH_SIZE: [(&str, &[&str]); 3] = [("1k", &["acl1"]), ("10k", &["ipc1"]), ("100k", &["fw1"])];
const KINDS: &[&str] = &["acl1", "fw1", "ipc1"];
const ALL: [(&str, &[&str]); 3] = [("1k", KINDS), ("10k", KINDS), ("100k", KINDS)];

#[test]
fn kernels_decide_as_cpus_do_by_full_tables_and_a_list_of_each_size() {
    agree_by_lists(EACH_SIZE);
}

#[test]
#[ignore = "every kind of list in every size"]
fn kernels_decide_as_cpus_do_by_full_tables_and_long_lists() {
    agree_by_lists(ALL);
}

fn agree_by_lists(lists: [(&str, &[&str]); 3]) {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let native = Native::build();
    let folder = data::unpacked(&corpus);
    let layouts = [
        (Layout4::Bytes, 200),
        (Layout4::Mixed, 5003),
        (Layout4::Words, 5003),
    ];
    for ((size, kinds), (layout4, hops)) in lists.into_iter().zip(layouts) {
        let (routes4, routes6) = (data::real(&corpus, hops), data::real(&corpus, hops));
        for kind in kinds {
            let v4 = data::list(&folder, &format!("{kind}_{size}"));
            let contents = Contents {
                v4: routes4.clone(),
                v6: routes6.clone(),
                rules: RuleSet {
                    v6: data::rules(Kind::Firewall, v4.len()),
                    v4,
                    ..RuleSet::default()
                },
            };
            agree(&native, &contents, layout4, 100_000);
        }
    }
}
