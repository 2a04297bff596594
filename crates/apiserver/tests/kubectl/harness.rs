//! One server for one test, and kubectl with a home of its own, so that no cache is shared.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    process::{Output, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use kaos_apiserver::{
    ApiServer, Backend, LogOptions, LogStream, Options, Refusal, Storage,
    front::{self, FrontOptions, TlsIdentity},
};
use kaos_seams::Seams;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    process::{Child, Command},
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long one call of kubectl may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

const TOKEN: &str = "test-token";

pub(crate) struct Kubectl {
    program: OsString,
    home: TempDir,
    /// Lines that the fake backend's logs go on with.
    pub(crate) log: mpsc::Sender<Bytes>,
    _stop: DropGuard,
}

/// A server and its kubectl; `None` where there is no kubectl.
pub(crate) async fn start() -> Option<Kubectl> {
    let program = program()?;
    let seams = Seams::system();
    let options = Options {
        storage: Storage::Memory,
        seams: seams.clone(),
        faults: None,
    };
    let server = ApiServer::open(options).await.unwrap();
    let (log, lines) = mpsc::channel(8);
    let pod = echo().await;
    server.set_backend(Arc::new(FakeBackend {
        lines: tokio::sync::Mutex::new(Some(lines)),
        pod,
    }));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = TlsIdentity::generate(&seams).unwrap();
    let home = tempfile::tempdir().unwrap();
    let config = front::kubeconfig(&format!("https://{address}"), TOKEN, &tls.certificate_pem);
    std::fs::write(home.path().join("config"), config).unwrap();
    let stop = CancellationToken::new();
    let options = FrontOptions {
        token: TOKEN.to_owned(),
        tls,
    };
    tokio::spawn(front::serve(
        server,
        listener,
        options,
        stop.clone().cancelled_owned(),
    ));
    Some(Kubectl {
        program,
        home,
        log,
        _stop: stop.drop_guard(),
    })
}

fn program() -> Option<OsString> {
    let program = std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into());
    let found = std::process::Command::new(&program)
        .args(["version", "--client"])
        .output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(program);
    }
    let message = format!(
        "{} does not run: install kubectl or set KUBECTL",
        program.display()
    );
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{message}");
    eprintln!("skipped: {message}");
    None
}

impl Kubectl {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    async fn output(&self, args: &[&str], input: Option<&str>) -> Output {
        let mut command = self.command(args);
        if input.is_some() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
            stdin.write_all(input.as_bytes()).await.unwrap();
        }
        timeout(DEADLINE, child.wait_with_output())
            .await
            .unwrap_or_else(|_| panic!("{args:?} hangs"))
            .unwrap()
    }

    /// What a call that works prints.
    pub(crate) async fn run(&self, args: &[&str]) -> String {
        succeeded(args, self.output(args, None).await)
    }

    /// [`Kubectl::run`] with text on standard input.
    pub(crate) async fn pipe(&self, args: &[&str], input: &str) -> String {
        succeeded(args, self.output(args, Some(input)).await)
    }

    /// The exit code of a call that does not work, and what it prints.
    pub(crate) async fn fails(&self, args: &[&str], input: Option<&str>) -> (i32, String) {
        let output = self.output(args, input).await;
        assert!(
            !output.status.success(),
            "{args:?} works: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text += &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or_default(), text)
    }

    pub(crate) async fn json(&self, args: &[&str]) -> Value {
        let text = self.run(&[args, &["-o", "json"]].concat()).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// Starts a call that goes on.
    pub(crate) fn spawn(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }
}

fn succeeded(args: &[&str], output: Output) -> String {
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{args:?}: {}\n{stdout}{stderr}",
        output.status
    );
    stdout.into_owned()
}

/// The words of each line.
pub(crate) fn table(text: &str) -> Vec<Vec<&str>> {
    text.lines()
        .map(|line| line.split_whitespace().collect())
        .collect()
}

struct FakeBackend {
    lines: tokio::sync::Mutex<Option<mpsc::Receiver<Bytes>>>,
    pod: SocketAddr,
}

#[async_trait]
impl Backend for FakeBackend {
    async fn pod_log(&self, _namespace: &str, pod: &str, options: LogOptions) -> Result<LogStream, Refusal> {
        let container = options.container.unwrap_or_default();
        let first = futures::stream::iter([Ok(Bytes::from(format!("{pod}/{container} started\n")))]);
        if !options.follow {
            return Ok(Box::pin(first));
        }
        let lines = self.lines.lock().await.take();
        let lines = lines.ok_or_else(|| Refusal::Unavailable("the log is followed already".to_owned()))?;
        let lines = tokio_stream::wrappers::ReceiverStream::new(lines).map(Ok);
        Ok(Box::pin(first.chain(lines)))
    }

    async fn service_address(&self, _: &str, service: &str, _: Option<&str>) -> Result<SocketAddr, Refusal> {
        if service == "web" {
            Ok(self.pod)
        } else {
            Err(Refusal::Unavailable("no pod is ready".to_owned()))
        }
    }

    async fn pod_address(&self, _: &str, _: &str, _: Option<&str>) -> Result<SocketAddr, Refusal> {
        Ok(self.pod)
    }
}

/// A pod that answers with the request's first line.
async fn echo() -> SocketAddr {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                let (mut first, mut line) = (String::new(), String::new());
                stream.read_line(&mut first).await.unwrap();
                while line.trim() != "" || line.is_empty() {
                    line.clear();
                    if stream.read_line(&mut line).await.unwrap() == 0 {
                        return;
                    }
                }
                let first = first.trim();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{first}",
                    first.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            });
        }
    });
    address
}
