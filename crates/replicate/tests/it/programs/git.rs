//! A git server with concurrent pushes, some of which discard what others have pushed, and its
//! housekeeping beside them.

use std::path::Path;
use std::process::Command;

use sys::require::{Class, requested, skip};

use super::mirror::{MirrorBed, output_of, script};
use crate::bed::file_system::{Format, within};

/// `$1` has the repository.
const WORK: &str = r#"
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
git config --global user.name somebody
git config --global user.email somebody@example.net
git config --global init.defaultBranch main
git config --global safe.directory '*'
repository=$1/repository.git
git init -q --bare "$repository"
git -C "$repository" config core.fsync all
develop() {
    git clone -q "$repository" work$1 2>clone$1
    cd work$1
    git checkout -q -b branch$1
    for number in 1 2 3 4 5 6 7 8 9 10; do
        mkdir -p folder$number
        head -c $((number * 7000)) /dev/urandom >folder$number/bytes
        seq $((number * 100)) >lines
        git add .
        git commit -q -m "change $number"
        git push -q origin branch$1
        if [ $((number % 4)) = 0 ]; then
            git commit -q --amend -m again
            git push -q --force origin branch$1
            git tag tag$1.$number
            git push -q --tags
        fi
    done
    cd ..
}
pids=
for one in 1 2 3; do
    develop $one &
    pids="$pids $!"
done
until git -C "$repository" rev-parse -q --verify branch1 >verified; do
    sleep 0.01
done
for round in 1 2 3; do
    git -C "$repository" repack -a -d -q
    git -C "$repository" pack-refs --all
done
for one in $pids; do
    wait $one
done
git -C work1 push -q --delete origin branch3
git -C "$repository" reflog expire --expire=now --all
git -C "$repository" gc -q --prune=now
git clone -q --mirror "$repository" "$1/mirror.git"
"#;

#[test]
fn a_git_server_is_mirrored() {
    mirrored_on(Format::Ext4);
}

#[test]
fn a_git_server_is_mirrored_on_other_file_systems() {
    if requested("follows a git server on xfs, btrfs, tmpfs and an overlay") {
        for format in [Format::Xfs, Format::Btrfs, Format::Tmpfs, Format::Overlay] {
            mirrored_on(format);
        }
    }
}

fn mirrored_on(format: Format) {
    within(|bed| {
        if Command::new("git").arg("--version").output().is_err() {
            skip(Class::Core, "needs git: apt-get install git");
            return;
        }
        let Some(mut mirrored) = MirrorBed::start_on(bed, format, "git") else {
            return;
        };
        let tree = mirrored.tree.clone();
        mirrored.during(|| script(bed, WORK, &tree));
        let (_, copies) = mirrored.end();
        for name in ["repository.git", "mirror.git"] {
            let references = sound(&tree.join(name));
            assert!(references.contains("refs/heads/branch2"), "{references}");
            for copy in &copies {
                assert_eq!(sound(&copy.join(name)), references, "{}", copy.display());
            }
        }
    });
}

/// What a repository refers to, which is all there.
fn sound(repository: &Path) -> String {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "safe.directory=*", "-C"]);
        output_of(command.arg(repository).args(arguments))
    };
    git(&["fsck", "--full", "--strict"]);
    git(&["for-each-ref"])
}
