//! What the documentation says of the tests.

use netbench::Test;

#[test]
fn documentation_has_a_row_for_each_test() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/netbench.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("| `")?.split_once("` |")?;
        name.parse().ok()
    });
    let mut rows: Vec<Test> = rows.collect();
    let mut all = Vec::from(Test::ALL);
    rows.sort_by_key(|test| test.name());
    all.sort_by_key(|test| test.name());
    assert_eq!(rows, all);
}
