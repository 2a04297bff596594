//! The addresses of a pod's other containers: on a cluster they share the pod's loopback, so a container names
//! them as `localhost:PORT`. Here each port has another number, and that stands in its place.
//!
//! A container's own ports are left alone: what it calls `localhost` with its own number may as well be a
//! program of this machine.

use crate::ports::PodPorts;

/// `text` with `localhost:PORT` and `127.0.0.1:PORT` replaced where another container of the pod has the port.
pub(crate) fn rewrite(text: &str, own: &str, ports: &PodPorts) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut before = None;
    while let Some(at) = rest.find([':']) {
        let (head, tail) = rest.split_at(at);
        let digits = tail[1..].bytes().take_while(u8::is_ascii_digit).count();
        let given = tail[1..=digits].parse().ok().and_then(|port: u16| {
            let mut others = ports.iter().filter(|((container, _), _)| container != own);
            others
                .find(|((_, declared), _)| *declared == port)
                .map(|(_, given)| *given)
        });
        let host = ["localhost", "127.0.0.1"]
            .into_iter()
            .find_map(|host| head.strip_suffix(host));
        let ends = !tail[1 + digits..].starts_with(is_name);
        match (host, given) {
            (Some(start), Some(given))
                if ends
                    && start
                        .chars()
                        .next_back()
                        .or(before)
                        .is_none_or(|before| !is_name(before)) =>
            {
                out.push_str(&format!("{start}127.0.0.1:{given}"));
            }
            _ => out.push_str(&rest[..=at + digits]),
        }
        rest = &tail[1 + digits..];
        before = Some(':');
    }
    out.push_str(rest);
    out
}

fn is_name(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '.' | '-' | '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_ports_of_other_containers_are_rewritten() {
        let ports: PodPorts = [
            (("main".to_owned(), 8000), 40_000),
            (("side".to_owned(), 11_434), 40_001),
        ]
        .into();
        for (text, expected) in [
            ("http://localhost:11434", "http://127.0.0.1:40001"),
            ("http://127.0.0.1:11434/x", "http://127.0.0.1:40001/x"),
            (
                "localhost:11434,localhost:11434.",
                "127.0.0.1:40001,localhost:11434.",
            ),
            ("a=localhost:8000", "a=localhost:8000"),
            ("localhost:9", "localhost:9"),
            ("mylocalhost:11434", "mylocalhost:11434"),
            ("a.localhost:11434", "a.localhost:11434"),
            ("localhost:114345", "localhost:114345"),
            ("é:localhost:11434:é", "é:127.0.0.1:40001:é"),
            ("host:11434 localhost", "host:11434 localhost"),
            (":", ":"),
            ("", ""),
        ] {
            assert_eq!(rewrite(text, "main", &ports), expected, "{text}");
        }
    }
}
