//! Socket addresses as users write them.

use std::net::{IpAddr, SocketAddr};

/// Reads `192.0.2.1:5004` or `[2001:db8::1]:5004`.
///
/// # Errors
/// What is wrong with the text, and what to write.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let what = match text.trim_matches(['[', ']']).parse() {
            Ok(IpAddr::V4(address)) => format!("has no port; write {address}:5004"),
            Ok(IpAddr::V6(address)) => format!("has no port; write [{address}]:5004"),
            Err(_) => {
                let example = "192.0.2.1:5004 or [2001:db8::1]:5004";
                format!("is not an address with a port; write {example}")
            }
        };
        format!("\"{text}\" {what}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_show_what_to_write() {
        let error = |text| socket_address(text).unwrap_err();
        assert_eq!(error("::1"), "\"::1\" has no port; write [::1]:5004");
        assert_eq!(
            error("host:5004"),
            "\"host:5004\" is not an address with a port; write 192.0.2.1:5004 or [2001:db8::1]:5004"
        );
        assert!(socket_address("[::1]:5004").is_ok());
    }
}
