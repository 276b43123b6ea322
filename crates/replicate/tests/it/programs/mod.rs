//! Databases and other programs at work on a tree that is followed, and killed: replicas are the tree, byte for byte,
//! and servers recover from them what the source has.

mod fio;
mod git;
mod lmdb;
mod mail;
mod mariadb;
mod mirror;
mod postgresql;
mod redis;
mod sqlite;
