//! The conversation that a run starts with: who the agent is, then what it was asked.

use kaos_openai::{Message, Role};

use super::Delegate;

/// Who the agent is, as it is told to the model.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The agent's name.
    pub name: &'a str,
    /// What others are told about it; empty: nothing.
    pub description: &'a str,
    /// How it is to act.
    pub instructions: &'a str,
    /// The agents it may hand tasks to.
    pub delegates: &'a [Delegate],
}

/// The role of the message by which another agent hands on a task.
pub const TASK_DELEGATION: &str = "task-delegation";

/// Whether any of the messages of a request asks something.
pub fn is_asked(messages: &[Message]) -> bool {
    messages.iter().any(asks)
}

fn asks(message: &Message) -> bool {
    match &message.role {
        Role::User => true,
        Role::Other(role) => role == TASK_DELEGATION,
        Role::System | Role::Developer | Role::Assistant | Role::Tool => false,
    }
}

/// The messages of a request as the model gets them.
///
/// The system messages become part of the agent's own, the first: many models take a single one, at the start.
/// Tasks delegated by other agents come as messages of a user, because models know no such role. Before them
/// comes what is `remembered` of the session, unless the request tells the conversation itself: an answer of
/// the assistant is among its messages.
pub fn conversation(
    identity: Identity<'_>,
    remembered: Vec<Message>,
    messages: Vec<Message>,
) -> Vec<Message> {
    let (given, mut rest): (Vec<_>, Vec<_>) = messages
        .into_iter()
        .partition(|message| matches!(message.role, Role::System | Role::Developer));
    for message in &mut rest {
        if asks(message) {
            message.role = Role::User;
        }
    }
    let given: Vec<String> = given.iter().map(Message::text).collect();
    let mut conversation = vec![Message::system(system_prompt(identity, &given))];
    if rest.iter().all(|message| message.role != Role::Assistant) {
        conversation.extend(remembered);
    }
    conversation.append(&mut rest);
    conversation
}

fn system_prompt(identity: Identity<'_>, given: &[String]) -> String {
    let Identity {
        name,
        description,
        instructions,
        delegates,
    } = identity;
    let mut paragraphs = vec![match description {
        "" => format!("You are the agent {name:?}."),
        _ => format!("You are the agent {name:?}: {description}"),
    }];
    paragraphs.push(instructions.to_owned());
    let unavailable: Vec<String> = delegates
        .iter()
        .filter_map(|delegate| Some(format!("- {:?}: {}", delegate.agent, delegate.unavailable()?)))
        .collect();
    if !unavailable.is_empty() {
        paragraphs.push(format!(
            "These agents are unavailable, so do not count on them:\n{}",
            unavailable.join("\n")
        ));
    }
    let given: Vec<&str> = given
        .iter()
        .map(|text| text.trim())
        .filter(|text| !text.is_empty())
        .collect();
    if !given.is_empty() {
        paragraphs.push(
            "Whoever asks you adds the following. Where it contradicts what is said above, the above holds."
                .to_owned(),
        );
        paragraphs.extend(given.into_iter().map(str::to_owned));
    }
    paragraphs.retain(|paragraph| !paragraph.trim().is_empty());
    paragraphs.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity<'_> = Identity {
        name: "ann",
        description: "adds",
        instructions: "Be exact.",
        delegates: &[],
    };

    #[test]
    fn the_agent_speaks_first_and_system_messages_join_it() {
        let messages = vec![
            Message::user("one"),
            Message::system(" be short "),
            Message::assistant("1"),
            Message::new(Role::Developer, ""),
            Message::new(Role::Other("task-delegation".to_owned()), "two"),
        ];
        let conversation = conversation(IDENTITY, Vec::new(), messages);
        let [system, rest @ ..] = conversation.as_slice() else {
            panic!("empty")
        };
        assert_eq!(
            system.text(),
            "You are the agent \"ann\": adds\n\nBe exact.\n\nWhoever asks you adds the following. Where it \
             contradicts what is said above, the above holds.\n\nbe short"
        );
        assert_eq!(
            rest,
            [
                Message::user("one"),
                Message::assistant("1"),
                Message::user("two")
            ]
        );
    }

    #[test]
    fn what_is_empty_is_left_out() {
        let identity = Identity {
            description: "",
            instructions: " ",
            ..IDENTITY
        };
        let conversation = conversation(identity, Vec::new(), vec![Message::user("x")]);
        assert_eq!(conversation[0].text(), "You are the agent \"ann\".");
    }

    #[test]
    fn a_request_has_to_ask() {
        assert!(!is_asked(&[Message::system("x"), Message::assistant("y")]));
        assert!(!is_asked(&[]));
        let delegated = Message::new(Role::Other("task-delegation".to_owned()), "x");
        assert!(is_asked(&[delegated]) && is_asked(&[Message::user("x"), Message::assistant("y")]));
    }

    #[test]
    fn what_is_remembered_comes_first_unless_the_request_tells_it() {
        let remembered = || vec![Message::user("a"), Message::assistant("b")];
        let asked = |messages| conversation(IDENTITY, remembered(), messages)[1..].to_vec();
        assert_eq!(
            asked(vec![Message::user("c")]),
            [remembered(), vec![Message::user("c")]].concat()
        );
        let told = vec![Message::user("x"), Message::assistant("y"), Message::user("z")];
        assert_eq!(asked(told.clone()), told);
    }

    #[test]
    fn agents_that_are_unavailable_are_named() {
        let delegate = |agent: &str, missing: Option<&str>, barred: Option<&str>| Delegate {
            agent: agent.to_owned(),
            tool: format!("delegate_to_{agent}"),
            description: String::new(),
            missing: missing.map(str::to_owned),
            barred: barred.map(str::to_owned),
        };
        let delegates = [
            delegate("bob", None, None),
            delegate("eve", Some("connection refused"), None),
            delegate("zoe", None, Some("it waits")),
        ];
        let identity = Identity {
            delegates: &delegates,
            ..IDENTITY
        };
        let conversation = conversation(identity, Vec::new(), vec![Message::user("x")]);
        assert_eq!(
            conversation[0].text(),
            "You are the agent \"ann\": adds\n\nBe exact.\n\nThese agents are unavailable, so do not count on \
             them:\n- \"eve\": connection refused\n- \"zoe\": it waits"
        );
    }
}
