//! Where a named service is reached.

use std::{collections::BTreeMap, fmt::Debug, net::SocketAddr};

use url::Url;

/// Knows the addresses of names that DNS does not: on a laptop, those of the local node's Services.
pub trait Dialer: Debug + Send + Sync {
    /// The address that connections to `host:port` go to, or `None` where the name is left to DNS.
    fn address(&self, host: &str, port: u16) -> Option<SocketAddr>;

    /// `url` with its authority replaced by the address of [`Dialer::address`], or as it is where DNS
    /// resolves the name. The path and query are kept. Only for plain `http`: a certificate is checked
    /// against the name.
    fn locate(&self, url: &Url) -> Url {
        let mut located = url.clone();
        if url.scheme() != "http" {
            return located;
        }
        if let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default())
            && let Some(address) = self.address(host, port)
        {
            // Both only fail for URLs without a host, which this one has.
            let _ = located.set_ip_host(address.ip());
            let _ = located.set_port(Some(address.port()));
        }
        located
    }
}

/// Leaves every name to DNS: what a pod on a cluster uses.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDialer;

impl Dialer for SystemDialer {
    fn address(&self, _host: &str, _port: u16) -> Option<SocketAddr> {
        None
    }
}

/// A fixed table of `host:port` to address: for tests, and wherever the names are known beforehand.
#[derive(Clone, Debug, Default)]
pub struct FixedDialer {
    table: BTreeMap<(String, u16), SocketAddr>,
}

impl FixedDialer {
    /// Adds one name.
    #[must_use]
    pub fn with(mut self, host: &str, port: u16, address: SocketAddr) -> Self {
        self.table.insert((host.to_owned(), port), address);
        self
    }
}

impl Dialer for FixedDialer {
    fn address(&self, host: &str, port: u16) -> Option<SocketAddr> {
        self.table.get(&(host.to_owned(), port)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_name_is_replaced_and_the_path_is_kept() {
        let dialer = FixedDialer::default().with("tools.default.svc", 8000, ([127, 0, 0, 1], 41000).into());
        let locate = |url: &str| dialer.locate(&Url::parse(url).unwrap()).to_string();
        assert_eq!(
            locate("http://tools.default.svc:8000/mcp?x=1"),
            "http://127.0.0.1:41000/mcp?x=1"
        );
        assert_eq!(
            locate("http://tools.default.svc/mcp"),
            "http://tools.default.svc/mcp"
        );
        assert_eq!(
            locate("https://tools.default.svc:8000/"),
            "https://tools.default.svc:8000/"
        );
        assert_eq!(locate("http://example.com/"), "http://example.com/");
    }
}
