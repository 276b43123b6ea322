//! Lists of prefixes become tables that answer.

use std::io::Read;

use lpm::{Layout4, Prefix4};
use router::Place;
use router::routes::{Format, Target};

use crate::common::{import, refusal, written};

#[test]
fn a_list_becomes_a_table_that_answers() {
    let imported = import(
        "# network next hop\n0.0.0.0/0 192.0.2.1\n10.0.0.0/8\t192.0.2.2 eth1\n\
         10.1.0.0/16,192.0.2.3,192.0.2.4\n10.1.2.3 eth0\n::/0 2001:db8::1\n2001:db8::/32\n\
         2001:db9::/32 unreachable\n2001:dba::/32 prohibit\n",
    );
    assert_eq!(imported.report.format, Format::Plain);
    assert_eq!(
        written(&imported),
        [
            "0.0.0.0/0 via 192.0.2.1",
            "10.0.0.0/8 via 192.0.2.2 dev eth1",
            "10.1.0.0/16 via 192.0.2.3, via 192.0.2.4",
            "10.1.2.3/32 dev eth0",
            "::/0 via 2001:db8::1",
            "2001:db8::/32 unspecified",
            "2001:db9::/32 unreachable",
            "2001:dba::/32 prohibit",
        ]
    );
    let numbered = imported.routes.numbered4().unwrap();
    let targets = numbered.targets.clone();
    let fib = lpm::Fib4::build(numbered.rib, Layout4::Bytes).unwrap();
    let mut found = [0; 4];
    let asked = [0x0a01_0203, 0x0a01_0204, 0x0aff_0000, 0x0b00_0000];
    fib.lookup_batch(&asked, &mut found);
    let said = found.map(|hop| {
        let target = targets[usize::from(hop) - 1];
        imported.routes.targets[target as usize].to_string()
    });
    assert_eq!(
        said,
        [
            "dev eth0",
            "via 192.0.2.3, via 192.0.2.4",
            "via 192.0.2.2 dev eth1",
            "via 192.0.2.1",
        ]
    );
}

#[test]
fn duplicates_are_counted_and_the_last_counts() {
    let imported =
        import("10.0.0.0/8 1.1.1.1\n10.0.0.0/8 1.1.1.1\n10.0.0.0/8 2.2.2.2\n10.0.0.0/9 3.3.3.3\n");
    assert_eq!(
        written(&imported),
        ["10.0.0.0/8 via 2.2.2.2", "10.0.0.0/9 via 3.3.3.3"]
    );
    let report = imported.report;
    assert_eq!((report.read, report.nested), (4, 1));
    assert_eq!((report.duplicates.same, report.duplicates.replaced), (1, 1));
    assert_eq!(report.duplicates.first, Some(Place::Line(2)));
}

#[test]
fn the_shortest_and_longest_prefixes_are_taken() {
    let imported = import("0.0.0.0/0\n255.255.255.255/32\n::/0\nffff::ffff/128\n");
    assert_eq!(imported.routes.len(), 4);
    assert_eq!(imported.routes.numbered4().unwrap().rib.len(), 2);
    assert_eq!(imported.routes.numbered6().unwrap().rib.len(), 2);
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (list, what) in [
        ("", "test: empty"),
        ("# nothing\n", "test: no route in it"),
        (
            "10.0.0.0/8\n10.0.0.0/33\n",
            "test:2: a prefix of 33 bits, where addresses have 32",
        ),
        (
            "10.0.0.0/8\n::/129\n",
            "test:2: a prefix of 129 bits, where addresses have 128",
        ),
        (
            "10.0.0.0/8\n10.1.2.3/8\n",
            "test:2: 10.1.2.3/8 has bits set beyond its length: write 10.0.0.0/8",
        ),
        (
            "10.0.0.0/8\n\nhello\n",
            "test:3: \"hello\" is not a prefix: write ADDRESS/LENGTH",
        ),
        (
            "10.0.0.0/8 1.2.3\n",
            "test:1: \"1.2.3\" is no next hop: write an address or a device",
        ),
        ("10.0.0.0/8\n\u{0}\n", "test: neither text nor MRT"),
    ] {
        assert_eq!(refusal(list), what);
    }
    assert_eq!(
        refusal(b"10.0.0.0/8\n\xff\xfe\n"),
        "test:2: not text: no UTF-8"
    );
    let long = "1".repeat(3 << 20);
    assert!(refusal(long).starts_with("test:1: a line of more than 1 MiB"));
}

#[test]
fn packed_lists_are_unpacked() {
    let list = "10.0.0.0/8 192.0.2.1\n10.1.0.0/16 192.0.2.2\n";
    let mut gzip = Vec::new();
    flate2::read::GzEncoder::new(list.as_bytes(), flate2::Compression::fast())
        .read_to_end(&mut gzip)
        .unwrap();
    assert_eq!(import(&gzip).routes.len(), 2);
    assert!(refusal(&gzip[..gzip.len() - 9]).starts_with("test: "));
    // The list of ten thousand, packed as one stream and as three.
    let one = import(include_bytes!("../data/list.bz2"));
    let three = import(include_bytes!("../data/list-three-streams.bz2"));
    assert_eq!((one.routes.len(), three.routes.len()), (10_000, 30_000));
    let whole = include_bytes!("../data/list.bz2");
    for cut in [whole.len() / 2, whole.len() - 1, 20] {
        assert!(refusal(&whole[..cut]).starts_with("test: "), "{cut}");
    }
}

#[test]
fn blocks_that_cannot_be_packed_are_unpacked() {
    // As random bytes, which bzip2 makes longer.
    let mut state = 1_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        char::from(
            b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                [(state >> 33) as usize % 62],
        )
    };
    let noise: String = (0..300_000).map(|_| random()).collect();
    let lines = noise.as_bytes().chunks(1000);
    let comments = lines.map(|line| format!("# {}\n", String::from_utf8_lossy(line)));
    let list = format!("10.0.0.0/8\n{}10.1.0.0/16\n", comments.collect::<String>());
    for level in [1, 9] {
        let level = bzip2::Compression::new(level);
        let mut packed = Vec::new();
        bzip2::read::BzEncoder::new(list.as_bytes(), level)
            .read_to_end(&mut packed)
            .unwrap();
        assert_eq!(import(&packed).routes.len(), 2);
        let twice = [&packed[..], &packed[..]].concat();
        assert_eq!(import(&twice).report.read, 4);
    }
    let xz = [0xfd, b'7', b'z', b'X', b'Z', 0, 0, 4];
    let said = refusal(xz);
    assert!(
        said.starts_with("test: packed by xz, where gzip and bzip2 are read"),
        "{said}"
    );
}

#[test]
fn origins_stand_for_next_hops_and_can_be_spread() {
    let mut imported = import(
        "1.0.0.0\t24\t13335\n1.0.4.0\t22\t38803_56203\n2001:200::\t32\t2500,4777\n1.0.5.0\t24\t13335\n",
    );
    assert_eq!(imported.report.format, Format::Pfx2as);
    assert_eq!(
        written(&imported),
        [
            "1.0.0.0/24 AS 13335",
            "1.0.4.0/22 AS 38803_56203",
            "1.0.5.0/24 AS 13335",
            "2001:200::/32 AS 2500,4777",
        ]
    );
    imported.routes.spread(200);
    let routes = &imported.routes;
    let stand_ins = |at: u32| matches!(routes.targets[at as usize], Target::StandIn(1..=200));
    assert!(routes.v4.iter().all(|route| stand_ins(route.target)));
    assert_eq!(routes.v4[0].target, routes.v4[2].target, "of one origin");
    assert_eq!(refusal("1.0.0.0 24 x\n"), "test:1: \"x\" is no AS");
}

#[test]
fn more_next_hops_than_numbers_are_refused_by_their_count() {
    let list: String = (0..32_768)
        .map(|at| format!("10.{}.{}.0\t24\t{at}\n", at >> 8, at & 255))
        .collect();
    let routes = import(list).routes;
    let error = routes.numbered4().unwrap_err().to_string();
    assert!(error.starts_with("32768 different next hops"), "{error}");
    assert!(routes.numbered6().unwrap().rib.is_empty());
}

#[test]
fn a_whole_table_is_read_and_each_prefix_answers() {
    let Some(corpus) = sys::require::corpus() else {
        return;
    };
    let mut imported = router::routes::open(
        &corpus.join("fib/prefixes.txt.gz"),
        &router::routes::Options::default(),
    )
    .unwrap();
    assert_eq!(
        (imported.routes.v4.len(), imported.routes.v6.len()),
        (901_899, 160_147)
    );
    imported.routes.spread(200);
    let numbered = imported.routes.numbered4().unwrap();
    assert_eq!((numbered.rib.len(), numbered.targets.len()), (901_899, 200));
    let found = numbered.rib.get("1.0.4.0/22".parse::<Prefix4>().unwrap());
    assert!(found.is_some());
}
