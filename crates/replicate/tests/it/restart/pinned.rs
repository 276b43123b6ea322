//! A capture that is killed leaves a journal, and the next one reads only the files in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use nix::mount::{MsFlags, mount};
use replicate::capture::Pin;

use super::running::{Place, Running, shell};
use super::{ALL_STEPS, HALF, USUAL_STEPS, seeds};
use crate::bed::file_system::{Bed, Format, within};

/// A BPF file system of the test. Pinned objects end with it.
pub(crate) fn journals(bed: &Bed) -> PathBuf {
    let at = bed.scratch().join("bpf");
    fs::create_dir(&at).unwrap();
    let none = MsFlags::empty();
    mount(Some("bpf"), &at, Some("bpf"), none, None::<&str>).unwrap();
    at
}

#[test]
fn seeds_are_taken_up_by_their_journal() {
    within(|bed| {
        let at = journals(bed);
        for (format, count) in [(Format::Ext4, 3), (Format::Xfs, 1), (Format::Btrfs, 1)] {
            let by_journal = seeds(bed, format, (Some(&at), &[]), count, USUAL_STEPS);
            assert!(by_journal > 0, "{format:?}");
        }
    });
}

#[test]
fn a_hundred_seeds_are_taken_up_by_their_journal() {
    if sys::require::requested("takes up the logs of 100 seeds of 300 steps by their journals") {
        within(|bed| {
            assert!(
                seeds(
                    bed,
                    Format::Ext4,
                    (Some(&journals(bed)), &[]),
                    HALF,
                    ALL_STEPS
                ) > 0
            );
        });
    }
}

fn place(bed: &Bed) -> Option<Place> {
    let disk = bed.mount(Format::Ext4, "source")?;
    let mut place = Place::new(&disk, bed.scratch(), 0);
    place.pin = Some(journals(bed));
    shell(
        &place.tree,
        "mkdir -p many/deep; for i in $(seq 500); do echo $i >many/$i; done
         head -c 3000000 /dev/urandom >large; touch many/deep/in",
    );
    Some(place)
}

/// The journal's folder, and its label.
fn label(place: &Place) -> Option<(PathBuf, String)> {
    let mut journals = fs::read_dir(place.pin.as_ref()?).unwrap();
    let at = journals.next()?.unwrap().path();
    let map = MapHandle::from_pinned_path(at.join("label")).ok()?;
    let text = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap()?;
    let text = String::from_utf8(text).unwrap();
    Some((at, text.trim_end_matches('\0').to_owned()))
}

/// Runs a capture until its journal is usable.
pub(crate) fn pinned_capture(place: &Place) -> Running {
    let mut running = Running::start(place);
    running.wait("ready");
    while label(place).is_none_or(|(_, label)| label.contains("\"epoch\":null")) {
        // An epoch ends with what happens.
        shell(&place.tree, "touch .");
        running.catch_up();
        thread::sleep(Duration::from_millis(10));
    }
    running
}

#[test]
fn only_what_the_journal_names_is_read() {
    within(|bed| {
        let Some(place) = place(bed) else { return };
        pinned_capture(&place).kill();
        let (at, label) = label(&place).unwrap();
        assert!(label.contains(&place.tree.display().to_string()), "{label}");
        shell(
            &place.tree,
            "echo changed >many/7; rm many/8; mv many/9 nine; mv many/deep shallow; echo new >many/new
             chmod 600 many/10; printf x | dd of=many/11 bs=1 seek=100000 conv=notrunc status=none",
        );
        let mut second = Running::start(&place);
        let said = second.wait("ready");
        assert_eq!(said["journal"], 1, "{said:?}");
        // Those files, their directories, and what the earlier capture had seen last.
        assert!(said["files"] < 20, "{said:?}");
        assert_eq!((said["new"], said["gone"]), (1, 1), "{said:?}");
        assert!(said["bytes"] < 200_000, "{said:?}");
        second.kill();
        place.check(&[]);
        assert!(at.exists(), "it is kept on");
    });
}

#[test]
fn what_a_journal_cannot_know_is_compared() {
    within(|bed| {
        let Some(place) = place(bed) else { return };
        let compared = |place: &Place| {
            let mut next = Running::start(place);
            let said = next.wait("ready");
            next.kill();
            place.check(&[]);
            (said["journal"], said["files"] > 500)
        };
        // Before its first epoch is through.
        let mut first = Running::start(&place);
        first.wait("ready");
        first.kill();
        let (at, _) = label(&place).unwrap();
        fs::remove_file(at.join("label")).unwrap();
        assert_eq!(compared(&place), (0, true), "no label");

        // More files than there is room for.
        pinned_capture(&place).kill();
        for _ in 0..70_000 {
            // The next one has its inode's number, but not its generation.
            let short = place.tree.join("short");
            fs::write(&short, "").unwrap();
            fs::remove_file(&short).unwrap();
        }
        assert_eq!(compared(&place), (0, true), "full");

        // A directory was outside of the tree, where changes of its files were not noted.
        pinned_capture(&place).kill();
        let away = "mv many ../away; echo changed >../away/7; mv ../away many";
        shell(&place.tree, away);
        assert_eq!(compared(&place), (0, true), "away");

        // The log is another one's, or an older one.
        pinned_capture(&place).kill();
        fs::remove_dir_all(&place.log).unwrap();
        let (journal, _) = compared(&place);
        assert_eq!(journal, 0, "another log");

        // The file system was away meanwhile.
        pinned_capture(&place).kill();
        let disk = place.tree.parent().unwrap().parent().unwrap().to_owned();
        let image = bed.scratch().join("source.image");
        let again = format!(
            "umount '{0}'; mount -o loop '{1}' '{0}'",
            disk.display(),
            image.display()
        );
        shell(Path::new("/"), &again);
        assert_eq!(compared(&place), (0, true), "mounted again");

        // A mount within the tree hides or reveals files.
        shell(
            &place.tree,
            "mkdir shadow; echo x >shadow/file; mount -t tmpfs none shadow",
        );
        pinned_capture(&place).kill();
        shell(&place.tree, "umount shadow");
        assert_eq!(compared(&place), (0, true), "unmounted");
        pinned_capture(&place).kill();
        shell(&place.tree, "mount -t tmpfs none shadow");
        let mut next = Running::start(&place);
        assert_eq!(next.wait("ready")["journal"], 0, "mounted");
        next.kill();
        // While it is followed, an epoch soon has that.
        let mut running = pinned_capture(&place);
        shell(&place.tree, "umount shadow; echo more >large");
        running.catch_up();
        running.catch_up();
        running.kill();
        assert_eq!(compared(&place).0, 1, "unmounted while it was followed");

        // The journal can be removed once.
        pinned_capture(&place).kill();
        assert!(place.unpin());
        assert!(!place.unpin());

        // It is also found and removed when the folder is unknown.
        pinned_capture(&place).kill();
        let folder = place.pin.as_deref();
        assert_eq!(Pin::remove_others(&place.log, folder).unwrap().len(), 0);
        assert_eq!(Pin::remove_others(&place.log, None).unwrap().len(), 1);
        assert!(!place.unpin());
    });
}
