//! The server over HTTPS on a loopback address.
