//! The model proxy before an upstream that answers at once: what it adds, and how much it carries. Beside LiteLLM
//! where the variable KAOS_BENCH_LITELLM names its program.

use std::env;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Figure;
use crate::workspace::Workspace;

/// How long each load lasts.
const LOAD: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(60);
const RATE: u32 = 3_000;
const STREAMS: usize = 1_000;
/// The threads that serve streams do nothing but wait.
const STACK: usize = 64 * 1024;
const LITELLM: &str = "KAOS_BENCH_LITELLM";
const KEY: &str = "sk-0123456789abcdef0123456789abcdef0123456789abcdef";

/// Measures it.
pub(super) fn measure(workspace: &Workspace, kaos: &Path) -> Result<Vec<Figure>> {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: most,
            maximum: most,
        },
    )
    .context("cannot raise the number of open files")?;
    let folder = workspace.target_dir().join("bench-proxy");
    fs::create_dir_all(&folder)?;
    let upstream = upstream()?;
    let config = folder.join("config.yaml");
    fs::write(
        &config,
        format!(
            "model_list:\n- model_name: m\n  litellm_params:\n    model: openai/m\n    api_base: http://{upstream}/v1\n    \
             api_key: k\n"
        ),
    )?;
    let mut command = Command::new(kaos);
    let port = free_port()?;
    command.args(["serve", "proxy", "--config"]).arg(&config);
    command.arg("--listen").arg(format!("127.0.0.1:{port}"));
    let proxy = Server::start(command, port)?;

    let (direct_one, one) = (load(upstream, 1, None)?, load(proxy.address, 1, None)?);
    let many = load(proxy.address, 32, None)?;
    let paced = load(proxy.address, 4, Some(RATE))?;
    let loaded = proxy.resident()?;
    let (direct_first, first) = (first_event(upstream)?, first_event(proxy.address)?);
    let stream = proxy.memory_of_a_stream()?;
    let added = one.middle.saturating_sub(direct_one.middle);
    let first = first.saturating_sub(direct_first);
    let micros = |time: Duration| format!("{} µs", time.as_micros());
    let mut figures = vec![
        figure(
            "proxy: start to first answer",
            millis(proxy.start),
            "≤ 30 ms",
            proxy.start <= Duration::from_millis(30),
        ),
        figure(
            "proxy: added to a 1 kB chat, p50, c=1",
            micros(added),
            "≤ 100 µs",
            added <= Duration::from_micros(100),
        ),
        figure(
            "proxy: a chat at 3,000/s, p99, upstream included",
            micros(paced.late),
            "≤ 500 µs",
            paced.late <= Duration::from_micros(500),
        ),
        figure(
            "proxy: resident after the load",
            format!("{:.1} MiB", loaded as f64 / 1024.0),
            "≤ 20 MiB",
            loaded <= 20 * 1024,
        ),
        figure(
            "proxy: added time to the first token, p50",
            micros(first),
            "≤ 200 µs",
            first <= Duration::from_micros(200),
        ),
        figure(
            "proxy: memory of a stream, 1,000 at once",
            format!("{stream:.0} kB"),
            "≤ 50 kB",
            stream <= 50.0,
        ),
    ];
    drop(proxy);
    let rates = format!("{:.0}/s and {:.0}/s", one.rate, many.rate);
    figures.push(match env::var_os(LITELLM) {
        None => figure(
            "proxy: chats at c=1 and c=32",
            format!("{rates}; LiteLLM not measured: set {LITELLM}"),
            "-",
            true,
        ),
        Some(program) => {
            fs::write(
                &config,
                format!(
                    "{}general_settings: {{master_key: {KEY}}}\n",
                    fs::read_to_string(&config)?
                ),
            )?;
            let port = free_port()?;
            let mut command = Command::new(program);
            command.arg("--config").arg(&config).args([
                "--num_workers",
                "1",
                "--host",
                "127.0.0.1",
                "--port",
            ]);
            command.arg(port.to_string());
            let litellm = Server::start(command, port)?;
            let (their_one, their_many) = (load(litellm.address, 1, None)?, load(litellm.address, 32, None)?);
            let (times_one, times_many) = (one.rate / their_one.rate, many.rate / their_many.rate);
            figure(
                "proxy: chats at c=1 and c=32, beside LiteLLM",
                format!(
                    "{rates}, LiteLLM {:.0}/s and {:.0}/s: {times_one:.0} and {times_many:.0} times",
                    their_one.rate, their_many.rate
                ),
                "≥ 100 times",
                times_one >= 100.0 && times_many >= 100.0,
            )
        }
    });
    Ok(figures)
}

fn figure(what: &str, measured: String, target: &'static str, holds: bool) -> Figure {
    Figure {
        what: what.to_owned(),
        measured,
        target,
        holds,
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A proxy that runs.
struct Server {
    child: Child,
    address: SocketAddr,
    /// From its start to its first answer.
    start: Duration,
}

impl Server {
    fn start(mut command: Command, port: u16) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let began = Instant::now();
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut server = Self {
            child: child.with_context(|| format!("cannot start {command:?}"))?,
            address,
            start: Duration::ZERO,
        };
        while began.elapsed() < PATIENCE {
            if let Ok(mut connection) = TcpStream::connect(address) {
                connection.write_all(b"GET /health/liveliness HTTP/1.1\r\nhost: x\r\n\r\n")?;
                if answer(&mut connection, &mut Vec::new()).is_ok() {
                    server.start = began.elapsed();
                    return Ok(server);
                }
            }
            ensure!(server.child.try_wait()?.is_none(), "{command:?} ended");
            thread::sleep(Duration::from_millis(1));
        }
        bail!("{command:?} does not answer")
    }

    /// Resident memory in KiB.
    fn resident(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        kib.context("the process has no VmRSS")
    }

    /// What each of many streams takes that have begun, in kB.
    fn memory_of_a_stream(&self) -> Result<f64> {
        let before = self.resident()?;
        let mut open = Vec::with_capacity(STREAMS);
        for _ in 0..STREAMS {
            let mut connection = TcpStream::connect(self.address)?;
            connection.write_all(&chat("hold"))?;
            until_event(&mut connection)?;
            open.push(connection);
        }
        let after = self.resident()?;
        Ok(after.saturating_sub(before) as f64 * 1.024 / STREAMS as f64)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A chat of 1 kB; `mode` tells the upstream how to answer.
fn chat(mode: &str) -> Vec<u8> {
    let stream = mode != "whole";
    let text = format!("{mode} {}", "lorem ipsum ".repeat(75));
    let body = format!(
        r#"{{"model":"m","stream":{stream},"messages":[{{"role":"system","content":"Be brief."}},{{"role":"user","content":"{text}"}}]}}"#
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// What a load has shown.
struct Load {
    /// Answers a second.
    rate: f64,
    /// The median.
    middle: Duration,
    /// The 99th percentile.
    late: Duration,
}

/// Chats over `connections`, one after the other on each: as fast as they are answered, or `rate` a second, in which
/// case an answer's time begins when its request was due.
fn load(address: SocketAddr, connections: u32, rate: Option<u32>) -> Result<Load> {
    let workers: Vec<_> = (0..connections)
        .map(|_| {
            thread::spawn(move || {
                one_after_the_other(address, rate.map(|rate| connections as f64 / f64::from(rate)))
            })
        })
        .collect();
    let mut times = Vec::new();
    for worker in workers {
        times.extend(worker.join().ok().context("a worker panicked")??);
    }
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    ensure!(!times.is_empty(), "nothing was answered");
    Ok(Load {
        rate: times.len() as f64 / LOAD.as_secs_f64(),
        middle: at(0.5),
        late: at(0.99),
    })
}

fn one_after_the_other(address: SocketAddr, every: Option<f64>) -> Result<Vec<Duration>> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    let (request, mut buffer) = (chat("whole"), Vec::new());
    for _ in 0..20 {
        connection.write_all(&request)?;
        answer(&mut connection, &mut buffer)?;
    }
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < LOAD {
        let due = match every {
            None => Instant::now(),
            Some(every) => {
                let due = began + Duration::from_secs_f64(every * times.len() as f64);
                thread::sleep(due.saturating_duration_since(Instant::now()));
                due
            }
        };
        connection.write_all(&request)?;
        answer(&mut connection, &mut buffer)?;
        times.push(due.elapsed());
    }
    Ok(times)
}

/// Reads one answer.
fn answer(connection: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    let mut piece = [0; 16 * 1024];
    loop {
        let read = connection.read(&mut piece)?;
        ensure!(read > 0, "the connection ended");
        buffer.extend_from_slice(&piece[..read]);
        if let Some(end) = whole(buffer) {
            ensure!(
                buffer.starts_with(b"HTTP/1.1 200"),
                "{}",
                String::from_utf8_lossy(buffer)
            );
            ensure!(buffer.len() == end, "more than one answer came");
            return Ok(());
        }
    }
}

/// Where a message ends that is whole.
fn whole(buffer: &[u8]) -> Option<usize> {
    let head = buffer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&buffer[..head]).ok()?.to_ascii_lowercase();
    let length = text.split("content-length:").nth(1)?.lines().next()?.trim();
    let end = head + length.parse::<usize>().ok()?;
    (buffer.len() >= end).then_some(end)
}

/// The median time to the first event of a stream.
fn first_event(address: SocketAddr) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..500 {
        let mut connection = TcpStream::connect(address)?;
        connection.set_nodelay(true)?;
        let began = Instant::now();
        connection.write_all(&chat("stream"))?;
        until_event(&mut connection)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn until_event(connection: &mut TcpStream) -> Result<()> {
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    while !read.windows(6).any(|six| six == b"data: ") {
        let count = connection.read(&mut piece)?;
        ensure!(count > 0, "the stream ended: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&piece[..count]);
    }
    Ok(())
}

/// A server of OpenAI's API that answers at once.
fn upstream() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        while let Ok((connection, _)) = listener.accept() {
            let serving = thread::Builder::new()
                .stack_size(STACK)
                .spawn(move || serve(connection));
            drop(serving);
        }
    });
    Ok(address)
}

fn serve(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let text = "lorem ipsum ".repeat(75);
    let body = format!(
        r#"{{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":150,"completion_tokens":150,"total_tokens":300}}}}"#
    );
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let chunk = r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"lorem"},"finish_reason":null}]}"#;
    let event = format!("data: {chunk}\n\n");
    let begin = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{event}\r\n",
        event.len()
    );
    let (mut buffer, mut piece) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        let read = match connection.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        buffer.extend_from_slice(&piece[..read]);
        if whole(&buffer).is_none() {
            continue;
        }
        let has = |word: &[u8]| buffer.windows(word.len()).any(|window| window == word);
        if has(b"content\":\"whole") {
            connection.write_all(answer.as_bytes())?;
        } else {
            connection.write_all(begin.as_bytes())?;
            if has(b"content\":\"stream") {
                connection.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")?;
            }
            // One that is held goes on until its caller leaves.
        }
        buffer.clear();
    }
}
