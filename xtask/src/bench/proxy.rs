//! The model proxy before an upstream that answers at once: what it adds, and how much it carries, beside LiteLLM
//! with one worker.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Figure;
use super::load::{Server, free_port};
use crate::process;
use crate::tools::python;
use crate::workspace::Workspace;

/// How long each load lasts.
const LOAD: Duration = Duration::from_secs(4);
const RATE: u32 = 3_000;
const STREAMS: usize = 1_000;
/// The threads that serve streams do nothing but wait.
const STACK: usize = 64 * 1024;
const ALIVE: &str = "/health/liveliness";
/// As its program does, whose first line names the folder that the environment was made in.
const RUN: &str = "from litellm.proxy.proxy_cli import run_server; run_server()";
const VERSION: &str = "from importlib.metadata import version; print(version('litellm'))";
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
    let litellm = LiteLlm::prepare(workspace, &config)?;
    let mut command = Command::new(kaos);
    let port = free_port()?;
    command.args(["serve", "proxy", "--config"]).arg(&config);
    command.arg("--listen").arg(format!("127.0.0.1:{port}"));
    let proxy = Server::start(command.env("LOG_LEVEL", "warn"), port, ALIVE)?;

    let (one, many) = (load(proxy.address, 1, None)?, load(proxy.address, 32, None)?);
    let (direct, paced) = (
        load(upstream, 4, Some(RATE))?,
        load(proxy.address, 4, Some(RATE))?,
    );
    let loaded = proxy.resident()?;
    let (direct_first, first) = (first_event(upstream)?, first_event(proxy.address)?);
    let stream = memory_of_a_stream(&proxy)?;
    let (start, version) = (proxy.start, litellm.version.clone());
    drop(proxy);
    let theirs = litellm.measure(upstream)?;

    let added = |ours: Duration, without: Duration| ours.saturating_sub(without);
    let (middle, late) = (added(paced.middle, direct.middle), added(paced.late, direct.late));
    let first = added(first, direct_first);
    let (times_one, times_many) = (one.rate / theirs.one, many.rate / theirs.many);
    let micros = |time: Duration| format!("{} µs", time.as_micros());
    Ok(vec![
        figure(
            &format!("proxy: chats a second at c=1 and c=32, beside LiteLLM {version}"),
            format!(
                "{:.0} and {:.0}, LiteLLM {:.0} and {:.0}: {times_one:.0} and {times_many:.0} times",
                one.rate, many.rate, theirs.one, theirs.many
            ),
            "≥ 100 times",
            times_one >= 100.0 && times_many >= 100.0,
        ),
        figure(
            "proxy: added to a chat of 1 kB at 3,000/s, p50",
            micros(middle),
            "≤ 100 µs",
            middle <= Duration::from_micros(100),
        ),
        figure(
            "proxy: added to a chat of 1 kB at 3,000/s, p99",
            micros(late),
            "≤ 500 µs",
            late <= Duration::from_micros(500),
        ),
        figure(
            "proxy: start to first answer",
            millis(start),
            "≤ 30 ms",
            start <= Duration::from_millis(30),
        ),
        figure(
            "proxy: resident after the load",
            format!("{:.1} MiB", loaded as f64 / 1024.0),
            "≤ 20 MiB",
            loaded <= 20 * 1024,
        ),
        figure(
            &format!("proxy: added time to the first token, p50, beside LiteLLM {version}"),
            format!("{}, LiteLLM {}", micros(first), micros(theirs.first)),
            "≤ 200 µs",
            first <= Duration::from_micros(200),
        ),
        figure(
            "proxy: memory of a stream, 1,000 at once",
            format!("{stream:.0} kB"),
            "≤ 50 kB",
            stream <= 50.0,
        ),
    ])
}

/// LiteLLM, to be started.
struct LiteLlm {
    version: String,
    command: Command,
    port: u16,
}

/// What LiteLLM does.
struct Theirs {
    /// Chats a second, over so many connections.
    one: f64,
    many: f64,
    /// The added time to the first event of a stream.
    first: Duration,
}

impl LiteLlm {
    /// Of a file for the proxy.
    fn prepare(workspace: &Workspace, config: &Path) -> Result<Self> {
        let python = python::environment(workspace, "xtask/bench/proxy.txt")?.required()?;
        let version = process::output(Command::new(&python).args(["-c", VERSION]))?;
        let own = config.with_file_name("litellm.yaml");
        let with_key = format!(
            "{}general_settings: {{master_key: {KEY}}}\n",
            fs::read_to_string(config)?
        );
        fs::write(&own, with_key)?;
        let mut command = Command::new(python);
        let port = free_port()?;
        command
            .args(["-c", RUN, "--config"])
            .arg(own)
            .args(["--num_workers", "1", "--host", "127.0.0.1"]);
        command.args(["--port", &port.to_string()]);
        // It gets the prices of all models from the internet, and logs each request, unless told otherwise.
        command
            .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            .env("LITELLM_LOG", "ERROR");
        Ok(Self {
            version: version.trim().to_owned(),
            command,
            port,
        })
    }

    fn measure(mut self, upstream: SocketAddr) -> Result<Theirs> {
        let server = Server::start(&mut self.command, self.port, ALIVE)?;
        Ok(Theirs {
            one: load(server.address, 1, None)?.rate,
            many: load(server.address, 32, None)?.rate,
            first: first_event(server.address)?.saturating_sub(first_event(upstream)?),
        })
    }
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

/// What each of many streams takes that have begun, in kB.
fn memory_of_a_stream(proxy: &Server) -> Result<f64> {
    let before = proxy.resident()?;
    let mut open = Vec::with_capacity(STREAMS);
    for _ in 0..STREAMS {
        let mut connection = TcpStream::connect(proxy.address)?;
        connection.write_all(&chat("hold"))?;
        until_event(&mut connection)?;
        open.push(connection);
    }
    let after = proxy.resident()?;
    Ok(after.saturating_sub(before) as f64 * 1.024 / STREAMS as f64)
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
