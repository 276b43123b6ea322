//! Lists of routes that cost more than they may, with budgets that are small, so that small lists do.

use std::io::Read as _;

use super::*;

/// Why a list is refused that costs more than so small a budget.
fn refusal(list: &[u8], divisor: u64) -> String {
    let budget = Budget::with_divisor(divisor);
    let imported = import(list, &Options::default(), &budget);
    imported.unwrap_err().of("test").to_string()
}

fn packed(list: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    flate2::read::GzEncoder::new(list, flate2::Compression::best())
        .read_to_end(&mut packed)
        .unwrap();
    packed
}

fn repeated(head: &str, part: &str, count: usize, tail: &str) -> Vec<u8> {
    format!("{head}{}{tail}", part.repeat(count)).into_bytes()
}

#[test]
fn packed_content_is_refused_where_it_becomes_too_much() {
    let tight = packed(&repeated("::/0\n", "# 10.0.0.0/8 192.0.2.1\n", 100_000, ""));
    let said = refusal(&tight, 1 << 20);
    assert!(said.starts_with("test:"), "{said}");
    assert!(said.contains(" packed bytes become more than "), "{said}");
    let dump = packed(&[0, 0, 0, 0, 0, 13, 0, 9, 0, 0, 0, 0].repeat(100_000));
    let said = refusal(&dump, 1 << 20);
    assert!(said.starts_with("test at byte "), "{said}");
    let lists = [
        "[{\"dst\":\"10.0.0.0/8\",\"flags\":[]},",
        "{\"10.0.0.0/8\":[{\"selected\":false},",
    ];
    for list in lists {
        let said = refusal(&packed(&repeated(list, " ", 2_000_000, "")), 1 << 6);
        assert!(said.starts_with("test at entry "), "{said}");
        assert!(said.contains(" packed bytes become more than "), "{said}");
    }
}

#[test]
fn memory_is_bounded_in_every_format() {
    let hops = "\tnexthop via 192.0.2.1 dev a weight 1\n";
    for (list, place) in [
        (repeated("", "::/0 ::1\n", 4000, ""), "test:"),
        (repeated("", "1.0.0.0\t24\t1\n", 4000, ""), "test:"),
        (repeated("10.0.0.0/8 proto 1\n", hops, 4000, ""), "test:"),
        (repeated("", "default dev a metric 1\n", 4000, ""), "test:"),
        (
            repeated(
                "BIRD 2 ready.\nTable master4:\n10.0.0.0/8 unicast [a 1] * (200)\n",
                "\tvia 192.0.2.1 on a\n",
                4000,
                "",
            ),
            "test:",
        ),
        (
            repeated("[", "{\"dst\":\"10.0.0.0/8\",\"dev\":\"a\"},", 4000, "{}]"),
            "test at entry ",
        ),
        (
            repeated(
                "[{\"dst\":\"10.0.0.0/8\",\"nexthops\":[",
                "{\"dev\":\"a\"},",
                4000,
                "{}]}]",
            ),
            "test at entry 1",
        ),
        (
            repeated(
                "{\"10.0.0.0/8\":[{\"selected\":true,\"nexthops\":[",
                "{\"active\":true},",
                4000,
                "{}]}]}",
            ),
            "test at entry 1",
        ),
    ] {
        let text = String::from_utf8_lossy(&list[..60.min(list.len())]).into_owned();
        // Packed, so that the limits do not grow with the list.
        let said = refusal(&packed(&list), 1 << 8);
        assert!(said.starts_with(place), "{text}: {said}");
        assert!(said.contains(" MiB of memory"), "{text}: {said}");
    }
    let mut list = String::new();
    for at in 0..4000 {
        list += &format!("10.0.0.0/8 192.0.{}.{}\n", at >> 8, at & 255);
    }
    let said = refusal(&packed(list.as_bytes()), 1 << 10);
    assert!(said.contains(" MiB of memory"), "{said}");
}

#[test]
fn texts_in_json_are_short() {
    let long = repeated("[{\"dst\":\"", "x", 2 << 20, "\"}]");
    let said = refusal(&long, 1);
    assert!(said.contains("a text of more than 1 MiB in JSON"), "{said}");
    // What is escaped does not end a text.
    let long = repeated("[{\"dst\":\"", "\\\"\\\\", 1 << 19, "\"}]");
    let said = refusal(&long, 1);
    assert!(said.contains("a text of more than 1 MiB in JSON"), "{said}");
    let many = repeated("[\"", "x\",\"", 1 << 19, "\"]");
    assert!(!refusal(&many, 1).contains("1 MiB"));
}

#[test]
fn a_message_shows_a_part_of_a_long_word() {
    let said = refusal(&repeated("", "x", 1 << 19, "\n"), 1);
    assert!(said.starts_with("test:1: \"xxx"), "{}", &said[..20]);
    assert!(said.len() < 1100 && said.ends_with(" ..."));
}

#[test]
fn listings_of_the_kernel_say_their_family() {
    let v4 = br#"[{"dst":"default","dev":"p0","flags":[]},{"dst":"10.0.0.0/8","dev":"p0"}]"#;
    let v6 = br#"[{"dst":"default","dev":"p0","metric":1024,"flags":[]}]"#;
    let options = Options::default();
    let imported = read_listings("kernel", [v4, v6], &options).unwrap();
    let routes = &imported.routes;
    assert_eq!((routes.v4.len(), routes.v6.len()), (2, 1));
    assert_eq!(routes.v4[0].prefix, lpm::Prefix4::DEFAULT);
    let none = read_listings("kernel", [v4, b"\n"], &options).unwrap();
    assert_eq!(none.routes.len(), 2);
}
