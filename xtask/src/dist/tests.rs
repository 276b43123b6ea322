use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::options::{Options, Source, Verb, parse};
use super::release::Release;
use super::{in_folder, libraries, pack, sbom};

/// Stands for every program: what packing asks of `lowroad` is a page and a script for each shell.
const PROGRAM: &str = "#!/bin/sh
case $1 in
man) mkdir -p \"$3\" && echo .TH lowroad 1 >\"$3/lowroad.1\" ;;
completions) echo \"# $2\" ;;
*) echo lowroad 0.1.0 ;;
esac
";

fn release() -> Release {
    Release {
        version: "0.1.0".to_owned(),
        commit: "0123456789ab".to_owned(),
        epoch: 1_700_000_000,
    }
}

/// Packs programs that lie in a folder of their own, and returns the folder of the packages.
fn packed(folder: &Path, name: &str) -> PathBuf {
    let programs = folder.join(name);
    fs::create_dir(&programs).unwrap();
    for program in [
        "lowroad",
        "lowroad-compare",
        "lowroad-onnx",
        "netbench-agent",
    ] {
        let file = programs.join(program);
        fs::write(&file, PROGRAM).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let options = Options {
        source: Source::Folder(programs.clone()),
        out: folder.join(format!("{name}-out")),
    };
    pack(&options, &release(), &in_folder(&programs).unwrap()).unwrap();
    options.out
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
    output
}

fn lines(output: &Output) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::to_owned).collect()
}

/// Unpacks the tarball, and returns its folder.
fn unpacked(folder: &Path, out: &Path) -> PathBuf {
    let tarball = out.join(release().tarball());
    run(Command::new("tar")
        .arg("-xzf")
        .arg(tarball)
        .arg("-C")
        .arg(folder));
    folder.join(release().folder())
}

/// `./install`, with no terminal and without variables that change its folders.
fn install(unpacked: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(unpacked.join("install"));
    command.args(arguments).stdin(std::process::Stdio::null());
    for variable in ["PREFIX", "DESTDIR"] {
        command.env_remove(variable);
    }
    command.output().unwrap()
}

fn files_below(folder: &Path) -> BTreeSet<String> {
    let output = run(Command::new("find").arg(".").current_dir(folder));
    lines(&output)
}

#[test]
fn packages_are_reproducible() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["one", "another"].map(|name| packed(folder.path(), name));
    let sums = fs::read_to_string(first.join("SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), 3);
    for line in sums.lines() {
        let (_, name) = line.split_once("  ").unwrap();
        let bytes = |out: &Path| fs::read(out.join(name)).unwrap();
        assert!(bytes(&first) == bytes(&second), "{name} differs");
    }
    run(Command::new("sha256sum")
        .args(["--check", "--quiet", "SHA256SUMS"])
        .current_dir(&second));
}

#[test]
fn tarball_is_installed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let unpacked = unpacked(folder.path(), &packed(folder.path(), "programs"));
    let place = folder.path().join("place");
    fs::create_dir(&place).unwrap();
    let prefix = place.join("some/prefix").display().to_string();
    let installed = install(&unpacked, &["--prefix", &prefix]);
    assert!(installed.status.success(), "{installed:?}");
    let version = run(Command::new(format!("{prefix}/bin/lowroad")).arg("--version"));
    assert_eq!(version.stdout, b"lowroad 0.1.0\n");
    let unit = fs::read_to_string(format!("{prefix}/lib/systemd/system/lowroad-relay.service"));
    assert!(
        unit.unwrap()
            .contains(&format!("ExecStart={prefix}/bin/lowroad relay serve"))
    );
    let files = files_below(Path::new(&prefix));
    for file in [
        "./bin/lowroad-compare",
        "./bin/lowroad-onnx",
        "./bin/netbench-agent",
        "./lib/sysusers.d/lowroad.conf",
        "./share/bash-completion/completions/lowroad",
        "./share/doc/lowroad/LICENSE-MIT",
        "./share/doc/lowroad/THIRD-PARTY.txt",
        "./share/doc/lowroad/book/SUMMARY.md",
        "./share/doc/lowroad/examples/scan-detector/run.py",
        "./share/doc/lowroad/experiments/relay-delay.toml",
        "./share/doc/lowroad/sbom.cdx.json",
        "./share/fish/vendor_completions.d/lowroad.fish",
        "./share/man/man1/lowroad.1",
        "./share/zsh/site-functions/_lowroad",
    ] {
        assert!(files.contains(file), "{file}: {files:?}");
    }

    // A later version without one of the files removes it, and the copy of the script removes the rest.
    fs::remove_file(unpacked.join("bin/netbench-agent")).unwrap();
    assert!(install(&unpacked, &["--prefix", &prefix]).status.success());
    assert!(!files_below(Path::new(&prefix)).contains("./bin/netbench-agent"));
    let copy = PathBuf::from(&prefix).join("share/lowroad");
    let removed = install(&copy, &["--uninstall", "--prefix", &prefix]);
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(files_below(&place), BTreeSet::from([".".to_owned()]));
}

#[test]
fn files_of_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let unpacked = unpacked(folder.path(), &packed(folder.path(), "programs"));
    let root = folder.path().join("root");
    let theirs = root.join("usr/bin/lowroad");
    fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    fs::write(&theirs, "theirs").unwrap();
    let destdir = root.display().to_string();
    let arguments = ["--prefix", "/usr", "--destdir", &destdir];
    let refused = install(&unpacked, &arguments);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not from this script"));
    assert_eq!(fs::read(&theirs).unwrap(), b"theirs");
    fs::remove_file(&theirs).unwrap();
    fs::write(root.join("usr/bin/other"), "theirs").unwrap();
    assert!(install(&unpacked, &arguments).status.success());
    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/lowroad-relay.service"));
    assert!(
        unit.unwrap()
            .contains("ExecStart=/usr/bin/lowroad relay serve")
    );
    let removed = install(&unpacked, &[&["--uninstall"][..], &arguments].concat());
    assert!(removed.status.success(), "{removed:?}");
    let expected = [".", "./usr", "./usr/bin", "./usr/bin/other"];
    assert_eq!(
        files_below(&root),
        BTreeSet::from(expected.map(str::to_owned))
    );
    let again = install(&unpacked, &[&["--uninstall"][..], &arguments].concat());
    assert_eq!(again.status.code(), Some(1), "{again:?}");
}

#[test]
fn debian_package_is_one_that_dpkg_reads() {
    if !crate::run::exists("dpkg-deb") {
        println!("SKIP opt-in: no dpkg-deb");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let package = packed(folder.path(), "programs").join(release().debian_package());
    let field = |name: &str| {
        let output = run(Command::new("dpkg-deb")
            .arg("--field")
            .arg(&package)
            .arg(name));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(field("Version"), "0.1.0");
    assert_eq!(field("Depends"), "");
    let root = folder.path().join("root");
    run(Command::new("dpkg-deb")
        .arg("--raw-extract")
        .arg(&package)
        .arg(&root));
    run(Command::new("md5sum")
        .args(["--check", "--quiet", "DEBIAN/md5sums"])
        .current_dir(&root));
    for file in [
        "usr/bin/lowroad",
        "usr/lib/systemd/system/lowroad-relay.service",
        "usr/lib/sysusers.d/lowroad.conf",
        "usr/share/doc/lowroad/changelog.gz",
        "usr/share/doc/lowroad/copyright",
        "usr/share/man/man1/lowroad.1.gz",
        "usr/share/zsh/vendor-completions/_lowroad",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    for script in ["postinst", "prerm", "postrm"] {
        run(Command::new("sh")
            .arg("-n")
            .arg(root.join("DEBIAN").join(script)));
    }
    let before = fs::read_to_string(root.join("DEBIAN/prerm")).unwrap();
    assert!(before.contains("lowroad-relay.service"), "{before}");
}

#[test]
fn versions_and_places_are_those_of_the_workspace() {
    let version = Release::of_checkout().unwrap().version;
    let spec = fs::read_to_string(crate::root().join("packaging/lowroad.spec")).unwrap();
    assert!(
        spec.contains(&format!("\nVersion: {version}\n")),
        "lowroad.spec: not {version}"
    );
    let recipe = fs::read_to_string(crate::root().join("packaging/Containerfile")).unwrap();
    assert!(
        recipe.contains(&format!("\nARG VERSION={version}\n")),
        "Containerfile: not {version}"
    );
}

#[test]
fn headers_of_a_program_are_read() {
    let headers = "
Dynamic Section:
  NEEDED               libelf.so.1
  NEEDED               libc.so.6
Version References:
  required from libc.so.6:
    0x06969185 0x00 25 GLIBC_2.25
    0x09691974 0x00 09 GLIBC_2.3.4
    0x069691b4 0x00 12 GLIBC_2.34
    0x0d696914 0x00 07 GLIBC_2.4
";
    let names: Vec<&str> = libraries::libraries(headers).collect();
    assert_eq!(names, ["libelf.so.1", "libc.so.6"]);
    assert_eq!(libraries::glibc_version(headers), (2, 34));
    let packed = "    0x0fd0e42f 0x00 16 GLIBC_ABI_DT_RELR\n";
    assert_eq!(
        libraries::glibc_version(&format!("{headers}{packed}")),
        (2, 36)
    );
}

#[test]
fn times_are_dates() {
    for (epoch, expected) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_700_000_000, "2023-11-14T22:13:20Z"),
        (4_107_542_399, "2100-02-28T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ] {
        assert_eq!(sbom::timestamp(epoch), expected);
    }
}

#[test]
fn options_are_parsed() {
    let pack = |source, out: &str| {
        Verb::Pack(Options {
            source,
            out: out.into(),
        })
    };
    let dist = Source::Profile("dist".to_owned());
    assert_eq!(parse(&[]).unwrap(), pack(dist, "target/packages"));
    let folder = Source::Folder("programs".into());
    let arguments = ["--no-build", "programs", "--out", "x"];
    assert_eq!(parse(&arguments).unwrap(), pack(folder, "x"));
    for wrong in [
        &["help"][..],
        &["--out"],
        &["--profile", "dev", "--no-build", "x"],
    ] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
}
