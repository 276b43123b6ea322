//! Offload features of devices, set by name and read back.

use serde_json::Value;
use sys::ethtool::Ethtool;

use crate::error::Error;
use crate::settings::LinkSettings;

/// Sets the features of a device of the calling thread's namespace; returns the active ones.
pub(crate) fn set_features(
    place: &str,
    device: &str,
    settings: &LinkSettings,
) -> Result<Value, Error> {
    change_features(place, device, &settings.features())
}

/// As `set_features`, of those alone that are to be off.
pub(crate) fn clear_features(
    place: &str,
    device: &str,
    settings: &LinkSettings,
) -> Result<Value, Error> {
    let mut off = settings.features().to_vec();
    off.retain(|(_, on)| !on);
    change_features(place, device, &off)
}

fn change_features(place: &str, device: &str, features: &[(&str, bool)]) -> Result<Value, Error> {
    Ethtool::open(device)
        .and_then(|ethtool| ethtool.set_features(features))
        .map_err(|cause| Error::Feature {
            place: place.to_owned(),
            cause,
        })?;
    active_features(place, device)
}

pub(crate) fn active_features(place: &str, device: &str) -> Result<Value, Error> {
    let features = Ethtool::open(device).and_then(|ethtool| ethtool.features());
    let features = features.map_err(|cause| Error::Feature {
        place: place.to_owned(),
        cause,
    })?;
    let active = features.iter().filter(|(_, feature)| feature.active);
    Ok(active.map(|(name, _)| name.as_str()).collect())
}
