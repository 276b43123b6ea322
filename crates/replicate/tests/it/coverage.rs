//! The coverage report: every operation on every file system is seen, except those that are
//! documented as invisible.

use replicate::capture;
use replicate::coverage::{Report, Verdict, probe, quick};

use crate::bed::file_system::{Format, within};

/// The operations that the file system does not report.
fn invisible(format: Format) -> &'static [&'static str] {
    match format {
        Format::Tmpfs => &["mmap"],
        _ => &[],
    }
}

/// Whether programs can be attached to the functions that write.
fn functions(format: Format) -> bool {
    format != Format::Overlay && capture::functions().is_ok()
}

fn those(report: &Report, verdict: Verdict) -> Vec<&'static str> {
    let rows = report.rows.iter().filter(|row| row.verdict == verdict);
    rows.map(|row| row.operation).collect()
}

#[test]
fn what_cannot_be_seen_is_said() {
    within(|bed| {
        for format in [
            Format::Ext4,
            Format::Xfs,
            Format::Btrfs,
            Format::Tmpfs,
            Format::Overlay,
        ] {
            let name = format!("{format:?}");
            let Some(tree) = bed.follow(format, &name) else {
                continue;
            };
            let report = probe(&tree).unwrap();
            println!("{report:#?}");
            assert_eq!(report.file_system, name.to_lowercase());
            assert_eq!(
                those(&report, Verdict::Invisible),
                invisible(format),
                "{name}"
            );
            let writes = ["write", "append", "sendfile", "splice", "child"];
            let exact = those(&report, Verdict::Exact);
            let exact = writes.iter().all(|write| exact.contains(write));
            let copies = format == Format::Ext4 || functions(format);
            assert_eq!(exact, copies, "{name}");
            let told = |row: &&replicate::coverage::Row| {
                matches!(
                    row.verdict,
                    Verdict::Exact | Verdict::Suspect | Verdict::Dirty
                )
            };
            let unnamed = report.rows.iter().filter(told);
            let unnamed: Vec<_> = unnamed.filter(|row| row.hooks.is_empty()).collect();
            assert!(unnamed.is_empty(), "{name}: {unnamed:?}");
            let quick = quick(&tree).unwrap();
            assert_eq!(quick.invisible, invisible(format), "{name}");
            assert_eq!(quick.copies, copies.then_some(true));
            let left = std::fs::read_dir(&tree).unwrap().count();
            assert_eq!(left, 0, "{name}: the folder is removed");
        }
    });
}
