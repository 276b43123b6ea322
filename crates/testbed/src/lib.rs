//! Environments and links from one topology file.
