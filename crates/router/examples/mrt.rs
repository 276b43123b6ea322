//! `mrt write PREFIXES.gz OUT` makes an MRT dump of a list of prefixes, with the paths of three
//! peers each; `mrt read FILE` imports a table of any format and says how long that took; `mrt image FILE
//! OUT` also makes a table image of it, writes it, reads it again and checks every engine on it.
#![expect(clippy::print_stdout, reason = "what it is for")]

#[path = "../tests/it/common/mrt.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "made for tests")]
mod mrt;

use std::env;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Instant;

use mrt::Dump;
use router::check;
use router::image::{Image, Tables};
use router::routes::{self, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["write", prefixes, out] => write(Path::new(prefixes), Path::new(out)),
        ["read", file] => read(Path::new(file)),
        ["image", file, out] => image(Path::new(file), Path::new(out)),
        _ => Err("mrt write PREFIXES OUT, mrt read FILE, or mrt image FILE OUT".into()),
    }
}

fn write(prefixes: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let list = routes::open(prefixes, &Options::default())?.routes;
    let peers: Vec<(IpAddr, u32)> = (1..=3)
        .map(|at| {
            (
                IpAddr::V4(Ipv4Addr::new(192, 0, 2, at)),
                64_500 + u32::from(at),
            )
        })
        .collect();
    let mut out = BufWriter::new(File::create(out)?);
    let mut dump = Dump::new(&mut out, &peers)?;
    for route in &list.v4 {
        let network = IpAddr::V4(Ipv4Addr::from_bits(route.prefix.first()));
        route_of(&mut dump, network, route.prefix.len())?;
    }
    for route in &list.v6 {
        let network = IpAddr::V6(Ipv6Addr::from_bits(route.prefix.first()));
        route_of(&mut dump, network, route.prefix.len())?;
    }
    out.flush()?;
    Ok(())
}

/// Three paths of four to six ASes, to next hops that the length chooses.
fn route_of(dump: &mut Dump<impl Write>, network: IpAddr, bits: u8) -> io::Result<()> {
    let ases = [64_501, 3_356, 1_299, 174, 4_200_000_001, 13_335];
    let hop = |peer: u8| match network {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::new(198, 51, peer, bits)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::new(
            0x2001,
            0xdb8,
            0,
            0,
            0,
            0,
            peer.into(),
            bits.into(),
        )),
    };
    let path = |peer: u8, length: usize| mrt::Path {
        peer: peer.into(),
        ases: &ases[..length],
        next_hop: hop(peer),
    };
    let paths = [path(0, 5), path(1, 4), path(2, 6)];
    dump.route(network, bits, &paths, false)
}

fn read(file: &Path) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let imported = routes::open(file, &Options::default())?;
    let took = begin.elapsed().as_secs_f64();
    let routes = &imported.routes;
    let (v4, v6, targets) = (routes.v4.len(), routes.v6.len(), routes.targets.len());
    println!("{v4} IPv4 and {v6} IPv6 routes to {targets} targets in {took:.2} s");
    peak()
}

fn image(file: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let mut begin = Instant::now();
    let mut lap = |what: &str| {
        println!("{what}: {:.2} s", begin.elapsed().as_secs_f64());
        begin = Instant::now();
    };
    let mut routes = routes::open(file, &Options::default())?.routes;
    lap("read");
    routes.spread(200);
    let tables = Some(Tables::build(&routes, None)?);
    lap("made tables");
    let made = Image {
        sources: Vec::new(),
        tables,
        rules: None,
    };
    let bytes = made.save(out)?;
    lap(&format!("wrote {bytes} bytes"));
    peak()?;
    let opened = Image::open(out)?;
    lap("opened");
    if let Some(tables) = opened.tables {
        for engine in check::tables(tables, 1)?.1 {
            println!(
                "{}: {} keys, {} wrong",
                engine.engine, engine.keys, engine.wrong
            );
        }
    }
    lap("checked");
    Ok(())
}

/// Prints the most memory that the program has had.
fn peak() -> Result<(), Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{}", peak.unwrap_or_default());
    Ok(())
}
