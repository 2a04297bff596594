//! Real processes: what they get, how they end, and that none survives.

use std::{
    future::poll_fn,
    io::Write as _,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    task::Poll,
    time::{Duration, Instant},
};

use futures::TryStreamExt as _;
use kaos_seams::Seams;

use super::{
    Output, ProcessSpec, Signal, Spawner,
    logs::{LogOptions, Logs},
    reap,
    record::Record,
    table::{MARK_VARIABLE, birth},
};
use crate::launcher::Launcher;

/// The `launch` example, which is built with the tests.
fn launcher() -> Launcher {
    let tests = std::env::current_exe().unwrap();
    let program = tests
        .parent()
        .and_then(Path::parent)
        .unwrap()
        .join("examples/launch");
    assert!(
        program.exists(),
        "{} is missing: cargo test builds it",
        program.display()
    );
    Launcher {
        program,
        args: vec![],
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    spawner: Spawner,
    logs: Logs,
}

const POD: (&str, &str, &str) = ("ns", "pod", "uid");

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let records = dir.path().join("run");
        assert_eq!(reap(&records).unwrap(), 0);
        let spawner = Spawner::start(launcher(), &records, Seams::system()).unwrap();
        let logs = Logs::new(dir.path().join("logs"));
        Self { dir, spawner, logs }
    }

    fn shell(&self, script: &str) -> ProcessSpec {
        ProcessSpec {
            program: PathBuf::from("/bin/sh"),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![
                ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
                ("OWN".to_owned(), "1".to_owned()),
            ],
            working_dir: self.dir.path().to_owned(),
            output: Output::Log(self.logs.create(POD, "main", 0).unwrap()),
        }
    }

    async fn output(&self) -> String {
        let log = self
            .logs
            .read(
                POD,
                "main",
                None,
                LogOptions {
                    follow: true,
                    ..LogOptions::default()
                },
            )
            .unwrap();
        let pieces: Vec<_> = log.try_collect().await.unwrap();
        String::from_utf8(pieces.concat()).unwrap()
    }

    fn records(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("run")).unwrap().count()
    }

    /// The pid that the process wrote into a file.
    async fn pid_in(&self, file: &str) -> u32 {
        let path = self.dir.path().join(file);
        eventually(|| std::fs::read_to_string(&path).ok()?.trim().parse().ok()).await
    }
}

async fn eventually<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = found() {
            return value;
        }
        assert!(Instant::now() < end, "not in time");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_running(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    birth(pid).is_some() && !state.contains(") Z ")
}

#[tokio::test]
async fn a_process_gets_its_own_environment_and_its_output_and_end_are_kept() {
    let fixture = Fixture::new();
    let script =
        "echo out; echo err >&2; env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= | cut -d= -f1 | sort; cat; exit 3";
    let mut process = fixture.spawner.spawn(fixture.shell(script)).await.unwrap();
    let exit = process.wait().await;
    assert_eq!((exit.code, exit.signal), (3, None));
    let output = fixture.output().await;
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, [MARK_VARIABLE, "OWN", "PATH", "err", "out"]);
    assert_eq!(fixture.records(), 0);
}

#[tokio::test]
async fn a_signal_reaches_the_whole_group_and_what_stays_ends_with_the_leader() {
    let fixture = Fixture::new();
    // One child in the group, one that left it for a session of its own.
    let script = "sleep 300 & echo $! > member; setsid sh -c 'echo $$ > escaped; exec sleep 300' & wait";
    let mut process = fixture.spawner.spawn(fixture.shell(script)).await.unwrap();
    let (member, escaped) = (fixture.pid_in("member").await, fixture.pid_in("escaped").await);
    assert!(is_running(member) && is_running(escaped));
    assert_eq!(fixture.records(), 1);
    process.signal(Signal::TERM);
    let exit = process.wait().await;
    assert_eq!((exit.code, exit.signal), (143, Some(15)));
    assert!(!is_running(member) && !is_running(escaped));
    assert_eq!(fixture.records(), 0);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_start_that_is_given_up_leaves_nothing_behind() {
    let fixture = Fixture::new();
    for patience in 1.. {
        let mut start = Box::pin(fixture.spawner.spawn(fixture.shell("exec sleep 300")));
        let mut looks = 0;
        let started = poll_fn(|context| {
            looks += 1;
            match start.as_mut().poll(context) {
                Poll::Ready(started) => Poll::Ready(Some(started)),
                Poll::Pending if looks == patience => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        drop(start);
        let ended = started.map(|process| process.unwrap().signal(Signal::KILL));
        fixture.spawner.finished().await;
        let left = std::fs::read_dir(fixture.dir.path().join("run")).unwrap();
        assert_eq!(left.count(), 0, "given up at look {patience}");
        if ended.is_some() {
            break;
        }
    }
}

#[tokio::test]
async fn a_disk_that_is_full_costs_the_log_and_nothing_else() {
    let fixture = Fixture::new();
    let folder = fixture.dir.path().join("logs").join("ns_pod_uid").join("main");
    std::fs::create_dir_all(&folder).unwrap();
    // Whatever is written there fails as on a full disk.
    std::os::unix::fs::symlink("/dev/full", folder.join("0.log")).unwrap();
    let script = "for i in 1 2 3; do echo line $i; sleep 0.05; done; exit 5";
    let mut process = fixture.spawner.spawn(fixture.shell(script)).await.unwrap();
    assert_eq!(process.wait().await.code, 5);
    assert_eq!(fixture.records(), 0);
}

#[tokio::test]
async fn a_program_that_cannot_be_started_says_so_in_its_log() {
    let fixture = Fixture::new();
    let spec = ProcessSpec {
        program: PathBuf::from("/no/such/program"),
        ..fixture.shell("")
    };
    let exit = fixture.spawner.spawn(spec).await.unwrap().wait().await;
    assert_eq!(exit.code, 127);
    assert!(fixture.output().await.contains("cannot execute /no/such/program"));
    let spec = ProcessSpec {
        working_dir: PathBuf::from("/no/such/folder"),
        ..fixture.shell("")
    };
    let error = fixture.spawner.spawn(spec).await.unwrap_err().to_string();
    assert!(error.contains("/no/such/folder"), "{error}");
}

/// A process with a child, started as a node does but with nobody to watch it.
fn abandoned(dir: &Path, mark: &str) -> std::process::Child {
    Command::new("/bin/sh")
        .args(["-c", "sleep 300 & echo $! > child; wait"])
        .current_dir(dir)
        .env(MARK_VARIABLE, mark)
        .process_group(0)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn what_an_earlier_node_left_is_ended_even_without_its_leader() {
    let fixture = Fixture::new();
    let records = fixture.dir.path().join("run");
    for leader_lives in [true, false] {
        let mark = format!("mark-{}-{leader_lives}", std::process::id());
        let mut leader = abandoned(fixture.dir.path(), &mark);
        Record::of(leader.id(), &mark).unwrap().write(&records).unwrap();
        let child = fixture.pid_in("child").await;
        std::fs::remove_file(fixture.dir.path().join("child")).unwrap();
        if !leader_lives {
            leader.kill().unwrap();
            leader.wait().unwrap();
        }
        assert!(is_running(child));
        let reaping = records.clone();
        let killed = tokio::task::spawn_blocking(move || reap(&reaping))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(killed, if leader_lives { 2 } else { 1 });
        assert!(!is_running(child));
        assert_eq!(fixture.records(), 0);
        assert_eq!(leader.wait().unwrap().signal(), Some(9));
    }
}

#[tokio::test]
async fn a_stranger_with_a_recorded_pid_is_left_alone() {
    let fixture = Fixture::new();
    let records = fixture.dir.path().join("run");
    let mut stranger = Command::new("sleep").arg("300").process_group(0).spawn().unwrap();
    let pid = stranger.id();
    // The same pid, of a process that was born at another time.
    let record = format!(r#"{{"pid":{pid},"born":"another-boot 1","mark":"not-its-mark"}}"#);
    std::fs::write(records.join("old.json"), record).unwrap();
    std::fs::write(records.join("damaged.json"), "{").unwrap();
    let reaping = records.clone();
    assert_eq!(
        tokio::task::spawn_blocking(move || reap(&reaping))
            .await
            .unwrap()
            .unwrap(),
        0
    );
    assert!(is_running(pid));
    assert_eq!(fixture.records(), 0);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_dies_with_the_thread_that_started_it() {
    let spawned = std::thread::spawn(|| {
        let launcher = launcher();
        let mut child = Command::new(launcher.program)
            .arg(std::process::id().to_string())
            .args(["/bin/sh", "-c", "echo up; exec sleep 300"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&[1]).unwrap();
        let mut line = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        assert_eq!(line, "up\n");
        child
    });
    let mut child = spawned.join().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
}

#[test]
fn a_launcher_runs_nothing_for_a_parent_that_is_gone_or_gave_it_up() {
    let run = |parent: u32, go: &[u8]| {
        let mut child = Command::new(launcher().program)
            .arg(parent.to_string())
            .args(["/bin/sh", "-c", "echo ran"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A launcher that has ended takes no byte.
        let _ = child.stdin.take().unwrap().write_all(go);
        let output = child.wait_with_output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let own = std::process::id();
    assert_eq!(run(own, &[1]), (Some(0), "ran\n".to_owned(), String::new()));
    let (code, out, message) = run(own, &[]);
    assert!(
        code == Some(126) && out.is_empty() && message.contains("gave this process up"),
        "{message}"
    );
    let (code, out, message) = run(own + 1, &[1]);
    assert!(
        code == Some(126) && out.is_empty() && message.contains("is gone"),
        "{message}"
    );
}
