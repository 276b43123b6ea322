//! The five experiments of the demo, and their page.

use std::fs;

use crate::common::{alone, lowroad, path, program, record, stderr, stdout, succeeded};

#[test]
#[ignore = "five experiments"]
fn five_jobs_have_an_answer_on_one_page() {
    if !sys::require::root() || program().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("demo");
    let output = alone(|| lowroad(&["demo", "--out", path(&out)]).output().unwrap());
    succeeded(&output);
    let answers = stdout(&output);
    assert!(!answers.contains("did not run"), "{answers}");
    // One line for each job, and one for the page.
    assert_eq!(answers.lines().count(), 6, "{answers}");
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    assert_eq!(page.matches("<section").count(), 5);
    for job in ["relay", "features", "router", "replicate", "netbench"] {
        let part = out.join(format!("demo-{job}"));
        assert!(page.contains(&format!("demo-{job}/report.html")), "{job}");
        assert!(part.join("report.html").is_file(), "{job}");
        let trials = record(&part);
        let measured = |trial: &&serde_json::Value| {
            trial["values"]
                .as_object()
                .is_some_and(|values| !values.is_empty())
        };
        assert!(
            trials.iter().filter(measured).count() > 10,
            "{job}: {}",
            stderr(&output)
        );
    }
}
