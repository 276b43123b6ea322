//! Databases and other programs run on a followed tree and are killed. Replicas equal the tree byte
//! for byte, and servers recover the source's data from them.

mod fio;
mod git;
mod lmdb;
mod mail;
mod mariadb;
mod mirror;
mod postgresql;
mod redis;
mod sqlite;
