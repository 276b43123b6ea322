//! Control socket, HTTP API, metrics and configuration files.
