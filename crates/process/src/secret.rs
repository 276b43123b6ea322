//! Files with private keys, passwords and tokens.

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Longer files have no key. In bytes.
const MAX_LEN: u64 = 1 << 20;
const OTHERS: u32 = 0o077;
/// Of a credential of systemd: an access list gives it to the user of the service, and then the mode shows the user's
/// permission as that of the group.
const OTHERS_OF_CREDENTIAL: u32 = 0o037;

/// Reads a text file that belongs to the caller or to root, and that nobody but its owner can read or change; or a credential
/// that systemd has given to this service (`LoadCredential=`), of which the same holds.
///
/// # Errors
/// `PermissionDenied`, with what to do, if it belongs to another user or if others can open it; those of reading it.
pub fn read(path: &Path) -> io::Result<String> {
    read_secret(path, env::var_os("CREDENTIALS_DIRECTORY").as_deref())
}

/// Reads a file that need not be text, as [`read`].
///
/// # Errors
/// Those of [`read`].
pub fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let credentials = env::var_os("CREDENTIALS_DIRECTORY");
    open(path, credentials.as_deref())?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_secret(path: &Path, credentials: Option<&OsStr>) -> io::Result<String> {
    let mut text = String::new();
    open(path, credentials)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Opens the file if it is a secret.
fn open(path: &Path, credentials: Option<&OsStr>) -> io::Result<impl io::Read> {
    // Of what is open: the name may lead elsewhere a moment later.
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let owner = metadata.uid();
    if owner != 0 && owner != nix::unistd::geteuid().as_raw() {
        return Err(refused(format!(
            "the file belongs to user {owner}, who could change it; chown it"
        )));
    }
    let is_credential = credentials.is_some_and(|folder| path.parent() == Some(folder.as_ref()));
    let others = match is_credential {
        true => OTHERS_OF_CREDENTIAL,
        false => OTHERS,
    };
    if metadata.mode() & others != 0 {
        return Err(refused("others can open the file; chmod 600 it".to_owned()));
    }
    Ok(file.take(MAX_LEN))
}

fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;

    #[test]
    fn what_others_can_open_or_change_is_no_secret() {
        let path = env::temp_dir().join(format!("secret-{}", std::process::id()));
        fs::write(&path, "secret\n").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let refused = read(&path).unwrap_err().to_string();
            assert!(refused.contains("chmod 600"), "{mode:o}: {refused}");
        }
        for mode in [0o600, 0o400] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path).unwrap(), "secret\n");
            assert_eq!(read_bytes(&path).unwrap(), b"secret\n");
        }
        // As systemd makes them where the file system has access lists.
        fs::set_permissions(&path, Permissions::from_mode(0o440)).unwrap();
        let folder = path.parent().unwrap().as_os_str();
        assert_eq!(read_secret(&path, Some(folder)).unwrap(), "secret\n");
        assert!(read_secret(&path, Some("/run/credentials/x".as_ref())).is_err());
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        assert!(read_secret(&path, Some(folder)).is_err());
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        if nix::unistd::geteuid().is_root() {
            chown(&path, Some(65534), None).unwrap();
            let refused = read(&path).unwrap_err().to_string();
            assert!(refused.contains("belongs to user 65534"), "{refused}");
        }
        fs::remove_file(path).unwrap();
    }
}
