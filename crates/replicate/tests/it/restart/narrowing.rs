//! A log is continued with other patterns than before. Its next epoch contains exactly what they
//! select.

use replicate::patterns::Patterns;

use super::pinned::{journals, pinned_capture};
use super::running::{Place, Running, data_of, shell, starts};
use super::{ALL_STEPS, HALF, SEEDS, USUAL_STEPS, seeds};
use crate::bed::file_system::{Format, within};

fn patterns(include: &[&str], exclude: &[&str]) -> Patterns {
    let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    Patterns::new(owned(include), owned(exclude))
}

/// By the names of the workload; the last leave all in.
fn turns() -> [Patterns; 4] {
    [
        patterns(&[], &["n1", "n3/", "*a"]),
        patterns(&["/n1*", "n2/**", "n5"], &["n0"]),
        patterns(&[], &["/n2/n*", "n4"]),
        patterns(&[], &[]),
    ]
}

#[test]
fn seeds_are_taken_up_with_other_patterns() {
    within(|bed| {
        seeds(bed, Format::Ext4, (None, &turns()), SEEDS, USUAL_STEPS);
        seeds(bed, Format::Overlay, (None, &turns()), 1, USUAL_STEPS);
    });
}

#[test]
fn seeds_are_taken_up_with_other_patterns_beside_a_journal() {
    within(|bed| {
        let at = journals(bed);
        seeds(bed, Format::Ext4, (Some(&at), &turns()), SEEDS, USUAL_STEPS);
    });
}

#[test]
fn a_hundred_seeds_are_taken_up_with_other_patterns() {
    if sys::require::requested("takes up the logs of 100 seeds of 300 steps with other patterns") {
        within(|bed| {
            let at = journals(bed);
            seeds(bed, Format::Ext4, (Some(&at), &turns()), HALF, ALL_STEPS);
        });
    }
}

#[test]
fn other_patterns_are_compared_and_the_same_are_not_said_again() {
    within(|bed| {
        let Some(disk) = bed.mount(Format::Ext4, "source") else {
            return;
        };
        let mut place = Place::new(&disk, bed.scratch(), 0);
        place.pin = Some(journals(bed));
        shell(
            &place.tree,
            "mkdir -p many/deep; for i in $(seq 300); do echo $i >many/$i.tmp; echo $i >many/deep/$i; done",
        );
        pinned_capture(&place).kill();
        place.check(&[]);
        let all = data_of(&place.log);
        // A journal of the whole tree does not list what no longer belongs to it.
        place.turns = vec![patterns(&[], &["*.tmp"])];
        let mut second = Running::start(&place);
        let said = second.wait("ready");
        assert_eq!((said["journal"], said["gone"]), (0, 300), "{said:?}");
        second.kill();
        place.check(&[]);
        assert_eq!(data_of(&place.log), all, "nothing is copied anew");
        pinned_capture(&place).kill();
        let mut same = Running::start(&place);
        assert_eq!(same.wait("ready")["journal"], 1);
        same.kill();
        place.check(&[]);
        place.turns = vec![patterns(&["deep"], &[])];
        let mut other = Running::start(&place);
        let said = other.wait("ready");
        assert_eq!(
            (said["journal"], said["gone"], said["new"]),
            (0, 0, 0),
            "{said:?}"
        );
        other.kill();
        place.check(&[]);
        place.turns = vec![Patterns::default()];
        let mut whole = Running::start(&place);
        let said = whole.wait("ready");
        assert_eq!((said["journal"], said["new"]), (0, 300), "{said:?}");
        whole.kill();
        place.check(&[]);
        assert_eq!(starts(&place.log), 1);
    });
}
