//! A while of everything at once on one `kaos up`: chats, streams, calls of tools, tasks handed on. Nothing may fail,
//! and no process may take more and more memory.
//!
//! What a process takes is read three times: before, after a quarter of the time, and after all of it. Up to the
//! second, buffers and the agents' memory of their sessions, which is bounded, may grow.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Figure;
use super::instance::Instance;
use super::load::{Connection, Request, resident};
use crate::workspace::Workspace;

const MANIFEST: &str = "samples/team.yaml";
/// How many callers there are of each kind.
const CALLERS: usize = 2;
/// After the start and after the load, before memory is read.
const SETTLE: Duration = Duration::from_secs(2);
/// How much more a process may take in the end than after a quarter of the time: a tenth, and in KiB.
const GROWTH: f64 = 1.1;
const SLACK: f64 = 1024.0;

/// Measures it for so many `seconds`.
pub(super) fn measure(workspace: &Workspace, kaos: &Path, seconds: u64) -> Result<Vec<Figure>> {
    let instance = Instance::start(workspace, kaos, MANIFEST)?;
    thread::sleep(SETTLE);
    let processes = named(&instance)?;
    let taken = || -> Result<Vec<f64>> {
        thread::sleep(SETTLE);
        let each = processes.iter().map(|(pid, _)| Ok(resident(*pid)? as f64));
        each.collect()
    };
    let before = taken()?;
    let mut answered = load(instance.gateway, Duration::from_secs(seconds) / 4)?;
    let begun = taken()?;
    answered.add(load(instance.gateway, Duration::from_secs(seconds) / 4 * 3)?);
    let after = taken()?;
    let mut figures = vec![Figure {
        what: format!("soak: {seconds} s of chats, streams, tool calls and delegations"),
        measured: format!("{} answered, {} failed", answered.count, answered.failed.len()),
        target: "0 failed",
        holds: answered.failed.is_empty(),
    }];
    for reason in answered.failed.iter().take(10) {
        eprintln!("failed: {reason}");
    }
    for (place, (_, name)) in processes.iter().enumerate() {
        let [before, begun, after] = [&before, &begun, &after].map(|all| all[place]);
        let mib = |kib: f64| kib / 1024.0;
        figures.push(Figure {
            what: format!("soak: resident memory of {name}"),
            measured: format!(
                "{:.1} MiB before, {:.1} MiB after a quarter, {:.1} MiB after all",
                mib(before),
                mib(begun),
                mib(after)
            ),
            target: "no growth after a quarter",
            holds: after <= begun * GROWTH + SLACK,
        });
    }
    Ok(figures)
}

/// The processes of an instance, each with the name of its Deployment.
fn named(instance: &Instance) -> Result<Vec<(u32, String)>> {
    let mut named = Vec::new();
    for pid in instance.processes()? {
        // One that lasts only a moment, such as a program that looks for Python.
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else {
            continue;
        };
        let pod = environment
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(b"HOSTNAME="))
            .map(|pod| String::from_utf8_lossy(pod).into_owned());
        // A pod is named after its Deployment, its ReplicaSet and by itself.
        let name = pod.as_deref().and_then(|pod| {
            let (replica_set, _) = pod.rsplit_once('-')?;
            Some(replica_set.rsplit_once('-')?.0.to_owned())
        });
        let is_first = named.is_empty();
        let name = name.filter(|_| !is_first).unwrap_or_else(|| "kaos up".to_owned());
        named.push((u32::try_from(pid)?, name));
    }
    Ok(named)
}

/// What came of a load.
#[derive(Default)]
struct Answered {
    count: u64,
    failed: Vec<String>,
}

impl Answered {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.failed.extend(other.failed);
    }
}

/// What is asked: by the path of the gateway, and with what only the right tool can answer.
fn requests() -> Vec<(&'static str, Request)> {
    let chat = |agent: &str, stream: bool, question: &str, answer: &str| {
        let body = format!(r#"{{"stream":{stream},"messages":[{{"role":"user","content":"{question}"}}]}}"#);
        let path = format!("/default/agent/{agent}/v1/chat/completions");
        Request::post(&path, &body, answer)
    };
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"multiply","arguments":{"a":12,"b":34}}}"#;
    let (math, words) = ("What is 12 times 34?", "What is the plural of ox?");
    let (ask_math, ask_words) = (
        "Ask the mathematician: what is 12 times 34?",
        "Ask the linguist: what is the plural of ox?",
    );
    vec![
        ("chat", chat("linguist", false, words, "oxen")),
        ("stream", chat("mathematician", true, math, "[DONE]")),
        ("delegation", chat("coordinator", false, ask_math, "408")),
        (
            "streamed delegation",
            chat("coordinator", true, ask_words, "[DONE]"),
        ),
        (
            "tool call",
            Request::post("/default/mcp/calculator/mcp", call, "408"),
        ),
    ]
}

/// Asks everything at once for `time`. A caller whose request failed goes on over a new connection.
fn load(gateway: SocketAddr, time: Duration) -> Result<Answered> {
    let over = AtomicBool::new(false);
    let call = |what: &str, request: &Request| {
        let (mut answered, mut connection) = (Answered::default(), None);
        while !over.load(Ordering::Relaxed) {
            let open = match connection.take() {
                Some(open) => Ok(open),
                None => Connection::open(gateway),
            };
            let asked = open.and_then(|mut open| {
                open.ask(request)?;
                Ok(open)
            });
            match asked {
                Ok(open) => {
                    answered.count += 1;
                    connection = Some(open);
                }
                Err(error) => answered.failed.push(format!("{what}: {error:#}")),
            }
        }
        answered
    };
    let requests = requests();
    thread::scope(|scope| {
        let callers: Vec<_> = requests
            .iter()
            .flat_map(|request| std::iter::repeat_n(request, CALLERS))
            .map(|(what, request)| scope.spawn(|| call(what, request)))
            .collect();
        thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        let mut all = Answered::default();
        for caller in callers {
            all.add(caller.join().ok().context("a caller panicked")?);
        }
        Ok(all)
    })
}
