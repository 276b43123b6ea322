//! The kernels on this machine's own processor, compiled by its C compiler: what they decide is then the
//! source's affair, and no driver's.

use std::fs;
use std::process::Command;

use acl::arena::{Arena, CHUNK};
use acl::generate::Kind;
use acl::{Address, Rule};
use libloading::Library;
use lpm::Layout4;

use super::input::write;
use super::original::Original;
use super::{KERNELS, SOURCE};
use crate::cpu::{self, Tables};
use crate::engine::{Answers, Contents, Decision, Engine, Function, Headers, Processor};
use crate::frames::{Frames, Mix};
use crate::rules::RuleSet;
use crate::shape::Shape;
use crate::traffic::Pattern;

#[path = "../../tests/gpu/data.rs"]
mod data;

/// A kernel's parameters: input, where in it, output, where in it, how many; then its tables.
type Kernel = unsafe extern "C" fn(*const u8, u32, *mut u32, u32, u32, *mut u8, *mut u8, *mut u8);

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
        let turns = KERNELS.map(|name| {
            format!(
                "void all_{name}(const u8 *input, u32 at, u32 *output, u32 to, u32 count, u8 *a, u8 *b, u8 *c)\n\
                 {{ for (item = 0; item < count + 3; item++) {name}(input, at, output, to, count, 0{}); }}\n",
                match &name[..3] {
                    "lpm" => ", a",
                    "acl" => ", a, (u32 *)b",
                    _ => ", a, (u32 *)b, c",
                }
            )
        });
        fs::write(&source, format!("{SOURCE}\nu32 item;\n{}", turns.concat())).unwrap();
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
    fn run(&self, name: &str, input: &[u8], count: usize, tables: [&mut [u8]; 3]) -> Vec<Decision> {
        let mut decisions = vec![u32::MAX; count + 1];
        let [a, b, c] = tables.map(<[u8]>::as_mut_ptr);
        let count = u32::try_from(count).unwrap();
        // SAFETY: the function that `build` wrote, and as many keys and decisions as it is told.
        unsafe {
            let kernel = self.0.get::<Kernel>(format!("all_{name}")).unwrap();
            kernel(input.as_ptr(), 0, decisions.as_mut_ptr(), 0, count, a, b, c);
        }
        assert_eq!(decisions.pop(), Some(u32::MAX), "nothing beyond the keys");
        decisions.into_iter().map(Decision::from_bits).collect()
    }
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
        let frames = Frames::made(contents, &mix);
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
    let original = Original::build(&shape, routes, None).unwrap();
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
            let got = native.run(name, &inputs[family], count, given);
            assert!(got == *wanted, "{name} {layout4:?}");
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

#[test]
fn kernels_decide_as_cpus_do_by_full_tables_and_long_lists() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let native = Native::build();
    let folder = data::unpacked(&corpus);
    for (size, layout4, hops) in [
        ("1k", Layout4::Bytes, 200),
        ("10k", Layout4::Mixed, 5003),
        ("100k", Layout4::Words, 5003),
    ] {
        for kind in ["acl1", "fw1", "ipc1"] {
            let v4 = data::list(&folder, &format!("{kind}_{size}"));
            let contents = Contents {
                v4: data::real(&corpus, hops),
                v6: data::real(&corpus, hops),
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
