//! AF_XDP sockets, rings and frames.
