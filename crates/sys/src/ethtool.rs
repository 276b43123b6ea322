//! The settings that `ethtool` shows and changes: features by name, channels and the driver's name.
//!
//! Requests go to the calling thread's namespace at the time of `open`.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GET_DRIVER: u32 = 0x03;
const GET_STRINGS: u32 = 0x1b;
const GET_STRING_SET_SIZES: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const SET_FEATURES: u32 = 0x3b;
const GET_CHANNELS: u32 = 0x3c;
const SET_CHANNELS: u32 = 0x3d;
const FEATURE_NAMES: u32 = 4;
/// `ETH_GSTRING_LEN` in words.
const NAME_WORDS: usize = 8;
/// `ETHTOOL_F_UNSUPPORTED | ETHTOOL_F_WISH`: a part of the request was not carried out.
const NOT_CARRIED_OUT: i32 = 1 | 2;

/// One device, as its driver presents it.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
    name: String,
}

/// A feature of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    pub active: bool,
    /// Whether this device lets anybody change it.
    pub changeable: bool,
}

/// Queues a device uses, and the most it can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    pub rx: u32,
    pub tx: u32,
    pub combined: u32,
    pub max_rx: u32,
    pub max_tx: u32,
    pub max_combined: u32,
}

/// An error of a device.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{action} of {name}: {cause}")]
    Refused {
        action: &'static str,
        name: String,
        cause: io::Error,
    },
    #[error("{name} has no feature {feature}; ethtool -k {name} lists them")]
    NoSuchFeature { name: String, feature: String },
    #[error("{name} does not let feature {feature} be changed to {wanted}")]
    Fixed {
        name: String,
        feature: String,
        wanted: bool,
    },
}

impl Ethtool {
    /// The device called `name` in this thread's namespace. A missing device shows at first use.
    pub fn open(name: &str) -> Result<Self, Error> {
        let opened = socket(
            AddressFamily::Inet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            None,
        );
        let name = name.to_owned();
        match opened {
            Ok(socket) => Ok(Self { socket, name }),
            Err(errno) => Err(Error::Refused {
                action: "opening a socket for the features",
                name,
                cause: errno.into(),
            }),
        }
    }

    /// The driver's name: `veth`, `macvlan`, `ice`.
    pub fn driver(&self) -> Result<String, Error> {
        let mut request = vec![0_u32; 49];
        request[0] = GET_DRIVER;
        self.call("reading the driver", &mut request)?;
        Ok(text(&request[1..9]))
    }

    /// Every feature by the kernel's name: `rx-gro`, `tx-generic-segmentation`.
    pub fn features(&self) -> Result<BTreeMap<String, Feature>, Error> {
        let names = self.feature_names()?;
        let blocks = names.len().div_ceil(32);
        let mut request = vec![0_u32; 2 + 4 * blocks];
        request[0] = GET_FEATURES;
        request[1] = word(blocks);
        self.call("reading the features", &mut request)?;
        let bit = |number: usize, field: usize| {
            request[2 + 4 * (number / 32) + field] >> (number % 32) & 1 == 1
        };
        Ok(names
            .into_iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty())
            .map(|(number, name)| {
                let feature = Feature {
                    active: bit(number, 2),
                    changeable: bit(number, 0) && !bit(number, 3),
                };
                (name, feature)
            })
            .collect())
    }

    /// Turns features on or off; those that already are as wanted need not be changeable.
    pub fn set_features(&self, wanted: &[(&str, bool)]) -> Result<(), Error> {
        let names = self.feature_names()?;
        let blocks = names.len().div_ceil(32);
        let mut request = vec![0_u32; 2 + 2 * blocks];
        request[0] = SET_FEATURES;
        request[1] = word(blocks);
        for &(feature, on) in wanted {
            let number = names.iter().position(|name| name == feature);
            let number = number.ok_or_else(|| Error::NoSuchFeature {
                name: self.name.clone(),
                feature: feature.to_owned(),
            })?;
            let block = 2 + 2 * (number / 32);
            request[block] |= 1 << (number % 32);
            request[block + 1] |= u32::from(on) << (number % 32);
        }
        if self.call("setting features", &mut request)? & NOT_CARRIED_OUT == 0 {
            return Ok(());
        }
        let now = self.features()?;
        let refused = wanted
            .iter()
            .find(|(feature, on)| now.get(*feature).is_some_and(|now| now.active != *on));
        match refused {
            None => Ok(()),
            Some(&(feature, wanted)) => Err(Error::Fixed {
                name: self.name.clone(),
                feature: feature.to_owned(),
                wanted,
            }),
        }
    }

    /// The queues in use and the most the device can use.
    pub fn channels(&self) -> Result<Channels, Error> {
        let mut request = vec![0_u32; 9];
        request[0] = GET_CHANNELS;
        self.call("reading the channels", &mut request)?;
        Ok(Channels {
            max_rx: request[1],
            max_tx: request[2],
            max_combined: request[4],
            rx: request[5],
            tx: request[6],
            combined: request[8],
        })
    }

    /// Uses the numbers of `channels.rx`, `.tx` and `.combined` queues.
    pub fn set_channels(&self, channels: Channels) -> Result<(), Error> {
        let mut request = vec![0_u32; 9];
        request[0] = SET_CHANNELS;
        request[5] = channels.rx;
        request[6] = channels.tx;
        request[8] = channels.combined;
        self.call("setting the channels", &mut request).map(drop)
    }

    fn feature_names(&self) -> Result<Vec<String>, Error> {
        let mut sizes = vec![0_u32; 5];
        sizes[0] = GET_STRING_SET_SIZES;
        sizes[2] = 1 << FEATURE_NAMES;
        self.call("counting the features", &mut sizes)?;
        let count = sizes[4] as usize;
        let mut request = vec![0_u32; 3 + NAME_WORDS * count];
        request[0] = GET_STRINGS;
        request[1] = FEATURE_NAMES;
        request[2] = sizes[4];
        self.call("naming the features", &mut request)?;
        Ok(request[3..].chunks(NAME_WORDS).map(text).collect())
    }

    /// `request` is the command's structure, as words; the answer replaces it.
    fn call(&self, action: &'static str, request: &mut [u32]) -> Result<i32, Error> {
        let refused = |cause| Error::Refused {
            action,
            name: self.name.clone(),
            cause,
        };
        // SAFETY: ifreq is plain data, for which zeroes are a value.
        let mut interface: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays zero: it ends the name.
        let room = interface.ifr_name.len() - 1;
        if self.name.len() > room {
            return Err(refused(io::Error::from_raw_os_error(libc::ENODEV)));
        }
        for (to, from) in interface.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        interface.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
        // SAFETY: `interface` names a request that is as long as its command, and the counts in
        // it, say; both outlive the call.
        let result = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                SIOCETHTOOL,
                std::ptr::from_mut(&mut interface),
            )
        };
        if result < 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        Ok(result)
    }
}

/// The text in a fixed field: up to its first zero byte.
fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Counts of features and blocks of them: small numbers.
fn word(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_a_fixed_feature_and_an_unknown_one_is_refused_by_name() {
        let loopback = Ethtool::open("lo").unwrap();
        let features = loopback.features().unwrap();
        assert!(features.contains_key("rx-gro"), "{features:?}");
        assert!(matches!(
            loopback.set_features(&[("rx-teleport", true)]),
            Err(Error::NoSuchFeature { feature, .. }) if feature == "rx-teleport"
        ));
        let missing = Ethtool::open("lr-not-there").unwrap();
        let error = missing.driver().unwrap_err().to_string();
        assert!(error.contains("lr-not-there"), "{error}");
    }
}
