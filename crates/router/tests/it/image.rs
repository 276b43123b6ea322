//! Table images: what is written comes back, and nothing else is taken.

use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use datapath::{Classify, ErrorClass};
use lpm::Layout4;
use router::check::{self, CheckResult, Keys};
use router::explain::{Packet, explain};
use router::image::{Error, Image, Kind, SourceFile, Tables, changes};
use router::{routes, rules};
use twox_hash::XxHash64;

const ROUTES: &str = "0.0.0.0/0 192.0.2.1\n10.0.0.0/8 192.0.2.2\n10.1.2.3/32 192.0.2.3\n\
10.1.2.0/25 192.0.2.3\n2001:db8::/32 2001:db8::1\n2001:db8:1::/48 2001:db8::9\n\
2001:db8:1:2:3::/80 2001:db8::1\n::1/128 2001:db8::2\n";
const RULES: &str = "action,source,destination,protocol,destination_ports\n\
drop,10.0.0.0/8,,udp,53\naccept,10.1.0.0/16,,udp,53\npunt,,192.0.2.0/24,,\n\
drop,2001:db8::/32,,tcp,1-1023\naccept,,,,\n";

fn image(rib: &str, list: &str, layout: Option<Layout4>) -> Image {
    let read = routes::read("routes", rib.as_bytes(), &routes::Options::default()).unwrap();
    let list = rules::read("rules", list.as_bytes(), &rules::Options::default()).unwrap();
    Image {
        sources: vec![SourceFile {
            kind: Kind::Rules,
            name: "rules.csv".into(),
            report: vec!["a line".into()],
        }],
        tables: Some(Tables::build(&read.routes, layout).unwrap()),
        rules: Some(list),
    }
}

fn saved(folder: &Path, image: &Image) -> PathBuf {
    let path = folder.join("table.lrt");
    let bytes = image.save(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
    path
}

fn wrong(checked: &[CheckResult]) -> usize {
    checked.iter().map(|checked| checked.wrong).sum()
}

#[test]
fn an_image_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    for layout in Layout4::ALL {
        let before = image(ROUTES, RULES, Some(layout));
        let path = saved(folder.path(), &before);
        let again = fs::read(&path).unwrap();
        let after = Image::open(&path).unwrap();
        saved(folder.path(), &after);
        assert!(fs::read(&path).unwrap() == again, "{layout:?}: other bytes");
        assert_eq!(after.sources, before.sources);
        assert!(changes(&before, &after).is_empty());
        let (old, new) = (before.rules.unwrap(), after.rules.unwrap());
        assert_eq!((&new.v4, &new.v6), (&old.v4, &old.v6));
        assert_eq!((&new.origins, &new.notes), (&old.origins, &old.notes));
        let (mut tables, checked) = check::tables(after.tables.unwrap(), 1).unwrap();
        assert_eq!(wrong(&checked), 0, "{checked:?}");
        assert_eq!(
            wrong(&check::rule_set(&new, Keys::Exactly(3000), 1).unwrap()),
            0
        );
        // What was restored can change.
        let hop = lpm::NextHop::new(1).unwrap();
        tables
            .fib4
            .insert("10.1.2.64/26".parse().unwrap(), hop)
            .unwrap();
        tables
            .fib6
            .insert("2001:db8:1:2::/64".parse().unwrap(), hop)
            .unwrap();
        tables.fib4.remove("10.1.2.3/32".parse().unwrap());
        let (_, checked) = check::tables(tables, 2).unwrap();
        assert_eq!(wrong(&checked), 0, "{checked:?}");
    }
}

#[test]
fn routes_or_rules_may_be_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut alone = image(ROUTES, RULES, None);
    alone.tables = None;
    let path = saved(folder.path(), &alone);
    assert!(Image::open(&path).unwrap().tables.is_none());
    let mut alone = image(ROUTES, RULES, None);
    alone.rules = None;
    let path = saved(folder.path(), &alone);
    assert!(Image::open(&path).unwrap().rules.is_none());
}

/// The file with a checksum that fits.
fn signed(mut file: Vec<u8>) -> Vec<u8> {
    file[24..32].fill(0);
    let mut hash = XxHash64::with_seed(0);
    hash.write(&file[64..]);
    hash.write(&file[..64]);
    file[24..32].copy_from_slice(&hash.finish().to_le_bytes());
    file
}

#[test]
fn flips_in_every_section_and_everywhere_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), &image(ROUTES, RULES, None));
    let whole = fs::read(&path).unwrap();
    let sections = Image::sections(&path).unwrap();
    assert!(sections.len() > 10);
    let mut places: Vec<usize> = (0..64).collect();
    places.extend((64..whole.len()).step_by(1_048_573));
    for section in sections.iter().filter(|section| section.bytes > 0) {
        places.extend([section.offset, section.offset + section.bytes - 1]);
    }
    let mut file = whole.clone();
    for at in places {
        file[at] ^= 1 << (at % 8);
        fs::write(&path, &file).unwrap();
        let error = Image::open(&path).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Input, "byte {at}: {error}");
        assert_eq!(error.to_string().lines().count(), 1, "byte {at}: {error}");
        file[at] ^= 1 << (at % 8);
    }
    for length in [0, 1, 8, 63, 64, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = Image::open(&path).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Input, "{length} bytes");
    }
    let mut newer = whole.clone();
    newer[8] = 2;
    fs::write(&path, signed(newer)).unwrap();
    let error = Image::open(&path).unwrap_err();
    assert!(
        matches!(error, Error::Version { version: 2, .. }),
        "{error}"
    );
    fs::write(&path, signed(whole)).unwrap();
    Image::open(&path).unwrap();
}

/// Whoever can forge a checksum gets an error or an image, never a crash; `check` finds wrong answers.
#[test]
fn forged_content_is_refused_or_answers_wrongly() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(folder.path(), &image(ROUTES, RULES, None));
    let whole = fs::read(&path).unwrap();
    let (mut refused, mut caught) = (0, 0);
    for section in Image::sections(&path).unwrap() {
        for at in [
            0,
            1,
            5,
            9,
            20,
            section.bytes / 2,
            section.bytes.saturating_sub(1),
        ] {
            if at >= section.bytes {
                continue;
            }
            let mut file = whole.clone();
            file[section.offset + at] ^= 0x41;
            fs::write(&path, signed(file)).unwrap();
            match Image::open(&path) {
                Err(error) => {
                    assert_eq!(
                        error.class(),
                        ErrorClass::Input,
                        "{}: {error}",
                        section.name
                    );
                    refused += 1;
                }
                Ok(image) => {
                    let packet: Packet = "10.1.2.3:1 -> 10.1.2.3:53/udp".parse().unwrap();
                    explain(&image, &packet);
                    caught += usize::from(answers_wrongly(&image.tables.unwrap()));
                }
            }
        }
    }
    assert!(
        refused > 20 && caught > 0,
        "{refused} refused, {caught} caught"
    );
}

/// Whether tables answer anything else than their prefixes.
fn answers_wrongly(tables: &Tables) -> bool {
    let (rib4, rib6) = (tables.fib4.rib(), tables.fib6.rib());
    let wrong4 = |address: u32| {
        let right = rib4.lookup(address).map(|(_, hop)| hop);
        tables.fib4.lookup(address) != right
    };
    let wrong6 = |address: u128| {
        let right = rib6.lookup(address).map(|(_, hop)| hop);
        tables.fib6.lookup(address) != right
    };
    let bounds4 = rib4
        .iter()
        .flat_map(|(prefix, _)| [prefix.first(), prefix.last()]);
    let bounds6 = rib6
        .iter()
        .flat_map(|(prefix, _)| [prefix.first(), prefix.last()]);
    // Addresses of blocks, of which content is flipped here and there.
    let blocks = (0..1 << 16).map(|block| block << 8);
    bounds4.chain(blocks).any(wrong4) || bounds6.into_iter().any(wrong6)
}

#[test]
fn explains_what_counts_and_what_would() {
    let image = image(ROUTES, RULES, None);
    let packet = "10.1.9.9:5000 -> 10.1.2.3:53/udp".parse().unwrap();
    let explanation = explain(&image, &packet);
    assert_eq!(explanation.verdict.name(), "drop");
    let prefixes: Vec<_> = explanation.route.unwrap().prefixes;
    let prefixes: Vec<_> = prefixes.iter().map(|found| found.prefix.as_str()).collect();
    let nested = ["10.1.2.3/32", "10.1.2.0/25", "10.0.0.0/8", "0.0.0.0/0"];
    assert_eq!(prefixes, nested);
    let filter = explanation.filter.unwrap();
    assert_eq!(filter.rule.unwrap().place, "rules.csv:2");
    let also: Vec<_> = filter
        .also
        .iter()
        .map(|rule| (rule.number, rule.shadowed))
        .collect();
    assert_eq!(also, [(2, true), (4, false)]);
}

#[test]
fn changes_are_told_by_prefix_rule_and_order() {
    let old = image(ROUTES, RULES, None);
    let routes = ROUTES.replace("10.0.0.0/8 192.0.2.2", "10.0.0.0/8 192.0.2.77");
    let routes = routes.replace("::1/128 2001:db8::2", "::2/128 2001:db8::2");
    let mut lines: Vec<&str> = RULES.lines().collect();
    lines.swap(1, 2);
    let rules = lines.join("\n").replace("punt", "drop") + "\n";
    let changes = changes(&old, &image(&routes, &rules, None));
    let told: Vec<_> = changes
        .routes
        .iter()
        .map(|change| {
            (
                change.what.as_str(),
                change.before.is_some(),
                change.after.is_some(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("10.0.0.0/8", true, true),
            ("::1/128", true, false),
            ("::2/128", false, true),
        ]
    );
    assert_eq!((changes.rules.len(), changes.moved), (1, 1));
    assert_eq!(changes.rules[0].before.as_deref(), Some("punt"));
    assert_eq!(changes.rules[0].after.as_deref(), Some("drop"));
}

#[test]
fn more_next_hops_than_fit_are_refused_by_the_layout_and_mixed_otherwise() {
    let list: Vec<String> = (0..300)
        .map(|at| format!("10.{}.{}.0/24 192.0.2.{}\n", at / 256, at % 256, at % 250))
        .collect();
    let many: Vec<String> = (0..300)
        .map(|at| format!("11.{}.{}.0/24 198.51.{}.1\n", at / 256, at % 256, at % 256))
        .collect();
    let text = list.concat() + &many.concat();
    let read = routes::read("routes", text.as_bytes(), &routes::Options::default()).unwrap();
    let error = Tables::build(&read.routes, Some(Layout4::Bytes)).unwrap_err();
    assert!(error.to_string().contains("--layout mixed"), "{error}");
    assert_eq!(
        Tables::build(&read.routes, None).unwrap().layout4,
        Layout4::Words
    );
    let few = routes::read("routes", ROUTES.as_bytes(), &routes::Options::default()).unwrap();
    assert_eq!(
        Tables::build(&few.routes, None).unwrap().layout4,
        Layout4::Bytes
    );
}
