use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;

use super::{LogFile, LogOptions, LogStream, Logs, Stream, write::Lines};

const POD: (&str, &str, &str) = ("ns", "pod", "uid");

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn write(log: &LogFile, text: &str, second: i64) {
    log.append(&Lines::default().push(text.as_bytes(), Stream::Stdout, at(second)))
        .unwrap();
}

async fn all(log: LogStream) -> String {
    let pieces: Vec<_> = log.try_collect().await.unwrap();
    String::from_utf8(pieces.concat()).unwrap()
}

fn fixture() -> (tempfile::TempDir, Logs) {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::new(dir.path().to_owned());
    (dir, logs)
}

#[tokio::test]
async fn parts_of_a_log_are_chosen() {
    let (_dir, logs) = fixture();
    let log = logs.create(POD, "c", 0).unwrap();
    write(&log, "one\n", 1);
    write(&log, "two\n", 2);
    write(&log, "three\n", 3);
    let read = |options| logs.read(POD, "c", None, options).unwrap();
    let none = LogOptions::default;
    assert_eq!(all(read(none())).await, "one\ntwo\nthree\n");
    assert_eq!(
        all(read(LogOptions {
            tail_lines: Some(2),
            ..none()
        }))
        .await,
        "two\nthree\n"
    );
    assert_eq!(
        all(read(LogOptions {
            tail_lines: Some(0),
            ..none()
        }))
        .await,
        ""
    );
    assert_eq!(
        all(read(LogOptions {
            since: Some(at(3)),
            ..none()
        }))
        .await,
        "three\n"
    );
    assert_eq!(
        all(read(LogOptions {
            limit_bytes: Some(6),
            ..none()
        }))
        .await,
        "one\ntw"
    );
    let stamped = all(read(LogOptions {
        timestamps: true,
        tail_lines: Some(1),
        ..none()
    }))
    .await;
    assert_eq!(stamped, "1970-01-01T00:00:03.000000000Z three\n");
    let never_ran = logs.read(POD, "other", None, none()).unwrap();
    assert_eq!(all(never_ran).await, "");
}

#[tokio::test]
async fn following_goes_on_until_the_container_ends() {
    let (_dir, logs) = fixture();
    let log = logs.create(POD, "c", 0).unwrap();
    write(&log, "before\n", 1);
    let mut stream = logs
        .read(
            POD,
            "c",
            None,
            LogOptions {
                follow: true,
                ..LogOptions::default()
            },
        )
        .unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap(), "before\n");
    write(&log, "after\n", 2);
    assert_eq!(stream.next().await.unwrap().unwrap(), "after\n");
    write(&log, "last\n", 3);
    drop(log);
    assert_eq!(stream.next().await.unwrap().unwrap(), "last\n");
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_large_log_keeps_one_older_part_and_followers_miss_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::new(dir.path().to_owned());
    drop(logs.create(POD, "c", 0).unwrap());
    let path = dir.path().join("ns_pod_uid/c/0.log");
    let (log, progress) = LogFile::open(path.clone(), 200).unwrap();
    logs.open.lock().unwrap().insert(path, progress);
    let mut stream = logs
        .read(
            POD,
            "c",
            None,
            LogOptions {
                follow: true,
                ..LogOptions::default()
            },
        )
        .unwrap();
    let mut expected = Vec::new();
    for number in 0..20 {
        write(&log, &format!("line {number}\n"), number);
        let line = stream.next().await.unwrap().unwrap();
        expected.push(String::from_utf8(line.to_vec()).unwrap());
    }
    assert_eq!(
        expected,
        (0..20)
            .map(|number| format!("line {number}\n"))
            .collect::<Vec<_>>()
    );
    let kept = all(logs.read(POD, "c", None, LogOptions::default()).unwrap()).await;
    assert!(kept.ends_with("line 18\nline 19\n"), "{kept}");
    assert!((3..=10).contains(&kept.lines().count()), "{kept}");
}

#[tokio::test]
async fn the_run_before_is_kept_and_older_ones_are_not() {
    let (dir, logs) = fixture();
    for run in 0..3 {
        let log = logs.create(POD, "c", run).unwrap();
        write(&log, &format!("run {run}\n"), 0);
    }
    let read = |run| logs.read(POD, "c", run, LogOptions::default());
    assert_eq!(all(read(None).unwrap()).await, "run 2\n");
    assert_eq!(all(read(Some(1)).unwrap()).await, "run 1\n");
    assert_eq!(read(Some(0)).err().unwrap().status(), 400);
    assert!(!dir.path().join("ns_pod_uid/c/0.log").exists());
    logs.remove("ns", "pod", "uid").unwrap();
    assert!(!dir.path().join("ns_pod_uid").exists());
    logs.remove("ns", "pod", "uid").unwrap();
}
