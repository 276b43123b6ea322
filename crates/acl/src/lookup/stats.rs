//! temp
use super::portable::Portable;
use super::*;
use crate::build::{Options, build};
use crate::plan::slot;
use crate::table::filter;
use crate::{Key4, Rule4, classbench, generate};

#[test]
fn stats() {
    let path = std::env::var("RULES").unwrap();
    let open = |p: &str| std::io::BufReader::new(std::fs::File::open(p).unwrap());
    let rules: Vec<Rule4> = classbench::rules(open(&path)).unwrap();
    let (table, report) = build(&rules, 0.., Options::default(), true).unwrap();
    println!(
        "{path} {} rules {report:?} shift {}",
        rules.len(),
        table.shift
    );
    let trace: Vec<Key4> = classbench::trace(open(&format!("{path}_trace"))).unwrap();
    for (name, keys) in [
        ("rules", trace),
        ("uniform", generate::keys_anywhere(20000, 7)),
    ] {
        println!(" {name}");
        let n = keys.len() as f64;
        let mut best = vec![NONE; keys.len()];
        for root in &table.roots {
            let (mut open, mut pass, mut leaf, mut nodes, mut splits, mut lines, mut hits) =
                (0, 0, 0, 0, 0, 0, 0);
            let mut misses = 0;
            for (key, best) in keys.iter().zip(&mut best) {
                if root.best >= *best {
                    continue;
                }
                open += 1;
                let hash = <u32 as Address>::hash(key.source(), key.destination(), root.lengths);
                let mut entry =
                    table.entries.as_slice()[root.base as usize + slot(hash, root.bits)];
                if entry as u32 & filter(hash) == 0 || !beats(table.shift, entry, *best) {
                    continue;
                }
                pass += 1;
                let words = key.words();
                loop {
                    let reference = (entry >> 32) as u32;
                    if entry == 0 || !beats(table.shift, entry, *best) {
                        misses += 1;
                        break;
                    }
                    if reference & NODE == 0 {
                        leaf += 1;
                        let mut order = NONE;
                        for at in 0..reference >> LINE_BITS {
                            lines += 1;
                            order = table.lines.as_slice()[((reference & LINE_MASK) + at) as usize]
                                .first(words.as_ref());
                            if order != NONE {
                                break;
                            }
                        }
                        if order < *best {
                            *best = order;
                            hits += 1;
                        }
                        break;
                    }
                    let node = &table.nodes.as_slice()[(reference & !NODE) as usize];
                    nodes += 1;
                    let child = match node.kind {
                        kind::CUT => cut::<u32, Portable>(node, &words),
                        kind::SPLIT => {
                            splits += 1;
                            split::<u32, Portable>(table.entries.as_slice(), node, &words)
                        }
                        _ => {
                            println!("long");
                            break;
                        }
                    };
                    entry = table.entries.as_slice()[child as usize];
                }
            }
            let p = |c: i32| f64::from(c) / n;
            println!(
                "  {:?} bits {} best {}: open {:.3} pass {:.3} leaves {:.3} nodes {:.3} splits {:.3} misses {:.3} lines {:.3} hits {:.3}",
                root.lengths,
                root.bits,
                root.best,
                p(open),
                p(pass),
                p(leaf),
                p(nodes),
                p(splits),
                p(misses),
                p(lines),
                p(hits)
            );
        }
        let none = best.iter().filter(|b| **b == NONE).count();
        println!("  none {:.3}", none as f64 / n);
    }
}
