//! What answers for the pods, none of which exists: a tool server for every MCPServer, and for every hosted
//! model the step that pulls it.
//!
//! It is reached over a real socket, and simulated time would run on while an answer is under way: every
//! deadline would pass at once. So time is held from the moment that a client asks for the address until the
//! answer has been read.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use kaos_seams::Dialer;
use serde_json::{Value, json};

/// A client that has not come after so long in real time was stopped before it could.
const IDLE: Duration = Duration::from_secs(2);

/// Leads to it, whatever the name.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    address: SocketAddr,
    served: Arc<Served>,
}

/// What the server has done so far.
#[derive(Debug, Default)]
struct Served {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug)]
struct State {
    /// Clients that asked for the address.
    asked: usize,
    /// Clients that have read the answer to their last question.
    answers: usize,
    active: Instant,
}

impl Default for State {
    fn default() -> Self {
        Self {
            asked: 0,
            answers: 0,
            active: Instant::now(),
        }
    }
}

impl Dialer for Tools {
    fn address(&self, _: &str, _: u16) -> Option<SocketAddr> {
        let served = self.served.clone();
        let mut all = 0;
        served.note(|state| {
            state.asked += 1;
            all = state.asked;
        });
        // Time stands still as long as this runs.
        tokio::task::spawn_blocking(move || served.wait_for(all));
        Some(self.address)
    }
}

thread_local! {
    /// Time is that of a thread, and so is what holds it.
    static OF_THIS_THREAD: Tools = Tools::start();
}

impl Tools {
    /// The server of this thread.
    pub(crate) fn of_this_thread() -> Self {
        OF_THIS_THREAD.with(Self::clone)
    }

    /// Starts a server, for as long as this process lives.
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
        let address = listener.local_addr().expect("it listens");
        let served = Arc::new(Served::default());
        let shared = served.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = shared.clone();
                // A client that goes away in the middle of a request is not waited for.
                thread::spawn(move || drop(serve(&stream, &served)));
            }
        });
        Self { address, served }
    }
}

impl Served {
    /// Notes that something happens.
    fn note(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        state.active = Instant::now();
        change(&mut state);
        self.news.notify_all();
    }

    /// Returns when so many clients have their answer. Where nothing happens any more, some were stopped.
    fn wait_for(&self, all: usize) {
        let mut state = self.lock();
        while state.answers < all {
            if state.active.elapsed() >= IDLE {
                state.answers = state.asked;
                return;
            }
            let waited = self.news.wait_timeout(state, IDLE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers the requests of one connection until the client closes it.
fn serve(stream: &TcpStream, served: &Served) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut answers = 0;
    while let Some((target, body)) = read(&mut reader)? {
        served.note(|_| {});
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        answers += usize::from(message["method"] == "tools/list" || target == "GET /progress");
        let (status, answer) = match (target.as_str(), &message["id"]) {
            ("GET /progress", _) => ("200 OK", pulled().to_string()),
            ("POST /mcp", Value::Null) => ("202 Accepted", String::new()),
            ("POST /mcp", _) => ("200 OK", answer(&message).to_string()),
            _ => ("405 Method Not Allowed", String::new()),
        };
        let length = answer.len();
        let mut stream = stream;
        write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{answer}"
        )?;
    }
    served.note(|state| state.answers += answers);
    Ok(())
}

/// The next request of a connection: its method and path, and its body.
fn read(reader: &mut impl BufRead) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let target = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let header = line.trim().to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
        if header.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some((target, body)))
}

fn answer(message: &Value) -> Value {
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "perturb", "version": "1"},
        }),
        Some("tools/list") => json!({"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}),
        _ => {
            let error = json!({"code": -32601, "message": "Method not found"});
            return json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
        }
    };
    json!({"jsonrpc": "2.0", "id": message["id"], "result": result})
}

/// What the step that pulls a model says when that is done.
fn pulled() -> Value {
    json!({"model": "", "state": "Pulled", "completed": 1, "total": 1, "percent": 100})
}
