//! JA4 against the values of its description (github.com/FoxIO-LLC/ja4, technical_details/JA4.md).

use super::hello::{Hello, alpn, browser, signature_algorithms, supported_versions};

fn parts(hello: &Hello) -> [String; 3] {
    let read = hello.read().ja4;
    assert_eq!(read.len(), 36);
    let parts: Vec<_> = read.split('_').map(str::to_owned).collect();
    parts.try_into().unwrap()
}

#[test]
fn the_description_s_example() {
    let read = browser().read();
    assert_eq!(read.ja4, "t13d1516h2_8daaf6152771_e5627efa2ab1");
    assert_eq!(read.sni.as_deref(), Some("www.example.com"));
}

#[test]
fn without_signature_algorithms_the_extensions_stand_alone() {
    let mut hello = browser();
    // The type stays in the list, as in the description; only its algorithms are gone.
    for (kind, data) in &mut hello.extensions {
        if *kind == 13 {
            *data = signature_algorithms(&[]).1;
        }
    }
    assert_eq!(
        parts(&hello),
        ["t13d1516h2", "8daaf6152771", "6d807ffa2a79"]
    );
}

#[test]
fn the_first_protocol_gives_its_ends() {
    let cases: [(&[u8], &str); 12] = [
        (b"h2", "h2"),
        (b"http/1.1", "h1"),
        (b"x", "xx"),
        (b"", "00"),
        (&[0xab], "ab"),
        (&[0xab, 0xcd], "ad"),
        (&[0x30, 0xab], "3b"),
        (&[0x30, 0x31, 0xab, 0xcd], "3d"),
        (&[0x30, 0xab, 0xcd, 0x31], "01"),
        (b"-a", "21"),
        (b"SPDY/3", "S3"),
        (&[0x0a, 0x0a], "0a"),
    ];
    for (protocol, expected) in cases {
        let hello = Hello {
            version: 0x0303,
            ciphers: vec![0xc02f],
            extensions: vec![alpn(&[protocol, b"other"])],
        };
        assert_eq!(
            parts(&hello)[0],
            format!("t12i0101{expected}"),
            "{protocol:?}"
        );
    }
}

#[test]
fn versions_counts_and_empty_lists() {
    let bare = |version, ciphers: Vec<u16>| Hello {
        version,
        ciphers,
        extensions: Vec::new(),
    };
    let nothing = "000000000000";
    for (version, expected) in [
        (0x0300, "s3"),
        (0x0301, "10"),
        (0x0302, "11"),
        (0x0305, "00"),
    ] {
        let a = format!("t{expected}i000000");
        assert_eq!(parts(&bare(version, vec![0x1a1a])), [&a, nothing, nothing]);
    }
    assert_eq!(parts(&bare(0x0303, vec![0x00ff; 150]))[0], "t12i990000");
    let mut hello = bare(0x0303, vec![]);
    hello.extensions = vec![supported_versions(&[0x0302, 0x0301, 0x8a8a])];
    assert_eq!(parts(&hello)[0], "t11i000100");
    hello.extensions = vec![alpn(&[b"h2"])];
    assert_eq!(parts(&hello), ["t12i0001h2", nothing, nothing]);
}
