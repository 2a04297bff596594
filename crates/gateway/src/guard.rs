//! Who may call a server on a user's own machine.
//!
//! Every page that a browser shows can send requests to loopback addresses. Two headers tell them from
//! programs, which send neither a foreign `Host` nor an `Origin`: a name that merely resolves to loopback
//! (DNS rebinding) is in the first, the page is in the second. Both are checked before anything else looks at
//! a request.

use std::str::FromStr;

use http::{HeaderMap, HeaderValue, StatusCode, Uri, header, uri::Authority};
use url::Url;

/// The web pages of one site, as a browser names it in `Origin`: `https://example.com:8443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin(String);

/// What is wrong with a text that is to be an origin.
#[derive(Debug, thiserror::Error)]
#[error(
    "\"{0}\" is not the origin of a web page: write its scheme, host and port, as in http://localhost:3000"
)]
pub struct NotAnOrigin(String);

impl FromStr for Origin {
    type Err = NotAnOrigin;

    /// Takes `http` and `https`; the port may be left out where it is the scheme's own.
    fn from_str(text: &str) -> Result<Self, NotAnOrigin> {
        let not = || NotAnOrigin(text.to_owned());
        let url = Url::parse(text).map_err(|_| not())?;
        let bare = matches!(url.path(), "" | "/")
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();
        if bare && matches!(url.scheme(), "http" | "https") {
            Ok(Self(url.origin().ascii_serialization()))
        } else {
            Err(not())
        }
    }
}

/// Who may call besides programs of this machine. Nobody by default.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Names in `Host` besides loopback ones, without a port.
    pub hosts: Vec<String>,
    /// Pages whose scripts may call and read the answers.
    pub origins: Vec<Origin>,
}

/// A request that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The name in `Host`, in lower case and without the port.
    pub host: String,
    /// The foreign page it comes from, which is one of [`Access::origins`]: its answer needs CORS headers.
    pub cross_origin: Option<HeaderValue>,
}

/// Why a request was not let in: a status code, and a message that says how to call instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 421 for a foreign host, 403 for a foreign page.
    pub status: StatusCode,
    /// What was found and what to do.
    pub message: String,
}

impl Access {
    /// Checks a request's head. `also` knows further names of the server, in lower case.
    ///
    /// # Errors
    /// When the request names a foreign host or comes from a foreign page.
    pub fn check(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        also: impl Fn(&str) -> bool,
    ) -> Result<Admitted, Refusal> {
        let authority = self.host(uri, headers, also)?;
        let cross_origin = self.origin(&authority, headers)?;
        Ok(Admitted {
            host: authority.host().to_ascii_lowercase(),
            cross_origin,
        })
    }

    fn host(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        also: impl Fn(&str) -> bool,
    ) -> Result<Authority, Refusal> {
        let refuse = |found: &str| Refusal {
            status: StatusCode::MISDIRECTED_REQUEST,
            message: format!(
                "the Host header names \"{found}\": call the server by 127.0.0.1, [::1] or localhost"
            ),
        };
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(value), None) = (hosts.next(), hosts.next()) else {
            return Err(refuse(""));
        };
        let text = value.to_str().unwrap_or_default();
        let authority: Authority = text.parse().map_err(|_| refuse(text))?;
        for authority in [Some(&authority), uri.authority()].into_iter().flatten() {
            let host = authority.host().to_ascii_lowercase();
            let known = is_loopback(authority)
                || also(&host)
                || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(&host));
            // `user@localhost` is a host to the parser and nothing that a client sends.
            if !known || authority.as_str().contains('@') {
                return Err(refuse(authority.as_str()));
            }
        }
        Ok(authority)
    }

    fn origin(&self, host: &Authority, headers: &HeaderMap) -> Result<Option<HeaderValue>, Refusal> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(value) = origins.next() else {
            return Ok(None);
        };
        let text = value.to_str().unwrap_or_default();
        if origins.next().is_none() {
            if is_own(text, host) {
                return Ok(None);
            }
            if Origin::from_str(text).is_ok_and(|origin| self.origins.contains(&origin)) {
                return Ok(Some(value.clone()));
            }
        }
        Err(Refusal {
            status: StatusCode::FORBIDDEN,
            message: format!(
                "the Origin header names \"{text}\": web pages of other sites are not allowed to call, but for those \
                 that `kaos up --gateway-allow-origin` names"
            ),
        })
    }
}

/// Whether a page is the server's own: of the name by which it was called, or of another loopback name on the
/// same port.
fn is_own(origin: &str, host: &Authority) -> bool {
    let Some(page) = origin.strip_prefix("http://") else {
        return false;
    };
    if page.eq_ignore_ascii_case(host.as_str()) {
        return true;
    }
    page.parse::<Authority>()
        .is_ok_and(|page| is_loopback(&page) && is_loopback(host) && page.port_u16() == host.port_u16())
}

/// Whether an authority is this machine by its text alone, without resolving anything.
pub fn is_loopback(authority: &Authority) -> bool {
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(access: &Access, headers: &[(&str, &str)]) -> Result<Admitted, Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        access.check(&Uri::from_static("/x"), &map, |host| host == "named.test")
    }

    fn status(access: &Access, headers: &[(&str, &str)]) -> u16 {
        check(access, headers).map_or_else(|refusal| refusal.status.as_u16(), |_| 200)
    }

    #[test]
    fn only_loopback_and_known_hosts_are_served() {
        let access = Access {
            hosts: vec!["Box.lan".to_owned()],
            origins: Vec::new(),
        };
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:8888",
            "127.8.9.1",
            "[::1]:8888",
            "box.lan:8888",
            "named.test",
        ] {
            assert_eq!(status(&access, &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example:80",
            "10.0.0.1",
            "x@localhost",
            "localhost.",
            "[::2]",
            "",
        ] {
            assert_eq!(status(&access, &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status(&access, &[]), 421);
        assert_eq!(
            status(&access, &[("host", "localhost"), ("host", "evil.example")]),
            421
        );
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("localhost"));
        let uri = Uri::from_static("http://evil.example/");
        assert!(
            access.check(&uri, &headers, |_| false).is_err(),
            "an absolute URI counts"
        );
    }

    #[test]
    fn foreign_pages_are_refused_unless_allowed() {
        let access = Access {
            hosts: Vec::new(),
            origins: vec![
                "http://localhost:3000".parse().unwrap(),
                "https://ui.example".parse().unwrap(),
            ],
        };
        let from = |origin: &str| check(&access, &[("host", "localhost:8888"), ("origin", origin)]);
        for own in [
            "http://localhost:8888",
            "http://127.0.0.1:8888",
            "http://[::1]:8888",
        ] {
            assert_eq!(from(own).unwrap().cross_origin, None, "{own}");
        }
        for allowed in ["http://localhost:3000", "https://ui.example"] {
            assert_eq!(from(allowed).unwrap().cross_origin.unwrap(), allowed);
        }
        for foreign in [
            "http://localhost:3001",
            "https://localhost:8888",
            "http://evil.example",
            "http://ui.example",
            "null",
            "",
            "http://localhost:8888.evil.example",
        ] {
            assert_eq!(from(foreign).unwrap_err().status, 403, "{foreign}");
        }
        let twice = [
            ("host", "localhost:8888"),
            ("origin", "https://ui.example"),
            ("origin", "https://ui.example"),
        ];
        assert_eq!(status(&access, &twice), 403);
    }

    #[test]
    fn an_origin_is_a_scheme_a_host_and_a_port() {
        let parsed = |text: &str| {
            text.parse::<Origin>()
                .map(|origin| origin.0)
                .map_err(|error| error.to_string())
        };
        assert_eq!(
            parsed("HTTPS://UI.example:443/"),
            Ok("https://ui.example".to_owned())
        );
        assert_eq!(
            parsed("http://localhost:3000"),
            Ok("http://localhost:3000".to_owned())
        );
        for wrong in [
            "*",
            "null",
            "localhost:3000",
            "http://a.example/path",
            "ftp://a.example",
            "http://u@a.example",
        ] {
            assert!(
                parsed(wrong).unwrap_err().contains("http://localhost:3000"),
                "{wrong}"
            );
        }
    }
}
