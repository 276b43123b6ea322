//! What payloads tell: made by hand, damaged at random, and from real captures beside tshark.

mod captures;
mod dns;
mod entropy;
mod flows;
mod fuzz;
mod hello;
mod ja4;
mod quic;
mod quic_captures;
mod stream;
mod tshark;
