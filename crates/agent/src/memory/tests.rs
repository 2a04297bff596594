//! Memory in paused time: what is kept, and what goes when there is too much.

use serde_json::json;

use super::*;

fn memory(sessions: usize, session_events: usize) -> Memory {
    let limits = Limits {
        sessions,
        session_events,
    };
    Memory::new(limits, &Seams::simulated(1))
}

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn says(kind: Kind, text: &str) -> Record {
    Record {
        kind,
        content: text.into(),
    }
}

fn texts(events: &[Arc<Event>]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event.content.as_str().unwrap())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_has_the_shape_that_readers_know() {
    let memory = memory(10, 10);
    let session = memory.open(None);
    tokio::time::advance(std::time::Duration::from_micros(1_500_000)).await;
    memory.record(&session, None, [says(Kind::TaskDelegationReceived, "dig")]);
    let event = serde_json::to_value(&memory.events(None, 10)[0]).unwrap();
    let event_id = event["event_id"]
        .as_str()
        .unwrap()
        .strip_prefix("event_")
        .unwrap();
    assert!(event_id.len() == 8 && event_id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(
        event,
        json!({
            "event_id": event["event_id"], "timestamp": "2026-01-01T00:00:01.500000+00:00",
            "event_type": "task_delegation_received", "content": "dig", "metadata": {},
        })
    );
}

#[tokio::test(start_paused = true)]
async fn events_come_in_order_and_the_last_are_kept() {
    let memory = memory(10, 3);
    let (a, b) = (memory.open(Some(id("a"))), memory.open(Some(id("b"))));
    for text in ["1", "2", "3", "4"] {
        memory.record(&a, None, [says(Kind::UserMessage, text)]);
    }
    memory.record(&b, None, [says(Kind::UserMessage, "5")]);
    memory.record(&a, None, [says(Kind::AgentResponse, "6")]);
    assert_eq!(texts(&memory.events(None, 10)), ["3", "4", "5", "6"]);
    assert_eq!(texts(&memory.events(None, 2)), ["5", "6"]);
    assert_eq!(texts(&memory.events(Some("a"), 10)), ["3", "4", "6"]);
    assert_eq!(memory.events(Some("c"), 10), []);
    assert_eq!(memory.session_ids(), ["b", "a"]);
}

#[tokio::test]
async fn a_conversation_is_what_was_said() {
    let memory = memory(10, 10);
    let session = memory.open(Some(id("a")));
    let tool = Record {
        kind: Kind::ToolCall,
        content: json!({}),
    };
    let records = [
        says(Kind::UserMessage, "1"),
        tool,
        says(Kind::AgentResponse, "2"),
        says(Kind::TaskDelegationReceived, "3"),
        says(Kind::Error, "4"),
    ];
    memory.record(&session, None, records);
    let all = [Message::user("1"), Message::assistant("2"), Message::user("3")];
    assert_eq!(memory.conversation(&session, 6), all);
    assert_eq!(memory.conversation(&session, 2), all[1..]);
    assert_eq!(memory.conversation(&id("b"), 6), []);
}

#[tokio::test]
async fn a_tenth_of_the_sessions_goes_when_there_are_too_many() {
    let memory = memory(20, 10);
    for number in 0..20 {
        memory.open(Some(id(&number.to_string())));
    }
    memory.record(&id("0"), None, [says(Kind::UserMessage, "still here")]);
    memory.open(Some(id("new")));
    let ids = memory.session_ids();
    assert_eq!(
        (ids.len(), ids[0].as_str()),
        (19, "3"),
        "1 and 2 were used longest ago"
    );
    assert_eq!(ids[17..], ["0", "new"]);
    memory.record(
        &id("1"),
        None,
        [says(Kind::UserMessage, "of a session that went")],
    );
    assert_eq!(texts(&memory.events(None, 10)), ["still here"]);
}

#[tokio::test]
async fn a_single_session_is_dropped_for_the_next() {
    let memory = memory(1, 1);
    memory.open(Some(id("a")));
    memory.open(Some(id("a")));
    memory.open(Some(id("b")));
    assert_eq!(memory.session_ids(), ["b"]);
}

#[tokio::test]
async fn bytes_are_bounded_at_the_expense_of_old_sessions_first() {
    let mut memory = memory(100, 100);
    let event = 100 + 2 + EVENT_OVERHEAD;
    memory.bytes_limit = 4 * event;
    let text = "x".repeat(100);
    for session in ["a", "b", "c"] {
        let session = memory.open(Some(id(session)));
        memory.record(
            &session,
            None,
            [says(Kind::UserMessage, &text), says(Kind::AgentResponse, &text)],
        );
    }
    assert_eq!(memory.session_ids(), ["b", "c"]);
    assert_eq!(memory.sessions().bytes, 4 * event);
    for _ in 0..10 {
        memory.record(&id("c"), None, [says(Kind::UserMessage, &text)]);
    }
    assert_eq!(memory.session_ids(), ["c"]);
    assert_eq!(
        (memory.events(None, 100).len(), memory.sessions().bytes),
        (4, 4 * event)
    );
}
