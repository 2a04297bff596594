//! By which names, and from which web pages, a server of this crate may be called: as every role, see [`kaos_guard`].

pub use kaos_guard::HostPolicy;

pub(crate) use kaos_guard::guard;
