//! The C library from C: the example is compiled with what the pkg-config file says, and run.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use router::image::{Image, Tables};
use sys::require::{self, Class};

const HERE: &str = env!("CARGO_MANIFEST_DIR");
const ROUTES: &str = "192.0.2.0/24 via 10.0.0.1
192.0.2.128/25 blackhole
2001:db8::/32 via fe80::1 dev eth0
";
/// The second rule drops DNS to one half of the first network.
const RULES: &str = "@0.0.0.0/0\t192.0.2.0/24\t0 : 65535\t80 : 80\t0x06/0xFF
@0.0.0.0/0\t192.0.2.0/25\t0 : 65535\t0 : 65535\t0x11/0xFF
";

const EXPECTED_OUTPUT: &str = "2 + 1 routes, 2 + 0 rules
192.0.2.1: via 10.0.0.1, accept by rule 1
192.0.2.200: blackhole, accept
198.51.100.1: no route, accept
2001:db8::7: via fe80::1 dev eth0, accept
::1: no route, accept
";

/// The table image of these files.
fn save(routes: &Path, rules: &Path, image: &Path) {
    let routes = router::routes::open(routes, &router::routes::Options::default()).unwrap();
    let rules = router::rules::open(rules, &router::rules::Options::default()).unwrap();
    let made = Image {
        sources: Vec::new(),
        tables: Some(Tables::build(&routes.routes, None).unwrap()),
        rules: Some(rules),
    };
    made.save(image).unwrap();
}

/// A prefix with the library, the header and the pkg-config file, as an installation has them.
struct Installation {
    prefix: tempfile::TempDir,
}

#[test]
fn the_example_looks_up() {
    let Some(installation) = install() else {
        return;
    };
    let program = installation.compile("cc", "examples/lookup.c", &["-std=c11", "-pedantic"]);
    let folder = installation.prefix.path();
    let [routes, rules] = ["routes.txt", "rules"].map(|name| folder.join(name));
    fs::write(&routes, ROUTES).unwrap();
    fs::write(&rules, RULES).unwrap();
    let image = folder.join("table.lrt");
    save(&routes, &rules, &image);
    for from in [&[&routes, &rules][..], &[&image]] {
        let mut lookup = Command::new(&program);
        lookup.args(from).args([
            "192.0.2.1",
            "192.0.2.200",
            "198.51.100.1",
            "2001:db8::7",
            "::1",
        ]);
        let output = installation.run(&mut lookup);
        assert!(output.status.success(), "{output:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(stdout, EXPECTED_OUTPUT);
    }
    fs::write(&routes, "192.0.2.0/24\n192.0.2.0/33\n").unwrap();
    let output = installation.run(Command::new(&program).arg(&routes).arg(&rules));
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("routes.txt:2: "), "{error}");
}

#[test]
fn what_c_passes_is_checked() {
    let Some(installation) = install() else {
        return;
    };
    let program = installation.compile("cc", "tests/refusals.c", &["-std=c11", "-pedantic"]);
    let output = installation.run(&mut Command::new(program));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn cpp_takes_the_header() {
    let Some(installation) = install() else {
        return;
    };
    installation.compile("c++", "tests/header.cc", &[]);
}

fn install() -> Option<Installation> {
    for program in ["cc", "c++", "pkg-config"] {
        if Command::new(program).arg("--version").output().is_err() {
            require::skip(
                Class::Core,
                &format!("{program} is missing: apt install g++ pkg-config"),
            );
            return None;
        }
    }
    let prefix = tempfile::tempdir().unwrap();
    let [lib, include] = ["lib", "include"].map(|name| prefix.path().join(name));
    fs::create_dir(&lib).unwrap();
    symlink(Path::new(HERE).join("include"), include).unwrap();
    symlink(library(), lib.join("liblowroad_router.so")).unwrap();
    let template = Path::new(HERE).join("../../packaging/lowroad_router.pc.in");
    let text = fs::read_to_string(template).unwrap();
    let text = text
        .replace("@prefix@", prefix.path().to_str().unwrap())
        .replace("@libdir@", "${prefix}/lib")
        .replace("@version@", env!("CARGO_PKG_VERSION"));
    fs::write(lib.join("lowroad_router.pc"), text).unwrap();
    Some(Installation { prefix })
}

impl Installation {
    fn compile(&self, compiler: &str, source: &str, options: &[&str]) -> PathBuf {
        let program = self.prefix.path().join("program");
        let flags = Command::new("pkg-config")
            .args(["--cflags", "--libs", "lowroad_router"])
            .env("PKG_CONFIG_PATH", self.lib())
            .output();
        let flags = String::from_utf8(flags.unwrap().stdout).unwrap();
        assert!(flags.contains("-llowroad_router"), "{flags}");
        let output = Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror"])
            .args(options)
            .arg(Path::new(HERE).join(source))
            .arg("-o")
            .arg(&program)
            .args(flags.split_whitespace())
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        program
    }

    fn run(&self, program: &mut Command) -> Output {
        let program = program.env("LD_LIBRARY_PATH", self.lib());
        program.output().unwrap()
    }

    fn lib(&self) -> PathBuf {
        self.prefix.path().join("lib")
    }
}

/// The library of this build.
fn library() -> PathBuf {
    let here = env::current_exe().unwrap();
    let library = here.with_file_name("liblowroad_router.so");
    assert!(library.is_file(), "{} is missing", library.display());
    library
}
