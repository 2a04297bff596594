//! One generator of load for both sides of a comparison, and what is measured of the servers under it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long a server may take to answer, and a request to be answered.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a load lasts before it is measured.
const WARM_UP: Duration = Duration::from_secs(2);

/// A port that was free a moment ago.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A server that runs, ended with this value.
pub(super) struct Server {
    child: Child,
    pub(super) address: SocketAddr,
    /// From its start to its first answer.
    pub(super) start: Duration,
}

impl Server {
    /// Starts a command that is to listen on `port` of loopback, and waits until it answers `path` with 200.
    pub(super) fn start(command: &mut Command, port: u16, path: &str) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let request = Request::get(path);
        let began = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let mut server = Self {
            child: child.with_context(|| format!("cannot start {command:?}"))?,
            address,
            start: Duration::ZERO,
        };
        while began.elapsed() < PATIENCE {
            if Connection::open(address).is_ok_and(|mut connection| connection.ask(&request).is_ok()) {
                server.start = began.elapsed();
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("{command:?} ended: {status}");
            }
            thread::sleep(Duration::from_millis(1));
        }
        bail!("{command:?} does not answer")
    }

    /// Resident memory in KiB.
    pub(super) fn resident(&self) -> Result<u64> {
        resident(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident memory of a process in KiB.
pub(super) fn resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("a process ended")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kib.context("the process has no VmRSS")
}

/// A request, and what its answer has to hold.
#[derive(Clone, Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
    expected: String,
}

impl Request {
    fn get(path: &str) -> Self {
        Self {
            bytes: format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").into_bytes(),
            expected: String::new(),
        }
    }

    /// A request with a body of JSON.
    pub(super) fn post(path: &str, body: &str, expected: &str) -> Self {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\naccept: application/json, \
             text/event-stream\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self {
            bytes: (head + body).into_bytes(),
            expected: expected.to_owned(),
        }
    }
}

/// A connection that is kept open.
pub(super) struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects to `address`.
    pub(super) fn open(address: SocketAddr) -> Result<Self> {
        let connection = TcpStream::connect(address)?;
        connection.set_nodelay(true)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(connection)))
    }

    /// Sends a request, and reads its answer to the end.
    pub(super) fn ask(&mut self, request: &Request) -> Result<()> {
        self.0.get_mut().write_all(&request.bytes)?;
        let (first, body) = read_message(&mut self.0)?.context("the connection ended")?;
        let body = String::from_utf8_lossy(&body);
        ensure!(
            first.starts_with("HTTP/1.1 200") && body.contains(&request.expected),
            "{}: {body}",
            first.trim_end()
        );
        Ok(())
    }
}

/// The first line of an HTTP message and its body; `None` where the connection ends before one.
pub(super) fn read_message(from: &mut impl BufRead) -> Result<Option<(String, Vec<u8>)>> {
    let mut first = String::new();
    if from.read_line(&mut first)? == 0 {
        return Ok(None);
    }
    let (mut length, mut chunked, mut line) = (0, false, String::new());
    loop {
        line.clear();
        ensure!(from.read_line(&mut line)? > 0, "the connection ended in a head");
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
        chunked |= name.eq_ignore_ascii_case("transfer-encoding");
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    while chunked {
        line.clear();
        from.read_line(&mut line)?;
        let size = usize::from_str_radix(line.trim_end(), 16).context("a chunk without a size")?;
        let start = body.len();
        // With the line break that ends it.
        body.resize(start + size + 2, 0);
        from.read_exact(body.get_mut(start..).unwrap_or_default())?;
        body.truncate(start + size);
        chunked = size > 0;
    }
    Ok(Some((first, body)))
}

/// Asks over `connections`, one request after the other on each, for `time`; returns how many were answered a
/// second.
pub(super) fn rate(address: SocketAddr, request: &Request, connections: u32, time: Duration) -> Result<f64> {
    let callers: Vec<_> = (0..connections)
        .map(|_| {
            let request = request.clone();
            thread::spawn(move || -> Result<u32> {
                let mut connection = Connection::open(address)?;
                let (mut began, mut warm, mut answers) = (Instant::now(), false, 0);
                while !warm || began.elapsed() < time {
                    connection.ask(&request)?;
                    answers += 1;
                    if !warm && began.elapsed() > WARM_UP {
                        (began, warm, answers) = (Instant::now(), true, 0);
                    }
                }
                Ok(answers)
            })
        })
        .collect();
    let mut answers = 0;
    for caller in callers {
        answers += caller.join().ok().context("a caller panicked")??;
    }
    Ok(f64::from(answers) / time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_one_after_the_other_in_either_form() {
        let mut bytes: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 503 No\r\n\
            Transfer-Encoding: chunked\r\n\r\n2\r\nde\r\n1\r\nf\r\n0\r\n\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n";
        let mut next = || read_message(&mut bytes).expect("it is whole");
        assert_eq!(next(), Some(("HTTP/1.1 200 OK\r\n".to_owned(), b"abc".to_vec())));
        assert_eq!(next(), Some(("HTTP/1.1 503 No\r\n".to_owned(), b"def".to_vec())));
        assert_eq!(next(), Some(("GET / HTTP/1.1\r\n".to_owned(), Vec::new())));
        assert_eq!(next(), None);
        let mut broken: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab";
        assert!(read_message(&mut broken).is_err());
    }
}
